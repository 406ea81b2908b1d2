//! Tests of the life of a pod: scripts of what happens, with the actions and statuses that follow.

mod stops;

use serde_json::Value;

use super::*;
use crate::options::BackOff;
use crate::status;
use crate::wire::RestartPolicy;

const START_MS: u64 = 1_700_000_000_000;

fn container(name: &str) -> Container {
    Container { name: name.to_owned(), image: "img".to_owned(), ..Container::default() }
}

fn sidecar(name: &str) -> Container {
    Container { sidecar: true, ..container(name) }
}

/// A pod and its clock.
struct Run {
    pod: Lifecycle,
    at_ms: u64,
}

impl Run {
    fn new(policy: RestartPolicy, init: Vec<Container>, main: Vec<Container>) -> Self {
        let plan = Plan {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            restart_policy: policy,
            active_deadline_ms: None,
            grace_ms: 30_000,
            pod_ip: "127.77.0.1".to_owned(),
            host_ip: "127.0.0.1".to_owned(),
            conditions: Vec::new(),
            back_off: BackOff::default(),
            init,
            main,
        };
        Self { pod: Lifecycle::new(plan, Timestamp(START_MS)), at_ms: 0 }
    }

    fn now(&self) -> Timestamp {
        Timestamp(START_MS + self.at_ms)
    }

    /// Actions in short: `+0` starts container 0, `-0` asks it to end, `!0` kills it.
    fn step(&mut self, input: Input) -> String {
        let now = self.now();
        let actions: Vec<String> = self
            .pod
            .step(input, now)
            .into_iter()
            .map(|action| match action {
                Action::Start { slot, restart: 0 } => format!("+{slot}"),
                Action::Start { slot, restart } => format!("+{slot}({restart})"),
                Action::Term { slot } => format!("-{slot}"),
                Action::Kill { slot } => format!("!{slot}"),
            })
            .collect();
        actions.join(" ")
    }

    fn running(&mut self, slot: ContainerIndex) -> String {
        self.step(Input::Running { slot, pid: 1 })
    }

    fn exited(&mut self, slot: ContainerIndex, code: i32) -> String {
        self.step(Input::Exited { slot, code, message: String::new(), at: Timestamp(u64::MAX) })
    }

    fn after(&mut self, ms: u64) -> String {
        self.at_ms += ms;
        self.step(Input::Tick)
    }

    fn wake_in_ms(&self) -> Option<u64> {
        self.pod.next_wake().map(|at| at.since_ms(self.now()))
    }

    fn status(&self) -> Value {
        status::of_pod(&self.pod)
    }

    fn phase(&self) -> String {
        self.status()["phase"].as_str().unwrap().to_owned()
    }
}

