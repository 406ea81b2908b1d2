//! Workloads of jobs of every API, states read of them, what pods get, and reports.

use std::collections::BTreeMap;

use engine::job::Owned;

use super::*;
use crate::registry::Registry;
use crate::testing::edited;

fn job_object(labels: &Value) -> Value {
    let container = json!({"name": "aitj-t", "image": "i", "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"nvidia.com/gpu": 2}}});
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u1", "labels": labels},
        "spec": {"replicaSpecs": {"trainer": {"replicas": 2, "template": {"metadata": {}, "spec":
            {"nodeSelector": {"zone": "a"}, "containers": [container]}}}}}})
}

fn translated(object: &Value) -> (JobKey, SpecFact) {
    let registry = Registry::all();
    let key = registry.job_key(object).unwrap();
    let api = registry.api_of(&key).unwrap();
    let mut fact = api.spec_fact(object);
    add(&**api, &key, object, &mut fact);
    (key, fact)
}

fn rendered(object: &Value) -> Value {
    let (key, fact) = translated(object);
    let manifest: Value = serde_json::from_str(&fact.manifest).unwrap();
    let spec = fact.spec.unwrap();
    let registry = Registry::all();
    let api = registry.api_of(&key).unwrap();
    workload(&**api, RenderInput { job: &key, spec: &spec, manifest: &manifest }).unwrap()
}

#[test]
fn a_job_with_a_queue_of_kueue_has_a_workload() {
    let object = job_object(&json!({QUEUE_NAME: "team", "trainyard.dev/priority": "7"}));
    let (_, fact) = translated(&object);
    let owned = &fact.spec.as_ref().unwrap().owned;
    assert_eq!(owned.len(), 1);
    assert_eq!((&*owned[0].object.name, owned[0].awaits), ("aitrainingjob-j", ReadinessGate::Admitted));
    let container = json!({"name": "aitj-t", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}});
    let want = json!({
        "metadata": {"labels": {"GroupName": "elasticdeeplearning.ai", "kueue.x-k8s.io/job-uid": "u1"}},
        "spec": {"queueName": "team", "priority": 7, "podSets": [{"name": "trainer", "count": 2, "template": {"spec":
            {"nodeSelector": {"zone": "a"}, "restartPolicy": "Never", "containers": [container]}}}]},
    });
    assert_eq!(rendered(&object), want);
    assert!(translated(&job_object(&json!({}))).1.spec.unwrap().owned.is_empty());
    assert!(translated(&job_object(&json!({QUEUE_NAME: ""}))).1.spec.unwrap().owned.is_empty());
}

#[test]
fn digests_distinguish_pods_from_the_rest() {
    let labels = json!({QUEUE_NAME: "team"});
    let digest = |object: &Value| {
        let owned = translated(object).1.spec.unwrap().owned.remove(0);
        (owned.pods.unwrap(), owned.digest.unwrap())
    };
    let (pods, all) = digest(&job_object(&labels));
    assert!(all.starts_with(&format!("{pods}-")), "{all}");
    let (other_queue, changed) = digest(&job_object(&json!({QUEUE_NAME: "other"})));
    assert!(other_queue == pods && changed != all);
    let program = "/spec/replicaSpecs/trainer/template/spec/containers/0/env";
    assert_eq!(digest(&edited(job_object(&labels), &[(program, json!([]))])).1, all, "what runs is not counted");
    assert_ne!(digest(&edited(job_object(&labels), &[("/spec/replicaSpecs/trainer/replicas", json!(3))])).0, pods);
}

#[test]
fn more_groups_than_kueue_takes_are_an_error() {
    let mut object = job_object(&json!({QUEUE_NAME: "team"}));
    let groups = object["spec"]["replicaSpecs"].as_object_mut().unwrap();
    let one = groups["trainer"].clone();
    groups.extend((0..7).map(|n| (format!("g{n}"), one.clone())));
    assert!(translated(&object).1.spec.is_ok());
    object["spec"]["replicaSpecs"]["last"] = one;
    let errors = translated(&object).1.spec.unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "metadata.labels.kueue.x-k8s.io/queue-name: Kueue admits jobs of at most 8 groups of pods; this one has 9 (\"team\")"
    );
}

#[test]
fn a_job_is_admitted_whole() {
    let sizes = |labels: Value| {
        let object = edited(job_object(&labels), &[("/spec/replicaSpecs/trainer/minReplicas", json!(1))]);
        translated(&object).1.spec.unwrap().groups[0].sizes.is_some()
    };
    assert!(sizes(json!({})) && !sizes(json!({QUEUE_NAME: "team"})));
}

#[test]
fn labels_that_are_not_used_are_remarked() {
    let labels = json!({QUEUE_NAME: "team", "trainyard.dev/queue": "ours", PRIORITY_CLASS: "high"});
    let paths: Vec<String> = translated(&job_object(&labels)).1.warnings.into_iter().map(|w| w.path).collect();
    assert_eq!(paths, ["metadata.labels.trainyard.dev/queue", "metadata.labels.kueue.x-k8s.io/priority-class"]);
}

fn found(kind: &str, status: bool) -> Value {
    json!({"type": kind, "status": if status { "True" } else { "False" }, "reason": format!("{kind}Reason"),
        "message": format!("{kind} message"), "lastTransitionTime": "2024-02-29T00:00:00Z"})
}

fn observed(conditions: &[Value], more: &Value) -> Value {
    let mut object = json!({"metadata": {"annotations": {DIGEST: "pods-rest"}}, "status": {"conditions": conditions}});
    model::json::merge_patch(&mut object, more);
    object
}

