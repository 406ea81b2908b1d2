//! Lists and watches against a mock of the API server.

use std::convert::Infallible;

use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Full, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tower_test::mock::{Handle, SendResponse, pair};

use super::*;
use crate::watch::sources::{self, JobFilter};

mod definitions;
mod foreign;
mod namespaces;
mod selection;

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Server = Handle<Request<Body>, Reply>;

struct World {
    server: Server,
    news: mpsc::Receiver<Observation<ObservedObject>>,
    task: tokio::task::JoinHandle<End>,
}

fn world(kind: Kind) -> World {
    world_of(kind, Arc::new(Selection::new(false, 1)))
}

fn world_of(kind: Kind, selection: Arc<Selection>) -> World {
    let source = sources::sources(kind, &Registry::all(), &JobFilter::default()).remove(0);
    world_of_source(kind, source, Registry::all(), selection, StatusReporter::default())
}

fn world_of_source(
    kind: Kind,
    source: Source,
    registry: Registry,
    selection: Arc<Selection>,
    status: StatusReporter,
) -> World {
    let (watching, server, news) = watching(kind, source, registry, selection, status);
    World { server, news, task: tokio::spawn(async move { watching.run().await }) }
}

/// A watch of a source, its server, and what it reports.
fn watching(
    kind: Kind,
    source: Source,
    registry: Registry,
    selection: Arc<Selection>,
    status: StatusReporter,
) -> (SourceWatch, Server, mpsc::Receiver<Observation<ObservedObject>>) {
    let (service, server) = pair();
    let (news, take_news) = mpsc::channel(16);
    let watching = SourceWatch {
        client: Client::new(service, "default"),
        kind,
        source,
        views: registry.job_sources(),
        selection,
        registry,
        news,
        metrics: Metrics::new(),
        status,
        lists: ListReporter::default(),
        definitions: Definitions::unknown(),
    };
    (watching, server, take_news)
}

/// The sources of a kind when two APIs are served, each with its task and its server. They share a board.
fn two_worlds(kind: Kind, selection: &Arc<Selection>) -> (World, World, StatusReporter) {
    let (registry, status) = (fixtures::copied::second(), StatusReporter::default());
    let mut worlds = sources::sources(kind, &registry, &JobFilter::default())
        .into_iter()
        .map(|source| world_of_source(kind, source, registry.clone(), Arc::clone(selection), status.clone()));
    (worlds.next().unwrap(), worlds.next().unwrap(), status)
}

impl World {
    /// The next request's query; it must come within `ms`.
    async fn request(&mut self, ms: u64) -> (String, SendResponse<Reply>) {
        let limit = Duration::from_millis(ms);
        let (request, reply) =
            tokio::time::timeout(limit, self.server.next_request()).await.expect("a request").unwrap();
        (request.uri().to_string(), reply)
    }

    async fn reported(&mut self) -> Observation<ObservedObject> {
        tokio::time::timeout(Duration::from_secs(600), self.news.recv()).await.expect("a report").unwrap()
    }

    async fn listed(&mut self) -> (u64, Vec<String>) {
        match self.reported().await {
            Observation::Listed { rv, items, .. } => (rv.0, items.iter().map(name).collect()),
            other => panic!("{other:?}"),
        }
    }
}

fn name(seen: &ObservedObject) -> String {
    match seen {
        ObservedObject::Job(key, _) => key.name.to_string(),
        ObservedObject::Pod(_, fact) => fact.name.to_string(),
        ObservedObject::Service(_, fact) => fact.name.to_string(),
        ObservedObject::Owned(_, fact) => fact.object.name.to_string(),
        ObservedObject::Node(fact) => fact.name.to_string(),
        ObservedObject::Class(fact) => fact.name.to_string(),
        ObservedObject::Quota(fact) => fact.name.to_string(),
        ObservedObject::Namespace(fact) => fact.name.to_string(),
        ObservedObject::Foreign(pod) => pod.uid.0.to_string(),
    }
}

