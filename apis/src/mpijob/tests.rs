//! Tests of reading `MPIJob`s, and of what is written to them.

use engine::Job;
use model::{Phase, Share, Stamp, Text};
use serde_json::{Value, json};

use super::patch::{SpecPatch, own};
use super::*;
use crate::testing;

fn object(environment: &Value) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "labels": {"trainyard.dev/queue": "q"}},
        "spec": {"mpiReplicaSpecs": {
            "Launcher": {"template": {"spec": {"containers": [{"name": "l", "image": "i", "env": environment}]}}},
            "Worker": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "w", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}},
        }},
    })
}

fn merged(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    model::json::merge_patch(&mut object, patch);
    object
}

/// The job of an object, as the queues see it, with these nodes.
fn job(object: &Value, nodes: &[&str]) -> Job {
    let (_, mut job) = testing::job(&MpiJob, object);
    job.allocation.gated = true;
    job.allocation.charge = Some(Box::new(model::Charge {
        queue: Some("q".into()),
        gpus: [("worker".into(), 1)].into(),
        resource: "nvidia.com/gpu".into(),
    }));
    let nodes: Vec<Text> = nodes.iter().map(|node| Text::from(*node)).collect();
    if !nodes.is_empty() {
        job.allocation.share = Share { groups: [("worker".into(), nodes)].into() };
    }
    job
}

/// The object after a write of the job's state.
fn written(object: &Value, job: &Job) -> Value {
    let (key, spec, manifest) = testing::accepted(&MpiJob, object);
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    merged(object, &MpiJob.state_patch(&key, job, Some(source)))
}

#[test]
fn sizes_come_from_the_environment_in_both_spellings() {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    for (environment, want) in [
        (json!([]), (3, None)),
        (json!([variable("NUM_PROC", "2")]), (2, Some((2, 2)))),
        (json!([variable("MIN_NP", "1"), variable("MAX_NP", "8")]), (8, Some((1, 1)))),
        (json!([variable("MIN_NUM_PROC", "1"), variable("NP", "2"), variable("MAX_NUM_PROC", "4")]), (4, Some((1, 2)))),
        // The later entry counts.
        (json!([variable("NP", "2"), variable("NUM_PROC", "5")]), (5, Some((5, 5)))),
    ] {
        let spec = MpiJob.spec_fact(&object(&environment)).spec.unwrap();
        let worker = &spec.groups[0];
        assert_eq!((worker.replicas, worker.sizes.map(|s| (s.min, s.preferred))), want, "{environment}");
    }
    let env = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].env";
    for (environment, want) in [
        (
            json!([variable("NUM_PROC", "two")]),
            format!("{env}[0].value: must be a whole number of workers, at least 1 (\"two\")"),
        ),
        (
            json!([variable("MIN_NUM_PROC", "3"), variable("NUM_PROC", "2")]),
            format!("{env}[NUM_PROC]: must be at least MIN_NUM_PROC (2)"),
        ),
        (
            json!([variable("MIN_NUM_PROC", "3"), variable("MAX_NUM_PROC", "2")]),
            format!("{env}[MAX_NUM_PROC]: must be at least NUM_PROC and MIN_NUM_PROC (2)"),
        ),
    ] {
        assert_eq!(testing::errors(&MpiJob, &object(&environment)), [want]);
    }
}

