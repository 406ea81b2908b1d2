//! The watch of pods of others, which runs while a queue counts them.

use super::*;

#[tokio::test(start_paused = true)]
async fn pods_of_others_are_listed_and_watched_while_they_are_needed() {
    let registry = Registry::all();
    let source = sources::in_scope(registry.on_demand(Kind::Foreign).unwrap(), &JobFilter::default());
    let selection = Arc::new(Selection::new(false, 1));
    let (watching, server, news) = watching(Kind::Foreign, source, registry, selection, StatusReporter::default());
    let (needed, is_needed) = tokio::sync::watch::channel(false);
    let mut world = World { server, news, task: tokio::spawn(watching.run_while(is_needed)) };
    let idle = tokio::time::timeout(Duration::from_secs(600), world.server.next_request()).await;
    assert!(idle.is_err(), "nothing is asked for");
    for rv in [10, 20] {
        needed.send_replace(true);
        let (uri, reply) = world.request(100).await;
        assert!(uri.starts_with("/api/v1/pods?") && !uri.contains("labelSelector"), "{uri}");
        let other = json!({"metadata": {"name": "other", "uid": "other", "resourceVersion": "5"}});
        let mut own = pod("own", 4);
        own["metadata"]["labels"]["GroupName"] = json!("elasticdeeplearning.ai");
        // Of a job's pods those without GPUs alone: places stand for the others.
        let mut launcher = own.clone();
        launcher["metadata"]["uid"] = json!("launcher");
        let gpus = json!({"limits": {"nvidia.com/gpu": 1}});
        own["spec"] = json!({"nodeName": "n", "containers": [{"name": "c", "resources": gpus}]});
        reply.send_response(list(rv, "", &[own, launcher, other]));
        assert_eq!(world.listed().await, (rv, vec!["launcher".to_owned(), "other".to_owned()]));
        let (_, reply) = world.request(100).await;
        reply.send_response(silent());
        // The next watch begins before this one is seen to end.
        needed.send_replace(false);
    }
    drop(needed);
    assert_eq!(world.task.await.unwrap(), End::ReceiverClosed);
}
