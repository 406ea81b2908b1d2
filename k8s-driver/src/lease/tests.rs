//! Elections in virtual time: who leads when, and that two never do.

mod server;

use std::future::pending;
use std::time::Duration;

use model::Term;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::server::{Link, Server};
use super::{Advertised, Elector, Error, LeaseHold, LeaseOptions, find_leader};
use crate::metrics::Metrics;

const SECOND: Duration = Duration::from_secs(1);

fn options(identity: &str) -> LeaseOptions {
    LeaseOptions::new("ops", identity)
}

fn candidate(server: &Server, identity: &str) -> (Elector, Link) {
    let (client, link) = server.client();
    (Elector::new(client, options(identity), Metrics::new()), link)
}

async fn acquire(elector: &mut Elector) -> LeaseHold {
    timeout(60 * SECOND, elector.acquire()).await.expect("the Lease is free").unwrap()
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_at_once_and_says_where_its_log_is() {
    let server = Server::default();
    let (client, _link) = server.client();
    let advertised = Advertised { address: "https://10.0.0.7:8443".to_owned(), certificate: Some("PEM".to_owned()) };
    let with_log = LeaseOptions { advertised: Some(advertised.clone()), ..options("a") };
    let mut elector = Elector::new(client.clone(), with_log, Metrics::new());
    let begun = Instant::now();
    let hold = acquire(&mut elector).await;
    assert!(hold.holds() && seconds(begun) < 0.1);
    hold.claim(Term(41)).await.unwrap();
    let leader = find_leader(client, "ops", "trainyard").await.unwrap().unwrap();
    assert_eq!((leader.identity.as_str(), leader.term), ("a", Term(41)));
    assert_eq!(leader.advertised, Some(advertised));
    let spec = &server.lease()["spec"];
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
    assert_eq!(elector.leader().borrow().as_ref().unwrap().identity, "a");
    let event = &server.events()[0];
    assert_eq!((&event["reason"], &event["message"]), (&json!("LeaderElection"), &json!("a became leader")));
    assert_eq!(event["involvedObject"]["kind"], "Lease");
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_for_as_long_as_it_lives() {
    let server = Server::default();
    let (mut elector, _link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    let (mut other, _link) = candidate(&server, "b");
    assert!(timeout(600 * SECOND, other.acquire()).await.is_err());
    assert!(hold.holds() && hold.remaining() > 7 * SECOND);
    let writes = server.count("PUT");
    assert!((295..=310).contains(&writes), "{writes} renewals in ten minutes");
    // The other one hears of the renewals by its watch and asks for nothing.
    assert!(server.count("GET") < 20, "{} reads", server.count("GET"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_when_a_dead_leaders_lease_has_run_out() {
    let server = Server::default();
    let (client, link) = server.client();
    let mut leader = Elector::new(client, options("a"), Metrics::new());
    let first = acquire(&mut leader).await;
    first.claim(Term(9)).await.unwrap();
    let (mut standby, _link) = candidate(&server, "b");
    let seen = standby.leader();
    let waiting = tokio::spawn(async move { (acquire(&mut standby).await, Instant::now()) });
    sleep(31 * SECOND).await;
    assert_eq!(seen.borrow().as_ref().unwrap().identity, "a");
    link.cut(true);
    let died = Instant::now();
    let (second, at) = waiting.await.unwrap();
    let took = (at - died).as_secs_f64();
    assert!((12.9..15.5).contains(&took), "took over after {took} s; the last renewal is up to 2 s old");
    assert!(second.holds() && !first.holds());
    assert_eq!(second.last_term(), Term(9));
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 1);
    assert!(server.annotation("trainyard.dev/log-address").is_none());
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_a_standby_reads_and_still_takes_over() {
    let server = Server::default();
    let (mut leader, link) = candidate(&server, "a");
    let _first = acquire(&mut leader).await;
    let (mut standby, way) = candidate(&server, "b");
    way.forbid_watch();
    let waiting = tokio::spawn(async move { acquire(&mut standby).await });
    sleep(20 * SECOND).await;
    link.cut(true);
    let died = Instant::now();
    assert!(waiting.await.unwrap().holds());
    assert!((13.0..21.0).contains(&seconds(died)), "{}", seconds(died));
}

#[tokio::test(start_paused = true)]
async fn two_never_hold_at_once_and_a_margin_lies_between() {
    // Links that are cut and healed at different times, and slow in both directions.
    let mut handed_over = 0;
    for seed in 0..24_u64 {
        let server = Server::default();
        let mut ends = Vec::new();
        let mut holds = Vec::new();
        for name in ["a", "b", "c"] {
            let (mut elector, link) = candidate(&server, name);
            let (sender, receiver) = tokio::sync::watch::channel(None::<LeaseHold>);
            tokio::spawn(async move {
                loop {
                    let hold = elector.acquire().await.unwrap();
                    sender.send_replace(Some(hold.clone()));
                    hold.lost().await;
                }
            });
            ends.push(link);
            holds.push(receiver);
        }
        let begun = Instant::now();
        let mut held = None::<(usize, Instant)>;
        let mut state = seed;
        while begun.elapsed() < 180 * SECOND {
            if begun.elapsed().as_millis() % 500 < 10 {
                // A linear congruential generator (Knuth's MMIX constants): the same faults for the same seed.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let link = &ends[usize::try_from(state >> 33).unwrap() % 3];
                match (state >> 40) % 8 {
                    0 => link.cut(true),
                    1 => link.lose_answers(true),
                    2 => link.slow(Duration::from_millis((state >> 44) % 6000), Duration::ZERO),
                    3 => link.slow(Duration::ZERO, Duration::from_millis((state >> 44) % 6000)),
                    4 => link.refuse(Some(503)),
                    _ => {
                        link.cut(false);
                        link.lose_answers(false);
                        link.slow(Duration::ZERO, Duration::ZERO);
                        link.refuse(None);
                    }
                }
            }
            for (n, hold) in holds.iter().enumerate() {
                if !hold.borrow().as_ref().is_some_and(LeaseHold::holds) {
                    continue;
                }
                if let Some((who, when)) = held.filter(|(who, _)| *who != n) {
                    let gap = when.elapsed();
                    assert!(gap >= Duration::from_millis(4900), "seed {seed}: {n} {gap:?} after {who}");
                    handed_over += 1;
                }
                held = Some((n, Instant::now()));
            }
            sleep(Duration::from_millis(10)).await;
        }
        assert!(held.is_some(), "seed {seed}: no elector ever led");
    }
    assert!(handed_over > 30, "the faults led to {handed_over} changes of leadership only");
}

#[tokio::test(start_paused = true)]
async fn the_wall_clock_of_others_is_not_believed() {
    for renewed in ["1999-01-01T00:00:00.000000Z", "2199-01-01T00:00:00.000000Z"] {
        let server = Server::default();
        server.plant(&json!({"holderIdentity": "x", "leaseDurationSeconds": 20, "renewTime": renewed}));
        let (mut elector, _link) = candidate(&server, "a");
        let begun = Instant::now();
        acquire(&mut elector).await;
        assert!((20.0..20.5).contains(&seconds(begun)), "{renewed}: {}", seconds(begun));
    }
}

#[tokio::test(start_paused = true)]
async fn edits_by_other_tools_cost_nothing_and_the_term_comes_back() {
    let server = Server::default();
    let (mut elector, _link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    hold.claim(Term(50)).await.unwrap();
    let (mut standby, _link) = candidate(&server, "b");
    let waiting = tokio::spawn(async move { acquire(&mut standby).await });
    for n in 0..20 {
        sleep(SECOND).await;
        server.edit(|lease| {
            lease["metadata"]["labels"] = json!({"edited": n.to_string()});
            lease["metadata"]["annotations"] = json!({"theirs": "kept"});
        });
    }
    sleep(3 * SECOND).await;
    assert!(hold.holds() && !waiting.is_finished());
    assert_eq!(server.annotation("trainyard.dev/term").as_deref(), Some("50"));
    assert_eq!(server.annotation("theirs").as_deref(), Some("kept"));
    assert_eq!(server.lease()["metadata"]["labels"]["edited"], "19");
    // Lowered by hand: it does not go down.
    server.edit(|lease| lease["metadata"]["annotations"]["trainyard.dev/term"] = json!("3"));
    let refused = hold.claim(Term(50)).await.unwrap_err();
    assert!(matches!(refused, Error::TermTaken { offered: Term(50), last: Term(50) }), "{refused}");
    hold.claim(Term(51)).await.unwrap();
    assert_eq!(server.annotation("trainyard.dev/term").as_deref(), Some("51"));
    assert_eq!(hold.last_term(), Term(51));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_process_holds_is_lost_at_once() {
    let server = Server::default();
    let (mut elector, _link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    server.edit(|lease| lease["spec"]["holderIdentity"] = json!("thief"));
    let claimed = hold.claim(Term(5)).await.unwrap_err();
    assert_eq!(claimed.to_string(), "leadership is lost: the lease is held by thief");
    assert!(!hold.holds());
    assert_eq!(server.annotation("trainyard.dev/term"), None, "no write after loss");
    // The thief does not renew: after its time the same process leads again, in a new hold.
    let lost = Instant::now();
    let again = acquire(&mut elector).await;
    assert!(again.holds() && !hold.holds() && seconds(lost) > 14.0, "{}", seconds(lost));
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_ends_the_hold_at_the_deadline_and_the_lease_is_taken_up_again() {
    let server = Server::default();
    let (mut elector, link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    sleep(7 * SECOND).await;
    link.cut(true);
    let cut = Instant::now();
    timeout(60 * SECOND, hold.lost()).await.unwrap();
    assert!((8.0..=10.0).contains(&seconds(cut)), "{}", seconds(cut));
    assert!(!hold.holds() && hold.remaining().is_zero());
    assert!(matches!(hold.claim(Term(9)).await, Err(Error::Lost { .. })));
    link.cut(false);
    let healed = Instant::now();
    let again = acquire(&mut elector).await;
    assert!(again.holds() && !hold.holds());
    assert!(seconds(healed) < 6.0, "it still is the holder: {}", seconds(healed));
}

#[tokio::test(start_paused = true)]
async fn slow_answers_count_from_before_the_request() {
    let server = Server::default();
    let (mut elector, link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    link.slow(Duration::ZERO, 4 * SECOND);
    for _ in 0..300 {
        sleep(Duration::from_millis(100)).await;
        assert!(hold.holds());
        // Never more than the deadline counted from the sending, whatever the answer took.
        assert!(hold.remaining() <= 6 * SECOND + 4 * SECOND);
    }
    let mut most = Duration::ZERO;
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        most = most.max(hold.remaining());
    }
    assert!(most <= 6 * SECOND, "{most:?} of belief after an answer that took 4 s");
    // Slower than an attempt may take: nothing is known any more.
    link.slow(Duration::ZERO, 6 * SECOND);
    timeout(11 * SECOND, hold.lost()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_found_written() {
    let server = Server::default();
    let (mut elector, link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    link.lose_answers(true);
    let claiming = tokio::spawn({
        let hold = hold.clone();
        async move { hold.claim(Term(77)).await }
    });
    sleep(SECOND).await;
    assert_eq!(server.annotation("trainyard.dev/term").as_deref(), Some("77"));
    link.lose_answers(false);
    claiming.await.unwrap().unwrap();
    assert!(hold.holds());
}

#[tokio::test(start_paused = true)]
async fn refusals_are_tried_again_until_the_deadline() {
    let server = Server::default();
    let (mut elector, link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    link.refuse(Some(503));
    sleep(6 * SECOND).await;
    link.refuse(None);
    sleep(30 * SECOND).await;
    assert!(hold.holds());
    link.refuse(Some(403));
    timeout(11 * SECOND, hold.lost()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once_and_never_before_the_writes_end() {
    let server = Server::default();
    let (mut elector, _link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    hold.claim(Term(4)).await.unwrap();
    let (mut standby, _link) = candidate(&server, "b");
    let waiting = tokio::spawn(async move { acquire(&mut standby).await });
    sleep(5 * SECOND).await;
    let kept = hold.clone();
    let begun = Instant::now();
    hold.release().await.unwrap();
    assert!(!kept.holds());
    let next = waiting.await.unwrap();
    assert!(seconds(begun) < 0.5, "{}", seconds(begun));
    assert_eq!((server.holder().as_str(), next.last_term()), ("b", Term(4)));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_ends_the_hold_and_no_standby_jumps_in() {
    let server = Server::default();
    let (mut elector, _link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    hold.claim(Term(12)).await.unwrap();
    let (mut standby, _link) = candidate(&server, "b");
    let waiting = tokio::spawn(async move { standby.acquire().await.map(|_| ()) });
    sleep(5 * SECOND).await;
    server.delete();
    timeout(3 * SECOND, hold.lost()).await.unwrap();
    let again = acquire(&mut elector).await;
    assert_eq!((server.holder().as_str(), again.last_term()), ("a", Term(12)));
    assert_eq!(server.annotation("trainyard.dev/term").as_deref(), Some("12"));
    sleep(60 * SECOND).await;
    assert!(again.holds() && !waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_write_is_given_up_with_the_hold() {
    let server = Server::default();
    let (mut elector, link) = candidate(&server, "a");
    let hold = acquire(&mut elector).await;
    assert_eq!(hold.within(async { 5 }).await, Some(5));
    let begun = Instant::now();
    // A slow write outlives renewals ...
    assert_eq!(hold.within(sleep(25 * SECOND)).await, Some(()));
    link.cut(true);
    // ... but not the hold.
    assert_eq!(hold.within(pending::<()>()).await, None);
    assert!(seconds(begun) < 36.0);
    let late = async { panic!("no write may begin after the loss") };
    assert_eq!(hold.within::<_>(late).await, None::<()>);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_hold_is_not_renewed() {
    let server = Server::default();
    let (mut elector, _link) = candidate(&server, "a");
    drop(acquire(&mut elector).await);
    sleep(5 * SECOND).await;
    let writes = server.count("PUT");
    sleep_until(Instant::now() + 60 * SECOND).await;
    assert_eq!(server.count("PUT"), writes);
}

#[test]
fn settings_that_do_not_fit_are_named() {
    let refused = |change: &dyn Fn(&mut LeaseOptions)| {
        let mut options = options("a");
        change(&mut options);
        options.check().unwrap_err().to_string()
    };
    assert!(options("a").check().is_ok());
    assert_eq!(refused(&|o| o.identity.clear()), r#"lease identity "" must not be empty"#);
    assert_eq!(
        refused(&|o| o.renew_deadline = 15 * SECOND),
        r#"lease renew deadline "15s" must be shorter than the lease duration, 15s"#
    );
    assert!(
        refused(&|o| o.duration = Duration::from_millis(1500)).contains(r#"duration "1.5s" must be whole seconds"#)
    );
    assert!(refused(&|o| o.retry_period = 6 * SECOND).contains(r#"retry period "6s""#));
    assert!(refused(&|o| o.retry_period = Duration::ZERO).contains("above zero"));
    let names: Vec<Value> = (0..2).map(|_| json!(LeaseOptions::identity_of("pod-1"))).collect();
    assert!(names[0] != names[1] && names[0].as_str().unwrap().starts_with("pod-1_"));
}
