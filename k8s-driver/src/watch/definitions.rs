//! Watches the `CustomResourceDefinition`s of the cluster, by their names alone, so that a resource that is not served is not asked for
//! until its definition appears.
//!
//! Without the right to list definitions nothing is known of them, and a missing resource is asked for again at intervals of up to
//! [`RARE_INTERVAL`]. It must not judge a definition: `crd_check` does. Tests: `watch/tests/definitions.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use kube_runtime::watcher::{self, DefaultBackoff, Event, watcher};
use tokio::sync::watch;

/// Interval between two questions for a missing resource while definitions are not known, and between two attempts to list definitions
/// that may not be listed.
pub(crate) const RARE_INTERVAL: Duration = Duration::from_secs(300);

/// Names of definitions, as in `torchjobs.train.distributed.io`; `None` while they are not known.
type Names = Option<BTreeSet<String>>;

/// The definitions that are installed. Clones share one watch, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Definitions(watch::Receiver<Names>);

impl Definitions {
    /// Watches the definitions of a cluster.
    pub fn watch(client: Client) -> Self {
        let (names, known) = watch::channel(None);
        tokio::spawn(async move {
            tokio::select! {
                () = names.closed() => {}
                () = follow(client, &names) => {}
            }
        });
        Self(known)
    }

    /// Returns definitions of which nothing is ever known.
    pub fn unknown() -> Self {
        Self(watch::channel(None).1)
    }

    /// Returns the definitions that a sender names.
    #[cfg(test)]
    pub(crate) const fn of(names: watch::Receiver<Names>) -> Self {
        Self(names)
    }

    /// Returns true if it is known that there is no definition of this name.
    pub(crate) fn is_absent(&self, name: &str) -> bool {
        self.0.borrow().as_ref().is_some_and(|names| !names.contains(name))
    }

    /// Waits until there is a definition of this name. While definitions are not known, it returns
    /// after [`RARE_INTERVAL`].
    pub(crate) async fn until_present(&mut self, name: &str) {
        loop {
            let is_present = self.0.borrow_and_update().as_ref().map(|names| names.contains(name));
            match is_present {
                Some(true) => return,
                Some(false) => self.changed().await,
                None => {
                    if tokio::time::timeout(RARE_INTERVAL, self.changed()).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until other definitions are installed than before.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the name of the definition of a resource; `None` for one that no definition defines.
pub(crate) fn name_of(api_version: &str, plural: &str) -> Option<String> {
    let (group, _) = api_version.split_once('/')?;
    Some(format!("{plural}.{group}"))
}

/// Reports the names of definitions without end.
async fn follow(client: Client, names: &watch::Sender<Names>) {
    let definitions = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client);
    let mut events = std::pin::pin!(watcher(definitions, watcher::Config::default()));
    let mut backoff = DefaultBackoff::default();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(definition)) => {
                listed.insert(definition.name_any());
            }
            Ok(Event::InitDone) => report(names, |_| Some(std::mem::take(&mut listed))),
            Ok(Event::Apply(definition)) => report(names, |known| {
                let mut known = known.clone()?;
                known.insert(definition.name_any());
                Some(known)
            }),
            Ok(Event::Delete(definition)) => report(names, |known| {
                let mut known = known.clone()?;
                known.remove(&definition.name_any());
                Some(known)
            }),
            Err(error) if is_refusal(&error) => {
                tracing::info!(
                    %error,
                    seconds = RARE_INTERVAL.as_secs(),
                    "CustomResourceDefinitions may not be listed: missing resources are asked for again at intervals of up to this many seconds"
                );
                report(names, |_| None);
                tokio::time::sleep(RARE_INTERVAL).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the watch of CustomResourceDefinitions failed; retrying");
                tokio::time::sleep(backoff.next().unwrap_or(RARE_INTERVAL)).await;
            }
        }
    }
}

fn report(names: &watch::Sender<Names>, change: impl FnOnce(&Names) -> Names) {
    names.send_if_modified(|known| {
        let new = change(known);
        let is_new = *known != new;
        *known = new;
        is_new
    });
}

/// Returns true if definitions may not be listed.
fn is_refusal(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}
