//! Calls against a mock of the API server: what leaves when, and what is reported of the answers.

use std::pin::pin;

use apis::Resource;
use http::{Request, Response};
use kube::client::Body;
use model::{JobKey, ObjectRef, SlotId, Stamp, Term, Uid};
use serde_json::{Value, json};
use tower_test::mock::{Handle, SendResponse, pair};

use super::*;

type Server = Handle<Request<Body>, Response<Body>>;

struct World {
    server: Server,
    calls: mpsc::UnboundedSender<Vec<ApiCall>>,
    answers: mpsc::UnboundedReceiver<(CallId, ApiAnswer)>,
    window: watch::Receiver<usize>,
    drain: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    metrics: Metrics,
}

fn world(max_in_flight: usize) -> World {
    let (service, server) = pair();
    let (calls, take_calls) = mpsc::unbounded_channel();
    let (answers, take_answers) = mpsc::unbounded_channel();
    let (window, take_window) = watch::channel(window_of(max_in_flight));
    let metrics = Metrics::new();
    let dispatch = Dispatcher {
        client: Client::new(service, "default"),
        registry: Registry::all(),
        guard: WriteGuard::NoElection,
        metrics: metrics.clone(),
        max_in_flight,
        call_timeout: Duration::from_secs(5),
        answers,
        window,
        dry_run: None,
    };
    let drain = CancellationToken::new();
    let task = tokio::spawn(dispatch.run(take_calls, drain.clone()));
    World { server, calls, answers: take_answers, window: take_window, drain, task, metrics }
}

fn create(id: CallId, job: &str) -> ApiCall {
    ApiCall {
        id,
        job: JobKey { namespace: "ns".into(), name: job.into(), kind: "AITrainingJob".into(), uid: Uid::from(job) },
        object: Some(ObjectRef::Pod(SlotId { group: "t".into(), index: 0 })),
        cause: Stamp { term: Term(1), position: model::Position(id) },
        verb: Verb::Create,
        resource: Resource::new("v1", "Pod"),
        namespace: "ns".into(),
        name: format!("{job}-{id}").as_str().into(),
        body: Some(json!({"metadata": {"name": format!("{job}-{id}")}})),
        uid: None,
        rv: None,
        grace_seconds: None,
    }
}

fn event(id: CallId) -> ApiCall {
    let body = json!({"metadata": {"name": "e"}, "type": "Normal"});
    let name = format!("e{id}").as_str().into();
    ApiCall { object: None, resource: Resource::new("v1", "Event"), body: Some(body), name, ..create(id, "j") }
}

async fn next(server: &mut Server) -> (Request<Body>, SendResponse<Response<Body>>) {
    let wait = Duration::from_secs(600);
    tokio::time::timeout(wait, server.next_request()).await.expect("a request").expect("a request")
}

/// Returns true if a request leaves within a while.
async fn is_quiet(server: &mut Server, ms: u64) -> bool {
    tokio::time::timeout(Duration::from_millis(ms), pin!(server.next_request())).await.is_err()
}

fn made(code: u16, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}

fn created() -> Response<Body> {
    made(
        201,
        &json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata":
        {"name": "p", "uid": "u", "resourceVersion": "7", "managedFields": [{}]}}),
    )
}

fn refused(code: u16, reason: &str) -> Response<Body> {
    made(code, &json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}))
}

