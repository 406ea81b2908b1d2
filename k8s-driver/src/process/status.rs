//! Reports the state of this process, for readiness and logs. It must not decide. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use model::{Term, Text};
use tokio::sync::watch;

/// State of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessState {
    /// It opens its log.
    Starting,
    /// It waits for the Lease; another process leads, or none yet.
    Standby,
    /// It may write and waits for the list of every source.
    Listing {
        /// Missing lists, for a message.
        missing: String,
    },
    /// It leads.
    Leading {
        /// The term.
        term: Term,
    },
    /// An error prevents its work; it retries.
    Failing {
        /// The error.
        why: String,
    },
    /// It waits for calls in flight and ends.
    Stopping,
}

impl ProcessState {
    /// Returns true if the process does its work.
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Standby | Self::Leading { .. })
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting: the log is being opened"),
            Self::Standby => f.write_str("standby: waiting for the lease"),
            Self::Listing { missing } => write!(f, "waiting for complete views of the cluster: {missing}"),
            Self::Leading { term } => write!(f, "leading, term {term}"),
            Self::Failing { why } => write!(f, "not working: {why}"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

/// Resources of jobs that the server does not serve (yet).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingResources {
    /// Their paths, in order.
    pub paths: Vec<String>,
    /// True if no resource of jobs is served: the operator has no work then.
    pub all: bool,
}

/// State of the definition of an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// It is installed.
    Installed,
    /// It is to be installed with Trainyard.
    Missing,
    /// It is not there, and only clusters with objects of a former kind need it.
    NotNeeded,
    /// It is not there, and comes with another operator, if the cluster is to have that one.
    ComesWithItsOperator,
}

/// An API whose jobs are watched: where, and whether its definition is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedApi {
    path: String,
    definition: Definition,
}

impl fmt::Display for MissingResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server does not serve {} (yet): install its CustomResourceDefinition", self.paths.join(", "))
    }
}

/// Collects the state of a process. Clones share it.
#[derive(Debug, Clone)]
pub struct StatusReporter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    standing: watch::Sender<ProcessState>,
    /// Errors of lists and watches, by source.
    troubles: Mutex<BTreeMap<String, String>>,
    /// APIs whose jobs are watched, by kind.
    apis: Mutex<BTreeMap<Text, WatchedApi>>,
    /// Shortcomings of installed CRDs, by path of the resource.
    outdated: Mutex<BTreeMap<String, String>>,
    /// Kinds of the APIs that the term leaves out.
    unserved: Mutex<BTreeSet<Text>>,
    /// The autoscaler for whose sake the capacity gate is off.
    autoscaler: OnceLock<&'static str>,
}

impl Default for StatusReporter {
    fn default() -> Self {
        Self(Arc::new(Shared {
            standing: watch::Sender::new(ProcessState::Starting),
            troubles: Mutex::default(),
            apis: Mutex::default(),
            outdated: Mutex::default(),
            unserved: Mutex::default(),
            autoscaler: OnceLock::new(),
        }))
    }
}

impl StatusReporter {
    /// Sets the state.
    pub fn set(&self, standing: ProcessState) {
        self.0.standing.send_if_modified(|now| {
            let changed = *now != standing;
            if changed {
                tracing::info!(standing = %standing, "standing");
                *now = standing;
            }
            changed
        });
    }

    /// Sets or clears the error of a source's list or watch.
    pub fn source_error(&self, source: &str, why: Option<String>) {
        let mut troubles = self.troubles();
        match why {
            Some(why) => troubles.insert(source.to_owned(), why),
            None => troubles.remove(source),
        };
    }

