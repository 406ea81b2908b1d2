//! Resources that are missing, with and without knowledge of definitions.

use std::collections::BTreeSet;

use super::*;
use crate::watch::definitions::Definitions;

/// A world of the first API's jobs, whose definition is missing.
async fn without_its_definition(definitions: Definitions) -> World {
    let source = sources::sources(Kind::Job, &Registry::all(), &JobFilter::default()).remove(0);
    let selection = Arc::new(Selection::new(false, 1));
    let (mut watching, server, news) =
        watching(Kind::Job, source, Registry::all(), selection, StatusReporter::default());
    watching.definitions = definitions;
    let mut world = World { server, news, task: tokio::spawn(async move { watching.run().await }) };
    world.request(100).await.1.send_response(refusal(404));
    let (uri, reply) = world.request(100).await;
    assert!(uri.starts_with("/api/v1/nodes"), "{uri}");
    reply.send_response(list(40, "", &[]));
    assert_eq!(world.listed().await, (40, vec![]));
    world
}

/// Answers as a server without the resource, and returns the number of requests.
async fn requests_in(world: &mut World, time: Duration) -> u32 {
    let end = Instant::now() + time;
    let mut count = 0;
    while let Ok(request) = tokio::time::timeout_at(end, world.server.next_request()).await {
        request.unwrap().1.send_response(refusal(404));
        count += 1;
    }
    count
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_is_not_asked_for_until_its_definition_appears() {
    let (names, known) = tokio::sync::watch::channel(Some(BTreeSet::from(["other.example.org".to_owned()])));
    let mut world = without_its_definition(Definitions::of(known)).await;
    assert_eq!(requests_in(&mut world, Duration::from_secs(3600)).await, 0, "requests in an hour");
    names.send_replace(Some(BTreeSet::from(["aitrainingjobs.elasticdeeplearning.ai".to_owned()])));
    // It is served some time after its definition was seen.
    assert!((1..3).contains(&requests_in(&mut world, Duration::from_secs(6)).await));
    let (uri, reply) = world.request(10_000).await;
    assert!(uri.contains("limit=1"), "{uri}");
    reply.send_response(list(50, "", &[]));
    let (uri, reply) = world.request(100).await;
    assert!(uri.contains("limit=500"), "{uri}");
    reply.send_response(list(51, "", &[]));
    assert_eq!(world.listed().await, (51, vec![]));
}

#[tokio::test(start_paused = true)]
async fn without_knowledge_of_definitions_a_missing_resource_is_asked_for_now_and_then() {
    let mut world = without_its_definition(Definitions::unknown()).await;
    assert!((6..=12).contains(&requests_in(&mut world, Duration::from_secs(3600)).await));
}

#[tokio::test(start_paused = true)]
async fn definitions_are_watched_by_their_metadata() {
    let (service, mut server) = pair::<Request<Body>, Reply>();
    let definitions = Definitions::watch(Client::new(service, "default"));
    let of = |name: &str| {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": name, "uid": name, "resourceVersion": "5"}})
    };
    let (request, reply) = server.next_request().await.unwrap();
    assert!(request.uri().path().ends_with("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"), "{request:?}");
    let accept = request.headers()["accept"].to_str().unwrap().to_owned();
    assert!(accept.contains("PartialObjectMetadataList"), "{accept}");
    let mut page = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": {"resourceVersion": "50"}, "items": [of("a.example.org")]});
    page["metadata"]["continue"] = json!("");
    reply.send_response(
        Response::builder()
            .body(Full::new(Bytes::from(page.to_string())).map_err(|never: Infallible| match never {}).boxed_unsync())
            .unwrap(),
    );
    let (_, reply) = server.next_request().await.unwrap();
    assert!(!definitions.is_absent("a.example.org") && definitions.is_absent("b.example.org"));
    reply.send_response(watch(&[("ADDED", of("b.example.org"))]));
    let mut waiting = definitions.clone();
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, waiting.until_present("b.example.org")).await.expect("the event is taken in");
}
