//! The whole surface over real sockets: what a reader, a stranger, a kubelet and a scraper get.

use std::time::Duration;

use event_log::{Frame, jsonl};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use model::{Position, Text};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::test_server::{Served, checkpoint, frames, records, token};
use crate::lease::Leader;
use crate::process::status::{Definition, ProcessState};
use crate::replication::follower::FollowerState;
use crate::replication::remote::{Error, Lines, Remote, Target};

const SOON: Duration = Duration::from_secs(10);

fn remote(served: &Served, who: &str) -> Remote {
    let authority = served.advertised.certificate.clone();
    Remote::new(Target { address: served.advertised.address.clone(), authority, auth: token(who) }).unwrap()
}

async fn all(mut lines: Lines) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some(bytes) = lines.next().await.unwrap() {
        text.extend_from_slice(&bytes);
    }
    text
}

fn line_count(text: &[u8]) -> usize {
    text.split(|byte| *byte == b'\n').count() - 1
}

fn read(text: &[u8]) -> (Option<Position>, Vec<Frame>) {
    let reader = jsonl::Reader::new(text, "answer").unwrap();
    (reader.checkpoint().map(|c| c.position), reader.map(Result::unwrap).collect())
}

#[tokio::test]
async fn a_reader_gets_the_log_as_an_export_has_it() {
    let disk = records(700, 0);
    let served = Served::new(disk).await;
    let reader = remote(&served, "reader");
    let lines = reader.log(Position(1), false).await.unwrap();
    assert_eq!(lines.head.position, Position(700));
    let text = all(lines).await;
    let mut export = Vec::new();
    jsonl::export(&served.place.disk().copy().open().unwrap(), &mut export, jsonl::Digests::Every).unwrap();
    assert!(text == export, "the answer is byte for byte an export");
    let tail = all(reader.log(Position(699), false).await.unwrap()).await;
    assert_eq!(line_count(&tail), 2);
    assert!(all(reader.log(Position(701), false).await.unwrap()).await.is_empty());
}

#[tokio::test]
async fn a_compacted_log_begins_with_its_checkpoint() {
    let disk = records(20, 0);
    let point = checkpoint(&disk, 12);
    let expected = frames(&disk)[12..].to_vec();
    event_log::EventLog::compact(&mut disk.open().unwrap(), &point).unwrap();
    let served = Served::new(disk).await;
    let reader = remote(&served, "reader");
    for from in [1, 5, 12] {
        let text = all(reader.log(Position(from), false).await.unwrap()).await;
        assert_eq!(read(&text), (Some(Position(12)), expected.clone()), "from {from}");
    }
    let text = all(reader.log(Position(13), false).await.unwrap()).await;
    assert!(!text.starts_with(b"{\"checkpoint\""));
}

#[tokio::test]
async fn a_reader_of_the_state_gets_a_checkpoint_at_the_head() {
    let served = Served::new(records(700, 0)).await;
    let lines = remote(&served, "reader").state().await.unwrap();
    let head = lines.head;
    assert_eq!(head.position, Position(700));
    let text = all(lines).await;
    let reader = jsonl::Reader::new(&text[..], "answer").unwrap();
    let state = reader.checkpoint().unwrap().clone();
    assert_eq!((state.position, state.digest), (head.position, head.digest));
    assert_eq!(reader.count(), 0, "no record comes after it");
    let folded = engine::State::from_checkpoint(&state.state).unwrap();
    assert_eq!(folded.stamp.position, Position(700));
    let error = remote(&served, "stranger").state().await.unwrap_err();
    assert!(matches!(&error, Error::Forbidden { .. }), "{error}");
}

