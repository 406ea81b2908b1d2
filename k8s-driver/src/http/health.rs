//! Probes and metrics, for kubelets and scrapers: short answers, in words where something is wrong.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use model::Position;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Surface, unknown_paths};
use crate::core::{Ask, Turns};
use crate::metrics::Summary;
use crate::process::status::{Board, Standing};
use crate::replication::follower::Following;

/// How long a probe waits for the operator's thread before it looks at how long others have waited.
const GLANCE: Duration = Duration::from_millis(500);
/// A thread that has not answered for this long is stuck: no turn, and no compaction of a large log, takes as long.
const STUCK: Duration = Duration::from_secs(60);

/// The router of the plain listener.
pub(super) fn router(surface: &Surface) -> Router {
    let pulse = Arc::new(Pulse { turns: surface.turns.clone(), waiting_since: Mutex::default() });
    let health = move || {
        let pulse = pulse.clone();
        async move {
            match pulse.beat().await {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            }
        }
    };
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(surface.clone());
    unknown_paths(router, "/healthz, /readyz and /metrics")
}

/// Whether the operator's thread moves. At most one question waits for it, however many probes come.
struct Pulse {
    turns: Turns,
    waiting_since: Mutex<Option<Instant>>,
}

impl Pulse {
    async fn beat(self: &Arc<Self>) -> Result<(), String> {
        let waiting = *self.waiting();
        if let Some(since) = waiting {
            let waited = since.elapsed();
            return if waited < STUCK { Ok(()) } else { Err(stuck(waited)) };
        }
        *self.waiting() = Some(Instant::now());
        let pulse = self.clone();
        let asked = tokio::spawn(async move {
            let (reply, answer) = oneshot::channel();
            let ask = Ask::Frames { from: Position(u64::MAX), limit: 0, most_bytes: 0, reply };
            let alive = pulse.turns.ask(ask).await.is_ok();
            // Any answer will do; a log that cannot be read at present gives none, and the thread lives all the same.
            let _ = answer.await;
            *pulse.waiting() = None;
            alive
        });
        match timeout(GLANCE, asked).await {
            Ok(Ok(false)) => Err("the operator's thread has ended".to_owned()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stuck(waited: Duration) -> String {
    format!("the operator's thread has not answered for {} s", waited.as_secs())
}

async fn ready(State(surface): State<Surface>) -> Response {
    let (ready, words) = readiness(&surface.board, &surface.following.borrow());
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{words}\n")).into_response()
}

/// Whether a replica that stands like this does its part, and in words how it stands.
pub(crate) fn readiness(board: &Board, following: &Following) -> (bool, String) {
    match board.get() {
        Standing::Standby => match following {
            Following::Reading { .. } | Following::NotServed { .. } => (true, format!("standby, {following}")),
            Following::Starting | Following::NobodyLeads | Following::Unreachable { .. } => {
                (false, format!("standby, {following}"))
            }
        },
        standing @ Standing::Leading { .. } => {
            let missing = board.missing();
            // One kind of several may be left out on purpose; without any there is nothing it could do.
            let mut words = standing.to_string();
            for gap in [board.gaps(), (!missing.paths.is_empty()).then(|| missing.to_string())].into_iter().flatten() {
                words = format!("{words}; {gap}");
            }
            match board.shortcomings() {
                // Jobs of such an API wait until it is replaced.
                Some(problem) => (false, format!("{words}; {problem}")),
                None => (!missing.all, words),
            }
        }
        other => (other.is_ready(), other.to_string()),
    }
}

async fn metrics(State(surface): State<Surface>) -> Response {
    let (ready, _) = readiness(&surface.board, &surface.following.borrow());
    surface.metrics.ready(ready);
    // A thread that is busy or has no log open leaves the figures of the last time.
    if let Ok(Ok(summary)) = timeout(GLANCE, surface.turns.with(|operator| Summary::of(operator))).await {
        surface.metrics.summary(&summary);
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], surface.metrics.text()).into_response()
}
