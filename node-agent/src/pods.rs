//! What is to be done for each pod of this node.
//!
//! Pure and level-triggered: what was seen and heard goes in, then [`Pods::settle`] says what to do now. It holds the order
//! that a kubelet keeps: a pod's last status is written before its object is removed, and a name is not started again while
//! something of the pod that had it before still runs. It must not know HTTP or processes. Tests: `pods_tests`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::runtime::PodReport;
use model::Timestamp;
use serde_json::Value;

use crate::references;
use crate::status::{self, Carried};

/// First wait before a call that failed is made again, in milliseconds; doubles up to [`MAX_RETRY_MS`].
const RETRY_FIRST_MS: u64 = 250;
/// The longest wait between two tries, in milliseconds.
const MAX_RETRY_MS: u64 = 15_000;
/// Interval between two reads of objects that a pod waits for, in milliseconds.
const RETRY_INTERVAL_MS: u64 = 3_000;
/// Interval between two reads of objects that the volumes of a running pod show, in milliseconds: a change is seen there that much later.
const REFRESH_INTERVAL_MS: u64 = 5_000;

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Read the objects a pod refers to, then say so by [`Pods::fetched`].
    Fetch { pod: Arc<Value> },
    /// Start a pod.
    Start { pod: Arc<Value> },
    /// End a pod.
    Stop { namespace: String, name: String, uid: String, grace_seconds: u32 },
    /// Call the API server, then give its answer by [`Pods::answered`].
    Call(Call),
}

/// A call to the API server about one pod; the pod is meant by its uid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) what: What,
}

/// What is called for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// Merge into the status.
    Write(Value),
    /// Remove the object: nothing of it runs any more.
    Remove,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// There is no such pod (any more).
    Gone,
    /// Not done; to be tried again.
    Failed,
}

/// Where a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// Not started.
    Waiting,
    /// What it refers to is being read.
    Fetching,
    /// What it refers to has been read.
    Ready,
    /// Given to the runtime.
    Running,
    /// Asked to end, with that grace period.
    Stopping(u32),
    /// Nothing of it runs, or will.
    Ended,
}

#[derive(Debug)]
struct Pod {
    namespace: String,
    name: String,
    /// As last seen.
    object: Arc<Value>,
    run: Run,
    /// The object does not exist any more.
    gone: bool,
    /// What earlier runs, under an agent that is no more, left to be carried over.
    carried: Option<Carried>,
    /// The status to be shown, and the one that is known to be.
    wanted: Option<Value>,
    shown: Option<Value>,
    /// A call is under way.
    calling: bool,
    /// No call before.
    not_before: Timestamp,
    failures: u32,
    /// When to look again for objects it waits for.
    look_again: Option<Timestamp>,
    /// Time at which the objects that its volumes show are read again.
    refresh: Option<Timestamp>,
}

impl Pod {
    fn is_deleting(&self) -> bool {
        self.gone || !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    /// How long its processes may take to end, in seconds.
    fn grace_seconds(&self) -> u32 {
        let seconds = if self.is_deleting() {
            // One that vanished without being asked to end had a grace period of nothing.
            self.object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default()
        } else {
            self.object["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30)
        };
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// True if it was ended from outside, for example by eviction.
    fn ended_by_others(&self) -> bool {
        status::has_ended(&self.object["status"]) && !self.wanted.as_ref().is_some_and(status::has_ended)
    }
}

/// The pods of this node, by uid.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    pods: BTreeMap<String, Pod>,
    /// The node is being shut down: nothing is started, and what runs is ended within that many seconds.
    shutting_down: Option<u32>,
}

impl Pods {
    /// A pod of this node was added or changed.
    pub(crate) fn seen(&mut self, object: Arc<Value>, now: Timestamp) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.object = object;
            return;
        }
        let mut pod = Pod {
            namespace,
            name,
            object,
            run: Run::Waiting,
            gone: false,
            carried: None,
            wanted: None,
            shown: None,
            calling: false,
            not_before: Timestamp(0),
            failures: 0,
            look_again: None,
            refresh: None,
        };
        let seen = &pod.object["status"];
        if status::has_ended(seen) {
            pod.run = Run::Ended;
        } else if status::has_run(seen) {
            // It ran under an agent before this one, and ended with it.
            if pod.is_deleting() || pod.object["spec"]["restartPolicy"] == "Never" {
                pod.run = Run::Ended;
                pod.wanted = Some(status::lost(&pod.object, now));
            } else {
                pod.carried = Some(Carried::of(seen, now));
            }
        }
        self.pods.insert(uid, pod);
    }