#[test]
fn a_job_that_asks_for_nothing_or_that_another_admits_is_left_alone() {
    let groups = |object: &Value| MpiJob.spec_fact(object).spec.unwrap().groups.len();
    let queued = object(&json!([]));
    assert_eq!(groups(&queued), 1);
    let mut plain = queued.clone();
    plain["metadata"]["labels"] = json!({});
    assert_eq!(groups(&plain), 0);
    // What is wrong with it is no concern of this operator.
    plain["spec"]["mpiReplicaSpecs"]["Worker"] = json!(null);
    assert_eq!((groups(&plain), testing::errors(&MpiJob, &plain)), (0, vec![]));
    let mut voda = plain.clone();
    voda["spec"] = queued["spec"].clone();
    voda["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] =
        json!({"vodascheduler/accelerator": "a"});
    assert_eq!(groups(&voda), 1);
    let mut kueue = queued.clone();
    kueue["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("user");
    assert_eq!(groups(&kueue), 0);
    let mut managed = queued;
    managed["spec"]["runPolicy"] = json!({"managedBy": "kueue.x-k8s.io/multikueue"});
    assert_eq!(groups(&managed), 0);
}

#[test]
fn one_write_shows_what_was_decided_and_remembers_it() {
    let before = object(&json!([{"name": "MIN_NUM_PROC", "value": "1"}, {"name": "MAX_NUM_PROC", "value": "4"}]));
    let waiting = written(&before, &job(&before, &[]));
    assert_eq!(waiting["spec"]["runPolicy"]["suspend"], json!(true));
    let admitted = written(&waiting, &job(&before, &["n2", "n1", "n2"]));
    assert_eq!(admitted["spec"]["runPolicy"]["suspend"], json!(false));
    let worker = &admitted["spec"]["mpiReplicaSpecs"]["Worker"];
    assert_eq!(worker["replicas"], json!(3));
    assert_eq!(worker["template"]["metadata"]["labels"], json!({"trainyard.dev/queue": "q"}));
    let fields = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
    let nodes = &worker["template"]["spec"]["affinity"]["nodeAffinity"];
    assert_eq!(
        *nodes,
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [fields("n1"), fields("n2")]}})
    );
    for (object, count) in [(&waiting, 0), (&admitted, 3)] {
        // The write is no edit, and it is read back.
        assert_eq!(MpiJob.spec_fact(object), MpiJob.spec_fact(&before));
        assert_eq!(MpiJob.object_fact(object).mirror.to_string(), "2/7");
        assert_eq!(MpiJob.adopt(object).mirror.share.len(), count);
    }
    let copied = testing::edited(admitted.clone(), &[("/metadata/uid", json!("another"))]);
    assert_eq!(MpiJob.object_fact(&copied).mirror, Stamp::default());
    // Halted, it has no trace of the nodes left.
    let halted = written(&admitted, &job(&before, &[]));
    assert_eq!(SpecPatch::of(&halted), SpecPatch::of(&waiting));
}

#[test]
fn a_mirror_beside_fields_that_others_changed_does_not_count() {
    let object = object(&json!([{"name": "NUM_PROC", "value": "2"}]));
    let admitted = written(&object, &job(&object, &["n1", "n1"]));
    let changes = [
        json!({"runPolicy": {"suspend": true}}),
        json!({"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}),
        json!({"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"affinity": null}}}}}),
        json!({"mpiReplicaSpecs": {"Worker": {"template": {"metadata": {"labels": {"trainyard.dev/queue": "other"}}}}}}),
    ];
    for change in changes {
        let changed = merged(&admitted, &json!({"spec": change}));
        assert_eq!(MpiJob.object_fact(&changed).mirror, Stamp::default(), "{change}");
    }
    let other = merged(&admitted, &json!({"spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}}}}));
    assert_eq!(MpiJob.object_fact(&other).mirror.to_string(), "2/7");
}

#[test]
fn rules_of_the_user_for_nodes_stay() {
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let affinity = json!({"podAffinity": {"x": 1}, "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [zone]}}],
    }});
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"affinity": affinity}});
    for queue in [None, Some(Text::from("q"))] {
        let mut placed = template.clone();
        crate::demand::place(&mut placed, &["n1", "n2"], queue.as_ref(), None);
        assert_ne!(placed, template);
        assert_eq!(own(placed), template, "{queue:?}");
    }
}

#[test]
fn the_end_is_the_one_that_the_mpi_operator_reports() {
    let end = |conditions: Value| {
        let mut object = object(&json!([]));
        object["status"] = json!({"conditions": conditions});
        MpiJob.object_fact(&object).reported_end.map(|end| (end.phase, end.message.to_string()))
    };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
    assert_eq!(end(json!([condition("Running", "True"), condition("Failed", "False")])), None);
    assert_eq!(
        end(json!([condition("Suspended", "False"), condition("Succeeded", "True")])),
        Some((Phase::Succeeded, "m".to_owned()))
    );
    assert_eq!(
        end(json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}])),
        Some((Phase::Failed, "BackoffLimitExceeded".to_owned()))
    );
}