    /// Records whether the definition of an API, whose jobs are at a path, is installed. Returns true if its jobs are served.
    pub fn installed(&self, kind: &Text, path: &str, definition: Definition) -> bool {
        let before = self.apis().insert(kind.clone(), WatchedApi { path: path.to_owned(), definition });
        let served = self.serves(kind);
        match (before.map(|before| before.definition), definition) {
            (Some(before), _) if before == definition => {}
            (Some(_), Definition::Installed) => {
                tracing::info!(%kind, path, "its CustomResourceDefinition is installed now");
            }
            // At the start the term names all it serves.
            (None, Definition::Installed) => {}
            (_, Definition::Missing) => {
                tracing::warn!(%kind, path, "not served (yet): install its CustomResourceDefinition");
            }
            (_, Definition::NotNeeded) => {
                tracing::debug!(%kind, path, "not served: its CustomResourceDefinition is optional");
            }
            (_, Definition::ComesWithItsOperator) => {
                tracing::info!(%kind, path, "not served (yet): its CustomResourceDefinition comes with its own operator");
            }
        }
        served
    }

    /// Returns true if the jobs of an API are served: its definition is installed, and the term does not leave it out.
    pub fn serves(&self, kind: &Text) -> bool {
        let left_out = self.0.unserved.lock().unwrap_or_else(PoisonError::into_inner).contains(kind);
        !left_out && self.apis().get(kind).is_some_and(|api| api.definition == Definition::Installed)
    }

    /// Returns the kinds of the APIs whose jobs are served, in order.
    pub fn served_apis(&self) -> Vec<Text> {
        let kinds: Vec<Text> = self.apis().keys().cloned().collect();
        kinds.into_iter().filter(|kind| self.serves(kind)).collect()
    }