#[test]
fn init_containers_one_by_one_then_all_others() {
    let mut run =
        Run::new(RestartPolicy::Never, vec![container("i0"), container("i1")], vec![container("a"), container("b")]);
    assert_eq!(run.step(Input::Tick), "+0");
    assert_eq!(run.status()["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(run.running(0), "");
    assert_eq!(run.exited(0, 0), "+1");
    assert_eq!(run.running(1), "");
    assert_eq!(run.exited(1, 0), "+2 +3");
    assert_eq!(run.phase(), "Pending");
    run.running(2);
    assert_eq!(run.phase(), "Pending");
    run.running(3);
    let status = run.status();
    assert_eq!(status["phase"], "Running");
    let condition = |status: &Value, kind: &str| {
        let all = status["conditions"].as_array().unwrap();
        all.iter().find(|condition| condition["type"] == kind).unwrap()["status"].clone()
    };
    assert_eq!((condition(&status, "Ready"), condition(&status, "Initialized")), ("True".into(), "True".into()));
    run.exited(3, 0);
    assert_eq!((run.phase().as_str(), condition(&run.status(), "Ready")), ("Running", "False".into()));
    assert!(!run.pod.has_ended());
    run.exited(2, 0);
    assert!(run.pod.has_ended());
    assert_eq!(run.phase(), "Succeeded");
    assert_eq!(run.wake_in_ms(), None);
}

#[test]
fn a_failed_init_container_fails_the_pod_or_is_tried_again() {
    let mut run = Run::new(RestartPolicy::Never, vec![container("i")], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    assert_eq!(run.exited(0, 3), "");
    assert!(run.pod.has_ended());
    assert_eq!(run.phase(), "Failed");
    let mut run = Run::new(RestartPolicy::OnFailure, vec![container("i")], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    assert_eq!(run.exited(0, 3), "+0(1)");
    run.running(0);
    assert_eq!(run.exited(0, 0), "+1");
}

#[test]
fn restart_policy_by_exit_code() {
    for (policy, code, restarts, phase) in [
        (RestartPolicy::Never, 0, false, "Succeeded"),
        (RestartPolicy::Never, 137, false, "Failed"),
        (RestartPolicy::OnFailure, 0, false, "Succeeded"),
        (RestartPolicy::OnFailure, 1, true, "Running"),
        (RestartPolicy::Always, 0, true, "Running"),
        (RestartPolicy::Always, 1, true, "Running"),
    ] {
        let mut run = Run::new(policy, vec![], vec![container("a")]);
        run.step(Input::Tick);
        run.running(0);
        assert_eq!(run.exited(0, code), if restarts { "+0(1)" } else { "" }, "{policy:?} {code}");
        assert_eq!(run.pod.has_ended(), !restarts, "{policy:?} {code}");
        assert_eq!(run.phase(), phase, "{policy:?} {code}");
    }
}

#[test]
fn back_off_doubles_to_a_limit_and_is_forgotten() {
    let mut run = Run::new(RestartPolicy::Always, vec![], vec![container("a")]);
    run.step(Input::Tick);
    let mut waits = Vec::new();
    for _ in 0..8 {
        run.running(0);
        let at_once = run.exited(0, 1);
        let wait = run.wake_in_ms().unwrap_or(0);
        waits.push(wait / 1000);
        if wait == 0 {
            assert!(at_once.starts_with("+0"));
        } else {
            assert_eq!((at_once.as_str(), run.after(wait - 1).as_str()), ("", ""));
            assert!(run.after(1).starts_with("+0"));
        }
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    // A run of ten minutes is a fresh start.
    run.running(0);
    run.after(600_000);
    assert!(run.exited(0, 1).starts_with("+0"));
}

#[test]
fn what_a_waiting_container_shows() {
    let mut run = Run::new(RestartPolicy::OnFailure, vec![], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    run.exited(0, 7);
    run.running(0);
    run.at_ms += 2000;
    run.exited(0, 9);
    let shown = &run.status()["containerStatuses"][0];
    assert_eq!(shown["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(shown["state"]["waiting"]["message"], "back-off 10s restarting failed container=a pod=p_ns");
    let last = &shown["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&9.into(), &"Error".into()));
    assert_eq!(last["startedAt"], "2023-11-14T22:13:20.000Z");
    assert_eq!(last["finishedAt"], "2023-11-14T22:13:22.000Z");
    assert_eq!(shown["restartCount"], 2);
    assert_eq!(shown["ready"], false);
}

#[test]
fn a_program_that_is_not_there() {
    let mut run = Run::new(RestartPolicy::Never, vec![], vec![container("a")]);
    run.step(Input::Tick);
    assert_eq!(run.step(Input::NotStarted { slot: 0, message: "no such file".to_owned() }), "");
    let terminated = &run.status()["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&128.into(), &"StartError".into()));
    assert_eq!(
        (&terminated["message"], &terminated["startedAt"]),
        (&"no such file".into(), &"1970-01-01T00:00:00.000Z".into())
    );
    assert_eq!(run.phase(), "Failed");
}

#[test]
fn the_deadline_of_a_pod() {
    let mut run = Run::new(RestartPolicy::OnFailure, vec![], vec![container("a")]);
    run.pod.plan.active_deadline_ms = Some(60_000);
    run.step(Input::Tick);
    run.running(0);
    assert_eq!(run.wake_in_ms(), Some(60_000));
    assert_eq!(run.after(60_000), "-0");
    assert_eq!(run.wake_in_ms(), Some(30_000));
    run.exited(0, 0);
    assert!(run.pod.has_ended());
    assert_eq!((run.phase().as_str(), run.status()["reason"].as_str()), ("Failed", Some("DeadlineExceeded")));
}

#[test]
fn conditions_of_others_are_kept() {
    let mut run = Run::new(RestartPolicy::Never, vec![], vec![container("a")]);
    run.pod.plan.conditions = vec![
        serde_json::json!({"type": "PodScheduled", "status": "True", "x": 1}),
        serde_json::json!({"type": "Ready", "status": "stale"}),
        serde_json::json!({"type": "GpuUnhealthy", "status": "True"}),
    ];
    let status = run.status();
    let kinds: Vec<&str> =
        status["conditions"].as_array().unwrap().iter().map(|condition| condition["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["PodScheduled", "GpuUnhealthy", "Initialized", "ContainersReady", "Ready"]);
    assert_eq!(status["conditions"][0]["x"], 1);
}

#[test]
fn what_a_lost_supervisor_leaves() {
    let mut run = Run::new(RestartPolicy::Never, vec![], vec![container("a"), container("b")]);
    run.step(Input::Tick);
    run.running(0);
    run.running(1);
    run.exited(0, 0);
    let lost = status::lost(&run.status(), "gone", Timestamp(START_MS));
    assert_eq!(lost["phase"], "Failed");
    let code = |n: usize| lost["containerStatuses"][n]["state"]["terminated"]["exitCode"].clone();
    assert_eq!((code(0), code(1)), (0.into(), 137.into()));
}

/// For all inputs in any order: nothing starts twice, nothing starts after a stop, and the pod ends when its
/// containers do.
#[test]
fn random_walks_keep_the_rules() {
    for seed in 0..1000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let policy = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never]
            [usize::try_from(random(3)).unwrap()];
        let inits = [vec![], vec![container("i")], vec![sidecar("s"), container("i")]]
            [usize::try_from(random(3)).unwrap()]
        .clone();
        let mut run = Run::new(policy, inits, vec![container("a"), container("b")]);
        let (mut live, mut stopped) = (vec![None; run.pod.tracks.len()], false);
        let mut actions = run.pod.step(Input::Tick, run.now());
        for _ in 0..60 {
            for action in actions {
                if let Action::Start { slot, .. } = action {
                    assert!(live[slot].is_none() && !stopped, "seed {seed}");
                    live[slot] = Some(false);
                }
            }
            run.at_ms += random(20_000);
            let slot = usize::try_from(random(live.len() as u64)).unwrap();
            let input = match (random(12), live[slot]) {
                (0, _) if random(4) == 0 => {
                    stopped = true;
                    Input::Stop { grace_ms: random(9000) }
                }
                (1, _) => Input::Exit { code: 5 },
                (2, Some(false)) => {
                    live[slot] = None;
                    Input::NotStarted { slot, message: String::new() }
                }
                (_, Some(false)) => {
                    live[slot] = Some(true);
                    Input::Running { slot, pid: 1 }
                }
                (3..=7, Some(true)) => {
                    live[slot] = None;
                    Input::Exited {
                        slot,
                        code: i32::try_from(random(2)).unwrap(),
                        message: String::new(),
                        at: Timestamp(u64::MAX),
                    }
                }
                _ => Input::Tick,
            };
            actions = run.pod.step(input, run.now());
            let none_live = live.iter().all(Option::is_none) && actions.is_empty();
            assert!(!run.pod.has_ended() || none_live, "seed {seed}");
            if stopped && none_live {
                assert!(run.pod.has_ended(), "seed {seed}");
            }
            let phase = run.phase();
            assert_eq!(run.pod.has_ended(), matches!(phase.as_str(), "Succeeded" | "Failed"), "seed {seed}");
        }
    }
}
