//! A standby beside a served leader: equal logs, breaks, divergence, compaction.

use std::time::Duration;

use event_log::{EventLog as _, Frame, MemoryDisk};
use model::{Position, Term};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Follower, FollowerState};
use crate::http::test_server::{Place, Served, append, checkpoint, frames, records, tokens, turns_on};
use crate::lease::Leader;
use crate::metrics::Metrics;
use crate::process::status::ProcessState;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct Standby {
    place: Place,
    operator: crate::core::OperatorHandle,
    leader: watch::Sender<Option<Leader>>,
    state: watch::Receiver<FollowerState>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Standby {
    fn new(disk: MemoryDisk, leader: Option<Leader>, who: &'static str) -> Self {
        let place = Place::new(disk);
        let operator = turns_on(&place);
        let leader = watch::Sender::new(leader);
        let follower =
            Follower::new(operator.clone(), leader.subscribe(), "me".to_owned(), tokens(who), Metrics::new());
        let mut follower = follower.compacting_after(5000);
        let (state, stop) = (follower.following(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move { follower.run(&stopped).await });
        Self { place, operator, leader, state, stop, task }
    }

    fn of(disk: MemoryDisk, served: &Served) -> Self {
        Self::new(disk, Some(served.as_leader("pod-1")), "reader")
    }

    async fn reaches(&self, position: u64) {
        let mut view = self.operator.view();
        let reached = view.wait_for(|view| view.head.position == Position(position));
        timeout(TEST_TIMEOUT, reached)
            .await
            .unwrap_or_else(|_| panic!("#{position} was not reached: {:?}", self.state.borrow()))
            .unwrap();
    }

    async fn sets_aside(&self) {
        let aside = async {
            while self.place.aside().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TEST_TIMEOUT, aside).await.expect("nothing was set aside");
        // Once the thread answers, it has reported the log that began since.
        self.operator.with(|_| ()).await.unwrap();
    }

    async fn reports(&mut self, wanted: impl FnMut(&FollowerState) -> bool) -> FollowerState {
        timeout(TEST_TIMEOUT, self.state.wait_for(wanted)).await.expect("it does not report so").unwrap().clone()
    }

    /// Stops it; gives its log.
    async fn end(self) -> Vec<Frame> {
        self.stop.cancel();
        timeout(TEST_TIMEOUT, self.task).await.expect("it does not stop").unwrap();
        frames(&self.place.disk())
    }
}

/// Records `more` after those of `disk`, as another disk.
fn grown(disk: &MemoryDisk, more: u64, flavour: u64, term: u64) -> MemoryDisk {
    let grown = disk.copy();
    append(&mut grown.open().unwrap(), more, flavour, Term(term));
    grown
}

#[tokio::test]
async fn a_standby_has_the_leaders_log_and_keeps_it() {
    let longer = records(1300, 0);
    let served = Served::new(records(1000, 0)).await;
    let mut standby = Standby::of(records(400, 0), &served);
    standby.reaches(1000).await;
    standby.reports(|f| *f == FollowerState::Reading { leader: "pod-1".to_owned() }).await;
    for part in frames(&longer)[1000..].chunks(100) {
        served.grow(part.to_vec()).await;
    }
    standby.reaches(1300).await;
    assert_eq!(standby.place.aside(), Vec::<String>::new());
    let position = standby.operator.with(|operator| operator.state().stamp.position).await.unwrap();
    assert_eq!(position, Position(1300), "folded as well");
    assert_eq!(standby.end().await, frames(&longer));
}

#[tokio::test]
async fn an_empty_log_begins_where_the_leaders_does() {
    let disk = records(50, 0);
    let served = Served::new(disk.copy()).await;
    let standby = Standby::of(MemoryDisk::default(), &served);
    standby.reaches(50).await;
    assert_eq!(standby.end().await, frames(&disk));

    let compacted = disk.copy();
    compacted.open().unwrap().compact(&checkpoint(&disk, 30)).unwrap();
    let served = Served::new(compacted).await;
    let standby = Standby::of(MemoryDisk::default(), &served);
    standby.reaches(50).await;
    assert_eq!(standby.end().await, frames(&disk)[30..]);
}

#[tokio::test]
async fn a_log_that_ends_at_the_leaders_checkpoint_goes_on() {
    let disk = records(50, 0);
    let compacted = disk.copy();
    compacted.open().unwrap().compact(&checkpoint(&disk, 30)).unwrap();
    let served = Served::new(compacted).await;
    let standby = Standby::of(records(30, 0), &served);
    standby.reaches(50).await;
    assert!(standby.place.aside().is_empty());
    assert_eq!(standby.end().await, frames(&disk));
}

#[tokio::test]
async fn a_log_that_is_no_beginning_of_the_leaders_is_set_aside_with_the_reason() {
    let common = records(10, 0);
    let leaders = grown(&common, 5, 0, 3);
    for (own, why) in [
        // Written by this process after it had lost the lead.
        (grown(&common, 2, 7, 2), "another record after 12"),
        (grown(&common, 5, 7, 3), "another record at 15"),
        (grown(&common, 9, 7, 2), "longer than the leader's, at 19"),
        // A later term than the leader's own at that place: a restored leader.
        (grown(&common, 1, 7, 9), "another record after 11"),
        (records(4, 9), "another record after 4"),
    ] {
        let served = Served::new(leaders.copy()).await;
        let standby = Standby::of(own, &served);
        standby.sets_aside().await;
        standby.reaches(15).await;
        assert_eq!(standby.place.aside(), [why]);
        assert_eq!(standby.end().await, frames(&leaders), "{why}");
    }
    // Left behind by a compaction.
    let compacted = leaders.copy();
    compacted.open().unwrap().compact(&checkpoint(&leaders, 12)).unwrap();
    let served = Served::new(compacted).await;
    let standby = Standby::of(records(10, 0), &served);
    standby.reaches(15).await;
    assert_eq!(standby.place.aside(), ["the leader's begins at 13"]);
    assert_eq!(standby.end().await, frames(&leaders)[12..]);
}

#[tokio::test]
async fn a_leader_that_compacts_is_still_followed() {
    let longer = records(40, 0);
    let served = Served::new(records(30, 0)).await;
    let standby = Standby::of(MemoryDisk::default(), &served);
    standby.reaches(30).await;
    served.operator.with(operator::Operator::compact).await.unwrap().unwrap();
    served.grow(frames(&longer)[30..].to_vec()).await;
    standby.reaches(40).await;
    assert!(standby.place.aside().is_empty());
    assert_eq!(standby.end().await, frames(&longer));
}

#[tokio::test]
async fn a_follower_compacts_its_own_log() {
    let disk = records(5200, 0);
    let served = Served::new(disk.copy()).await;
    let standby = Standby::of(MemoryDisk::default(), &served);
    standby.reaches(5200).await;
    let place = standby.place.clone();
    let own = standby.end().await;
    assert!(own.len() < 5000, "{} records", own.len());
    // How much is left depends on when it was compacted: even the last record may be in the checkpoint, with its digest.
    let end = |disk: &MemoryDisk| disk.copy().open().unwrap().head();
    assert_eq!(end(&place.disk()), end(&disk));
}

#[tokio::test]
async fn it_keeps_trying_and_says_why_it_cannot() {
    let served = Served::new(records(5, 0)).await;
    let mut silent = served.as_leader("pod-1");
    silent.advertised = None;
    let mut standby = Standby::new(MemoryDisk::default(), None, "reader");
    standby.reports(|f| *f == FollowerState::NoLeader).await;
    standby.leader.send_replace(Some(silent));
    standby.reports(|f| *f == FollowerState::NotServed { leader: "pod-1".to_owned() }).await;
    served.status.set(ProcessState::Standby);
    standby.leader.send_replace(Some(served.as_leader("pod-1")));
    standby.reports(|f| f.to_string().contains("does not lead")).await;
    // It leads again: found by trying.
    served.status.set(ProcessState::Leading { term: Term(1) });
    standby.reaches(5).await;
    // Another leader, with more.
    let other = Served::new(records(9, 0)).await;
    standby.leader.send_replace(Some(other.as_leader("pod-2")));
    standby.reaches(9).await;
    standby.reports(|f| *f == FollowerState::Reading { leader: "pod-2".to_owned() }).await;
    // This process itself leads: there is no other to follow.
    standby.leader.send_replace(Some(other.as_leader("me")));
    standby.reports(|f| *f == FollowerState::NoLeader).await;
    assert_eq!(standby.end().await.len(), 9);
}

#[tokio::test]
async fn a_standby_that_may_not_read_says_so() {
    let served = Served::new(records(5, 0)).await;
    let mut standby = Standby::new(MemoryDisk::default(), Some(served.as_leader("pod-1")), "stranger");
    let state = standby.reports(|f| matches!(f, FollowerState::Unreachable { .. })).await;
    assert!(state.to_string().ends_with("stranger may not get /log (a nonResourceURL)"), "{state}");
    assert!(standby.end().await.is_empty());
}