#[test]
fn workers_are_identified_by_their_names() {
    let pod = |name: &str, role: &str| {
        json!({"metadata": {"name": name, "labels": {"training.kubeflow.org/job-name": "j",
            "training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-index": "9"}}})
    };
    let slot = |name: &str, role: &str| MpiJob.slot_of(&pod(name, role)).map(|slot| slot.to_string());
    assert_eq!(slot("j-worker-2", "worker").as_deref(), Some("worker-2"));
    assert_eq!((slot("j-launcher", "launcher"), slot("other-worker-2", "worker")), (None, None));
}

#[test]
fn a_job_with_a_type_of_gpu_tolerates_the_taints_of_voda() {
    let own_toleration = json!({"key": "team", "operator": "Exists"});
    let voda = json!({"key": "vodascheduler/hostname", "operator": "Exists", "effect": "NoExecute"});
    let tolerations =
        |object: &Value, part: &str| object["spec"]["mpiReplicaSpecs"][part]["template"]["spec"]["tolerations"].clone();
    let mut object = object(&json!([]));
    object["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["tolerations"] = json!([own_toleration]);
    let plain = written(&object, &job(&object, &["n1"]));
    assert_eq!(tolerations(&plain, WORKER), json!([own_toleration]), "a job of no type of GPU is left as it is");
    assert_eq!(tolerations(&plain, LAUNCHER), Value::Null);

    object["metadata"]["labels"][ACCELERATOR] = json!("a100");
    let steered = written(&object, &job(&object, &["n1"]));
    assert_eq!(tolerations(&steered, WORKER), json!([own_toleration, voda]));
    // The MPI operator creates the Job of the launcher before anything is decided: what is written later has no effect.
    assert_eq!(tolerations(&steered, LAUNCHER), Value::Null);
    let mut launcher = object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"].clone();
    for _ in 0..2 {
        tolerate_voda(&mut launcher);
        assert_eq!(launcher["spec"]["tolerations"], json!([voda]));
    }
    // What was written is no edit by its user, and is not written twice.
    assert_eq!(MpiJob.spec_fact(&steered), MpiJob.spec_fact(&object));
    assert_eq!(written(&steered, &job(&steered, &["n1"])), steered);

    // Another client took it away: it is written again.
    let mut taken = steered.clone();
    taken["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["tolerations"] = json!([]);
    assert_ne!(MpiJob.object_fact(&steered).mirror, Stamp::default());
    assert_eq!(MpiJob.object_fact(&taken).mirror, Stamp::default());
}

#[test]
fn the_launcher_is_held_to_the_rules_of_pods_as_workers_are() {
    let mut faulty = object(&json!([]));
    faulty["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["name"] = json!("A b");
    let errors = testing::errors(&MpiJob, &faulty);
    let path = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].name: ";
    assert!(errors.len() == 1 && errors[0].starts_with(path), "{errors:?}");
}

#[test]
fn the_name_of_a_job_makes_host_names() {
    let errors = |name: &str| {
        let mut object = object(&json!([]));
        object["metadata"]["name"] = json!(name);
        testing::errors(&MpiJob, &object)
    };
    assert_eq!(errors(&"a".repeat(54)), [""; 0]);
    let long = errors(&"a".repeat(55));
    assert!(long.len() == 1 && long[0].contains("-worker-2` is 64 characters long, 63 at most"), "{long:?}");
    for name in ["1a", "a.b"] {
        assert!(errors(name)[0].starts_with("metadata.name: must be letters, digits and inner hyphens"), "{name}");
    }
}
