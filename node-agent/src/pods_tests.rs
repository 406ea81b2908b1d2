use serde_json::json;

use super::*;

const GRACE: u64 = 7;

fn pod(name: &str, uid: &str) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE, "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    })
}

fn edited(mut pod: Value, edits: &[(&str, Value)]) -> Arc<Value> {
    for (pointer, value) in edits {
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[member] = value.clone();
    }
    Arc::new(pod)
}

fn deleting(pod: Value, grace: u64) -> Arc<Value> {
    let due = json!("2026-01-01T00:00:00Z");
    edited(pod, &[("/metadata/deletionTimestamp", due), ("/metadata/deletionGracePeriodSeconds", json!(grace))])
}

fn report(uid: &str, status: Value, ended: bool) -> PodReport {
    PodReport { namespace: "ns".to_owned(), name: "p".to_owned(), uid: uid.to_owned(), status, ended }
}

/// The table, a clock, and what was said in one line per effect.
#[derive(Default)]
struct Bench {
    pods: Pods,
    now: Timestamp,
    calls: Vec<Call>,
}

impl Bench {
    fn settle(&mut self) -> Vec<String> {
        let effects = self.pods.settle(self.now);
        effects
            .into_iter()
            .map(|effect| match effect {
                Effect::Fetch { pod } => format!("fetch {}", pod["metadata"]["uid"].as_str().unwrap()),
                Effect::Start { pod } => format!("start {}", pod["metadata"]["uid"].as_str().unwrap()),
                Effect::Stop { uid, grace_seconds, .. } => format!("stop {uid} {grace_seconds}"),
                Effect::Call(call) => {
                    let text = match &call.what {
                        What::Write(status) => format!("write {} {}", call.uid, status["phase"].as_str().unwrap()),
                        What::Remove => format!("remove {}", call.uid),
                    };
                    self.calls.push(call);
                    text
                }
            })
            .collect()
    }

    fn see(&mut self, pod: impl Into<Arc<Value>>) -> Vec<String> {
        self.pods.seen(pod.into(), self.now);
        self.settle()
    }

    fn report(&mut self, uid: &str, phase: &str, ended: bool) -> Vec<String> {
        self.pods.reported(report(uid, json!({"phase": phase}), ended));
        self.settle()
    }

    /// Answers the oldest call.
    fn answer(&mut self, answer: Answer) -> Vec<String> {
        let call = self.calls.remove(0);
        self.pods.answered(&call, answer, self.now);
        self.settle()
    }

    fn advance(&mut self, ms: u64) -> Vec<String> {
        self.now = self.now.plus_ms(ms);
        self.settle()
    }
}

#[test]
fn a_pod_runs_to_its_end_and_every_change_is_reported_once() {
    let mut bench = Bench::default();
    assert_eq!(bench.see(pod("p", "u")), ["start u"]);
    assert_eq!(bench.see(pod("p", "u")), [""; 0], "an echo");
    assert_eq!(bench.report("u", "Running", false), ["write u Running"]);
    // While a write is under way nothing is written; then only the newest.
    assert_eq!(bench.report("u", "Running", false), [""; 0]);
    assert_eq!(bench.report("u", "Succeeded", true), [""; 0]);
    assert_eq!(bench.answer(Answer::Done), ["write u Succeeded"]);
    assert_eq!(bench.answer(Answer::Done), [""; 0]);
    assert_eq!(bench.see(edited(pod("p", "u"), &[("/status/phase", json!("Succeeded"))])), [""; 0]);
    // Deleted later: nothing runs, so the object goes.
    assert_eq!(bench.see(deleting(pod("p", "u"), 30)), ["remove u"]);
    assert_eq!(bench.answer(Answer::Gone), [""; 0]);
    assert!(bench.pods.pods.is_empty());
}

#[test]
fn a_deletion_is_graceful_and_the_last_status_comes_first() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    assert_eq!(bench.report("u", "Running", false), ["write u Running"]);
    bench.answer(Answer::Done);
    assert_eq!(bench.see(deleting(pod("p", "u"), 5)), ["stop u 5"]);
    assert_eq!(bench.see(deleting(pod("p", "u"), 5)), [""; 0]);
    assert_eq!(bench.see(deleting(pod("p", "u"), 2)), ["stop u 2"], "a shorter grace period");
    assert_eq!(bench.report("u", "Failed", true), ["write u Failed"]);
    assert_eq!(bench.answer(Answer::Done), ["remove u"]);
    assert_eq!(bench.answer(Answer::Done), [""; 0]);
    // A finalizer keeps it: asked again, but not at once.
    assert_eq!(bench.advance(1_000), [""; 0]);
    assert_eq!(bench.advance(MAX_RETRY_MS), ["remove u"]);
    let last = deleting(pod("p", "u"), 0);
    bench.pods.gone(&last);
    assert_eq!(bench.settle(), [""; 0]);
    assert!(bench.pods.pods.is_empty());
}

