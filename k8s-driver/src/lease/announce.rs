//! Records a change of leadership as a Kubernetes Event, shown by `kubectl describe lease`. Best effort.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};

use super::{LeaseOptions, record};
use crate::client::exchange::error_chain;

/// Time limit of creating the Event; later it is not created.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the Event that this process leads now. Returns at once.
pub(super) fn became_leader(client: Client, lease: &Lease, options: &LeaseOptions) {
    let now = Time(Timestamp::now());
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:016x}", options.name, record::random())),
            namespace: Some(options.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(options.namespace.clone()),
            name: Some(options.name.clone()),
            uid: lease.metadata.uid.clone(),
            ..ObjectReference::default()
        },
        type_: Some("Normal".to_owned()),
        reason: Some("LeaderElection".to_owned()),
        message: Some(format!("{} became leader", options.identity)),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        source: Some(EventSource { component: Some("trainyard".to_owned()), host: None }),
        reporting_component: Some("trainyard".to_owned()),
        reporting_instance: Some(options.identity.clone()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client, &options.namespace);
    tokio::spawn(async move {
        match tokio::time::timeout(EVENT_TIMEOUT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "the Event of the change of leadership was not created");
            }
            Err(_) => tracing::debug!("creating the Event of the change of leadership timed out"),
        }
    });
}
