//! Watches of the pods of chosen jobs: which pods are reported, and when.

use super::*;

fn pod_of(name: &str, job: &str, rv: u64) -> Value {
    let mut pod = pod(name, rv);
    pod["metadata"]["ownerReferences"][0]["uid"] = json!(format!("{job}u"));
    pod
}

#[tokio::test(start_paused = true)]
async fn pods_of_jobs_that_are_not_chosen_are_not_reported() {
    let selection = Arc::new(Selection::new(true, 1));
    let mut pods = world_of(Kind::Pod, Arc::clone(&selection));
    assert!(tokio::time::timeout(Duration::from_secs(5), pods.server.next_request()).await.is_err());
    let mut jobs = world_of(Kind::Job, Arc::clone(&selection));
    jobs.request(100).await.1.send_response(list(40, "", &[job("a", 30)]));
    jobs.listed().await;
    let (_, jobs_watch) = jobs.request(100).await;
    pods.request(100).await.1.send_response(list(50, "", &[pod_of("a-0", "a", 3), pod_of("b-0", "b", 4)]));
    assert_eq!(pods.listed().await, (50, vec!["a-0".to_owned()]));
    let (_, pods_watch) = pods.request(100).await;
    pods_watch.send_response(watch(&[("ADDED", pod_of("b-1", "b", 51)), ("DELETED", pod_of("b-0", "b", 52))]));
    // A deletion of an unknown pod changes nothing.
    assert!(matches!(pods.reported().await, Observation::Deleted(seen) if name(&seen) == "b-0"));
    let (_, _pods_watch) = pods.request(5_000).await;

    // Another job is chosen, and the first one loses its label: it still exists.
    jobs_watch.send_response(watch(&[("ADDED", job("b", 60)), ("DELETED", job("a", 61))]));
    assert!(matches!(jobs.reported().await, Observation::Applied(seen) if name(&seen) == "b"));
    let (uri, reply) = jobs.request(100).await;
    assert_eq!(uri, "/apis/elasticdeeplearning.ai/v1/namespaces/ns/aitrainingjobs/a");
    reply.send_response(respond(200, &job("a", 61)));
    assert!(matches!(jobs.reported().await, Observation::Deleted(seen) if name(&seen) == "a"));
    let (uri, reply) = pods.request(100).await;
    assert!(uri.contains("limit=500"), "{uri}");
    reply.send_response(list(70, "", &[pod_of("a-0", "a", 3), pod_of("b-1", "b", 51)]));
    assert_eq!(pods.listed().await, (70, vec!["b-1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_chosen_job_that_is_deleted_makes_no_new_view() {
    let selection = Arc::new(Selection::new(true, 1));
    let mut jobs = world_of(Kind::Job, Arc::clone(&selection));
    jobs.request(100).await.1.send_response(list(40, "", &[job("a", 30)]));
    jobs.listed().await;
    let departures = selection.departures();
    jobs.request(100).await.1.send_response(watch(&[("DELETED", job("a", 61))]));
    jobs.request(100).await.1.send_response(refusal(404));
    assert!(matches!(jobs.reported().await, Observation::Deleted(_)));
    assert!(!departures.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_chosen_job_that_is_missing_in_the_next_view_has_left() {
    let selection = Arc::new(Selection::new(true, 1));
    let mut jobs = world_of(Kind::Job, Arc::clone(&selection));
    jobs.request(100).await.1.send_response(list(40, "", &[job("a", 30), job("b", 31)]));
    jobs.listed().await;
    let departures = selection.departures();
    jobs.request(100).await.1.send_response(refusal(410));
    jobs.request(60_000).await.1.send_response(list(90, "", &[job("b", 31), job("c", 80)]));
    jobs.listed().await;
    assert!(departures.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn pods_wait_until_every_source_of_jobs_reported_which_are_chosen() {
    let selection = Arc::new(Selection::new(true, 2));
    let (mut pods, _second_pods, _) = two_worlds(Kind::Pod, &selection);
    let (mut first, mut second, _) = two_worlds(Kind::Job, &selection);
    first.request(100).await.1.send_response(list(40, "", &[job("a", 30)]));
    first.listed().await;
    assert!(tokio::time::timeout(Duration::from_secs(5), pods.server.next_request()).await.is_err());
    second.request(100).await.1.send_response(list(41, "", &[]));
    second.listed().await;
    // The second view, which is empty, leaves the first one's jobs chosen.
    pods.request(100).await.1.send_response(list(50, "", &[pod_of("a-0", "a", 3)]));
    assert_eq!(pods.listed().await, (50, vec!["a-0".to_owned()]));
}
