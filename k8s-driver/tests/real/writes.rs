//! Checks the answers of a real API server to each kind of call, preconditions included.

use apis::{ApiCall, ApiError, Registry, Resource, Verb};
use k8s_driver::api_server::{self, connect};
use k8s_driver::harness;
use model::{JobKey, ObjectRef, Position, ResourceVersion, SlotId, Stamp, Term, Uid};
use serde_json::{Value, json};

use crate::common::{Space, plane};

struct Caller {
    space: Space,
    client: kube::Client,
    runtime: tokio::runtime::Runtime,
}

impl Caller {
    fn new(test: &str) -> Self {
        let space = Space::new(test);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let kubeconfig = Some(plane().kubeconfig().to_owned());
        let options = api_server::Options { kubeconfig, ..api_server::Options::default() };
        let client = runtime.block_on(connect(&options)).unwrap().client;
        Self { space, client, runtime }
    }

    fn call(&self, verb: Verb, resource: Resource, name: &str) -> ApiCall {
        let namespace: model::Text = self.space.name.as_str().into();
        ApiCall {
            id: 1,
            job: JobKey {
                namespace: namespace.clone(),
                name: "j".into(),
                kind: "AITrainingJob".into(),
                uid: "u".into(),
            },
            object: Some(ObjectRef::Pod(SlotId { group: "t".into(), index: 0 })),
            cause: Stamp { term: Term(3), position: Position(4) },
            verb,
            resource,
            namespace,
            name: name.into(),
            body: None,
            uid: None,
            rv: None,
            grace_seconds: None,
        }
    }

    fn send(&self, call: ApiCall) -> Result<Value, ApiError> {
        let prepared = harness::prepare(call, &Registry::all()).unwrap();
        let (request, read) = prepared.into_request();
        let limit = std::time::Duration::from_secs(30);
        let answer = self.runtime.block_on(api_server::exchange(&self.client, request, limit)).unwrap();
        harness::answer(&read, answer.status.as_u16(), &answer.body).map(|object| (*object).clone())
    }

    fn code(&self, call: ApiCall) -> u16 {
        self.send(call).err().map_or(200, |error| error.code)
    }
}

fn pods() -> Resource {
    Resource::new("v1", "Pod")
}

fn jobs() -> Resource {
    Resource::new("elasticdeeplearning.ai/v1", "AITrainingJob")
}

fn version(object: &Value) -> ResourceVersion {
    apis::objects::resource_version(object)
}

#[test]
fn pods_are_created_read_and_deleted_under_their_preconditions() {
    let caller = Caller::new("pods");
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": caller.space.name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let create = ApiCall { body: Some(body), ..caller.call(Verb::Create, pods(), "p") };
    let made = caller.send(create.clone()).unwrap();
    assert_eq!((&made["kind"], &made["metadata"]["name"]), (&json!("Pod"), &json!("p")), "{made}");
    assert!(version(&made).0 > 0 && made["metadata"].get("managedFields").is_none(), "{made}");
    let again = caller.send(create).unwrap_err();
    assert_eq!((again.code, &*again.reason), (409, "AlreadyExists"));
    let read = caller.send(caller.call(Verb::Get, pods(), "p")).unwrap();
    assert_eq!(read["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(caller.code(caller.call(Verb::Get, pods(), "absent")), 404);
    let delete = caller.call(Verb::Delete, pods(), "p");
    assert_eq!(caller.code(ApiCall { uid: Some(Uid::from("another")), ..delete.clone() }), 409);
    let uid = Some(Uid::from(made["metadata"]["uid"].as_str().unwrap()));
    assert_eq!(caller.code(ApiCall { uid, grace_seconds: Some(0), ..delete.clone() }), 200);
    assert_eq!(caller.code(delete), 404);
}

#[test]
fn statuses_are_applied_to_the_very_version_that_was_seen() {
    let caller = Caller::new("statuses");
    caller
        .space
        .apply(&json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "metadata": {"name": "j"},
        "spec": {"replicaSpecs": {"t": {"template": {"spec": {"containers": [{"name": "aitj-c", "image": "i"}]}}}}}}));
    let job = caller.space.job("j");
    let uid = Uid::from(job["metadata"]["uid"].as_str().unwrap());
    let status = |text: Value| Some(json!({"status": text}));
    let apply = ApiCall {
        uid: Some(uid),
        rv: Some(version(&job)),
        body: status(
            json!({"phase": "Pending", "conditions": null, "replicaStatuses": {"t": {}}, "RestartCount": {"t": 1},
            "trainyard": {"term": 1, "position": 2}}),
        ),
        ..caller.call(Verb::ApplyStatus, jobs(), "j")
    };
    let applied = caller.send(apply.clone()).unwrap();
    assert!(version(&applied) > version(&job), "{applied}");
    let mirror = apis::objects::mirror_stamp(&applied);
    assert_eq!((mirror.term.0, mirror.position.0), (1, 2), "the answer shows what was kept: {applied}");
    let stands = caller.space.job("j")["status"].clone();
    assert_eq!((&stands["phase"], &stands["trainyard"]["position"]), (&json!("Pending"), &json!(2)), "{stands}");
    // The version that was seen is not the present one any more.
    let stale = caller.send(apply.clone()).unwrap_err();
    assert_eq!((stale.code, &*stale.reason), (409, "Conflict"));
    // What is left out is gone, as when the status is replaced.
    let next = ApiCall {
        rv: Some(version(&applied)),
        body: status(json!({"phase": "Running", "trainyard": {"term": 1, "position": 3}})),
        ..apply.clone()
    };
    let applied = caller.send(next).unwrap();
    let stands = caller.space.job("j")["status"].clone();
    assert_eq!(stands, json!({"phase": "Running", "trainyard": {"term": 1, "position": 3}}));
    // Another job of that name has another version, and an absent one has none. (The uid alone is not looked at.)
    assert!(version(&applied) > version(&job));
    let other = ApiCall { uid: Some(Uid::from("another")), rv: Some(ResourceVersion(1)), ..apply.clone() };
    assert_eq!(caller.code(other), 409);
    let absent = ApiCall { name: "absent".into(), ..apply };
    assert_eq!(caller.code(absent), 404);
}

#[test]
fn patches_meet_the_job_they_are_meant_for_or_none() {
    let caller = Caller::new("patches");
    caller
        .space
        .apply(&json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "metadata": {"name": "j"},
        "spec": {"replicaSpecs": {"t": {"template": {"spec": {"containers": [{"name": "aitj-c", "image": "i"}]}}}}}}));
    let job = caller.space.job("j");
    let patch = ApiCall {
        uid: Some(Uid::from(job["metadata"]["uid"].as_str().unwrap())),
        body: Some(json!({"metadata": {"annotations": {"Failed": "x"}}})),
        ..caller.call(Verb::Patch, jobs(), "j")
    };
    assert_eq!(caller.code(patch.clone()), 200);
    assert_eq!(caller.space.job("j")["metadata"]["annotations"]["Failed"], "x");
    let other = ApiCall { uid: Some(Uid::from("another")), ..patch.clone() };
    assert_eq!(caller.code(other), 409);
    assert_eq!(caller.code(ApiCall { name: "absent".into(), ..patch }), 404);
}