fn pod(name: &str, rv: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": rv.to_string(),
        "labels": {"TrainingJobReplicaName": "t", "TrainingJobReplicaIndex": "0"},
        "ownerReferences": [{"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": "j", "uid": "ju",
            "controller": true}]}})
}

fn job(name: &str, rv: u64) -> Value {
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}u"), "resourceVersion": rv.to_string()}})
}

fn node(name: &str, rv: u64, ready: &str, heartbeat: u64) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": rv.to_string()}, "status": {"conditions":
        [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}]}})
}

fn text(text: String) -> UnsyncBoxBody<Bytes, Infallible> {
    UnsyncBoxBody::new(Full::from(text))
}

fn list(rv: u64, next: &str, items: &[Value]) -> Reply {
    respond(200, &json!({"metadata": {"resourceVersion": rv.to_string(), "continue": next}, "items": items}))
}

fn respond(code: u16, body: &Value) -> Reply {
    Response::builder().status(code).body(text(body.to_string())).unwrap()
}

fn refusal(code: u16) -> Reply {
    respond(code, &json!({"kind": "Status", "code": code, "reason": "x", "message": "y"}))
}

/// A watch that says these things and then ends.
fn watch(events: &[(&str, Value)]) -> Reply {
    let lines = events.iter().map(|(kind, object)| format!("{}\n", json!({"type": kind, "object": object})));
    Response::new(text(lines.collect()))
}

/// A watch that never says anything.
fn silent() -> Reply {
    let never = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
    Response::new(UnsyncBoxBody::new(StreamBody::new(never)))
}

