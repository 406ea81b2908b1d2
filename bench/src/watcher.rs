//! The one watcher of pods: for all pods alike it records the times at which they were first seen, ran, and were removed.
//!
//! It watches all namespaces and keeps times of those it follows. Objects are cut down while they are read. It
//! must not be slower for one than for the other: it knows nothing of who made a pod.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::Api;
use crate::table::AnyError;

/// Whose pods are followed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// Those of a namespace.
    Namespace(String),
    /// Those with a label, wherever they are.
    Label(String, String),
}

/// Times of one pod.
#[derive(Debug, Clone)]
pub(crate) struct PodTimes {
    pub(crate) first: Instant,
    pub(crate) running: Option<Instant>,
    pub(crate) gone: Option<Instant>,
}

/// The pods of a group, by uid.
pub(crate) type Pods = HashMap<String, PodTimes>;

/// A watch of all pods. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Watcher(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    groups: HashMap<Group, Pods>,
    broken: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// Of a pod; of an error (`type: ERROR`) it is a word.
#[derive(Deserialize)]
#[serde(untagged)]
enum Status<'a> {
    Pod {
        #[serde(borrow, default)]
        phase: Cow<'a, str>,
    },
    Word(#[serde(borrow)] Cow<'a, str>),
}

impl Watcher {
    /// Begins to watch, in the background, from the present on.
    pub(crate) async fn begin(api: Api) -> Result<Self, AnyError> {
        let list = api.get("/api/v1/pods?limit=1").await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let watcher = Self::default();
        let own = watcher.clone();
        tokio::spawn(async move {
            if let Err(error) = own.watch(&api, version).await {
                own.state().broken = Some(error.to_string());
            }
        });
        Ok(watcher)
    }

    /// Follows a group from now on.
    pub(crate) fn follow(&self, group: Group) {
        self.state().groups.entry(group).or_default();
    }

    /// Follows a group no more, and gives what was seen of it.
    pub(crate) fn leave(&self, group: &Group) -> Pods {
        self.state().groups.remove(group).unwrap_or_default()
    }

    /// Returns the present state of a followed group.
    pub(crate) fn look<T>(&self, group: &Group, look: impl FnOnce(&Pods) -> T) -> Result<T, AnyError> {
        let state = self.state();
        if let Some(why) = &state.broken {
            return Err(format!("the watch of pods broke off: {why}").into());
        }
        let pods = state.groups.get(group).ok_or_else(|| format!("{group:?} is not followed"))?;
        Ok(look(pods))
    }

    /// Waits until a group is as wanted. When nothing changes for `timeout`, an error says how it stands.
    pub(crate) fn until<T>(
        &self,
        group: &Group,
        timeout: Duration,
        wanted: impl Fn(&Pods) -> Result<T, String>,
    ) -> Result<T, AnyError> {
        let mut last = String::new();
        let mut since = Instant::now();
        loop {
            let looked = Instant::now();
            let stands = match self.look(group, &wanted)? {
                Ok(found) => return Ok(found),
                Err(stands) => stands,
            };
            if stands != last {
                (last, since) = (stands, Instant::now());
            }
            if since.elapsed() > timeout {
                return Err(format!("{last}; no change for {timeout:?}").into());
            }
            // Times are noted when news comes in. Looking must not keep the watch from it when there are many pods.
            std::thread::sleep(Duration::from_millis(10).max(looked.elapsed() * 50));
        }
    }

    /// Waits until `count` pods of a group run and are not deleted; see [`Watcher::until`].
    pub(crate) fn until_running(&self, group: &Group, count: usize, timeout: Duration) -> Result<(), AnyError> {
        self.until(group, timeout, |pods| {
            let here = pods.values().filter(|pod| pod.gone.is_none());
            let running = here.clone().filter(|pod| pod.running.is_some()).count();
            let (here, all) = (here.count(), pods.len());
            if running >= count {
                return Ok(());
            }
            Err(format!("{running} of {count} pods run, {here} are there, {all} were"))
        })
    }

    async fn watch(&self, api: &Api, mut version: String) -> Result<(), AnyError> {
        loop {
            let path = format!(
                "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={version}"
            );
            api.watch(&path, |line| self.take(line, Instant::now(), &mut version)).await?;
        }
    }

    fn take(&self, line: &[u8], now: Instant, version: &mut String) -> Result<(), AnyError> {
        let line: Line<'_> = serde_json::from_slice(line)?;
        if line.kind == "ERROR" {
            let why = match line.object.status {
                Some(Status::Word(word)) => word.into_owned(),
                _ => "no reason is given".to_owned(),
            };
            return Err(format!("watch: {why}").into());
        }
        line.object.metadata.resource_version.as_ref().clone_into(version);
        self.note(&line, now);
        Ok(())
    }

    fn note(&self, line: &Line<'_>, now: Instant) {
        let Object { metadata, status } = &line.object;
        let phase = match status {
            Some(Status::Pod { phase }) => phase.as_ref(),
            _ => "",
        };
        let mut state = self.state();
        for (group, pods) in &mut state.groups {
            let belongs = match group {
                Group::Namespace(name) => *name == metadata.namespace,
                Group::Label(key, value) => {
                    let labels = metadata.labels.as_ref();
                    labels.and_then(|labels| labels.get(key.as_str())).is_some_and(|found| found == value)
                }
            };
            if !belongs || line.kind == "BOOKMARK" {
                continue;
            }
            if line.kind == "DELETED" {
                if let Some(pod) = pods.get_mut(metadata.uid.as_ref()) {
                    pod.gone = Some(now);
                }
                continue;
            }
            let pod = pods.entry(metadata.uid.clone().into_owned()).or_insert_with(|| PodTimes {
                first: now,
                running: None,
                gone: None,
            });
            if phase == "Running" && metadata.deletion_timestamp.is_none() {
                pod.running.get_or_insert(now);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in it is whole after every single change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the times at which the last pod of a group was first seen and ran, in seconds after `started`.
pub(crate) fn last(pods: &Pods, started: Instant) -> (f64, f64) {
    let after = |at: Option<Instant>| at.map_or(f64::NAN, |at| at.saturating_duration_since(started).as_secs_f64());
    let created = pods.values().map(|pod| pod.first).max();
    let running = pods.values().filter_map(|pod| pod.running).max();
    (after(created), after(running))
}
