//! Each row of the command table: what is sent, and what an answer means.

use model::{JobKey, ObjectRef, Position, ResourceVersion, SlotId, Term, Uid};

use super::*;

fn job() -> JobKey {
    JobKey { namespace: "ns".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: Uid::from("ju") }
}

fn call(verb: Verb, resource: Resource, name: &str, body: Option<Value>) -> ApiCall {
    ApiCall {
        id: 7,
        job: job(),
        object: Some(ObjectRef::Pod(SlotId { group: "trainer".into(), index: 0 })),
        cause: Stamp { term: Term(5), position: Position(42) },
        verb,
        resource,
        namespace: "ns".into(),
        name: name.into(),
        body,
        uid: None,
        rv: None,
        grace_seconds: None,
    }
}

fn pods() -> Resource {
    Resource::new("v1", "Pod")
}

fn jobs() -> Resource {
    Resource::new("elasticdeeplearning.ai/v1", "AITrainingJob")
}

/// Method and path, then content type and accepted type, then the body.
fn sent(call: ApiCall) -> (String, String, Value) {
    let prepared = prepare(call, &Registry::all()).unwrap();
    let header = |name| prepared.head.headers().get(name).map_or("", |value| value.to_str().unwrap());
    assert!(header(header::USER_AGENT).starts_with("trainyard/"), "{prepared:?}");
    let types = format!("{} <- {}", header(header::CONTENT_TYPE), header(header::ACCEPT).split(',').next().unwrap());
    let body = if prepared.body.is_empty() { Value::Null } else { serde_json::from_slice(&prepared.body).unwrap() };
    (format!("{} {}", prepared.head.method(), prepared.head.uri()), types, body)
}

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[test]
fn creates_name_the_record_they_follow_from() {
    let body = json!({"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "b"}}, "spec": {}});
    let (line, types, sent_body) = sent(call(Verb::Create, pods(), "p", Some(body)));
    assert_eq!(line, "POST /api/v1/namespaces/ns/pods?fieldManager=trainyard");
    assert_eq!(types, format!("application/json <- {PARTIAL}"));
    assert_eq!(
        sent_body,
        json!({"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "b", "trainyard.dev/record": "5/42"}}, "spec": {}})
    );
    // A pod that is placed from the start is read whole: its metadata does not say where.
    let placed = json!({"metadata": {"annotations": null}, "spec": {"nodeName": "n1"}});
    let (_, types, sent_body) = sent(call(Verb::Create, pods(), "p", Some(placed)));
    assert_eq!(types, "application/json <- application/json");
    assert_eq!(sent_body["metadata"]["annotations"], json!({"trainyard.dev/record": "5/42"}));
    let version = Resource::new("model.distributed.io/v1alpha1", "ModelVersion");
    let (_, types, _) = sent(call(Verb::Create, version, "v", Some(json!({"metadata": {"name": "v"}}))));
    assert_eq!(types, "application/json <- application/json", "its spec is read");
    let agent = prepare(call(Verb::Create, pods(), "p", Some(json!({}))), &Registry::all()).unwrap();
    let agent = agent.head.headers()[header::USER_AGENT].to_str().unwrap().to_owned();
    assert_eq!(agent, format!("trainyard/{} (record 5/42)", env!("CARGO_PKG_VERSION")));
}

#[test]
fn kubernetes_events_follow_from_no_record_and_need_no_answer() {
    let event = ApiCall {
        object: None,
        cause: Stamp::default(),
        ..call(Verb::Create, Resource::new("v1", "Event"), "j.1", Some(json!({"metadata": {"name": "j.1"}})))
    };
    let prepared = prepare(event.clone(), &Registry::all()).unwrap();
    assert!(!prepared.expects_answer && matches!(prepared.read, AnswerType::Nothing));
    let (line, _, body) = sent(event);
    assert_eq!(line, "POST /api/v1/namespaces/ns/events?fieldManager=trainyard");
    assert_eq!(body, json!({"metadata": {"name": "j.1"}}));
}

#[test]
fn deletes_carry_their_preconditions_and_their_grace() {
    let delete = ApiCall { uid: Some(Uid::from("pu")), ..call(Verb::Delete, pods(), "p", None) };
    let (line, _, body) = sent(delete.clone());
    assert_eq!(line, "DELETE /api/v1/namespaces/ns/pods/p");
    assert_eq!(body, json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "pu"}}));
    let (_, _, body) = sent(ApiCall { grace_seconds: Some(0), rv: Some(ResourceVersion(9)), ..delete });
    assert_eq!(
        body,
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": "pu", "resourceVersion": "9"}})
    );
}

#[test]
fn patches_and_statuses_carry_their_preconditions_in_the_metadata() {
    let patch = json!({"metadata": {"annotations": {"Failed": "x"}}});
    let patch = ApiCall { uid: Some(Uid::from("ju")), ..call(Verb::Patch, jobs(), "j", Some(patch)) };
    let (line, types, body) = sent(patch);
    assert_eq!(line, "PATCH /apis/elasticdeeplearning.ai/v1/namespaces/ns/aitrainingjobs/j?fieldManager=trainyard");
    assert_eq!(types, format!("application/merge-patch+json <- {PARTIAL}"));
    assert_eq!(body, json!({"metadata": {"annotations": {"Failed": "x"}, "uid": "ju"}}));

    let state = json!({"metadata": {"annotations": {"trainyard.dev/state": "{}"}}});
    let state = ApiCall { object: Some(ObjectRef::Status), ..call(Verb::Patch, jobs(), "j", Some(state)) };
    assert_eq!(sent(state).1, "application/merge-patch+json <- application/json");

    let report = json!({"status": {"admission": null}});
    let workloads = Resource::new("kueue.x-k8s.io/v1beta1", "Workload");
    let report = ApiCall { rv: Some(ResourceVersion(7)), ..call(Verb::PatchStatus, workloads, "w", Some(report)) };
    let (line, types, body) = sent(report);
    assert_eq!(line, "PATCH /apis/kueue.x-k8s.io/v1beta1/namespaces/ns/workloads/w/status?fieldManager=trainyard");
    assert_eq!(types, format!("application/merge-patch+json <- {PARTIAL}"));
    assert_eq!(body, json!({"metadata": {"resourceVersion": "7"}, "status": {"admission": null}}));

    let status = json!({"status": {"phase": "Running", "conditions": null}});
    let status = ApiCall {
        uid: Some(Uid::from("ju")),
        rv: Some(ResourceVersion(31)),
        ..call(Verb::ApplyStatus, jobs(), "j", Some(status))
    };
    let (line, types, body) = sent(status);
    let path = "/apis/elasticdeeplearning.ai/v1/namespaces/ns/aitrainingjobs/j/status";
    assert_eq!(line, format!("PATCH {path}?fieldManager=trainyard&force=true"));
    assert_eq!(types, "application/apply-patch+yaml <- application/json");
    assert_eq!(
        body,
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "ns", "uid": "ju", "resourceVersion": "31"},
            "status": {"phase": "Running", "conditions": null}})
    );
}