#[tokio::test(start_paused = true)]
async fn pages_make_one_view_and_the_watch_goes_on_from_it() {
    let mut world = world(Kind::Pod);
    let (uri, reply) = world.request(100).await;
    assert!(uri.starts_with("/api/v1/pods?") && uri.contains("limit=500"), "{uri}");
    assert!(
        uri.contains("labelSelector=GroupName%3Delasticdeeplearning.ai") && !uri.contains("resourceVersion"),
        "{uri}"
    );
    reply.send_response(list(50, "c1", &[pod("a", 3)]));
    let (uri, reply) = world.request(100).await;
    assert!(uri.contains("continue=c1"), "{uri}");
    reply.send_response(list(50, "", &[pod("b", 4)]));
    assert_eq!(world.listed().await, (50, vec!["a".to_owned(), "b".to_owned()]));
    let (uri, reply) = world.request(100).await;
    assert!(uri.contains("watch=true") && uri.contains("resourceVersion=50"), "{uri}");
    assert!(uri.contains("allowWatchBookmarks=true") && uri.contains("timeoutSeconds=270"), "{uri}");
    reply.send_response(watch(&[
        ("ADDED", pod("c", 51)),
        ("MODIFIED", pod("c", 52)),
        ("DELETED", pod("a", 53)),
        ("BOOKMARK", json!({"metadata": {"resourceVersion": "70"}})),
    ]));
    assert!(matches!(world.reported().await, Observation::Applied(ObservedObject::Pod(_, fact)) if fact.rv.0 == 51));
    assert!(matches!(world.reported().await, Observation::Applied(ObservedObject::Pod(_, fact)) if fact.rv.0 == 52));
    assert!(matches!(world.reported().await, Observation::Deleted(seen) if name(&seen) == "a"));
    // The watch ended: it continues after the bookmark, without a new list.
    let (uri, _reply) = world.request(5_000).await;
    assert!(uri.contains("watch=true") && uri.contains("resourceVersion=70"), "{uri}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_listed_again_however_the_server_says_it() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    for answer in [refusal(410), watch(&[("ADDED", pod("x", 51)), ("ERROR", gone)])] {
        let mut world = world(Kind::Pod);
        world.request(100).await.1.send_response(list(50, "", &[]));
        assert_eq!(world.listed().await.0, 50);
        let has_news = answer.status().is_success();
        world.request(100).await.1.send_response(answer);
        if has_news {
            assert!(matches!(world.reported().await, Observation::Applied(_)));
        }
        // The next list waits for a back-off, whatever the watch reported.
        assert!(tokio::time::timeout(Duration::from_millis(700), world.server.next_request()).await.is_err());
        let (uri, reply) = world.request(1_000).await;
        assert!(uri.contains("limit=500") && !uri.contains("watch"), "{uri}");
        reply.send_response(list(90, "", &[pod("y", 80)]));
        assert_eq!(world.listed().await, (90, vec!["y".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_expire_at_once_are_not_listed_again_without_end() {
    let mut world = world(Kind::Pod);
    let started = Instant::now();
    let mut lists = 0;
    while started.elapsed() < Duration::from_secs(60) {
        let (uri, reply) = world.request(60_000).await;
        if uri.contains("watch=true") {
            reply.send_response(refusal(410));
        } else {
            lists += 1;
            reply.send_response(list(50, "", &[]));
            world.listed().await;
        }
    }
    assert!((4..=10).contains(&lists), "{lists} lists in a minute");
}

#[tokio::test(start_paused = true)]
async fn watches_that_report_an_object_and_expire_are_not_listed_again_without_end() {
    let mut world = world(Kind::Pod);
    let (started, mut lists) = (Instant::now(), 0);
    let gone = || json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    while started.elapsed() < Duration::from_secs(60) {
        let (uri, reply) = world.request(60_000).await;
        if uri.contains("watch=true") {
            reply.send_response(watch(&[("ADDED", pod("x", 51)), ("ERROR", gone())]));
            world.reported().await;
        } else {
            lists += 1;
            reply.send_response(list(50, "", &[]));
            world.listed().await;
        }
    }
    assert!((4..=10).contains(&lists), "{lists} lists in a minute");
    // Two minutes without a failure, and the next list comes soon again.
    let (mut uri, mut reply) = world.request(60_000).await;
    while !uri.contains("watch=true") {
        reply.send_response(list(50, "", &[]));
        world.listed().await;
        (uri, reply) = world.request(60_000).await;
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    for n in 0..6 {
        reply.send_response(watch(&[("MODIFIED", pod("x", 60 + n))]));
        world.reported().await;
        (_, reply) = world.request(100).await;
        tokio::time::sleep(Duration::from_secs(25)).await;
    }
    reply.send_response(refusal(410));
    let (uri, _reply) = world.request(2_000).await;
    assert!(uri.contains("limit=500"), "{uri}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_after_a_bookmark_back_off() {
    let mut world = world(Kind::Pod);
    world.request(100).await.1.send_response(list(50, "", &[]));
    world.listed().await;
    let (started, mut watches) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(60) {
        let (_, reply) = world.request(60_000).await;
        watches += 1;
        reply.send_response(watch(&[("BOOKMARK", pod("x", 51 + watches))]));
    }
    assert!((10..40).contains(&watches), "{watches} watches in a minute");
}

#[tokio::test(start_paused = true)]
async fn pages_that_expire_are_asked_for_again_in_one_piece() {
    let mut world = world(Kind::Pod);
    world.request(100).await.1.send_response(list(50, "c1", &[pod("a", 3)]));
    world.request(100).await.1.send_response(refusal(410));
    let (uri, reply) = world.request(100).await;
    assert!(!uri.contains("limit") && !uri.contains("continue"), "{uri}");
    reply.send_response(list(60, "", &[pod("b", 55)]));
    assert_eq!(world.listed().await, (60, vec!["b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_after_a_while_and_never_make_an_empty_view() {
    let mut world = world(Kind::Pod);
    world.request(100).await.1.send_response(refusal(500));
    assert!(world.news.try_recv().is_err());
    world.request(60_000).await.1.send_response(refusal(403));
    world.request(60_000).await.1.send_response(Response::new(text("{\"items\":".to_owned())));
    world.request(60_000).await.1.send_error(std::io::Error::other("reset"));
    // A core resource that is not found is no empty one.
    world.request(60_000).await.1.send_response(refusal(404));
    world.request(60_000).await.1.send_response(list(9, "", &[]));
    assert_eq!(world.listed().await, (9, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_for_long_is_taken_for_dead() {
    let mut world = world(Kind::Pod);
    world.request(100).await.1.send_response(list(50, "", &[]));
    world.listed().await;
    world.request(100).await.1.send_response(silent());
    let started = Instant::now();
    let (uri, reply) = world.request(200_000).await;
    assert_eq!(started.elapsed().as_secs(), WATCH_IDLE_TIMEOUT.as_secs());
    assert!(uri.contains("limit=1") && !uri.contains("labelSelector"), "{uri}");
    reply.send_response(list(50, "", &[]));
    let (uri, _reply) = world.request(100).await;
    assert!(uri.contains("resourceVersion=50"), "{uri}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_went_back_while_it_was_away_ends_the_task() {
    for present in [49, 52, 53] {
        let mut world = world(Kind::Pod);
        world.request(100).await.1.send_response(list(50, "", &[]));
        world.listed().await;
        world.request(100).await.1.send_response(watch(&[("ADDED", pod("a", 53))]));
        world.reported().await;
        let (uri, reply) = world.request(100).await;
        assert!(uri.contains("watch=true") && uri.contains("resourceVersion=53"), "{uri}");
        reply.send_error(std::io::Error::other("reset"));
        // As long as it cannot be asked, nothing is known.
        world.request(60_000).await.1.send_error(std::io::Error::other("refused"));
        world.request(60_000).await.1.send_response(refusal(503));
        assert!(!world.task.is_finished());
        world.request(60_000).await.1.send_response(list(present, "", &[]));
        if present < 53 {
            assert_eq!(
                tokio::time::timeout(Duration::from_secs(1), world.task).await.unwrap().unwrap(),
                End::ClusterRegressed
            );
        } else {
            let (uri, _reply) = world.request(100).await;
            assert!(uri.contains("watch=true") && uri.contains("resourceVersion=53"), "{uri}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_older_than_the_one_before_ends_the_task() {
    let mut world = world(Kind::Pod);
    world.request(100).await.1.send_response(list(50, "", &[]));
    world.listed().await;
    world.request(100).await.1.send_response(refusal(410));
    world.request(60_000).await.1.send_response(list(49, "", &[pod("a", 3)]));
    assert_eq!(tokio::time::timeout(Duration::from_secs(1), world.task).await.unwrap().unwrap(), End::ClusterRegressed);
    assert!(world.news.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_job_api_that_is_not_installed_is_an_empty_view_until_it_is() {
    let mut world = world(Kind::Job);
    world.request(100).await.1.send_response(refusal(404));
    let (uri, reply) = world.request(100).await;
    assert!(uri.starts_with("/api/v1/nodes?"), "{uri}");
    reply.send_response(list(33, "", &[]));
    assert_eq!(world.listed().await, (33, vec![]));
    world.request(400_000).await.1.send_response(refusal(404));
    world.request(400_000).await.1.send_response(list(40, "", &[]));
    let (uri, reply) = world.request(100).await;
    assert!(uri.starts_with("/apis/elasticdeeplearning.ai/v1/aitrainingjobs?"), "{uri}");
    let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "39"}});
    reply.send_response(list(41, "", &[job]));
    assert_eq!(world.listed().await, (41, vec!["j".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_of_nodes_are_dropped_and_changes_are_not() {
    let mut world = world(Kind::Node);
    world.request(100).await.1.send_response(list(50, "", &[node("n", 1, "True", 1)]));
    world.listed().await;
    world.request(100).await.1.send_response(watch(&[
        ("MODIFIED", node("n", 51, "True", 2)),
        ("MODIFIED", node("n", 52, "Unknown", 2)),
        ("MODIFIED", node("n", 53, "Unknown", 3)),
        ("MODIFIED", node("n", 54, "True", 4)),
        ("DELETED", node("n", 55, "True", 4)),
        ("ADDED", node("n", 56, "True", 5)),
    ]));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(match world.reported().await {
            Observation::Applied(ObservedObject::Node(fact)) => fact.rv.0,
            Observation::Deleted(_) => 0,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, [52, 54, 0, 56]);
    // What was dropped counts for where the watch continues.
    let (uri, _reply) = world.request(5_000).await;
    assert!(uri.contains("resourceVersion=56"), "{uri}");
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_its_channel_is_closed() {
    let mut world = world(Kind::Pod);
    world.request(100).await.1.send_response(list(50, "", &[]));
    world.listed().await;
    let (_, reply) = world.request(100).await;
    drop(world.news);
    reply.send_response(watch(&[("ADDED", pod("c", 51))]));
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), world.task).await.unwrap().unwrap(), End::ReceiverClosed);
}

fn of_second(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"][0]["apiVersion"] = json!("second.example.com/v1");
    object["metadata"]["ownerReferences"][0]["kind"] = json!("SecondJob");
    object
}

#[tokio::test(start_paused = true)]
async fn each_source_of_a_kind_is_a_view_with_a_version_of_its_own() {
    let (mut first, mut second, _) = two_worlds(Kind::Pod, &Arc::new(Selection::new(false, 2)));
    let (uri, reply) = first.request(100).await;
    assert!(uri.contains("labelSelector=GroupName%3D"), "{uri}");
    reply.send_response(list(50, "", &[pod("a", 3)]));
    let (uri, reply) = second.request(100).await;
    assert!(uri.contains("labelSelector=second%3Dyes"), "{uri}");
    // A pod with this label that belongs to a job of the other API is that API's source's to report.
    reply.send_response(list(90, "", &[of_second(pod("b", 4)), pod("c", 5)]));
    let mut views = Vec::new();
    for world in [&mut first, &mut second] {
        let Observation::Listed { of, rv, items, .. } = world.reported().await else { panic!("it was listed") };
        views.push((of.unwrap().to_string(), rv.0, items.iter().map(name).collect::<Vec<_>>()));
    }
    let wanted = [("GroupName=elasticdeeplearning.ai", 50, "a"), ("second=yes", 90, "b")];
    assert_eq!(views, wanted.map(|(of, rv, pod)| (of.to_owned(), rv, vec![pod.to_owned()])));
    // Each watch continues from its own list, and each source is listed again by itself.
    let (uri, _first_watch) = first.request(100).await;
    assert!(uri.contains("resourceVersion=50"), "{uri}");
    let (uri, reply) = second.request(100).await;
    assert!(uri.contains("resourceVersion=90"), "{uri}");
    reply.send_response(watch(&[("DELETED", pod("c", 91)), ("DELETED", of_second(pod("b", 92)))]));
    assert!(matches!(second.reported().await, Observation::Deleted(seen) if name(&seen) == "b"));
    second.request(5_000).await.1.send_response(refusal(410));
    second.request(60_000).await.1.send_response(list(95, "", &[]));
    assert_eq!(second.listed().await.0, 95);
    assert!(tokio::time::timeout(Duration::from_secs(10), first.server.next_request()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_refused_delays_no_other_and_is_named() {
    let (mut first, mut second, status) = two_worlds(Kind::Job, &Arc::new(Selection::new(false, 2)));
    status.set(crate::process::status::ProcessState::Listing { missing: "lists are under way".to_owned() });
    second.request(100).await.1.send_response(refusal(403));
    let (_, again) = second.request(60_000).await;
    first.request(100).await.1.send_response(list(50, "", &[job("a", 30)]));
    assert_eq!(first.listed().await, (50, vec!["a".to_owned()]));
    let reported = status.get().to_string();
    assert!(reported.contains("cluster: /apis/second.example.com/v1/secondjobs: list: "), "{reported}");
    assert!(reported.contains("bind the operator's ClusterRole"), "{reported}");
    again.send_response(list(60, "", &[]));
    assert_eq!(second.listed().await, (60, vec![]));
    assert!(status.get().to_string().ends_with("lists are under way"));
}

#[test]
fn lines_are_found_however_the_stream_is_cut() {
    let text = "one\n\ntwo two\nthree\n";
    for step in 1..text.len() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for chunk in text.as_bytes().chunks(step) {
            lines.add(chunk);
            while let Some(line) = lines.line() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
            lines.forget();
        }
        assert_eq!(found, ["one", "", "two two", "three"], "{step}");
    }
}