#[test]
fn a_pod_that_is_gone_is_killed_and_nothing_is_reported() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    bench.pods.gone(&deleting(pod("p", "u"), 0));
    assert_eq!(bench.settle(), ["stop u 0"]);
    // The next one of its name has the same address: it waits for the processes to be gone.
    assert_eq!(bench.see(pod("p", "v")), [""; 0]);
    assert_eq!(bench.report("u", "Failed", true), ["start v"]);
}

#[test]
fn what_a_complete_view_lacks_is_gone() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    bench.see(pod("q", "v"));
    bench.pods.listed(&["v".to_owned()]);
    assert_eq!(bench.settle(), ["stop u 0"]);
}

#[test]
fn pods_of_an_agent_before_are_lost_or_started_again() {
    let ran = json!([{"name": "c", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]);
    let with = |policy: &str| {
        edited(
            pod("p", policy),
            &[
                ("/spec/restartPolicy", json!(policy)),
                ("/status/phase", json!("Running")),
                ("/status/containerStatuses", ran.clone()),
            ],
        )
    };
    let mut bench = Bench::default();
    assert_eq!(bench.see(with("Never")), ["write Never Failed"]);
    let What::Write(status) = bench.calls[0].what.clone() else { panic!() };
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    assert_eq!(bench.answer(Answer::Done), [""; 0]);
    bench.pods = Pods::default();
    assert_eq!(bench.see(with("OnFailure")), ["start OnFailure"]);
    let containers = json!([{"name": "c", "restartCount": 0, "lastState": {}, "state": {"running": {}}}]);
    bench.pods.reported(report("OnFailure", json!({"phase": "Running", "containerStatuses": containers}), false));
    bench.settle();
    let What::Write(status) = bench.calls[0].what.clone() else { panic!() };
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
    // One that was never started is started under every policy; one that had ended is left alone.
    bench.pods = Pods::default();
    let waiting = json!([{"name": "c", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]);
    assert_eq!(bench.see(edited(pod("p", "w"), &[("/status/containerStatuses", waiting)])), ["start w"]);
    assert_eq!(bench.see(edited(pod("r", "x"), &[("/status/phase", json!("Failed"))])), [""; 0]);
    // One that was being deleted is not started again, and goes.
    let mut terminating = (*with("Always")).clone();
    terminating["metadata"]["name"] = json!("t");
    assert_eq!(bench.see(deleting(terminating, 9)), ["write Always Failed"]);
    bench.calls = bench.calls.split_off(bench.calls.len() - 1);
    assert_eq!(bench.answer(Answer::Done), ["remove Always"]);
}

#[test]
fn calls_that_fail_are_made_again_after_longer_and_longer() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    bench.report("u", "Running", false);
    for wait in [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000] {
        assert_eq!(bench.answer(Answer::Failed), [""; 0]);
        assert_eq!(bench.pods.next_wake(bench.now), Some(bench.now.plus_ms(wait)));
        assert_eq!(bench.advance(wait - 1), [""; 0]);
        assert_eq!(bench.advance(1), ["write u Running"]);
    }
    bench.answer(Answer::Done);
    assert_eq!(bench.report("u", "Failed", true), ["write u Failed"]);
    assert_eq!(bench.answer(Answer::Failed), [""; 0]);
    assert_eq!(bench.advance(250), ["write u Failed"], "the wait is short again");
}

#[test]
fn objects_are_read_before_the_start_and_again_while_they_are_missing() {
    let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]);
    let refers = edited(pod("p", "u"), &[("/spec/containers/0/env", env)]);
    let mut bench = Bench::default();
    assert_eq!(bench.see(Arc::clone(&refers)), ["fetch u"]);
    bench.pods.not_fetched("u", bench.now);
    assert_eq!(bench.settle(), [""; 0]);
    assert_eq!(bench.advance(RETRY_INTERVAL_MS), ["fetch u"]);
    bench.pods.fetched("u", bench.now);
    assert_eq!(bench.settle(), ["start u"]);
    let refused = json!({"phase": "Pending", "containerStatuses": [
        {"name": "c", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}]});
    bench.pods.reported(report("u", refused, false));
    assert_eq!(bench.settle(), ["write u Pending"]);
    bench.answer(Answer::Done);
    assert_eq!(bench.advance(RETRY_INTERVAL_MS), ["fetch u"]);
    bench.pods.fetched("u", bench.now);
    assert_eq!(bench.settle(), [""; 0], "the runtime starts it by itself");
    assert_eq!(bench.report("u", "Running", false), ["write u Running"]);
    assert_eq!(bench.advance(RETRY_INTERVAL_MS), [""; 0]);
    // Deleted while it was being read: never started.
    let mut bench = Bench::default();
    bench.see(Arc::clone(&refers));
    assert_eq!(bench.see(deleting((*refers).clone(), 30)), ["remove u"]);
    bench.pods.fetched("u", bench.now);
    assert_eq!(bench.settle(), [""; 0]);
}

