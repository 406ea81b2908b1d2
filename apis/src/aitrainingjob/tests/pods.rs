//! Slot -> pod and service.

use model::{Incarnation, SlotId};
use serde_json::{Value, json};

use super::{accepted, base, edited};
use crate::aitrainingjob::{AiTrainingJob, PeerEnv, pod};
use crate::api::{PodApi, PodSlot, RenderInput};
use crate::testing::{self, slot};

fn render(object: &Value, slot: &SlotId, incarnation: u32, count: u32) -> Value {
    testing::render(&AiTrainingJob, object, slot, incarnation, count)
}

fn render_service(object: &Value, slot: &SlotId) -> Value {
    testing::render_service(&AiTrainingJob, object, slot)
}

fn env(container: &Value) -> Vec<String> {
    let text = |var: &Value, key: &str| var[key].as_str().unwrap().to_owned();
    container["env"].as_array().unwrap().iter().map(|v| format!("{}={}", text(v, "name"), text(v, "value"))).collect()
}

/// The job of the scenario `render-pods-and-services`.
fn two_groups() -> Value {
    json!({
        "apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "dj", "namespace": "default", "uid": "job-1", "labels": {"team": "a", "tl": "fromjob"}},
        "spec": {"priority": "high", "schedulerName": "volcano", "replicaSpecs": {
            "pserver": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "aitj-ps", "image": "i", "ports": [{"name": "aitj-a", "containerPort": 6000}]}]}}},
            "trainer": {"replicas": 1, "template": {
                "metadata": {"labels": {"tl": "fromtpl", "PodRole": "evil"}, "annotations": {"k": "v"}, "name": "zzz"},
                "spec": {"restartPolicy": "Always", "schedulerName": "foo",
                    "initContainers": [{"name": "aitj-init", "image": "i", "ports": [{"name": "aitj-z", "containerPort": 9}]}],
                    "containers": [
                        {"name": "aitj-main", "image": "i", "env": [{"name": "A", "value": "b"}], "ports": [
                            {"name": "aitj-a", "containerPort": 4444}, {"name": "http", "containerPort": 80},
                            {"name": "aitj-b", "containerPort": 5555}]},
                        {"name": "side", "image": "i", "ports": [{"name": "aitj-c", "containerPort": 7777}]}]}}},
        }},
    })
}

