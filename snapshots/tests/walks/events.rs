//! Events of a walk that any job can meet: pods run and end, nodes and watches come and go, calls fail, the operator dies.
//!
//! It must not know any API. Verbs on pods that do not allow them are no events.

use cluster::{CatchUp, FailRule, FailVerb, NodeState};
use model::Kind;
use proptest::test_runner::TestRng;
use simulator::crash::{Crash, LogAfterCrash};
use simulator::scenario::Boundary;
use simulator::simulation::Simulation;

use super::{below, core};

/// Makes event number `what` happen. Returns it in words, and the milliseconds that are to pass.
pub(super) fn happen(
    rng: &mut TestRng,
    simulation: &mut Simulation,
    what: usize,
    pod: &str,
    node: &str,
) -> (String, Option<u64>) {
    let cluster = &mut simulation.backend.cluster;
    let mut description = format!("{what} {pod} {node}");
    match what {
        0..=3 => drop(cluster.run_all()),
        4..=5 => drop(cluster.run("default", pod)),
        6 => drop(cluster.schedule("default", pod, node)),
        7..=8 => drop(cluster.exit("default", pod, 0, None)),
        9 => drop(cluster.exit("default", pod, 1, None)),
        10 => drop(cluster.exit("default", pod, 137, None)),
        11 => drop(cluster.evict("default", pod)),
        12 => drop(cluster.wait("default", pod, "ErrImagePull", Some(120_000))),
        13..=15 => cluster.gone_all(),
        16 => cluster.gone("default", pod),
        17 => drop(cluster.node(node, NodeState::Unknown)),
        18..=19 => drop(cluster.node(node, NodeState::Ready)),
        20 => drop(cluster.delete_as_user(&core("Pod"), "default", pod, None)),
        21 => drop(cluster.delete_as_user(&core("Service"), "default", pod, None)),
        24..=25 => {
            let verb = [FailVerb::Create, FailVerb::Delete, FailVerb::Patch, FailVerb::Get][below(rng, 4)];
            let code = [500, 504, 429, 0, 409][below(rng, 5)];
            let applied = below(rng, 2) == 0 && code != 429 && code != 409;
            let times = 1 + u32::try_from(below(rng, 3)).unwrap();
            description = format!("next {times} {verb:?} fail with {code}, applied {applied}");
            let code = if code == 409 { 500 } else { code };
            drop(cluster.fail(FailRule { verb, kind: None, times, code, applied }));
        }
        26 => cluster.hold(Kind::Pod),
        27 => cluster.release(Kind::Pod, CatchUp::InOrder),
        28 => cluster.relist([Kind::Pod, Kind::Job, Kind::Service][below(rng, 3)]),
        29..=31 => {
            let log_after = match below(rng, 5) {
                0 => LogAfterCrash::NoLog,
                1 => LogAfterCrash::OldLog(1 + u64::try_from(below(rng, 20)).unwrap()),
                2 => LogAfterCrash::OtherReplica,
                _ => LogAfterCrash::SameLog,
            };
            let boundary = if below(rng, 2) == 0 { Boundary::Append } else { Boundary::Call };
            let after = below(rng, 2) == 0;
            let nth = 1 + u32::try_from(below(rng, 4)).unwrap();
            description = format!("crash {boundary:?} {nth} after {after}, {log_after:?}");
            // A held watch would keep the next process waiting for its first list.
            cluster.release(Kind::Pod, CatchUp::InOrder);
            simulation.crash_plan().lock().add(Crash { boundary, after, nth, log_after, anywhere: false });
        }
        _ => {
            let ms = 1000 * u64::try_from(1 + below(rng, 90)).unwrap();
            return (format!("advance {ms}"), Some(ms));
        }
    }
    (description, None)
}