#[tokio::test]
async fn strangers_get_the_reason_they_are_refused() {
    let served = Served::new(records(3, 0)).await;
    let refused = async |who: &str| remote(&served, who).log(Position(1), false).await.unwrap_err();
    let unknown = refused("unknown").await;
    assert!(matches!(&unknown, Error::Unauthorized { message, .. } if message.contains("does not know the token")));
    let stranger = refused("stranger").await;
    assert!(matches!(&stranger, Error::Forbidden { user, .. } if user == "stranger"), "{stranger}");
    assert!(stranger.to_string().ends_with("stranger may not get /log (a nonResourceURL)"), "{stranger}");
    // Without the certificate the server is not believed.
    let other = Served::new(records(1, 0)).await;
    let target = Target {
        address: served.advertised.address.clone(),
        authority: other.advertised.certificate.clone(),
        auth: token("reader"),
    };
    let error = Remote::new(target).unwrap().log(Position(1), false).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    let text = served.metrics.text();
    assert!(text.contains(r#"trainyard_log_requests_total{code="401"} 1"#), "{text}");
    assert!(text.contains(r#"trainyard_log_requests_total{code="403"} 1"#), "{text}");
}

#[tokio::test]
async fn positions_beyond_the_end_and_replicas_that_do_not_lead_are_named() {
    let served = Served::new(records(3, 0)).await;
    let reader = remote(&served, "reader");
    let beyond = reader.log(Position(5), true).await.unwrap_err();
    assert!(matches!(&beyond, Error::BeyondHead { .. }), "{beyond}");
    assert!(beyond.to_string().ends_with("position 5 was asked for and the log ends at 3"), "{beyond}");
    served.status.set(ProcessState::Standby);
    let without_leader = reader.log(Position(1), false).await.unwrap_err();
    assert!(matches!(&without_leader, Error::NotLeader { leader: None, .. }), "{without_leader}");
    served.leader.send_replace(Some(served.as_leader("pod-2")));
    let other = reader.log(Position(1), false).await.unwrap_err();
    let address = served.advertised.address.clone();
    assert!(matches!(&other, Error::NotLeader { leader: Some(at), .. } if *at == address), "{other}");
    assert!(other.to_string().ends_with("this replica does not lead; pod-2 does"), "{other}");
}

#[tokio::test]
async fn a_follower_gets_records_as_they_come_and_the_end_with_the_leadership() {
    let more = frames(&records(6, 0));
    let served = Served::new(records(3, 0)).await;
    let mut lines = remote(&served, "reader").log(Position(2), true).await.unwrap();
    let mut next = async || timeout(SOON, lines.next()).await.expect("nothing came").unwrap();
    assert_eq!(line_count(&next().await.unwrap()), 2);
    served.grow(more[3..4].to_vec()).await;
    assert!(std::str::from_utf8(&next().await.unwrap()).unwrap().starts_with(r#"{"position":4,"#));
    // Nothing new: an empty line says that the server lives.
    assert_eq!(next().await.unwrap(), "\n");
    served.grow(more[4..].to_vec()).await;
    assert_eq!(line_count(&next().await.unwrap()), 2);
    served.status.set(ProcessState::Standby);
    assert_eq!(next().await, None);
}

#[tokio::test]
async fn readers_are_bounded_and_their_places_come_back() {
    let served = Served::new(records(3, 0)).await;
    let mut open = Vec::new();
    for _ in 0..16 {
        // A connection each: a client reads one answer at a time.
        open.push(remote(&served, "reader").log(Position(1), true).await.unwrap());
    }
    let full = remote(&served, "reader").log(Position(1), false).await.unwrap_err();
    assert!(matches!(&full, Error::Refused { code: 429, .. }), "{full}");
    open.clear();
    timeout(SOON, async {
        while remote(&served, "reader").log(Position(1), false).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the places did not come back");
}

/// A plain GET: status and text.
async fn get(served: &Served, path: &str) -> (StatusCode, String) {
    let stream = TcpStream::connect(served.health).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "x").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn probes_answer_in_words() {
    let served = Served::new(records(5, 0)).await;
    assert_eq!(get(&served, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
    assert_eq!(get(&served, "/readyz").await, (StatusCode::OK, "leading, term 1\n".to_owned()));
    let unready = async |text: &str| {
        assert_eq!(get(&served, "/readyz").await, (StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n")));
    };
    let one = "the server does not serve /apis/a/v1/as (yet): install its CustomResourceDefinition";
    let (first, second) = (Text::from("A"), Text::from("B"));
    served.status.installed(&first, "/apis/a/v1/as", Definition::Missing);
    unready(&format!("leading, term 1; {one}")).await;
    // With another kind to serve it does its part.
    served.status.installed(&second, "/apis/b/v1/bs", Definition::Installed);
    assert_eq!(get(&served, "/readyz").await, (StatusCode::OK, format!("leading, term 1, serving B; {one}\n")));
    served.status.installed(&first, "/apis/a/v1/as", Definition::Installed);
    assert_eq!(get(&served, "/readyz").await, (StatusCode::OK, "leading, term 1, serving A, B\n".to_owned()));
    served.status.set(ProcessState::Listing { missing: "nodes".to_owned() });
    unready("waiting for complete views of the cluster: nodes").await;
    served.status.set(ProcessState::Standby);
    unready("standby, has not looked for a leader yet").await;
    served.following.send_replace(FollowerState::Unreachable { why: "no route".to_owned() });
    unready("standby, cannot follow the leader: no route").await;
    served.following.send_replace(FollowerState::Reading { leader: "pod-2".to_owned() });
    assert_eq!(get(&served, "/readyz").await, (StatusCode::OK, "standby, following pod-2\n".to_owned()));
    served.following.send_replace(FollowerState::NotServed { leader: "pod-2".to_owned() });
    assert_eq!(get(&served, "/readyz").await.0, StatusCode::OK);
    let (status, text) = get(&served, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("trainyard_log_head_position 5\n") && text.contains("trainyard_ready 1\n"), "{text}");
    let (status, text) = get(&served, "/other").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("nothing under /other; there is /healthz, /readyz and /metrics"), "{text}");
}

#[tokio::test]
async fn a_thread_that_stands_still_for_a_minute_is_unhealthy() {
    let served = Served::new(records(1, 0)).await;
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let operator = served.operator.clone();
    let stuck = tokio::spawn(async move {
        let _ = operator.with(move |_| wait.recv()).await;
    });
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    // At first it may just be busy; only after a minute is a restart worth it.
    assert_eq!(get(&served, "/healthz").await.0, StatusCode::OK);
    pass(50).await;
    assert_eq!(get(&served, "/healthz").await.0, StatusCode::OK);
    pass(15).await;
    let (status, text) = get(&served, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.starts_with("the operator's thread has not answered for 6"), "{text}");
    release.send(()).unwrap();
    stuck.await.unwrap();
    // The answer to the first probe is on its way.
    timeout(SOON, async {
        while get(&served, "/healthz").await.0 != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it is healthy once the thread moves");
}

#[tokio::test]
async fn the_end_of_the_process_closes_both_listeners() {
    let served = Served::new(records(1, 0)).await;
    let _open = remote(&served, "reader").log(Position(1), true).await.unwrap();
    served.stop.cancel();
    timeout(SOON, async {
        while TcpStream::connect(served.health).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the listener is still open");
    let _: Option<Leader> = served.leader.borrow().clone();
}