    /// A pod's object was removed.
    pub(crate) fn gone(&mut self, object: &Arc<Value>) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.object = Arc::clone(object);
            pod.gone = true;
        }
    }

    /// A complete view was taken: pods that are not among `uids` were removed.
    pub(crate) fn listed(&mut self, uids: &[String]) {
        for (uid, pod) in &mut self.pods {
            pod.gone |= !uids.contains(uid);
        }
    }

    /// What a pod refers to has been read, as far as it exists, and handed to the runtime.
    pub(crate) fn fetched(&mut self, uid: &str, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.look_again = Some(now.plus_ms(RETRY_INTERVAL_MS));
        if pod.run == Run::Fetching {
            pod.run = Run::Ready;
        }
    }

    /// Reading what a pod refers to failed: it is tried again.
    pub(crate) fn not_fetched(&mut self, uid: &str, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.run == Run::Fetching {
            pod.run = Run::Waiting;
            pod.not_before = now.plus_ms(RETRY_INTERVAL_MS);
        } else {
            pod.look_again = Some(now.plus_ms(RETRY_INTERVAL_MS));
        }
    }

    /// The runtime says something of a pod.
    pub(crate) fn reported(&mut self, report: PodReport) {
        let shutting_down = self.shutting_down.is_some();
        let Some(pod) = self.pods.get_mut(&report.uid) else { return };
        if report.status.as_object().is_some_and(|status| !status.is_empty()) {
            let mut status = status::ours(report.status);
            if let Some(carried) = &pod.carried {
                carried.put_into(&mut status);
            }
            if shutting_down {
                status::mark_shutdown(&mut status);
            }
            pod.wanted = Some(status);
        }
        if report.ended {
            pod.run = Run::Ended;
            pod.look_again = None;
            pod.refresh = None;
        }
    }

    /// What came of a call about a pod.
    pub(crate) fn answered(&mut self, call: &Call, answer: Answer, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(&call.uid) else { return };
        pod.calling = false;
        match (answer, &call.what) {
            (Answer::Done, What::Write(status)) => {
                pod.shown = Some(status.clone());
                pod.failures = 0;
            }
            // Finalizers may keep it for a while; the watch shows when it is gone.
            (Answer::Done, What::Remove) => pod.not_before = now.plus_ms(MAX_RETRY_MS),
            (Answer::Gone, _) => pod.gone = true,
            (Answer::Failed, _) => {
                let wait = RETRY_FIRST_MS.saturating_mul(1 << pod.failures.min(10));
                pod.failures = pod.failures.saturating_add(1);
                pod.not_before = now.plus_ms(wait.min(MAX_RETRY_MS));
            }
        }
    }

    /// Nothing is started from now on, and what runs is ended within `max_grace_seconds`.
    pub(crate) fn shut_down(&mut self, max_grace_seconds: u32) {
        self.shutting_down = Some(max_grace_seconds);
    }

    /// Namespace and name of the pods that something runs of.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&str, &str)> {
        let runs = |pod: &&Pod| matches!(pod.run, Run::Running | Run::Stopping(_));
        self.pods.values().filter(runs).map(|pod| (pod.namespace.as_str(), pod.name.as_str()))
    }

    /// Whether nothing runs and nothing is left to be reported.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.pods.values().all(|pod| {
            matches!(pod.run, Run::Ended | Run::Waiting | Run::Ready)
                && !pod.calling
                && (pod.gone || pod.wanted == pod.shown)
        })
    }

    /// When to settle again at the latest, if nothing happens before.
    pub(crate) fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.pods.values().flat_map(|pod| {
            let retry = Some(pod.not_before).filter(|at| *at > now && !pod.calling);
            [retry, pod.look_again, pod.refresh]
        });
        due.flatten().min()
    }

    /// What is to be done now. Each effect is given once.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let held = self.held();
        let shutting_down = self.shutting_down;
        for (uid, pod) in &mut self.pods {
            let deleting = pod.is_deleting();
            let ending = deleting || pod.ended_by_others();
            match pod.run {
                Run::Waiting | Run::Fetching | Run::Ready if ending => pod.run = Run::Ended,
                Run::Waiting if shutting_down.is_none() && pod.not_before <= now && !held.contains(uid) => {
                    let refers = !references::of(&pod.object).is_empty();
                    pod.run = if refers { Run::Fetching } else { Run::Running };
                    let pod = Arc::clone(&pod.object);
                    effects.push(if refers { Effect::Fetch { pod } } else { Effect::Start { pod } });
                }
                Run::Ready if shutting_down.is_none() => {
                    pod.run = Run::Running;
                    let shows = references::in_volumes(&pod.object).next().is_some();
                    pod.refresh = shows.then(|| now.plus_ms(REFRESH_INTERVAL_MS));
                    effects.push(Effect::Start { pod: Arc::clone(&pod.object) });
                }
                Run::Running | Run::Stopping(_) if ending || shutting_down.is_some() => {
                    let grace = pod.grace_seconds().min(shutting_down.unwrap_or(u32::MAX));
                    let sooner = match pod.run {
                        Run::Stopping(earlier) => grace < earlier,
                        _ => true,
                    };
                    if sooner {
                        pod.run = Run::Stopping(grace);
                        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
                        effects.push(Effect::Stop { namespace, name, uid: uid.clone(), grace_seconds: grace });
                    }
                }
                Run::Waiting | Run::Fetching | Run::Ready | Run::Running | Run::Stopping(_) | Run::Ended => {}
            }
            if pod.look_again.is_some_and(|at| at <= now) {
                pod.look_again = None;
                // What is refused for something that is missing starts as soon as that is handed in.
                if pod.run == Run::Running && pod.wanted.as_ref().is_some_and(status::is_refused) {
                    effects.push(Effect::Fetch { pod: Arc::clone(&pod.object) });
                }
            }
            if pod.refresh.is_some_and(|at| at <= now) {
                let runs = pod.run == Run::Running;
                pod.refresh = runs.then(|| now.plus_ms(REFRESH_INTERVAL_MS));
                if runs {
                    effects.push(Effect::Fetch { pod: Arc::clone(&pod.object) });
                }
            }
            if pod.gone || pod.calling || pod.not_before > now {
                continue;
            }
            let what = match &pod.wanted {
                Some(wanted) if pod.shown.as_ref() != Some(wanted) && !pod.ended_by_others() => {
                    What::Write(wanted.clone())
                }
                _ if deleting && pod.run == Run::Ended => What::Remove,
                _ => continue,
            };
            pod.calling = true;
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            effects.push(Effect::Call(Call { namespace, name, uid: uid.clone(), what }));
        }
        self.pods.retain(|_, pod| !(pod.gone && pod.run == Run::Ended));
        effects
    }

    /// Pods that cannot start yet: another one of the same name still runs, at the same address.
    fn held(&self) -> Vec<String> {
        let runs = |pod: &Pod| matches!(pod.run, Run::Fetching | Run::Ready | Run::Running | Run::Stopping(_));
        let waits = self.pods.iter().filter(|(_, pod)| pod.run == Run::Waiting);
        waits
            .filter(|(_, pod)| {
                let twin = |other: &Pod| other.namespace == pod.namespace && other.name == pod.name;
                self.pods.values().any(|other| runs(other) && twin(other))
            })
            .map(|(uid, _)| uid.clone())
            .collect()
    }
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
