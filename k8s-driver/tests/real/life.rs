//! Lives of jobs on a real control plane.

use control_plane::until;
use serde_json::{Value, json};

use crate::common::{Operator, Space, directory, job};

fn uids(pods: &[Value]) -> Vec<(String, String)> {
    let text = |pod: &Value, member: &str| pod["metadata"][member].as_str().unwrap().to_owned();
    pods.iter().map(|pod| (text(pod, "name"), text(pod, "uid"))).collect()
}

fn phases(job: &Value) -> Vec<&str> {
    job["status"]["conditions"].as_array().into_iter().flatten().filter_map(|c| c["type"].as_str()).collect()
}

#[test]
fn a_job_runs_to_its_end() {
    let (space, data) = (Space::new("ends"), directory());
    let operator = Operator::start(&space, data.path());
    let mut manifest = job(3, "Never", Some("10s"));
    // What runs within one turn of being placed is not seen in between.
    manifest["spec"]["replicaSpecs"]["trainer"]["template"]["metadata"]["annotations"]["trainyard.dev/kwok-start-after"] =
        json!("500ms");
    space.apply(&manifest);
    let pods = space.until_pods("Running", 3);
    let running = space.until_phase("j", "Running");
    let stamp = |of: &Value| (of["term"].as_u64().unwrap(), of["position"].as_u64().unwrap());
    let (term, _) = stamp(&running["status"]["trainyard"]);
    for pod in &pods {
        let record = pod["metadata"]["annotations"]["trainyard.dev/record"].as_str().unwrap();
        assert!(record.starts_with(&format!("{term}/")), "{record}");
        let managers = pod["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().any(|fields| fields["manager"] == "trainyard"), "{managers:?}");
    }
    assert_eq!(space.all("services").len(), 3);
    let ended = space.until_phase("j", "Succeed");
    assert_eq!(phases(&ended), ["Pending", "Creating", "Running", "Terminating", "Succeed"], "{ended}");
    assert_eq!(space.all("pods").len(), 0);
    assert!(ended["metadata"]["annotations"]["Succeed"].is_string(), "{ended}");
    operator.stop();
}

#[test]
fn a_pod_that_is_deleted_comes_again_and_the_others_stay() {
    let (space, data) = (Space::new("deleted"), directory());
    let operator = Operator::start(&space, data.path());
    space.apply(&job(3, "OnFailure", None));
    let before = uids(&space.until_pods("Running", 3));
    space.until_phase("j", "Running");
    space.kubectl(&["delete", "pod", "j-trainer-1"]);
    let after = until("the pod comes again", || {
        let pods = space.all("pods");
        let now = uids(&pods);
        let back = pods.iter().all(|pod| pod["status"]["phase"] == "Running") && now.len() == 3 && now != before;
        back.then_some(now).ok_or_else(|| format!("{before:?}"))
    });
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(old.0, new.0);
        assert_eq!(old.1 == new.1, old.0 != "j-trainer-1", "{old:?} {new:?}");
    }
    space.until_phase("j", "Running");
    space.kubectl(&["delete", "aitrainingjob", "j"]);
    space.until_pods("Running", 0);
    operator.stop();
}

#[test]
fn restarts_of_the_operator_touch_no_pod_with_its_log_and_without() {
    let (space, data) = (Space::new("again"), directory());
    let operator = Operator::start(&space, data.path());
    space.apply(&job(4, "OnFailure", None));
    let before = uids(&space.until_pods("Running", 4));
    let term = space.until_phase("j", "Running")["status"]["trainyard"]["term"].as_u64().unwrap();
    operator.stop();

    // With its log, in good order and after a crash.
    let operator = Operator::start(&space, data.path());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(uids(&space.until_pods("Running", 4)), before);
    operator.kill();
    let operator = Operator::start(&space, data.path());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(uids(&space.until_pods("Running", 4)), before);
    // A job that needs nothing is not written to.
    assert_eq!(space.job("j")["status"]["trainyard"]["term"], term);
    operator.stop();

    // Without it.
    let other = directory();
    let operator = Operator::start(&space, other.path());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(uids(&space.until_pods("Running", 4)), before);
    let job = space.job("j");
    assert_eq!((&job["status"]["phase"], &job["status"]["RestartCount"]), (&json!("Running"), &Value::Null), "{job}");
    // It still knows what to do.
    space.kubectl(&["delete", "pod", "j-trainer-2"]);
    until("the pod comes again", || {
        let now = uids(&space.all("pods"));
        let changed = now.iter().zip(&before).filter(|(new, old)| new != old).count();
        (now.len() == 4 && changed == 1).then_some(()).ok_or_else(|| format!("{now:?}"))
    });
    operator.stop();
}
