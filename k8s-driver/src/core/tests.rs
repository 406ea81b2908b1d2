//! One leadership after another on the thread, with everything around it played by the test.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apis::{ApiError, Verb};
use event_log::{EventLog, Fault, FaultyLog, MemoryDisk};
use model::ResourceVersion;
use serde_json::json;

use super::*;

/// A log in memory of which some appends fail, the first time it is opened.
struct Place {
    disk: MemoryDisk,
    faults: Vec<(u64, Fault)>,
}

impl LogStore for Place {
    fn open(&mut self) -> Result<Box<dyn EventLog>, event_log::Error> {
        Ok(Box::new(FaultyLog::new(self.disk.open()?, std::mem::take(&mut self.faults))))
    }

    fn archive(&mut self, _why: &str) -> io::Result<String> {
        self.disk = MemoryDisk::default();
        Ok("aside".to_owned())
    }
}

/// The other ends of a leadership's queues.
struct Around {
    news: mpsc::Sender<Observation<ObservedObject>>,
    answers: mpsc::UnboundedSender<(CallId, ApiAnswer)>,
    calls: mpsc::UnboundedReceiver<Vec<ApiCall>>,
    events: mpsc::UnboundedReceiver<LeadershipEvent>,
    /// The version of what is listed.
    listed: u64,
}

fn config(disk: &MemoryDisk, faults: Vec<(u64, Fault)>) -> Config {
    Config {
        log_store: Box::new(Place { disk: disk.clone(), faults }),
        registry: Registry::all(),
        options: Options::default(),
        clock: Clock::system(),
        metrics: Metrics::new(),
        compact_after: 0,
        cache_after: 0,
    }
}

fn thread(disk: &MemoryDisk, faults: Vec<(u64, Fault)>) -> OperatorHandle {
    start(config(disk, faults), Handle::current()).unwrap().0
}

async fn begin(operator: &OperatorHandle, last_term: u64) -> Around {
    let (news, take_news) = mpsc::channel(16);
    let (answers, take_answers) = mpsc::unbounded_channel();
    let (calls, take_calls) = mpsc::unbounded_channel();
    let (report, events) = mpsc::unbounded_channel();
    let window = watch::channel(100).1;
    let last_term = Term(last_term);
    let leadership = LeadershipChannels {
        last_term,
        unserved: BTreeSet::new(),
        news: take_news,
        answers: take_answers,
        calls,
        window,
        on_demand: Vec::new(),
        events: report,
    };
    operator.send(Request::StartLeadership(Box::new(leadership))).await.unwrap();
    Around { news, answers, calls: take_calls, events, listed: 20 }
}

/// A job named after its uid, with some pods.
fn job_of(uid: &str, replicas: u32) -> ObservedObject {
    let object = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": "5", "generation": 1},
        "spec": {"replicaSpecs": {"t": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "aitj-c", "image": "i"}]}}}}}});
    ObservedObject::read(&Registry::all(), Arc::new(object)).unwrap()
}

fn job(rv: u64) -> ObservedObject {
    let object = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "ju", "resourceVersion": rv.to_string(), "generation": 1},
        "spec": {"replicaSpecs": {"t": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "aitj-c", "image": "i"}]}}}}}});
    ObservedObject::read(&Registry::all(), Arc::new(object)).unwrap()
}

impl Around {
    async fn list(&self, jobs: Vec<ObservedObject>) {
        for target in Registry::all().watch_targets() {
            let items = if &*target.resource.kind == "AITrainingJob" { jobs.clone() } else { Vec::new() };
            let (kind, of, rv) = (target.kind, target.of, ResourceVersion(self.listed));
            self.news.send(Observation::Listed { kind, of, rv, items }).await.unwrap();
        }
    }

    /// Something new, a turn each.
    async fn eight_turns(&self) {
        for n in 0..8 {
            let node = json!({"kind": "Node", "metadata": {"name": format!("n{n}"), "resourceVersion": "50"}});
            let node = ObservedObject::read(&Registry::all(), Arc::new(node)).unwrap();
            self.news.send(Observation::Applied(node)).await.unwrap();
            tokio::time::sleep(thread::TURN_INTERVAL * 2).await;
        }
    }

    async fn milestone(&mut self) -> LeadershipEvent {
        tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await.expect("in time").unwrap()
    }

    async fn calls(&mut self) -> Vec<ApiCall> {
        tokio::time::timeout(Duration::from_secs(20), self.calls.recv()).await.expect("in time").unwrap()
    }

    /// Lists, and begins the term that is proposed.
    async fn lead(&mut self, operator: &OperatorHandle, jobs: Vec<ObservedObject>) -> Term {
        self.list(jobs).await;
        let LeadershipEvent::TermProposed(term) = self.milestone().await else { panic!("no term was proposed") };
        operator.send(Request::GrantTerm(term)).await.unwrap();
        let milestone = self.milestone().await;
        assert!(matches!(milestone, LeadershipEvent::TermStarted(started) if started == term), "{milestone:?} {term}");
        term
    }
}