async fn answer(world: &mut World) -> (CallId, ApiAnswer) {
    tokio::time::timeout(Duration::from_secs(600), world.answers.recv()).await.expect("an answer").unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_made_is_reported_as_the_object_it_is() {
    let mut world = world(4);
    world.calls.send(vec![create(3, "j")]).unwrap();
    let (request, reply) = next(&mut world.server).await;
    assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/pods");
    reply.send_response(created());
    let (id, answer) = answer(&mut world).await;
    assert_eq!(id, 3);
    let want =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}});
    assert_eq!(*answer.unwrap(), want);
    assert!(
        world.metrics.text().contains("trainyard_calls_total{verb=\"create\",kind=\"Pod\",code=\"200\"} 1"),
        "{}",
        world.metrics.text()
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_server_and_the_conflict_that_follows_are_reported_as_they_come() {
    let mut world = world(4);
    world.calls.send(vec![create(1, "j")]).unwrap();
    next(&mut world.server).await.1.send_response(refused(504, "Timeout"));
    let (_, first) = answer(&mut world).await;
    assert_eq!(first.unwrap_err().code, 504);
    // Nothing is repeated by itself; the operator asks again.
    assert!(is_quiet(&mut world.server, 60_000).await);
    world.calls.send(vec![create(2, "j")]).unwrap();
    next(&mut world.server).await.1.send_response(refused(409, "AlreadyExists"));
    let (id, second) = answer(&mut world).await;
    let error = second.unwrap_err();
    assert_eq!((id, error.code, &*error.reason), (2, 409, "AlreadyExists"));
}

#[tokio::test(start_paused = true)]
async fn silence_and_broken_connections_are_answers_without_a_code() {
    let mut world = world(4);
    world.calls.send(vec![create(1, "j")]).unwrap();
    let held = next(&mut world.server).await;
    let (_, silent) = answer(&mut world).await;
    let error = silent.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (0, "no answer within 5s"));
    drop(held);
    world.calls.send(vec![create(2, "j")]).unwrap();
    next(&mut world.server).await.1.send_error(std::io::Error::other("connection reset"));
    let (_, broken) = answer(&mut world).await;
    let error = broken.unwrap_err();
    assert!(error.code == 0 && error.message.contains("connection reset"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_in_flight_than_allowed_and_they_leave_in_the_operators_order() {
    let mut world = world(2);
    world.calls.send(vec![create(1, "large"), create(4, "small"), create(2, "large"), create(3, "large")]).unwrap();
    let (first, reply_first) = next(&mut world.server).await;
    let (second, reply_second) = next(&mut world.server).await;
    assert!(is_quiet(&mut world.server, 1_000).await);
    let agent = |request: &Request<Body>| request.headers()["user-agent"].to_str().unwrap().to_owned();
    assert!(agent(&first).ends_with("(record 1/1)") && agent(&second).ends_with("(record 1/4)"), "{second:?}");
    reply_first.send_response(created());
    let (third, _held) = next(&mut world.server).await;
    assert!(agent(&third).ends_with("(record 1/2)"));
    assert!(is_quiet(&mut world.server, 1_000).await);
    reply_second.send_response(created());
    next(&mut world.server).await.1.send_response(created());
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_make_a_pause_and_fewer_calls_at_once() {
    let mut world = world(8);
    world.calls.send((1..=20).map(|id| create(id, "j")).collect()).unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(next(&mut world.server).await.1);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    for reply in held {
        let mut response = refused(429, "TooManyRequests");
        response.headers_mut().insert("retry-after", "3".parse().unwrap());
        reply.send_response(response);
    }
    for _ in 0..8 {
        assert_eq!(answer(&mut world).await.1.unwrap_err().code, 429);
    }
    assert_eq!(*world.window.borrow(), 16, "four calls are in flight next: less is rendered ahead");
    assert!(is_quiet(&mut world.server, 2_900).await);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(next(&mut world.server).await);
    }
    assert!(is_quiet(&mut world.server, 1_000).await);
}

#[tokio::test(start_paused = true)]
async fn events_wait_until_nothing_else_does() {
    let mut world = world(1);
    world.calls.send(vec![event(1), create(2, "j"), create(3, "j"), event(4)]).unwrap();
    for want in ["pods", "pods", "events", "events"] {
        let (request, reply) = next(&mut world.server).await;
        assert!(request.uri().path().ends_with(want), "{request:?}");
        reply.send_response(created());
    }
    for want in [2, 3] {
        assert_eq!(answer(&mut world).await.0, want);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.answers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_is_under_way_is_answered_and_nothing_new_leaves() {
    let mut world = world(1);
    world.calls.send(vec![create(1, "j"), create(2, "j")]).unwrap();
    let (_, reply) = next(&mut world.server).await;
    world.drain.cancel();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!world.task.is_finished());
    reply.send_response(created());
    assert_eq!(answer(&mut world).await.0, 1);
    world.task.await.unwrap();
    assert!(world.answers.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_refused_at_once() {
    let mut world = world(1);
    let odd = ApiCall { resource: Resource::new("v1", "Secret"), ..create(9, "j") };
    world.calls.send(vec![odd]).unwrap();
    let (id, refused) = answer(&mut world).await;
    assert_eq!((id, refused.unwrap_err().code), (9, 422));
}
