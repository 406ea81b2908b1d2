//! Answers probes and scrapes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use model::Position;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::{ServerState, unknown_paths};
use crate::core::{OperatorHandle, Request, ThreadEnded};
use crate::metrics::Summary;
use crate::process::status::{self, ProcessState, StatusReporter};
use crate::replication::follower::FollowerState;

/// Content type of figures in the text format of `OpenMetrics`.
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Time limit of one probe's request to the operator's thread.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time without an answer after which the operator's thread counts as stuck, above any turn or compaction.
const THREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The router of the plain listener.
pub(super) fn router(state: &ServerState) -> Router {
    let probe = Arc::new(ThreadProbe { operator: state.operator.clone(), waiting_since: Mutex::default() });
    let health = move || {
        let probe = probe.clone();
        async move {
            match probe.check().await {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            }
        }
    };
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(state.clone());
    unknown_paths(router, "/healthz, /readyz and /metrics")
}

/// Fault of the operator's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum ThreadFault {
    /// It does not answer.
    #[error("the operator's thread has not answered for {} s", .0.as_secs())]
    Stuck(Duration),
    /// It has ended.
    #[error(transparent)]
    Ended(#[from] ThreadEnded),
}

/// Probes the operator's thread. At most one request waits for it, for any number of probes.
struct ThreadProbe {
    operator: OperatorHandle,
    waiting_since: Mutex<Option<Instant>>,
}

impl ThreadProbe {
    async fn check(self: &Arc<Self>) -> Result<(), ThreadFault> {
        let waiting = *self.waiting();
        if let Some(since) = waiting {
            let waited = since.elapsed();
            return if waited < THREAD_TIMEOUT { Ok(()) } else { Err(ThreadFault::Stuck(waited)) };
        }
        *self.waiting() = Some(Instant::now());
        let probe = self.clone();
        let asked = tokio::spawn(async move {
            let (reply, answer) = oneshot::channel();
            let ask = Request::ReadFrames { from: Position(u64::MAX), limit: 0, max_bytes: 0, reply };
            let alive = probe.operator.send(ask).await.is_ok();
            // Any reply suffices. A closed log gives none, and the thread is alive all the same.
            let _ = answer.await;
            *probe.waiting() = None;
            alive
        });
        match timeout(PROBE_TIMEOUT, asked).await {
            Ok(Ok(false)) => Err(ThreadEnded.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ready(State(state): State<ServerState>) -> Response {
    let (ready, words) = readiness(&state.status, &state.following.borrow());
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{words}\n")).into_response()
}

/// Returns whether a replica in this state does its work, with a message for users.
pub(crate) fn readiness(reporter: &StatusReporter, following: &FollowerState) -> (bool, String) {
    match reporter.get() {
        ProcessState::Standby => match following {
            FollowerState::Reading { .. } | FollowerState::NotServed { .. } => (true, format!("standby, {following}")),
            FollowerState::Starting | FollowerState::NoLeader | FollowerState::Unreachable { .. } => {
                (false, format!("standby, {following}"))
            }
        },
        standing @ ProcessState::Leading { .. } => {
            let missing = reporter.missing();
            // One kind of several may be left out on purpose; without any there is nothing it could do.
            let mut words = standing.to_string();
            let served = reporter.served_apis();
            if !served.is_empty() {
                words = format!("{words}, serving {}", status::join(&served));
            }
            let missing_words = (!missing.paths.is_empty()).then(|| missing.to_string());
            for more in [reporter.open_gate(), reporter.gaps(), missing_words].into_iter().flatten() {
                words = format!("{words}; {more}");
            }
            match reporter.crd_problems() {
                // Jobs of such an API wait until it is replaced.
                Some(problem) => (false, format!("{words}; {problem}")),
                None => (!missing.all, words),
            }
        }
        other => (other.is_ready(), other.to_string()),
    }
}

async fn metrics(State(state): State<ServerState>) -> Response {
    let (ready, _) = readiness(&state.status, &state.following.borrow());
    state.metrics.ready(ready);
    // A busy thread, or one without an open log, leaves the last figures.
    if let Ok(Ok(summary)) = timeout(PROBE_TIMEOUT, state.operator.with(|operator| Summary::of(operator))).await {
        state.metrics.summary(&summary);
    }
    ([(header::CONTENT_TYPE, METRICS_TYPE)], state.metrics.text()).into_response()
}