#[test]
fn a_workload_admits_until_it_is_evicted_deactivated_or_finished() {
    let admitted = [found("QuotaReserved", true), found("Admitted", true)];
    let with = |more: Value| [admitted.to_vec(), vec![more]].concat();
    for (object, ready, message) in [
        (observed(&[], &json!({})), false, None),
        (observed(&[found("QuotaReserved", false)], &json!({})), false, Some("QuotaReserved message")),
        (observed(&[found("QuotaReserved", true)], &json!({})), false, Some("its admission checks are not done")),
        (observed(&admitted, &json!({})), true, None),
        (observed(&with(found("Evicted", false)), &json!({})), true, None),
        (observed(&with(found("Evicted", true)), &json!({})), false, Some("Evicted message")),
        (observed(&admitted, &json!({"spec": {"active": false}})), false, Some("spec.active is false")),
        (
            observed(&with(found("Finished", true)), &json!({})),
            false,
            Some("it is finished; delete it to queue the job again"),
        ),
    ] {
        let (is_ready, gate) = state(&object);
        assert_eq!((is_ready, gate.message.as_deref()), (ready, message), "{object}");
        assert_eq!(gate.pods.as_deref(), Some("pods"));
    }
    let (_, gate) = state(&observed(&admitted, &json!({"status": {"admission": admission()}})));
    let flavors: Vec<&str> = gate.reads.iter().map(|flavor| &*flavor.name).collect();
    assert!(gate.holds_quota && flavors == ["a100", "default"]);
}

fn admission() -> Value {
    json!({"clusterQueue": "cq", "podSetAssignments": [
        {"name": "trainer", "flavors": {"cpu": "default", "nvidia.com/gpu": "a100"}, "count": 2}]})
}

#[test]
fn pods_get_what_their_flavors_and_checks_assign() {
    let object = job_object(&json!({QUEUE_NAME: "team", "trainyard.dev/queue": "ours"}));
    let (key, fact) = translated(&object);
    let check = json!({"name": "trainer", "labels": {"l": "1"}, "annotations": {"a": "2"}, "nodeSelector": {"zone": "b", "x": "y"}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": {"name": "aitrainingjob-j", "uid": "w1"},
        "status": {"admission": admission(), "admissionChecks": [{"name": "c", "podSetUpdates": [check]}]},
    });
    let tolerations = json!([{"key": "gpu", "operator": "Exists"}]);
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "a100", "uid": "f1"},
        "spec": {"nodeLabels": {"gpu": "a100"}, "tolerations": tolerations}});
    let fact = std::sync::Arc::new(fact);
    let owned = [workload, flavor].map(|object| {
        let fact = owned::fact(&object).unwrap();
        (fact.object.clone(), Box::new(Owned { fact: Some(fact), ..Owned::default() }))
    });
    let job = Job { valid: Some(fact), owned: BTreeMap::from(owned), ..Job::default() };
    let registry = Registry::all();
    let manifest: Value = serde_json::from_str(&job.valid.as_ref().unwrap().manifest).unwrap();
    let spec = job.spec().unwrap();
    let input = RenderInput { job: &key, spec, manifest: &manifest };
    let mut pod = demand::first_pod(&**registry.api_of(&key).unwrap(), input, &spec.groups[0]).unwrap();
    assert_eq!(label(&pod, QUEUE_NAME), Some("team"), "this API gives pods the labels of their job");
    admit(&job, &"trainer".into(), &mut pod);
    assert_eq!((label(&pod, QUEUE_NAME), label(&pod, demand::QUEUE)), (None, None));
    assert_eq!(
        (label(&pod, POD_SET), label(&pod, "l"), annotation(&pod, "a")),
        (Some("trainer"), Some("1"), Some("2"))
    );
    assert_eq!(pod["spec"]["nodeSelector"], json!({"zone": "a", "gpu": "a100", "x": "y"}));
    assert_eq!(pod["spec"]["tolerations"], tolerations);
}

#[test]
fn reports_leave_other_conditions_alone() {
    let at = Timestamp(1_709_164_860_000);
    let reported = |conditions: &[Value], what| {
        let contents = contents("Workload", &observed(conditions, &json!({})));
        report(&contents, what, at)
    };
    let of = |patch: &Value, kind: &str| {
        let all = patch["status"]["conditions"].as_array().unwrap();
        let found = all.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
        format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
    };
    let admitted = [found("QuotaReserved", true), found("Admitted", true)];
    let ended = reported(&admitted, GateReport::Finished { succeeded: false });
    assert_eq!((of(&ended, "Finished"), of(&ended, "Admitted")), ("True Failed".into(), "True AdmittedReason".into()));
    assert!(ended["status"].get("admission").is_none());
    let running = reported(&admitted, GateReport::PodsReady(true));
    assert_eq!(of(&running, "PodsReady"), "True Started");
    let mut evicted = found("Evicted", true);
    evicted["reason"] = json!("Preempted");
    let released =
        reported(&[&admitted[..], &[evicted.clone(), found("PodsReady", true)]].concat(), GateReport::Released);
    assert_eq!(released["status"]["admission"], Value::Null);
    for (kind, want) in [
        ("Requeued", "True Preempted"),
        ("QuotaReserved", "False Pending"),
        ("Admitted", "False NoReservation"),
        ("PodsReady", "False WaitForStart"),
        ("Evicted", "True Preempted"),
    ] {
        assert_eq!(of(&released, kind), want, "{kind}");
    }
    evicted["reason"] = json!("Deactivated");
    assert_eq!(of(&reported(&[evicted], GateReport::Released), "Requeued"), "False Deactivated");
}
