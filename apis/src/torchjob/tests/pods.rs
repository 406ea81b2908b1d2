//! Spec -> pods, services and pod groups.

use std::collections::BTreeMap;

use engine::Owned;
use model::{OwnedFact, ResourceVersion, Retain, Uid};
use serde_json::{Value, json};
use settings::TorchSettings;

use super::{base, edited};
use crate::api::{OwnedApi, PodApi, RenderInput};
use crate::owned::SERVICE;
use crate::testing::{self, accepted, slot};
use crate::torchjob::TorchJob;
use crate::torchjob::pod_groups::POD_GROUP;

fn pod(api: &TorchJob, object: &Value, group: &str, index: u32) -> Value {
    testing::render(api, object, &slot(group, index), 1, 0)
}

fn service(api: &TorchJob, object: &Value, group: &str, index: u32) -> Value {
    if group == "master" {
        let (key, spec, manifest) = accepted(api, object);
        let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
        return api.render_owned(source, &engine::Job::default(), &SERVICE.named("j1-master-0")).unwrap();
    }
    testing::render_service(api, object, &slot(group, index))
}

fn env(pod: &Value, container: usize) -> Vec<String> {
    let variables = pod["spec"]["containers"][container]["env"].as_array().unwrap();
    variables.iter().map(|v| format!("{}={}", v["name"].as_str().unwrap(), v["value"].as_str().unwrap())).collect()
}

#[test]
fn the_master_finds_itself_and_the_workers_find_it_by_name() {
    let api = TorchJob::default();
    let want = |address: &str, rank: u32| {
        let rank = format!("RANK={rank}");
        let address = format!("MASTER_ADDR={address}");
        ["MASTER_PORT=23456", &address, &rank, "PYTHONUNBUFFERED=0", "WORLD_SIZE=3"].map(str::to_owned)
    };
    assert_eq!(env(&pod(&api, &base(), "master", 0), 0), want("localhost", 0));
    assert_eq!(env(&pod(&api, &base(), "worker", 1), 0), want("j1-master-0", 2));
    let named = TorchJob { settings: TorchSettings { local_master: false, ..TorchSettings::default() } };
    assert_eq!(env(&pod(&named, &base(), "master", 0), 0), want("j1-master-0", 0));
    assert_eq!(env(&pod(&named, &base(), "worker", 1), 0), want("j1-master-0", 2));
}

#[test]
fn ports_on_nodes_are_those_of_a_range_and_differ_within_a_job() {
    let object = edited(&[
        ("/metadata/annotations", json!({"distributed.io/network-mode": "host"})),
        ("/spec/torchTaskSpecs/Worker/numTasks", json!(40)),
    ]);
    let settings = TorchSettings { host_ports: (20_000, 50), ..TorchSettings::default() };
    let api = TorchJob { settings: settings.clone() };
    let master = pod(&api, &object, "master", 0);
    assert_eq!(
        (&master["spec"]["hostNetwork"], &master["spec"]["dnsPolicy"]),
        (&json!(true), &json!("ClusterFirstWithHostNet"))
    );
    let port = |pod: &Value| {
        let port = &pod["spec"]["containers"][0]["ports"][0];
        assert_eq!((&port["name"], &port["containerPort"]), (&json!("torchjob-port"), &port["hostPort"]));
        port["hostPort"].as_u64().unwrap()
    };
    let mut ports: Vec<u64> = (0..40).map(|index| port(&pod(&api, &object, "worker", index))).collect();
    ports.push(port(&master));
    assert!(ports.iter().all(|port| (20_000..20_050).contains(port)));
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 41);
    // The service leads to the port on the node, unless it is headless.
    let target = port(&master);
    let of = service(&api, &object, "master", 0);
    assert_eq!(of["spec"]["ports"], json!([{"name": "torchjob-port", "port": 23_456, "targetPort": target}]));
    assert_eq!(of["spec"].get("clusterIP"), None);
    assert_eq!(env(&master, 0)[0], format!("MASTER_PORT={target}"));
    assert_eq!(env(&pod(&api, &object, "worker", 0), 0)[0], "MASTER_PORT=23456");
    let headless = TorchJob { settings: TorchSettings { headless_host_network: true, ..settings } };
    assert_eq!(service(&headless, &object, "master", 0)["spec"]["clusterIP"], "None");
    assert_eq!(env(&pod(&headless, &object, "worker", 0), 0)[0], format!("MASTER_PORT={target}"));
    // A replaced pod has the port of the one before.
    assert_eq!(port(&testing::render(&api, &object, &slot("master", 0), 7, 3)), target);
}