#[test]
fn an_answer_to_a_status_write_shows_the_mirror() {
    let prepared =
        prepare(call(Verb::ApplyStatus, jobs(), "j", Some(json!({"status": {}}))), &Registry::all()).unwrap();
    let whole = json!({"metadata": {"name": "j", "uid": "ju", "resourceVersion": "32", "managedFields": []},
        "spec": {"replicaSpecs": {}}, "status": {"phase": "Running", "trainyard": {"term": 3, "position": 7}}});
    let read = answer(&prepared.read, 200, whole.to_string().as_bytes()).unwrap();
    assert_eq!(apis::objects::mirror_stamp(&read), model::Stamp { term: model::Term(3), position: model::Position(7) });
    assert_eq!((&read["metadata"]["resourceVersion"], read.get("spec")), (&json!("32"), None));
}

#[test]
fn an_object_without_a_namespace_is_read_whole() {
    let queue = Resource::new("scheduling.run.ai/v2", "Queue");
    let get = ApiCall { namespace: "".into(), ..call(Verb::Get, queue, "top", None) };
    let prepared = prepare(get, &Registry::all()).unwrap();
    assert_eq!(prepared.head.uri(), "/apis/scheduling.run.ai/v2/queues/top");
    let of_admin = json!({"metadata": {"name": "top", "annotations": {"trainyard.dev/namespace-selector": "{}"}},
        "spec": {"resources": {"gpu": {"quota": 8}}}});
    let read = answer(&prepared.read, 200, of_admin.to_string().as_bytes()).unwrap();
    assert_eq!((&read["metadata"], &read["spec"]), (&of_admin["metadata"], &of_admin["spec"]));
}

