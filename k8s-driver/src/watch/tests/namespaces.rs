//! The watch of namespaces, which an operator may lack the right to.

use super::*;

#[tokio::test(start_paused = true)]
async fn without_the_right_to_list_namespaces_an_empty_list_is_reported_once() {
    let registry = Registry::all();
    let source = sources::in_scope(registry.on_demand(Kind::Namespace).unwrap(), &JobFilter::default());
    let selection = Arc::new(Selection::new(false, 1));
    let (watching, server, news) = watching(Kind::Namespace, source, registry, selection, StatusReporter::default());
    let (needed, is_needed) = tokio::sync::watch::channel(true);
    let mut world = World { server, news, task: tokio::spawn(watching.run_while(is_needed)) };
    world.request(100).await.1.send_response(refusal(500));
    assert!(world.news.try_recv().is_err(), "a failure reports nothing");
    for _ in 0..2 {
        let (uri, reply) = world.request(60_000).await;
        assert!(uri.starts_with("/api/v1/namespaces?"), "{uri}");
        reply.send_response(refusal(403));
    }
    let granted = world.request(60_000).await.1;
    assert_eq!(world.listed().await, (1, vec![]));
    assert!(world.news.try_recv().is_err(), "it is reported once");
    let ml = json!({"metadata": {"name": "ml", "uid": "u", "resourceVersion": "5", "labels": {"team": "a"}}});
    granted.send_response(list(10, "", &[ml]));
    assert_eq!(world.listed().await, (10, vec!["ml".to_owned()]));
    drop(needed);
}