#[test]
fn a_pod_carries_labels_and_the_environment_of_all_groups() {
    let pod = render(&two_groups(), &slot("trainer", 0), 1, 0);
    assert_eq!(
        pod["metadata"],
        json!({
            "name": "dj-trainer-0", "namespace": "default",
            "labels": {"GroupName": "elasticdeeplearning.ai", "TrainingJobName": "dj", "JobName": "dj",
                "TrainingJobReplicaName": "trainer", "PodRole": "trainer", "TrainingJobReplicaIndex": "0",
                "RestartCount": "0", "priority": "high", "team": "a", "tl": "fromtpl"},
            "annotations": {"k": "v", "trainyard.dev/incarnation": "1"},
            "ownerReferences": [{"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": "dj",
                "uid": "job-1", "controller": true, "blockOwnerDeletion": true}],
        })
    );
    let spec = &pod["spec"];
    assert_eq!((&spec["schedulerName"], &spec["restartPolicy"]), (&json!("volcano"), &json!("Never")));
    assert!(spec.get("dnsPolicy").is_none());
    let shared = [
        "PSERVER_INSTANCES=dj-pserver-0.default,dj-pserver-1.default",
        "PSERVER_INSTANCES_NUM=2",
        "PSERVER_PORTS=6000",
        "PSERVER_PORTS_NUM=1",
        "PSERVER_HOSTS=dj-pserver-0.default:6000,dj-pserver-1.default:6000",
        "PSERVER_HOSTS_NUM=2",
        "TRAINER_INSTANCES=dj-trainer-0.default",
        "TRAINER_INSTANCES_NUM=1",
        "TRAINER_PORTS=4444,5555",
        "TRAINER_PORTS_NUM=2",
        "TRAINER_HOSTS=dj-trainer-0.default:4444,dj-trainer-0.default:5555",
        "TRAINER_HOSTS_NUM=2",
        "TRAININGJOB_REPLICA_NAME=trainer",
        "TRAININGJOB_REPLICA_INDEX=0",
        "TRAININGJOB_REPLICA_RESTARTCOUNT=0",
        "TRAININGJOB_SERVICE=dj-trainer-0.default",
        "TRAININGJOB_NAME=dj",
        "TRAININGJOB_NAMESPACE=default",
    ];
    let with = |first: &[&str], last: &[&str]| {
        [first, &shared, last].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(env(&spec["containers"][0]), with(&["A=b"], &["TRAININGJOB_PORTS=4444,5555"]));
    assert_eq!(env(&spec["containers"][1]), with(&[], &["TRAININGJOB_PORTS="]));
    assert_eq!(env(&spec["initContainers"][0]), with(&[], &[]));
}

#[test]
fn index_count_and_incarnation_are_the_slots_own() {
    let pod = render(&two_groups(), &slot("pserver", 1), 7, 3);
    let labels = &pod["metadata"]["labels"];
    assert_eq!(
        (&labels["TrainingJobReplicaIndex"], &labels["RestartCount"], &labels["tl"]),
        (&json!("1"), &json!("3"), &json!("fromjob"))
    );
    assert_eq!(pod["metadata"]["annotations"], json!({"trainyard.dev/incarnation": "7"}));
    let env = env(&pod["spec"]["containers"][0]);
    for want in [
        "TRAININGJOB_REPLICA_INDEX=1",
        "TRAININGJOB_REPLICA_RESTARTCOUNT=3",
        "TRAININGJOB_SERVICE=dj-pserver-1.default",
    ] {
        assert!(env.iter().any(|entry| entry == want), "{want}");
    }
    let read = crate::pod::fact(&AiTrainingJob, &{
        let mut seen = pod.clone();
        seen["metadata"]["uid"] = json!("p");
        seen
    })
    .unwrap();
    assert_eq!((read.slot, read.incarnation), (Some(slot("pserver", 1)), Incarnation(7)));
}

#[test]
fn mixed_case_groups_are_lower_case_wherever_a_name_must_resolve() {
    let trainer = base()["spec"]["replicaSpecs"]["trainer"].clone();
    let pod = render(&edited(&[("/spec/replicaSpecs", json!({"My-Ps": trainer}))]), &slot("my-ps", 0), 0, 0);
    assert_eq!(pod["metadata"]["name"], "j-my-ps-0");
    assert_eq!(pod["metadata"]["labels"]["TrainingJobReplicaName"], "my-ps");
    let env = env(&pod["spec"]["containers"][0]);
    assert_eq!(env[0], "MY-PS_INSTANCES=j-my-ps-0.default,j-my-ps-1.default");
    assert!(env.contains(&"TRAININGJOB_REPLICA_NAME=my-ps".to_owned()));
}

#[test]
fn what_the_template_says_stays_unless_it_is_ours_to_say() {
    let spec = "/spec/replicaSpecs/trainer/template/spec";
    let dns = |edits: &[(&str, Value)]| render(&edited(edits), &slot("trainer", 0), 0, 0)["spec"]["dnsPolicy"].clone();
    let (host, policy) = (&*format!("{spec}/hostNetwork"), &*format!("{spec}/dnsPolicy"));
    assert_eq!(dns(&[]), json!(null));
    assert_eq!(dns(&[(host, json!(false))]), json!(null));
    assert_eq!(dns(&[(host, json!(true))]), json!("ClusterFirstWithHostNet"));
    assert_eq!(dns(&[(host, json!(true)), (policy, json!(""))]), json!("ClusterFirstWithHostNet"));
    assert_eq!(dns(&[(host, json!(true)), (policy, json!("Default"))]), json!("Default"));

    let template = json!({"metadata": {"finalizers": ["a/b"], "generateName": "g", "ownerReferences": [{"uid": "x"}],
            "creationTimestamp": null, "labels": {"priority": "own", "GroupName": "other"}},
        "spec": {"schedulerName": "foo", "novelField": {"cpu": 1.0}, "containers": [
            {"name": "main", "image": "i", "env": null, "resources": {"limits": {"cpu": 1.0}}}]}});
    let pod = render(&edited(&[("/spec/replicaSpecs/trainer/template", template)]), &slot("trainer", 1), 0, 0);
    assert_eq!(pod["metadata"]["finalizers"], json!(["a/b"]));
    assert!(pod["metadata"].get("generateName").is_none() && pod["metadata"].get("creationTimestamp").is_none());
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "job-1");
    assert_eq!(pod["metadata"]["labels"]["priority"], "own");
    assert_eq!(pod["metadata"]["labels"]["GroupName"], "elasticdeeplearning.ai");
    assert_eq!(pod["spec"]["schedulerName"], "foo");
    assert_eq!(pod["spec"]["novelField"].to_string(), r#"{"cpu":1.0}"#);
    assert_eq!(pod["spec"]["containers"][0]["resources"].to_string(), r#"{"limits":{"cpu":1.0}}"#);
    assert_eq!(env(&pod["spec"]["containers"][0]).last().map(String::as_str), Some("TRAININGJOB_PORTS="));
}

#[test]
fn a_shared_environment_renders_the_same_pods() {
    let (job, spec, manifest) = accepted(&two_groups());
    let source = RenderInput { job: &job, spec: &spec, manifest: &manifest };
    let peers = PeerEnv::new(&job, &spec, &manifest).unwrap();
    assert_eq!(peers.vars().len(), 12);
    for group in &spec.groups {
        for index in 0..group.replicas {
            let slot = SlotId { group: group.name.clone(), index };
            let wanted = PodSlot { slot: &slot, group, incarnation: Incarnation(1), count: 0 };
            assert_eq!(pod(source, wanted, &peers), AiTrainingJob.render(source, &[wanted]).remove(0));
        }
    }
}

#[test]
fn services_are_headless_and_found_by_the_slots_labels() {
    let service = render_service(&two_groups(), &slot("trainer", 0));
    let labels = json!({"GroupName": "elasticdeeplearning.ai", "TrainingJobName": "dj",
        "TrainingJobReplicaName": "trainer", "TrainingJobReplicaIndex": "0"});
    assert_eq!(
        service,
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "dj-trainer-0", "namespace": "default", "labels": labels,
                "ownerReferences": [{"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": "dj",
                    "uid": "job-1", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": labels, "ports": [
                {"name": "aitj-4444", "port": 4444, "protocol": "TCP"},
                {"name": "aitj-5555", "port": 5555, "protocol": "TCP"}]}})
    );
    let pod = render(&two_groups(), &slot("trainer", 0), 1, 0);
    for (key, value) in labels.as_object().unwrap() {
        assert_eq!(&pod["metadata"]["labels"][key], value);
    }
}