#[test]
fn a_model_goes_into_its_storage() {
    let storage = |storage: &Value| {
        let object = edited(&[("/spec/modelVersion", json!({"spec": {"storage": storage}}))]);
        let pod = pod(&TorchJob::default(), &object, "worker", 0);
        (env(&pod, 0)[0].clone(), pod["spec"]["volumes"].clone())
    };
    let local = json!({"localStorage": {"path": "/d", "mountPath": "/out"}});
    let volume = json!([{"name": "modelvolume", "hostPath": {"path": "/d"}}]);
    assert_eq!(storage(&local), ("TORCH_ON_K8S_MODEL_PATH=/out".to_owned(), volume));
    let nfs = json!({"nfs": {"server": "s", "path": "/d", "mountPath": "/out"}});
    let volume = json!([{"name": "modelvolume", "nfs": {"server": "s", "path": "/d"}}]);
    assert_eq!(storage(&nfs).1, volume);
}

/// The job, and the pod group of each name as it is known.
fn joined(api: &TorchJob, object: &Value, group: &str, known: &[&str]) -> Value {
    let (key, spec, manifest) = accepted(api, object);
    let fact = |name: &str| OwnedFact {
        object: POD_GROUP.named(name),
        uid: Uid::from("pg-1"),
        rv: ResourceVersion(1),
        deleting: false,
        keep: Retain::WithJob,
        ready: true,
        failed: None,
        digest: None,
        gate: None,
        contents: None,
    };
    let owned = |name: &&str| (POD_GROUP.named(name), Box::new(Owned { fact: Some(fact(name)), ..Owned::default() }));
    let job = engine::Job { owned: known.iter().map(owned).collect::<BTreeMap<_, _>>(), ..engine::Job::default() };
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    let mut pod = pod(api, object, group, 0);
    api.complete(source, &job, &slot(group, 0), &mut pod);
    pod
}

#[test]
fn a_pod_joins_its_group_once_that_exists() {
    let api = TorchJob::default();
    let pod = joined(&api, &base(), "worker", &["j1-worker"]);
    assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "j1-worker");
    assert_eq!(pod["spec"]["schedulerName"], "volcano");
    let owners = pod["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((&owners[0]["kind"], &owners[0]["controller"]), (&json!("PodGroup"), &json!(false)));
    assert_eq!((&owners[1]["kind"], &owners[1]["controller"]), (&json!("TorchJob"), &json!(true)));
    let pod = joined(&api, &base(), "worker", &["j1-master"]);
    assert_eq!(
        (pod["spec"].get("schedulerName"), pod["metadata"]["ownerReferences"].as_array().unwrap().len()),
        (None, 1)
    );
    let named = edited(&[("/spec/torchTaskSpecs/Worker/template/spec/schedulerName", json!("mine"))]);
    assert_eq!(joined(&api, &named, "worker", &["j1-worker"])["spec"]["schedulerName"], "mine");
    let template = base()["spec"]["torchTaskSpecs"]["Master"]["template"].clone();
    let with = edited(&[("/spec/torchTaskSpecs/AIMaster", json!({"template": template}))]);
    assert_eq!(joined(&api, &with, "aimaster", &["j1-master"])["spec"]["schedulerName"], "default-scheduler");
}

#[test]
fn a_pod_group_asks_for_what_its_members_request() {
    let group = |api: &TorchJob, object: &Value, name: &str| {
        let (key, spec, manifest) = accepted(api, object);
        let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
        api.render_owned(source, &engine::Job::default(), &POD_GROUP.named(name)).unwrap()
    };
    let api = TorchJob::default();
    let scheduling = json!({"queue": "q1", "priorityClassName": "high", "minAvailable": 2});
    let object = edited(&[("/spec/minMembers", json!({"worker": 1})), ("/spec/schedulingPolicy", scheduling)]);
    assert_eq!(
        group(&api, &object, "j1-worker"),
        json!({"metadata": {"labels": {"group-name": "train.distributed.io", "distributed.io/gang-job-name": "j1",
                "task-type": "worker"}},
            "spec": {"minMember": 1, "minResources": {"cpu": "500m"}, "queue": "q1", "priorityClassName": "high"}})
    );
    assert_eq!(group(&api, &base(), "j1-worker")["spec"]["minResources"], json!({"cpu": "1"}));
    let whole = TorchJob { settings: TorchSettings { ordered: false, ..TorchSettings::default() } };
    let spot = testing::edited(object, &[("/spec/torchTaskSpecs/Worker/spotTaskSpec", json!({"numSpotTasks": 1}))]);
    let group = group(&whole, &spot, "j1");
    assert_eq!((&group["spec"]["minMember"], &group["spec"]["minResources"]), (&json!(2), &json!({"cpu": "1"})));
    assert_eq!(
        group["metadata"]["labels"],
        json!({"group-name": "train.distributed.io", "distributed.io/gang-job-name": "j1"})
    );
}