#[test]
fn reads_read_what_is_judged() {
    let (line, types, body) = sent(call(Verb::Get, pods(), "p", None));
    assert_eq!((line.as_str(), types.as_str()), ("GET /api/v1/namespaces/ns/pods/p", " <- application/json"));
    assert_eq!(body, Value::Null);
    let prepared = prepare(call(Verb::Get, pods(), "p", None), &Registry::all()).unwrap();
    let whole =
        json!({"kind": "Pod", "metadata": {"name": "p", "managedFields": []}, "spec": {"nodeName": "n", "x": 1}});
    let read = answer(&prepared.read, 200, whole.to_string().as_bytes()).unwrap();
    assert_eq!(*read, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n"}}));
}

#[test]
fn a_log_is_read_as_text() {
    let read = call(Verb::Log, pods(), "p", Some(json!({"container": "torch"})));
    let (line, types, body) = sent(read.clone());
    let want = "GET /api/v1/namespaces/ns/pods/p/log?container=torch&tailLines=1&limitBytes=16384";
    assert_eq!((line.as_str(), types.as_str(), body), (want, " <- */*", Value::Null));
    let prepared = prepare(read, &Registry::all()).unwrap();
    assert_eq!(*answer(&prepared.read, 200, b"Epoch: \xff\n").unwrap(), json!("Epoch: \u{fffd}\n"));
    assert_eq!(answer(&prepared.read, 404, b"{}").unwrap_err().code, 404);
}

#[test]
fn a_list_is_read_page_by_page() {
    let query = json!({"continue": "a/b=", "fieldSelector": "status.phase!=Failed"});
    let list = apis::ApiCall { namespace: "".into(), ..call(Verb::List, pods(), "", Some(query)) };
    let (line, types, body) = sent(list.clone());
    let want = "GET /api/v1/pods?&fieldSelector=status.phase%21%3DFailed&limit=500&continue=a%2Fb%3D";
    assert_eq!((line.as_str(), types.as_str(), body), (want, " <- application/json", Value::Null));
    let prepared = prepare(list, &Registry::all()).unwrap();
    let page = json!({"metadata": {"continue": "c"}, "items": [{"spec": {"nodeName": "n", "x": 1}}]});
    let read = answer(&prepared.read, 200, page.to_string().as_bytes()).unwrap();
    assert_eq!(read["metadata"]["continue"], "c");
    assert_eq!(read["items"][0]["spec"], json!({"nodeName": "n"}));
    let first = call(Verb::List, Resource::new("v1", "Node"), "", Some(json!({"continue": ""})));
    assert_eq!(sent(apis::ApiCall { namespace: "".into(), ..first }).0, "GET /api/v1/nodes?&limit=500");
}

#[test]
fn what_no_request_can_be_made_of_is_refused() {
    for (call, words) in [
        (call(Verb::Get, Resource::new("v1", "Secret"), "x", None), "v1 Secret is not served"),
        (call(Verb::Get, Resource::new("other/v1", "AITrainingJob"), "x", None), "other/v1 AITrainingJob"),
        (call(Verb::Create, pods(), "x", Some(json!([]))), "metadata"),
        (
            call(Verb::Create, pods(), "x", Some(json!({"metadata": {"annotations": 3}}))),
            "annotations: must be an object (3)",
        ),
        (call(Verb::Get, pods(), "not a name", None), "uri"),
    ] {
        let error = prepare(call, &Registry::all()).unwrap_err();
        assert_eq!((error.code, &*error.reason), (422, "Invalid"));
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn answers_are_objects_refusals_or_silence() {
    let read = AnswerType::Object(ObjectType { api_version: "v1".into(), kind: "Pod".into(), fields: projection::POD });
    let refused = br#"{"kind":"Status","reason":"NotFound","message":"pods \"p\" not found","code":404}"#;
    let error = answer(&read, 404, refused).unwrap_err();
    assert_eq!((error.code, &*error.reason), (404, "NotFound"));
    // Cut short on the way: it may have been done, and what it looks like is not known.
    assert_eq!(answer(&read, 201, b"{\"kind\":").unwrap_err().code, 0);
    assert_eq!(*answer(&AnswerType::Nothing, 200, b"anything").unwrap(), Value::Null);
}