#[test]
fn a_pod_that_others_ended_is_stopped_and_their_word_stands() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    let evicted = [("/status/phase", json!("Failed")), ("/status/reason", json!("Evicted"))];
    assert_eq!(bench.see(edited(pod("p", "u"), &evicted)), [format!("stop u {GRACE}")]);
    assert_eq!(bench.report("u", "Running", false), [""; 0]);
    assert_eq!(
        bench.report("u", "Failed", true),
        ["write u Failed"],
        "what became of the containers is still reported"
    );
}

#[test]
fn a_shutdown_ends_what_runs_and_starts_nothing() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    bench.pods.shut_down(3);
    assert_eq!(bench.settle(), ["stop u 3"]);
    assert_eq!(bench.see(pod("q", "v")), [""; 0]);
    assert!(!bench.pods.is_at_rest());
    assert_eq!(bench.report("u", "Failed", true), ["write u Failed"]);
    let What::Write(status) = bench.calls[0].what.clone() else { panic!() };
    assert_eq!(status["reason"], "Terminated");
    assert!(!bench.pods.is_at_rest());
    bench.answer(Answer::Done);
    assert!(bench.pods.is_at_rest());
}

#[test]
fn a_pod_that_is_no_more_is_not_reported() {
    let mut bench = Bench::default();
    bench.see(pod("p", "u"));
    bench.report("u", "Running", false);
    assert_eq!(bench.answer(Answer::Gone), ["stop u 0"]);
    assert_eq!(bench.report("u", "Failed", true), [""; 0]);
    assert!(bench.pods.pods.is_empty());
}

#[test]
fn objects_that_volumes_show_are_read_again_while_the_pod_runs() {
    let mut bench = Bench::default();
    let shows = |uid: &str, volume: Value| edited(pod("p", uid), &[("/spec/volumes", json!([volume]))]);
    assert_eq!(bench.see(shows("u", json!({"name": "v", "configMap": {"name": "m"}}))), ["fetch u"]);
    bench.pods.fetched("u", bench.now);
    assert_eq!(bench.settle(), ["start u"]);
    assert_eq!(bench.report("u", "Running", false), ["write u Running"]);
    bench.answer(Answer::Done);
    assert_eq!(bench.pods.next_wake(bench.now), Some(bench.now.plus_ms(RETRY_INTERVAL_MS)));
    assert_eq!(bench.advance(REFRESH_INTERVAL_MS - 1), [""; 0]);
    assert_eq!(bench.pods.next_wake(bench.now), Some(bench.now.plus_ms(1)));
    assert_eq!(bench.advance(1), ["fetch u"]);
    // An API server that does not answer is asked again in its turn.
    bench.pods.not_fetched("u", bench.now);
    assert_eq!(bench.advance(REFRESH_INTERVAL_MS), ["fetch u"]);
    bench.pods.fetched("u", bench.now);
    bench.report("u", "Succeeded", true);
    bench.answer(Answer::Done);
    assert_eq!(bench.advance(REFRESH_INTERVAL_MS), [""; 0], "what has ended sees nothing");
    assert_eq!(bench.pods.next_wake(bench.now), None);

    let variables = json!([{"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}]);
    assert_eq!(bench.see(edited(pod("q", "v"), &[("/spec/containers", variables)])), ["fetch v"]);
    bench.pods.fetched("v", bench.now);
    assert_eq!(bench.settle(), ["start v"]);
    assert_eq!(bench.advance(REFRESH_INTERVAL_MS), [""; 0], "variables stay as they are");
}
