//! Places workers on nodes, and computes what being spread costs.
//!
//! [`scheduler::scheduling`] places: workers stay where they are, and are moved only where that is worth its price.
//! Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};

use model::id::Text;
use scheduler::placement::{Node, Packing, PlacementError, Prices};
use scheduler::scheduling;
use scheduler::{GpuType, Grant, Speed};

use crate::input::Cluster;

/// Nodes, and the jobs on them.
#[derive(Debug)]
pub(super) struct PlacedJobs {
    workers: scheduling::PlacedWorkers,
    per_node: BTreeMap<GpuType, u32>,
    loss_milli: u32,
}

impl PlacedJobs {
    /// Returns nodes without jobs. A pool without nodes is one large node.
    pub(super) fn new(cluster: &Cluster, loss_milli: u32) -> Self {
        let mut nodes = Vec::new();
        let mut per_node = BTreeMap::new();
        for (pool, i) in cluster.pools.iter().zip(0..) {
            let (gpu_type, slots) = (GpuType(i), pool.per_node.unwrap_or(pool.gpus));
            per_node.insert(gpu_type, slots);
            for n in 0..pool.gpus / slots {
                nodes.push(Node { gpu_type, ..Node::new(format!("{i}-{n:05}"), slots) });
            }
        }
        let prices = Prices { across: [loss_milli; 3], ..Prices::default() };
        Self { workers: scheduling::PlacedWorkers::new(nodes, Packing::Pack, prices), per_node, loss_milli }
    }

    /// Places jobs with what they hold; returns those that had workers moved.
    pub(super) fn place<'j>(
        &mut self,
        jobs: impl Iterator<Item = (&'j Text, Grant)>,
    ) -> Result<BTreeSet<Text>, PlacementError> {
        self.workers.place(jobs)
    }

    /// Returns the speed of a job as it is placed, from its speed when packed.
    pub(super) fn slowed(&self, job: &Text, grant: Grant, packed: Speed) -> Speed {
        let fewest = self.per_node.get(&grant.gpu_type).map_or(1, |&slots| grant.gpus.div_ceil(slots.max(1)));
        let extra = u32::try_from(self.workers.span(job)).unwrap_or(u32::MAX).saturating_sub(fewest);
        let kept = u64::from(1000_u32.saturating_sub(self.loss_milli));
        (0..extra.min(64)).fold(packed, |speed, _| Speed(speed.0 / 1000 * kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(gpus: u32) -> Grant {
        Grant::of(GpuType(0), gpus)
    }

    #[test]
    fn a_job_that_had_to_be_spread_is_slower() {
        let mut placed_jobs = PlacedJobs::new(&Cluster::parse("3x4").unwrap(), 100);
        let names: Vec<Text> = ["a", "b", "c", "d"].map(Text::from).into();
        let place = |placed_jobs: &mut PlacedJobs, sizes: [u32; 4]| {
            placed_jobs.place(names.iter().zip(sizes.map(grant))).unwrap().into_iter().collect::<Vec<_>>()
        };
        assert!(place(&mut placed_jobs, [3, 3, 3, 0]).is_empty());
        assert!(place(&mut placed_jobs, [3, 3, 3, 3]).is_empty(), "nothing is worth moving");
        let slowed =
            |placed_jobs: &PlacedJobs, job: usize, gpus| placed_jobs.slowed(&names[job], grant(gpus), Speed::ONE).0;
        assert_eq!((slowed(&placed_jobs, 0, 3), slowed(&placed_jobs, 3, 3)), (1_000_000_000, 810_000_000));
        // Once there is room it is drawn together.
        assert_eq!(place(&mut placed_jobs, [0, 3, 3, 3]), [names[3].clone()]);
        assert_eq!(slowed(&placed_jobs, 3, 3), 1_000_000_000);
    }
}