fn version(rv: u64) -> Arc<serde_json::Value> {
    Arc::new(json!({"metadata": {"resourceVersion": rv.to_string()}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_is_proposed_when_all_is_listed_and_calls_follow_when_it_is_granted() {
    let disk = MemoryDisk::default();
    let operator = thread(&disk, Vec::new());
    let mut around = begin(&operator, 9_000_000_000).await;
    let term = around.lead(&operator, vec![job(5)]).await;
    // Later than the one in the Lease, though that is far in the future.
    assert_eq!(term, Term(9_000_000_001));
    let calls = around.calls().await;
    assert_eq!(calls.iter().map(|call| call.verb).collect::<Vec<_>>(), [Verb::ApplyStatus]);
    assert_eq!(calls[0].cause.term, term);
    operator.view().wait_for(|view| view.term == term).await.unwrap();
    let status = &calls[0].body.as_ref().unwrap()["status"];
    let written = json!({"metadata": {"resourceVersion": "11"}, "status": status});
    around.answers.send((calls[0].id, Ok(Arc::new(written)))).unwrap();
    let mut calls = around.calls().await;
    calls.retain(|call| &*call.resource.kind == "Pod");
    assert_eq!(calls.iter().map(|call| call.name.to_string()).collect::<Vec<_>>(), ["j-t-0", "j-t-1"]);

    // The end: an answer that came last is put down, then nothing of this leadership counts any more.
    let refused = ApiError { code: 403, reason: "Forbidden".into(), message: "quota".to_owned() };
    around.answers.send((calls[0].id, Err(refused))).unwrap();
    let (reply, ended) = oneshot::channel();
    operator.send(Request::EndLeadership { last_turn: true, reply }).await.unwrap();
    ended.await.unwrap();
    let batch = operator.read_frames(Position(1), 100, usize::MAX).await.unwrap().unwrap();
    let text = batch.frames.iter().map(|frame| String::from_utf8_lossy(&frame.body).into_owned()).collect::<String>();
    assert!(text.contains("quota"), "{text}");
    operator.view().wait_for(|view| view.term == Term(0)).await.unwrap();
    assert!(around.answers.send((calls[1].id, Ok(version(12)))).is_err());

    // The next leadership continues from the log, with a view that is as new as what stands there.
    let mut around = begin(&operator, 0).await;
    assert!(around.lead(&operator, vec![job(11)]).await > term);
    operator.with(|operator| assert_eq!(operator.state().jobs.len(), 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_leaves_room_in_the_window_for_the_others() {
    let disk = MemoryDisk::default();
    let operator = thread(&disk, Vec::new());
    let mut around = begin(&operator, 0).await;
    around.lead(&operator, vec![job_of("a-large", 500), job_of("b", 2), job_of("c", 2)]).await;
    let fences = around.calls().await;
    assert_eq!(fences.len(), 3);
    for call in fences {
        let status = &call.body.as_ref().unwrap()["status"];
        let written = json!({"metadata": {"resourceVersion": "11"}, "status": status});
        around.answers.send((call.id, Ok(Arc::new(written)))).unwrap();
    }
    // All three are known to be fenced in the same turn, or the large job in an earlier one than the others.
    let mut pods: Vec<String> = Vec::new();
    while !pods.iter().any(|name| name.starts_with("c-")) {
        let calls = around.calls().await;
        assert!(calls.len() <= 100, "{}", calls.len());
        for call in calls {
            if &*call.resource.kind == "Pod" {
                pods.push(call.name.to_string());
            }
            around
                .answers
                .send((call.id, Err(ApiError { code: 500, reason: "".into(), message: String::new() })))
                .unwrap();
        }
    }
    let large = pods.iter().filter(|name| name.starts_with("a-large")).count();
    assert!(large < 200, "{large} pods of the large job came before the last small one");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_append_nothing_is_called_and_the_operator_is_opened_again() {
    for fault in [Fault::Lost, Fault::Stored, Fault::Full] {
        let disk = MemoryDisk::default();
        let operator = thread(&disk, vec![(1, fault)]);
        let mut around = begin(&operator, 0).await;
        around.list(vec![job(5)]).await;
        let LeadershipEvent::TermProposed(first) = around.milestone().await else { panic!("no term was proposed") };
        operator.send(Request::GrantTerm(first)).await.unwrap();
        assert!(
            matches!(around.milestone().await, LeadershipEvent::OperatorStopped(operator::Error::Log(_))),
            "{fault:?}"
        );
        assert!(around.calls.recv().await.is_none());
        let mut around = begin(&operator, first.0).await;
        assert!(around.lead(&operator, vec![job(5)]).await > first);
        assert_eq!(around.calls().await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_in_batches_and_archived_only_without_a_leader() {
    let disk = MemoryDisk::default();
    let operator = thread(&disk, Vec::new());
    let mut around = begin(&operator, 0).await;
    around.lead(&operator, vec![job(5)]).await;
    let all = operator.read_frames(Position(1), 100, usize::MAX).await.unwrap().unwrap();
    assert!(all.frames.len() >= 2 && all.checkpoint.is_none());
    assert_eq!(all.head, all.frames.last().unwrap().head());
    assert_eq!(operator.read_frames(Position(1), 1, usize::MAX).await.unwrap().unwrap().frames, all.frames[..1]);
    assert_eq!(operator.read_frames(Position(2), 100, 1).await.unwrap().unwrap().frames, all.frames[1..2]);
    assert!(operator.read_frames(Position(1_000), 1, 1).await.unwrap().is_err());
    operator.with(|operator| operator.compact().unwrap()).await.unwrap();
    let compacted = operator.read_frames(Position(1), 100, usize::MAX).await.unwrap().unwrap();
    assert_eq!((compacted.frames.len(), compacted.head), (0, all.head));
    assert_eq!(compacted.checkpoint.unwrap().position, all.head.position);

    assert!(matches!(operator.archive("test").await, Err(RequestError::Leading)));
    let (reply, ended) = oneshot::channel();
    operator.send(Request::EndLeadership { last_turn: false, reply }).await.unwrap();
    ended.await.unwrap();
    assert_eq!(operator.archive("test").await.unwrap(), "aside");
    assert_eq!(operator.read_frames(Position(1), 1, 1).await.unwrap().unwrap().head, Head::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn time_alone_moves_jobs_on() {
    let disk = MemoryDisk::default();
    let ahead = Arc::new(AtomicU64::new(0));
    let clock = Clock::over({
        let ahead = Arc::clone(&ahead);
        move || {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            wall + Duration::from_secs(ahead.load(Ordering::SeqCst))
        }
    });
    let config = Config { clock, ..config(&disk, Vec::new()) };
    let operator = start(config, Handle::current()).unwrap().0;
    let mut around = begin(&operator, 0).await;
    around.lead(&operator, vec![job(5)]).await;
    let status = around.calls().await;
    // The server cannot: the second try is at once, the third after a while.
    let unable = || Err(ApiError { code: 503, reason: "".into(), message: "unable".to_owned() });
    around.answers.send((status[0].id, unable())).unwrap();
    let again = around.calls().await;
    around.answers.send((again[0].id, unable())).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(500), around.calls.recv()).await.is_err());
    ahead.fetch_add(120, Ordering::SeqCst);
    assert_eq!(around.calls().await[0].verb, Verb::ApplyStatus);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_compacted_by_itself() {
    let disk = MemoryDisk::default();
    let operator = start(Config { compact_after: 3, ..config(&disk, Vec::new()) }, Handle::current()).unwrap().0;
    let mut around = begin(&operator, 0).await;
    around.lead(&operator, vec![job(5)]).await;
    around.eight_turns().await;
    let mut view = operator.view();
    let compacted = view.wait_for(|view| view.first > Position(1));
    tokio::time::timeout(Duration::from_secs(20), compacted).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_cached_beside_a_long_log_and_the_next_start_begins_there() {
    let disk = MemoryDisk::default();
    let operator = start(Config { cache_after: 3, ..config(&disk, Vec::new()) }, Handle::current()).unwrap().0;
    let mut around = begin(&operator, 0).await;
    around.lead(&operator, vec![job(5)]).await;
    around.eight_turns().await;
    let look = |operator: &mut Operator| {
        let log = operator.log();
        (log.head(), operator.state().to_checkpoint().unwrap(), log.cached_state().unwrap())
    };
    let (head, state, cached) = operator.with(look).await.unwrap();
    let cached = cached.expect("calls are under way, but it has grown to twice the limit");
    assert!((Position(6)..=head.position).contains(&cached.position), "{:?} of {head:?}", cached.position);

    // The state is the same whether all of the log is folded or what follows the cached state. A cached state that this build
    // cannot read is ignored.
    let beginning = Checkpoint { state: engine::State::default().to_checkpoint().unwrap(), ..cached.clone() };
    let torn = Checkpoint { state: b"{".to_vec(), ..cached.clone() };
    // A state that this log never had shows that the cached one is read.
    let mut changed: serde_json::Value = serde_json::from_slice(&cached.state).unwrap();
    changed["nodes"] = json!({});
    let changed = Checkpoint { state: changed.to_string().into_bytes(), ..cached.clone() };
    let records = operator.read_frames(Position(1), usize::MAX, usize::MAX).await.unwrap().unwrap().frames;
    for (mark, same) in
        [(None, true), (Some(cached), true), (Some(beginning), true), (Some(torn), true), (Some(changed), false)]
    {
        let disk = MemoryDisk::default();
        let mut log = disk.open().unwrap();
        for frame in &records {
            log.append(&[event_log::NewRecord { term: frame.term, body: &frame.body }]).unwrap();
        }
        if let Some(mark) = mark {
            log.cache_state(mark).unwrap();
        }
        drop(log);
        let operator = thread(&disk, Vec::new());
        let read = operator.with(|operator| operator.state().to_checkpoint().unwrap()).await.unwrap();
        assert_eq!(read == state, same);
    }
}
