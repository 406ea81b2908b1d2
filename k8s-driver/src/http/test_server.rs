//! For tests: an operator's thread on a log in memory, and that log served over a real TLS socket.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use event_log::{Checkpoint, Error, EventLog, Frame, MemoryDisk, NewRecord};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::AuthInfo;
use model::{Position, Stamp, Term, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::clock::Clock;
use crate::core::log_store::LogStore;
use crate::core::{self, Config, OperatorHandle};
use crate::http::{HttpOptions, Listeners, ServerState};
use crate::lease::{Advertised, Leader};
use crate::metrics::Metrics;
use crate::process::status::{ProcessState, StatusReporter};
use crate::replication::credentials::Tokens;
use crate::replication::follower::FollowerState;

/// Records that say nothing but when, from position 1 on; `flavour` makes the logs of different leaders differ.
pub(crate) fn records(count: u64, flavour: u64) -> MemoryDisk {
    let disk = MemoryDisk::default();
    append(&mut disk.open().unwrap(), count, flavour, Term(1));
    disk
}

/// Appends such records.
pub(crate) fn append(log: &mut dyn EventLog, count: u64, flavour: u64, term: Term) {
    for _ in 0..count {
        let at = log.head().position.0 * 1000 + flavour;
        log.append(&[NewRecord { term, body: format!(r#"{{"at":{at}}}"#).as_bytes() }]).unwrap();
    }
}

/// All frames of a log.
pub(crate) fn frames(disk: &MemoryDisk) -> Vec<Frame> {
    let log = disk.copy().open().unwrap();
    log.read(log.first()).unwrap().map(Result::unwrap).collect()
}

/// The checkpoint of a log of such records at a position.
pub(crate) fn checkpoint(disk: &MemoryDisk, at: u64) -> Checkpoint {
    let frame = frames(disk).into_iter().find(|frame| frame.position == Position(at)).unwrap();
    let record = engine::Record::decode(frame.position, frame.term, &frame.body).unwrap();
    let mut state = engine::State::default();
    state.begin(Stamp { term: frame.term, position: frame.position }, Timestamp(record.at.0));
    let state = state.to_checkpoint().unwrap();
    Checkpoint { position: frame.position, term: frame.term, digest: frame.digest, state }
}

/// A place whose log was there before; what is set aside is noted.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) disk: Arc<Mutex<MemoryDisk>>,
    pub(crate) aside: Arc<Mutex<Vec<String>>>,
}

impl Place {
    pub(crate) fn new(disk: MemoryDisk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), aside: Arc::default() }
    }

    pub(crate) fn disk(&self) -> MemoryDisk {
        self.disk.lock().unwrap().clone()
    }

    pub(crate) fn aside(&self) -> Vec<String> {
        self.aside.lock().unwrap().clone()
    }
}

impl LogStore for Place {
    fn open(&mut self) -> Result<Box<dyn EventLog>, Error> {
        Ok(Box::new(self.disk().open()?))
    }

    fn archive(&mut self, why: &str) -> io::Result<String> {
        self.aside.lock().unwrap().push(why.to_owned());
        *self.disk.lock().unwrap() = MemoryDisk::default();
        Ok("aside".to_owned())
    }
}

/// A thread on a place.
pub(crate) fn turns_on(place: &Place) -> OperatorHandle {
    let parts = Config {
        log_store: Box::new(place.clone()),
        registry: apis::Registry::all(),
        options: operator::Options::default(),
        clock: Clock::system(),
        metrics: Metrics::new(),
        compact_after: 0,
        cache_after: 0,
    };
    core::start(parts, tokio::runtime::Handle::current()).unwrap().0
}

/// A client of an API server that knows two tokens: `reader` may read the log, `stranger` may not. A token that it issues is the
/// name of the user who asks and the audience.
fn api_server(user: &'static str) -> Client {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    tokio::spawn(async move {
        while let Some((request, reply)) = handle.next_request().await {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let status = if path.ends_with("/serviceaccounts/trainyard-log-reader/token") {
                let audience = asked["spec"]["audiences"][0].as_str().unwrap();
                json!({"token": format!("{user} {audience}"), "expirationTimestamp": "2030-01-01T00:00:00Z"})
            } else if path.ends_with("/tokenreviews") {
                let token = asked["spec"]["token"].as_str().unwrap();
                let query_ = asked["spec"]["audiences"][0].as_str();
                let (name, issued_for) = token.split_once(' ').map_or((token, None), |(name, at)| (name, Some(at)));
                let known = matches!(name, "reader" | "stranger") && issued_for == query_;
                json!({"authenticated": known, "user": {"username": name}})
            } else {
                json!({"allowed": asked["spec"]["user"] == "reader"})
            };
            let answer = json!({"metadata": {}, "spec": asked["spec"], "status": status});
            reply.send_response(Response::new(Body::from(answer.to_string().into_bytes())));
        }
    });
    Client::new(service, "default")
}

/// An operator that can be looked at.
pub(crate) struct Served {
    pub(crate) place: Place,
    pub(crate) operator: OperatorHandle,
    pub(crate) status: StatusReporter,
    pub(crate) advertised: Advertised,
    pub(crate) health: SocketAddr,
    pub(crate) leader: watch::Sender<Option<Leader>>,
    pub(crate) following: watch::Sender<FollowerState>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

impl Served {
    /// Serves a leader's log.
    pub(crate) async fn new(disk: MemoryDisk) -> Self {
        let place = Place::new(disk);
        let operator = turns_on(&place);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = HttpOptions { health: vec![any], log: Some(any), ..HttpOptions::default() };
        let bound = Listeners::new(&options).await.unwrap();
        let served = Self {
            place,
            operator,
            status: StatusReporter::default(),
            advertised: bound.advertised().unwrap().clone(),
            health: bound.health[0].local_addr().unwrap(),
            leader: watch::Sender::new(None),
            following: watch::Sender::new(FollowerState::Starting),
            metrics: Metrics::new(),
            stop: CancellationToken::new(),
        };
        served.status.set(ProcessState::Leading { term: Term(1) });
        let state = ServerState {
            operator: served.operator.clone(),
            status: served.status.clone(),
            metrics: served.metrics.clone(),
            following: served.following.subscribe(),
            leader: served.leader.subscribe(),
            client: api_server("the operator"),
        };
        // The thread reports its log once it was asked something.
        served.grow(Vec::new()).await;
        tokio::spawn(bound.serve(state, served.stop.clone()));
        served
    }

    /// Appends records to the served log, as its own operator would, and waits until readers are notified of them.
    pub(crate) async fn grow(&self, frames: Vec<Frame>) {
        let grown = self.operator.with(move |operator| operator.follow(&frames).map(|()| operator.log().head()));
        let head = grown.await.unwrap().unwrap();
        self.operator.view().wait_for(|view| view.head == head).await.unwrap();
    }

    /// As others see it in the Lease.
    pub(crate) fn as_leader(&self, identity: &str) -> Leader {
        Leader { identity: identity.to_owned(), term: Term(1), advertised: Some(self.advertised.clone()) }
    }
}

/// Issues tokens to a user.
pub(crate) fn tokens(user: &'static str) -> Tokens {
    Tokens::new(api_server(user), "trainyard-system")
}

/// Credentials with this token.
pub(crate) fn token(token: &str) -> AuthInfo {
    AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() }
}