    /// Records what the CRD of a resource lacks, or `None` if nothing.
    pub fn crd_problem(&self, path: &str, problem: Option<String>) {
        let mut outdated = self.0.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => outdated.insert(path.to_owned(), problem),
            None => outdated.remove(path),
        };
    }

    /// Returns what installed CRDs lack, in words, with the remedy; `None` if nothing.
    pub fn crd_problems(&self) -> Option<String> {
        let outdated = self.0.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        let text: Vec<String> = outdated.iter().map(|(path, problem)| format!("{path}: {problem}")).collect();
        (!text.is_empty()).then(|| {
            let text = text.join("; ");
            format!(
                "the installed CustomResourceDefinition is too old ({text}): run `trainyard crd | kubectl apply -f -`"
            )
        })
    }

    /// Records the kinds of the APIs that the term leaves out.
    pub fn disable_kinds(&self, kinds: BTreeSet<Text>) {
        *self.0.unserved.lock().unwrap_or_else(PoisonError::into_inner) = kinds;
    }

    /// Records that the capacity gate is off since an autoscaler adds nodes.
    pub fn capacity_gate_off(&self, autoscaler: &'static str) {
        tracing::info!(
            autoscaler,
            "the capacity gate is off: quotas alone admit jobs; --capacity-gate=true turns it on"
        );
        // A second one would change nothing.
        let _ = self.0.autoscaler.set(autoscaler);
    }

    /// Returns why the capacity gate is off, in words; `None` unless an autoscaler was found.
    pub fn open_gate(&self) -> Option<String> {
        self.0.autoscaler.get().map(|autoscaler| format!("the capacity gate is off, since {autoscaler} adds nodes"))
    }

    /// Returns which APIs the term leaves out and what keeps sources from being listed or watched, in words; `None` if
    /// nothing.
    pub fn gaps(&self) -> Option<String> {
        let unserved = join(&*self.0.unserved.lock().unwrap_or_else(PoisonError::into_inner));
        let troubles = self.troubles();
        let text: Vec<String> = troubles.iter().map(|(source, why)| format!("{source}: {why}")).collect();
        let text = text.join("; ");
        match (unserved.is_empty(), text.is_empty()) {
            (true, true) => None,
            (true, false) => Some(text),
            (false, true) => Some(format!("{unserved} jobs are not served until their objects can be listed")),
            (false, false) => Some(format!("{unserved} jobs are not served until their objects can be listed: {text}")),
        }
    }

    /// Returns the resources that the server does not serve, and that are to be installed.
    pub fn missing(&self) -> MissingResources {
        let apis = self.apis();
        let missing = apis.values().filter(|api| api.definition == Definition::Missing);
        let paths: Vec<String> = missing.map(|api| api.path.clone()).collect();
        let all = !paths.is_empty() && apis.values().all(|api| api.definition != Definition::Installed);
        MissingResources { paths, all }
    }

    /// Returns the state, with the errors of sources that are not listed.
    pub fn get(&self) -> ProcessState {
        let mut standing = self.0.standing.borrow().clone();
        if let ProcessState::Listing { missing } = &mut standing {
            let troubles = self.troubles();
            let text: Vec<String> = troubles.iter().map(|(source, why)| format!("{source}: {why}")).collect();
            if !text.is_empty() {
                *missing = text.join("; ");
            }
        }
        standing
    }

    /// Returns a receiver of the state.
    pub fn subscribe(&self) -> watch::Receiver<ProcessState> {
        self.0.standing.subscribe()
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // A map is whole after every single change of it.
        self.0.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apis(&self) -> MutexGuard<'_, BTreeMap<Text, WatchedApi>> {
        self.0.apis.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joins kinds for a message.
pub(crate) fn join<'a>(kinds: impl IntoIterator<Item = &'a Text>) -> String {
    kinds.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_reported_until_it_is_gone() {
        let status = StatusReporter::default();
        assert!(!status.get().is_ready());
        status.set(ProcessState::Listing { missing: "lists are under way".to_owned() });
        assert_eq!(status.get().to_string(), "waiting for complete views of the cluster: lists are under way");
        status.source_error("/api/v1/pods", Some("list: 403 Forbidden".to_owned()));
        let text = "waiting for complete views of the cluster: /api/v1/pods: list: 403 Forbidden";
        assert_eq!(status.get().to_string(), text);
        status.source_error("/api/v1/pods", None);
        assert!(status.get().to_string().ends_with("lists are under way"));
        status.set(ProcessState::Leading { term: Term(7) });
        assert!(status.get().is_ready());
        assert_eq!(status.get().to_string(), "leading, term 7");
    }

    #[test]
    fn an_api_that_is_left_out_is_named_with_what_is_in_the_way() {
        let status = StatusReporter::default();
        assert_eq!(status.gaps(), None);
        status.disable_kinds(BTreeSet::from([Text::from("SecondJob")]));
        status.source_error("/apis/a/v1/as", Some("list: 403 Forbidden".to_owned()));
        let gaps =
            "SecondJob jobs are not served until their objects can be listed: /apis/a/v1/as: list: 403 Forbidden";
        assert_eq!(status.gaps().as_deref(), Some(gaps));
        status.disable_kinds(BTreeSet::new());
        assert_eq!(status.gaps().as_deref(), Some("/apis/a/v1/as: list: 403 Forbidden"));
    }

    #[test]
    fn an_outdated_definition_is_reported_until_it_is_replaced() {
        let status = StatusReporter::default();
        assert_eq!(status.crd_problems(), None);
        status.crd_problem("/apis/a/v1/as", Some("it has no status.trainyard".to_owned()));
        let text = status.crd_problems().unwrap();
        assert!(text.contains("/apis/a/v1/as: it has no status.trainyard") && text.contains("trainyard crd"), "{text}");
        status.crd_problem("/apis/a/v1/as", None);
        assert_eq!(status.crd_problems(), None);
    }

    #[test]
    fn what_is_not_served_is_reported_until_it_is() {
        let status = StatusReporter::default();
        assert_eq!(status.missing(), MissingResources::default());
        let (first, second) = (Text::from("A"), Text::from("B"));
        assert!(!status.installed(&first, "/apis/a/v1/as", Definition::Missing));
        assert!(status.missing().all, "{:?}", status.missing());
        assert!(status.installed(&second, "/apis/b/v1/bs", Definition::Installed));
        assert_eq!(status.served_apis(), std::slice::from_ref(&second));
        assert!(!status.installed(&Text::from("C"), "/apis/c/v1/cs", Definition::ComesWithItsOperator));
        let missing = status.missing();
        assert!(!missing.all);
        let text = "the server does not serve /apis/a/v1/as (yet): install its CustomResourceDefinition";
        assert_eq!(missing.to_string(), text);
        assert!(status.installed(&first, "/apis/a/v1/as", Definition::Installed));
        assert_eq!(status.missing(), MissingResources::default());
        status.disable_kinds(BTreeSet::from([second]));
        assert_eq!(status.served_apis(), [first]);
    }
}
