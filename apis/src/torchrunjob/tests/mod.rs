//! Tests of this API: what a job object becomes with its queue, and what is shown of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Group, Job};
use model::{Incarnation, JobKey, Missing, Phase, SpecFact};
use serde_json::{Value, json};

use super::{DESCRIPTOR, TorchrunJob};
use crate::api::{JobApi, PodApi, PodSlot, ReferenceApi, Referenced, RenderInput, UploadApi};
use crate::testing::{self, check_described, check_structure, columns, edited, milestone, schema, slot};

fn job() -> Value {
    json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"queue": "q", "command": "python train.py", "numNodes": 2}})
}

fn queue() -> Value {
    json!({"metadata": {"name": "q", "namespace": "ns", "uid": "qu", "generation": 1},
        "spec": {"queue": {"name": "k"}, "podTemplate": {"spec": {"containers": [{"name": "trainer", "image": "i",
            "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}}})
}

fn fact(job: &Value, queue: Option<Value>) -> SpecFact {
    let needed = queue.map(|queue| (("TorchrunQueue".into(), "q".into()), Arc::new(queue)));
    TorchrunJob.spec_fact_with(job, &needed.into_iter().collect::<Referenced>())
}

fn errors(edits: &[(&str, Value)]) -> Vec<String> {
    let found = fact(&edited(job(), edits), Some(queue())).spec;
    found.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn worker(job: &Value, queue: Value, index: u32) -> Value {
    pod_of(job, queue, "worker", index)
}

fn pod_of(job: &Value, queue: Value, group: &str, index: u32) -> Value {
    let fact = fact(job, Some(queue));
    let (spec, manifest) = (fact.spec.unwrap(), serde_json::from_str(&fact.manifest).unwrap());
    let key = JobKey { namespace: "ns".into(), name: "j".into(), kind: "TorchrunJob".into(), uid: "u".into() };
    let (slot, group) = (slot(group, index), spec.group(group).unwrap());
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    TorchrunJob
        .render(source, &[PodSlot { slot: &slot, group, incarnation: Incarnation(1), count: 0 }])
        .remove(0)
        .unwrap()
}

#[test]
fn the_definition_is_structural_and_described() {
    let schema = schema(&TorchrunJob);
    check_structure(&schema, "$");
    check_described(&schema, "$");
    assert_eq!(columns(&TorchrunJob), ["Queue", "Nodes", "Phase", "Workers", "Restarts", "Reason", "Age"]);
    assert_eq!(DESCRIPTOR.crd()["spec"]["names"]["shortNames"], json!(["tj", "trj"]));
    let env = json!([{"name": "A", "valeu": "b"}]);
    let refused = testing::unknown(&schema, &edited(job(), &[("/spec/novel", json!(1)), ("/spec/env", env)]), "$");
    assert_eq!(
        refused.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(),
        ["$.spec.env[0].valeu", "$.spec.novel"].into()
    );
}

#[test]
fn a_job_waits_for_a_queue_that_can_be_used() {
    let missing = |queue: Option<Value>| fact(&job(), queue).missing;
    let of = |problem: Option<&str>| {
        vec![Missing { kind: "TorchrunQueue".into(), name: "q".into(), problem: problem.map(Into::into) }]
    };
    assert_eq!(missing(None), of(None));
    assert_eq!(missing(Some(queue())), []);
    let bare = edited(queue(), &[("/spec/podTemplate", Value::Null)]);
    assert_eq!(missing(Some(bare)), of(Some("it has neither a podTemplate with a container trainer nor an image")));
    assert_eq!(fact(&job(), None).needs, [("TorchrunQueue".into(), "q".into())]);
}

#[test]
fn a_workspace_is_uploaded_where_nothing_else_fills_it() {
    let again = edited(job(), &[("/metadata/annotations", json!({"torchrun.ai/workspace-generation": "7"}))]);
    for (job, source, want) in [
        (job(), json!({}), Some(("1", true))),
        (again, json!({"source": "zip"}), Some(("7", true))),
        (job(), json!({"source": "zip", "url": "https://h/a.zip"}), Some(("1", false))),
        (job(), json!({"source": "git", "url": "https://h/a"}), Some(("1", false))),
    ] {
        let queue = edited(queue(), &[("/spec/workspaceStorage", source.clone())]);
        let found = super::uploads(&job, &fact(&job, Some(queue.clone())));
        assert_eq!(found.as_ref().map(|(generation, uploaded)| (generation.as_str(), *uploaded)), want, "{source}");
        let pod = pod_of(&job, queue.clone(), "sync", 0);
        let upload = TorchrunJob.awaited_upload(&pod);
        let file = "/workspace/workspace.zip";
        let wanted = want.filter(|(_, uploaded)| *uploaded).map(|(generation, _)| ("sync", file, generation));
        assert_eq!(upload.map(|upload| (upload.container, upload.file, upload.generation)), wanted, "{source}");
        assert_eq!(TorchrunJob.awaited_upload(&worker(&job, queue, 0)), None);
    }
    assert_eq!(super::uploads(&job(), &fact(&job(), None)), None);
}

#[test]
fn the_pod_that_fills_the_workspace_gets_to_where_the_workers_are() {
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let node_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let mut queue = edited(queue(), &[("/spec/workspaceStorage", json!({"source": "existing"}))]);
    let pod = pod_of(&job(), queue.clone(), "sync", 0);
    assert_eq!(pod["metadata"]["annotations"].get("torchrun.ai/inherited"), None);
    assert_eq!(pod["spec"]["serviceAccountName"], json!("default"));
    let placed = json!({"serviceAccountName": "of-template", "imagePullSecrets": [{"name": "pull"}], "dnsPolicy": "Default",
        "affinity": {"nodeAffinity": node_affinity, "podAffinity": {}}, "hostNetwork": true});
    model::json::merge_patch(&mut queue["spec"]["podTemplate"]["spec"], &placed);
    queue["spec"]["scheduling"] = json!({"nodeSelector": {"class": "H100"}, "tolerations": [{"operator": "Exists"}]});
    let pod = pod_of(&job(), queue.clone(), "sync", 0);
    let want = "affinity,dnsPolicy,imagePullSecrets,nodeSelector,serviceAccountName,tolerations";
    assert_eq!(pod["metadata"]["annotations"]["torchrun.ai/inherited"], json!(want));
    let spec = &pod["spec"];
    assert_eq!(spec["affinity"], json!({"nodeAffinity": node_affinity}));
    assert_eq!(spec["nodeSelector"], json!({"class": "H100"}));
    assert_eq!((spec["tolerations"].clone(), spec.get("hostNetwork")), (json!([{"operator": "Exists"}]), None));
    assert_eq!(spec["serviceAccountName"], json!("of-template"));
    queue["spec"]["serviceAccountName"] = json!("of-queue");
    assert_eq!(pod_of(&job(), queue, "sync", 0)["spec"]["serviceAccountName"], json!("of-queue"));
}

#[test]
fn a_queue_of_the_first_generation_serves_jobs() {
    let of_kind = |kind: &str| ((kind.into(), "q".into()), Arc::new(queue()));
    let fact = |needed: Referenced| TorchrunJob.spec_fact_with(&job(), &needed);
    let first = fact([of_kind("JobQueue")].into());
    assert!(first.spec.is_ok());
    assert_eq!(first.needs, [("JobQueue".into(), "q".into())]);
    let both = fact([of_kind("JobQueue"), of_kind("TorchrunQueue")].into());
    assert_eq!(both.needs, [("TorchrunQueue".into(), "q".into())]);
    let named = TorchrunJob.referenced(&job());
    assert_eq!(named, [("TorchrunQueue".into(), "q".into()), ("JobQueue".into(), "q".into())]);
}

#[test]
fn pods_go_to_the_kai_scheduler_where_a_kai_queue_is_named() {
    let placed = |edits: &[(&str, Value)]| {
        let pod = worker(&job(), edited(queue(), edits), 0);
        (pod["spec"]["schedulerName"].clone(), pod["metadata"]["labels"]["kai.scheduler/queue"].clone())
    };
    let scheduling = |scheduler: &str| ("/spec/scheduling", json!({"scheduler": scheduler}));
    let without = ("/spec/queue", Value::Null);
    let in_template = ("/spec/podTemplate/spec/schedulerName", json!("own"));
    assert_eq!(placed(&[]), (json!("kai-scheduler"), json!("k")));
    assert_eq!(placed(&[scheduling("other")]), (json!("other"), Value::Null));
    assert_eq!(placed(std::slice::from_ref(&without)), (Value::Null, Value::Null));
    assert_eq!(placed(&[without.clone(), in_template]), (json!("own"), Value::Null));
    assert_eq!(placed(&[without, scheduling("other")]), (json!("other"), Value::Null));
}

#[test]
fn mistakes_name_their_fields() {
    for (edits, want) in [
        (vec![("/spec/queue", Value::Null)], "spec.queue: "),
        (vec![("/spec/jobQueue", json!("other"))], "spec.jobQueue: "),
        (vec![("/spec/command", json!(" "))], "spec.command: "),
        (vec![("/spec/jobName", json!("A b"))], "spec.jobName: "),
        (vec![("/spec/jobID", json!("a b"))], "spec.jobID: "),
        (vec![("/spec/numNodes", json!(0))], "spec.numNodes: "),
        (vec![("/spec/numGPUs", json!(12)), ("/spec/numNodes", json!(1))], "spec.numNodes: "),
        (vec![("/spec/minNodes", json!(5))], "spec.minNodes: "),
        (vec![("/spec/reliability", json!({"activeDeadlineSeconds": 0}))], "spec.reliability.activeDeadlineSeconds: "),
        (
            vec![("/spec/minNodes", json!(1)), ("/spec/distributed", json!({"rdzvBackend": "static"}))],
            "spec.distributed.rdzvBackend: ",
        ),
        (vec![("/metadata/name", json!("1j"))], "metadata.name: "),
    ] {
        let found = errors(&edits);
        assert!(matches!(found.as_slice(), [only] if only.starts_with(want)), "{want} {found:?}");
    }
}

#[test]
fn what_is_explicitly_null_is_kept() {
    let ttl = |reliability: Value| {
        fact(&edited(job(), &[("/spec/reliability", reliability)]), Some(queue())).spec.unwrap().ttl_ms
    };
    assert_eq!(ttl(Value::Null), Some(3_600_000));
    assert_eq!(ttl(json!({"ttlSecondsAfterFinished": null})), None);
    assert_eq!(ttl(json!({"ttlSecondsAfterFinished": 5})), Some(5_000));
}

#[test]
fn the_job_wins_over_the_queue_but_for_defaults_that_older_definitions_wrote() {
    let workspace = |on_job: Value, on_queue: Value| {
        let queue = edited(queue(), &[("/spec/workspaceStorage", on_queue)]);
        let fact = fact(&edited(job(), &[("/spec/workspaceStorage", on_job)]), Some(queue));
        let manifest: Value = serde_json::from_str(&fact.manifest).unwrap();
        (manifest["workspace"]["size"].clone(), manifest["workspace"]["source"].clone())
    };
    let queue = json!({"size": "5Gi", "source": "git", "url": "u"});
    assert_eq!(workspace(json!({"size": "7Gi"}), queue.clone()), (json!("7Gi"), json!("git")));
    assert_eq!(workspace(json!({"size": "1Gi", "source": "zip"}), queue), (json!("5Gi"), json!("git")));
    assert_eq!(workspace(json!({"size": "10Gi"}), Value::Null), (json!("10Gi"), json!("zip")));
}

#[test]
fn values_of_users_stand_in_no_script() {
    let job = edited(job(), &[("/spec/workspaceStorage", json!({"source": "git", "url": "$(evil)"}))]);
    let fact = fact(&job, Some(queue()));
    let (spec, manifest) = (fact.spec.unwrap(), serde_json::from_str(&fact.manifest).unwrap());
    let key = JobKey { namespace: "ns".into(), name: "j".into(), kind: "TorchrunJob".into(), uid: "u".into() };
    let (slot, group) = (slot("sync", 0), spec.group("sync").unwrap());
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    let pod = TorchrunJob
        .render(source, &[PodSlot { slot: &slot, group, incarnation: Incarnation(1), count: 0 }])
        .remove(0)
        .unwrap();
    assert!(!pod["spec"]["containers"][0]["command"].to_string().contains("evil"));
    assert!(pod["spec"]["containers"][0]["env"].to_string().contains("evil"));
}

#[test]
fn a_worker_has_the_labels_of_its_slot_whatever_a_job_asks_for() {
    let job = edited(job(), &[("/spec/labels", json!({"app": "mine", "team": "a"}))]);
    let pod = worker(&job, queue(), 1);
    assert_eq!(
        (&pod["metadata"]["labels"]["app"], &pod["metadata"]["labels"]["team"]),
        (&json!("torchrun"), &json!("a"))
    );
    assert_eq!(TorchrunJob.slot_of(&pod), Some(slot("worker", 1)));
    assert!(DESCRIPTOR.selector().selects(&pod));
}

#[test]
fn a_status_is_read_back_as_it_was_written() {
    let fact = Arc::new(fact(&job(), Some(queue())));
    let spec = fact.spec.clone().unwrap();
    let groups = spec
        .groups
        .iter()
        .map(|group| (group.name.clone(), Box::new(Group { replicas: group.replicas, ..Group::default() })));
    let mut held = Job {
        object: engine::ObjectState::present(model::ResourceVersion(0)),
        spec: Some(fact.clone()),
        valid: Some(fact),
        groups: groups.collect::<BTreeMap<_, _>>(),
        phase: Phase::Queued,
        ..Job::default()
    };
    held.milestones.extend([milestone(Phase::Preparing, 1, ""), milestone(Phase::Queued, 2, "why")]);
    let key = JobKey { namespace: "ns".into(), name: "j".into(), kind: "TorchrunJob".into(), uid: "u".into() };
    let status = TorchrunJob.status(&key, &held);
    let adopted = TorchrunJob.adopt(&edited(job(), &[("/status", status.clone())]));
    assert_eq!(adopted.milestones, Vec::from(held.milestones.clone()));
    assert_eq!(adopted.mirror, held.mirror());
    held.milestones = adopted.milestones.into();
    assert_eq!(TorchrunJob.status(&key, &held), status);
}

#[test]
fn only_a_success_with_a_time_is_an_end_of_the_original() {
    let phase = |status: Value| TorchrunJob.adopt(&edited(job(), &[("/status", status)])).mirror.phase;
    assert_eq!(phase(json!({"phase": "Succeeded", "completionTime": "2024-02-29T00:00:00Z"})), Phase::Succeeded);
    assert_eq!(phase(json!({"phase": "Succeeded"})), Phase::New);
    assert_eq!(phase(json!({"phase": "Failed"})), Phase::New);
}

#[test]
fn the_workspace_of_the_first_generation_is_read() {
    let job = |workspace: Value| edited(job(), &[("/spec/volumes", json!({"workspace": workspace}))]);
    let manifest = |job: &Value| -> Value { serde_json::from_str(&fact(job, Some(queue())).manifest).unwrap() };
    let git = json!({"enabled": true, "source": "git", "url": "https://h/r"});
    assert_eq!(TorchrunJob.findings(&job(git.clone())), []);
    let read = manifest(&job(git.clone()));
    assert_eq!((&read["workspace"]["source"], &read["workspace"]["url"]), (&json!("git"), &json!("https://h/r")));
    let both = edited(job(git), &[("/spec/workspaceStorage", json!({"source": "zip"}))]);
    assert_eq!(manifest(&both)["workspace"]["source"], "zip");
    assert_eq!(manifest(&job(json!({"enabled": false})))["workspace"], Value::Null);
}

#[test]
fn the_host_names_of_workers_bound_the_name_of_a_job() {
    let named = |name: &str, nodes: u32| [("/metadata/name", json!(name)), ("/spec/numNodes", json!(nodes))];
    for (name, nodes, right) in [
        ("2024-run", 1, true),
        ("2024-run", 2, false),
        (&*"a".repeat(61), 2, true),
        (&*"a".repeat(61), 11, false),
        (&*"a".repeat(62), 2, false),
        (&*"a".repeat(63), 1, true),
    ] {
        let mut edits = named(name, nodes).to_vec();
        edits.push(("/spec/jobName", json!("short")));
        assert_eq!(errors(&edits).is_empty(), right, "{name} {nodes}");
        let said = TorchrunJob.findings(&edited(job(), &edits));
        assert_eq!(said.is_empty(), right, "without its queue: {name} {nodes}: {said:?}");
    }
}

#[test]
fn parts_of_pods_are_checked_as_an_api_server_does() {
    let mounts = json!([{"name": "shm", "mountPath": "/a"}, {"name": "shm", "mountPath": "/a"}]);
    for (pointer, value, path) in [
        ("/spec/labels", json!({"a": "b c"}), "spec.labels.a"),
        ("/spec/annotations", json!({"a b": "c"}), "spec.annotations.a b"),
        ("/spec/env", json!([{"name": "A=B"}]), "spec.env[0].name"),
        ("/spec/volumes", json!({"additionalVolumes": [{"name": "D"}]}), "spec.volumes.additionalVolumes[0].name"),
        ("/spec/volumes", json!({"additionalMounts": mounts}), "spec.volumes.additionalMounts[1].mountPath"),
    ] {
        let errors = errors(&[(pointer, value)]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with(&format!("{path}: ")), "{errors:?}");
    }
    let queue = |scheduling: Value| edited(queue(), &[("/spec/scheduling", scheduling)]);
    let is_refused = |queue: Value| !fact(&job(), Some(queue)).missing.is_empty();
    assert!(!is_refused(queue(json!({"tolerations": [{"key": "a", "operator": "Exists"}]}))));
    assert!(is_refused(queue(json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}))));
    assert!(is_refused(queue(json!({"nodeSelector": {"a": "b c"}}))));
}
