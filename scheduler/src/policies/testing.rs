//! Short ways to state jobs and ask a policy, for the unit tests of this folder.

use crate::job::{Curve, JobView, Speeds};
use crate::memory::Memory;
use crate::policy::{Policy, PolicyInput, allocate};
use crate::units::{GpuType, Micros, Speed};

/// A rigid job of `num` GPUs submitted at `secs`.
pub(super) fn job(id: &str, secs: u64, num: u32) -> JobView {
    JobView::waiting(id, num, num, num, Micros::from_secs(secs))
}

/// An elastic job, with work in seconds on one GPU and speeds in thousandths from size 1 on.
pub(super) fn elastic(id: &str, secs: u64, sizes: (u32, u32, u32), work: u64, milli: &[u64]) -> JobView {
    let (min, num, max) = sizes;
    let curve = Curve::new(std::iter::once(Speed::ZERO).chain(milli.iter().copied().map(Speed::from_milli)));
    JobView {
        remaining: Some(Micros::from_secs(work)),
        speeds: Speeds::single(curve),
        ..JobView::waiting(id, min, num, max, Micros::from_secs(secs))
    }
}

/// GPUs by job, in the order given, on one pool of type 0.
pub(super) fn shares(policy: &dyn Policy, gpus: u32, jobs: &[JobView]) -> Vec<u32> {
    let input = PolicyInput { now: Micros::from_secs(1000), capacity: &[(GpuType(0), gpus)], jobs };
    let allocation = allocate(policy, input, &mut Memory::default()).unwrap();
    assert_eq!(allocation.refused, []);
    allocation.grants.iter().map(|g| g.gpus).collect()
}
