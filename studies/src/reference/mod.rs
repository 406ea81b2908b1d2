//! Rules of other simulators that are wanted only to compare with what they published, not to schedule by.
//!
//! They stand here, not in `scheduler`, because they keep oddities on purpose: a check made late, an order that depends on
//! how a list was kept. Facts are taken from the published sources named in each file; no code is. Tests: at the end of
//! each file, and `tests/published.rs` against published results.

mod dlas;
mod las;
mod pollux;
mod shrink;

pub use dlas::Dlas;
pub use las::Las;
pub use pollux::PolluxTiresias;
pub use shrink::{Shrink, ShrinkOrder};

use scheduler::policies::las::{ElasticTiresias, Queues, Tiresias};
use scheduler::{GpuMicros, Grant, Policy, Round};

/// Gives each job of `order` (places in the round) the size it asks for if that is still free; the others nothing. Calls
/// `report` with every place, whether it got something, in order.
fn give_in_order(round: &Round<'_>, order: &[usize], mut report: impl FnMut(usize, bool)) -> Vec<Grant> {
    let mut free: Vec<_> = round.pools.clone();
    let mut grants = vec![Grant::NONE; round.jobs.len()];
    for &place in order {
        let job = round.jobs[place];
        let home = job.speeds.home().map(|(gpu_type, _)| *gpu_type);
        let pool = free.iter_mut().find(|(gpu_type, gpus)| Some(*gpu_type) == home && *gpus >= job.num);
        report(place, pool.is_some());
        if let Some((gpu_type, gpus)) = pool {
            *gpus -= job.num;
            grants[place] = Grant::of(*gpu_type, job.num);
        }
    }
    grants
}

/// The policy of that name, if it is one of those that stand here.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    let hours =
        |text: &str| text.strip_suffix('h').and_then(|h| h.parse::<u64>().ok()).filter(|&h| h > 0 && h < 100_000);
    Some(match name {
        "fifo-shrink" => Box::new(Shrink { order: ShrinkOrder::Submitted }),
        "srsf-shrink" => Box::new(Shrink { order: ShrinkOrder::Srsf }),
        "tiresias-pollux" | "tiresias" => Box::new(PolluxTiresias::default()),
        "voda-tiresias" => Box::new(Tiresias { queues: ported(Some(8)) }),
        "voda-tiresias-nopromote" => Box::new(Tiresias { queues: ported(None) }),
        "voda-elastic-tiresias" => Box::new(ElasticTiresias { queues: ported(Some(8)), compaction: 10 }),
        "voda-elastic-tiresias-nopromote" => Box::new(ElasticTiresias { queues: ported(None), compaction: 10 }),
        "tiresias-sim:dlas" => Box::new(Dlas { by_service: false, ..Dlas::default() }),
        "tiresias-sim:dlas-gpu" => Box::new(Dlas::default()),
        "tiresias-sim:dlas-gpu-1" => Box::new(Dlas { knob: Some(1), ..Dlas::default() }),
        _ => Box::new(Las::of_gpu_hours(hours(name.strip_prefix("tiresias-las-")?)?)),
    })
}

/// Voda's queues as its port to the AFS simulator has them: a job falls at 3,600 GPU-seconds, not only beyond.
fn ported(promote_knob: Option<u32>) -> Queues {
    Queues { limits: vec![GpuMicros(GpuMicros::from_gpu_secs(3600).0 - 1)], promote_knob }
}

/// Names that [`by_name`] knows; `tiresias-las-50h` stands for any number of GPU-hours. `tiresias`, as published results name
/// it, is an alias of `tiresias-pollux`.
pub const NAMES: &[&str] = &[
    "fifo-shrink",
    "srsf-shrink",
    "tiresias-pollux",
    "tiresias-las-50h",
    "tiresias-sim:dlas",
    "tiresias-sim:dlas-gpu",
    "tiresias-sim:dlas-gpu-1",
    "voda-tiresias",
    "voda-tiresias-nopromote",
    "voda-elastic-tiresias",
    "voda-elastic-tiresias-nopromote",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known() {
        assert!(NAMES.iter().all(|name| by_name(name).is_some()));
        for name in ["tiresias-las-0h", "tiresias-las-h", "tiresias-las-5", "tiresias-las--1h", "fifo"] {
            assert!(by_name(name).is_none(), "{name}");
        }
    }
}
