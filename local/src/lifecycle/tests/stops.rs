//! Stops, injected exits, and sidecars that end last.

use super::*;

#[test]
fn stop_asks_waits_and_kills() {
    let mut run = Run::new(RestartPolicy::Always, vec![], vec![container("a"), container("b")]);
    run.step(Input::Tick);
    run.running(0);
    run.running(1);
    assert_eq!(run.step(Input::Stop { grace_ms: 5000 }), "-0 -1");
    assert_eq!(run.exited(0, 143), ""); // not started again
    assert_eq!(run.wake_in_ms(), Some(5000));
    assert_eq!(run.after(4999), "");
    assert_eq!(run.after(1), "!1");
    assert_eq!(run.after(1000), "");
    assert!(!run.pod.has_ended());
    run.exited(1, 137);
    assert!(run.pod.has_ended());
    assert_eq!(run.phase(), "Failed");
}

#[test]
fn a_later_stop_can_only_shorten() {
    let mut run = Run::new(RestartPolicy::Never, vec![], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    run.step(Input::Stop { grace_ms: 5000 });
    run.step(Input::Stop { grace_ms: 60_000 });
    assert_eq!(run.wake_in_ms(), Some(5000));
    assert_eq!(run.step(Input::Stop { grace_ms: 0 }), "!0");
}

#[test]
fn stop_at_every_stage() {
    // Before anything runs: the container that is starting is signalled when it runs.
    let mut run = Run::new(RestartPolicy::Never, vec![container("i")], vec![container("a")]);
    run.step(Input::Tick);
    assert_eq!(run.step(Input::Stop { grace_ms: 5000 }), "");
    assert_eq!(run.running(0), "-0");
    run.exited(0, 0);
    assert!(run.pod.has_ended());
    assert_eq!(run.phase(), "Failed"); // its own work was never done
    // In back-off: nothing is left to end.
    let mut run = Run::new(RestartPolicy::Always, vec![], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    run.exited(0, 1);
    run.running(0);
    run.exited(0, 1);
    assert_eq!(run.step(Input::Stop { grace_ms: 5000 }), "");
    assert!(run.pod.has_ended() && run.wake_in_ms().is_none());
    // A container that ends well on request: the pod succeeded.
    let mut run = Run::new(RestartPolicy::Always, vec![], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    run.step(Input::Stop { grace_ms: 5000 });
    run.exited(0, 0);
    assert_eq!(run.phase(), "Succeeded");
}

#[test]
fn an_exit_that_was_asked_for() {
    let mut run = Run::new(RestartPolicy::Never, vec![sidecar("s")], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    assert_eq!(run.step(Input::Exit { code: 42 }), ""); // the sidecar is not the pod's work
    assert_eq!(run.running(1), "!1");
    assert_eq!(run.exited(1, 137), "-0");
    assert_eq!(run.status()["containerStatuses"][0]["state"]["terminated"]["exitCode"], 42);
    run.exited(0, 143);
    assert!(run.pod.has_ended());
    // Only this run, not the next.
    let mut run = Run::new(RestartPolicy::OnFailure, vec![], vec![container("a")]);
    run.step(Input::Tick);
    run.running(0);
    run.step(Input::Exit { code: 1 });
    assert_eq!(run.exited(0, 137), "+0(1)");
    run.running(0);
    run.exited(0, 0);
    assert_eq!(run.phase(), "Succeeded");
}

#[test]
fn sidecars_run_beside_and_end_last() {
    let mut run = Run::new(RestartPolicy::Never, vec![sidecar("s"), container("i")], vec![container("a")]);
    assert_eq!(run.step(Input::Tick), "+0");
    assert_eq!(run.running(0), "+1");
    run.running(1);
    assert_eq!(run.exited(1, 0), "+2");
    assert_eq!(run.exited(0, 1), "+0(1)"); // comes back although the policy is Never
    run.running(2);
    run.running(0);
    assert_eq!(run.exited(2, 0), "-0");
    assert!(!run.pod.has_ended());
    assert_eq!(run.wake_in_ms(), Some(30_000));
    assert_eq!(run.after(30_000), "!0");
    run.exited(0, 137);
    assert!(run.pod.has_ended());
    assert_eq!(run.phase(), "Succeeded");
}