#[test]
fn service_ports_are_distinct_by_number_and_protocol() {
    let ports = |ports: Value, more: Value| {
        let containers =
            json!([{"name": "aitj-a", "image": "i", "ports": ports}, {"name": "aitj-b", "image": "i", "ports": more}]);
        let job = edited(&[("/spec/replicaSpecs/trainer/template/spec/containers", containers)]);
        let service = render_service(&job, &slot("trainer", 1));
        let rows: Vec<String> = service["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| {
                format!("{} {} {}", port["name"].as_str().unwrap(), port["port"], port["protocol"].as_str().unwrap())
            })
            .collect();
        rows
    };
    let port =
        |name: &str, number: u16, protocol: Value| json!({"name": name, "containerPort": number, "protocol": protocol});
    assert_eq!(ports(json!(null), json!([])), [""; 0]);
    assert_eq!(
        ports(
            json!([port("aitj-t", 53, json!("TCP")), port("aitj-u", 53, json!("UDP")), port("x", 54, json!(null))]),
            json!([
                port("aitj-again", 53, json!(null)),
                port("aitj-s", 53, json!("SCTP")),
                port("aitj-v", 55, json!("UDP"))
            ]),
        ),
        ["aitj-53 53 TCP", "aitj-53-udp 53 UDP", "aitj-53-sctp 53 SCTP", "aitj-55 55 UDP"]
    );
}

#[test]
fn slots_are_read_from_labels_only() {
    for (group, index, want) in [
        (json!("trainer"), json!("3"), Some(slot("trainer", 3))),
        (json!("trainer"), json!("-1"), None),
        (json!("trainer"), json!("+1"), None),
        (json!("trainer"), json!(""), None),
        (json!("trainer"), json!("99999999999"), None),
        (json!("trainer"), json!(1), None),
        (json!(""), json!("1"), None),
        (json!(null), json!("1"), None),
    ] {
        let object = json!({"metadata": {"name": "j-trainer-7",
            "labels": {"TrainingJobReplicaName": group, "TrainingJobReplicaIndex": index}}});
        assert_eq!(AiTrainingJob.slot_of(&object), want, "{object}");
    }
}

#[test]
fn a_manifest_without_the_group_is_an_error_that_names_it() {
    let (job, spec, _) = accepted(&base());
    let manifest = json!({"spec": {"replicaSpecs": {}}});
    let source = RenderInput { job: &job, spec: &spec, manifest: &manifest };
    let wanted = PodSlot { slot: &slot("trainer", 0), group: &spec.groups[0], incarnation: Incarnation(0), count: 0 };
    assert_eq!(
        AiTrainingJob.render(source, &[wanted]).remove(0).unwrap_err().path,
        "spec.replicaSpecs.trainer.template"
    );
    assert_eq!(
        AiTrainingJob.service(source, &slot("trainer", 0)).unwrap_err().path,
        "spec.replicaSpecs.trainer.template"
    );
    assert_eq!(AiTrainingJob.service(source, &slot("ps", 0)).unwrap_err().path, "spec.replicaSpecs.ps");
}
