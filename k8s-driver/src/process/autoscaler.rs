//! Finds out whether the cluster adds nodes for pods that wait.
//!
//! Owns what is looked up: the API group of Karpenter, and the `ConfigMap` in which the cluster autoscaler writes its status. It must
//! not decide by the result. Tests: at the end of this file.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;

use crate::client::exchange;

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of times that an API server is asked which does not answer.
const TRIES: u32 = 3;
/// Interval between them.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Autoscalers, each with a path that the API server serves where it is installed.
const SIGNS: [(&str, &str); 2] = [
    ("Karpenter", "/apis/karpenter.sh"),
    ("the cluster autoscaler", "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"),
];

/// Returns the name of the cluster's autoscaler; `None` where none is found, or the API server does not answer.
pub(crate) async fn find(client: &Client) -> Option<&'static str> {
    for (name, path) in SIGNS {
        match status(client, path).await {
            Some(status) if status.is_success() => return Some(name),
            Some(StatusCode::NOT_FOUND) => {}
            Some(status) => tracing::warn!(
                path,
                %status,
                "cannot find out whether {name} adds nodes; if it does, give --capacity-gate=false"
            ),
            None => {
                tracing::warn!(
                    path,
                    "no answer: cannot find out whether an autoscaler adds nodes; the capacity gate stays as it is set"
                );
                return None;
            }
        }
    }
    None
}

/// Returns how the API server answers; `None` if it does not.
async fn status(client: &Client, path: &str) -> Option<StatusCode> {
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let request = Request::get(path).body(Body::empty()).ok()?;
        let answer = exchange::exchange(client, request, REQUEST_TIMEOUT).await;
        if let Some(answer) = answer.ok().filter(|answer| !answer.status.is_server_error()) {
            return Some(answer.status);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tower_test::mock;

    use super::*;

    /// Asks a server that answers each path of [`SIGNS`] with a status.
    async fn found(karpenter: StatusCode, config_map: StatusCode) -> Option<&'static str> {
        let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
        let server = tokio::spawn(async move {
            while let Some((request, reply)) = handle.next_request().await {
                let status = if request.uri() == SIGNS[0].1 { karpenter } else { config_map };
                reply.send_response(Response::builder().status(status).body(Body::empty()).unwrap());
            }
        });
        let found = find(&Client::new(service, "default")).await;
        server.abort();
        found
    }

    #[tokio::test(start_paused = true)]
    async fn an_autoscaler_is_known_by_what_the_api_server_serves() {
        let (is_there, is_not) = (StatusCode::OK, StatusCode::NOT_FOUND);
        let silent = StatusCode::SERVICE_UNAVAILABLE;
        for (karpenter, config_map, want) in [
            (is_not, is_not, None),
            (is_there, is_not, Some("Karpenter")),
            (is_not, is_there, Some("the cluster autoscaler")),
            (StatusCode::FORBIDDEN, is_there, Some("the cluster autoscaler")),
            (is_not, StatusCode::FORBIDDEN, None),
            (silent, is_there, None),
        ] {
            assert_eq!(found(karpenter, config_map).await, want, "{karpenter} {config_map}");
        }
    }
}
