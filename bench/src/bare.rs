//! The bare client: creates exactly the pods and services that the operator would create, as many at once, and nothing else.
//!
//! What it sends is made beforehand by the operator's own rendering and request making; it sends through the same client,
//! as the same account. It watches nothing and never tries again: a refusal ends the bench.

use std::time::Duration;

use apis::{ApiCall, Registry};
use k8s_driver::{api_server, harness};

use crate::api::{self, Api, MAX_IN_FLIGHT};
use crate::table::AnyError;

const LIMIT: Duration = Duration::from_secs(120);

/// Requests that are ready to be sent.
pub(crate) struct Bare {
    api: Api,
    requests: Vec<harness::Prepared>,
}

impl Bare {
    /// Makes the requests, and a client that has no connection yet.
    pub(crate) async fn prepare(account: &std::path::Path, calls: Vec<ApiCall>) -> Result<Self, AnyError> {
        let registry = Registry::all();
        let requests = calls.into_iter().map(|call| harness::prepare(call, &registry)).collect::<Result<_, _>>()?;
        Ok(Self { api: Api::connect(account).await?, requests })
    }

    /// Sends them all.
    pub(crate) async fn send(self) -> Result<(), AnyError> {
        let Self { api, requests } = self;
        let sent = requests.into_iter().map(|prepared| {
            let client = api.client.clone();
            let name = prepared.name.clone();
            async move {
                let (request, _) = prepared.into_request();
                let answer = api_server::exchange(&client, request, LIMIT).await?;
                if answer.status.is_success() {
                    return Ok(());
                }
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                Err::<(), AnyError>(format!("creating {name}: {} {text}", answer.status).into())
            }
        });
        api::all(MAX_IN_FLIGHT, sent).await
    }
}
