//! Faults to inject into a run or a simulation: `--fault`.
//!
//! Owns their syntax, whether their targets exist, and when they happen. It must not know how a pod is ended. Tests: at the end,
//! `cli/tests/local/files.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use apis::{Registry, Resource};
use cluster::NodeState;
use embedded::Session;
use model::{JobKey, SlotId, Text, Timestamp};
use serde_json::Value;
use terminal::near::did_you_mean;
use terminal::out::{self, Failure};

/// Kind of a fault, and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A pod exits with a code.
    Exit {
        /// The pod.
        pod: String,
        /// The code.
        code: i32,
    },
    /// A node fails.
    Node {
        /// The node.
        node: String,
    },
    /// A pod's image cannot be pulled, the first time it is tried.
    Image {
        /// The pod.
        pod: String,
    },
    /// A job is preempted.
    Preempt {
        /// The job.
        job: String,
    },
}

/// A fault, and its time after the pod or the job began to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// Milliseconds after its pod (its job, for a node: any job) was first seen running; for images: how long, 0 is for good.
    pub after_ms: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FaultKind::Exit { pod, code } => write!(f, "exit={pod}:{code}"),
            FaultKind::Node { node } => write!(f, "node={node}"),
            FaultKind::Image { pod } => write!(f, "image={pod}"),
            FaultKind::Preempt { job } => write!(f, "preempt={job}"),
        }
    }
}

/// Maximum number of names listed for one that does not exist.
const MAX_LISTED_NAMES: usize = 10;

/// Refuses faults of pods, nodes and jobs that will not exist once `manifests` are applied.
///
/// # Errors
/// Returns an error if a target will not exist, or has no such fault.
pub fn check(faults: &[Fault], session: &Session, manifests: &[Value]) -> Result<(), Failure> {
    if faults.is_empty() {
        return Ok(());
    }
    let registry = Registry::all();
    let (mut pods, mut jobs, mut refusing) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    // Another operator names these jobs' pods.
    let mut foreign = Vec::new();
    let stored = session.cluster().objects();
    for job in manifests.iter().chain(stored.iter().map(|object| &**object)).filter(|object| session.is_job(object)) {
        let Some(api) = registry.get(&Resource::of(job)) else { continue };
        let text = |name: &str| Text::from(job["metadata"][name].as_str().unwrap_or_default());
        let (kind, namespace, name) = (Resource::of(job).kind, text("namespace"), text("name"));
        let key = JobKey { kind, namespace, name, uid: model::Uid(text("uid")) };
        jobs.insert(key.name.to_string());
        if api.annotations().and_then(|annotations| annotations.preemption("")).is_none() {
            refusing.insert((key.name.to_string(), key.kind.to_string()));
        }
        if api.is_external() {
            foreign.push(format!("{}-", key.name));
        }
        // Errors of a spec are reported when it is applied.
        for group in api.spec_fact(job).spec.into_iter().flat_map(|spec| spec.groups) {
            let slot = |index| SlotId { group: group.name.clone(), index };
            pods.extend((0..group.replicas).map(|index| api.slot_name(&key, &slot(index)).to_string()));
        }
    }
    let name_of = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let of_kind = |kind: &str| session.cluster().objects_of(&Resource::new("v1", kind));
    pods.extend(of_kind("Pod").iter().map(|pod| name_of(pod)));
    let nodes = of_kind("Node").iter().map(|node| name_of(node)).collect();
    for fault in faults {
        let (kind, name, known) = match &fault.kind {
            FaultKind::Exit { pod, .. } | FaultKind::Image { pod } => ("pod", pod, &pods),
            FaultKind::Node { node } => ("node", node, &nodes),
            FaultKind::Preempt { job } => ("job", job, &jobs),
        };
        let kind_that_refuses = refusing.iter().find(|(job, _)| job == name).map(|(_, kind)| kind);
        if let (FaultKind::Preempt { .. }, Some(kind)) = (&fault.kind, kind_that_refuses) {
            return Err(Failure::new(format!("--fault {fault}: {kind} has no preemption; use exit={name}-...:137")));
        }
        if known.contains(name) || kind == "pod" && foreign.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let listed: Vec<&str> = known.iter().take(MAX_LISTED_NAMES).map(String::as_str).collect();
        let more = known.len().saturating_sub(MAX_LISTED_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(Failure::new(format!(
            "--fault {fault}: no {kind} {name}{}; {kind}s are {}{more}",
            did_you_mean(name, known.iter().map(String::as_str)),
            listed.join(", "),
        )));
    }
    Ok(())
}

/// Prints the faults that did not happen. Returns whether all did.
pub fn report_missed<'a>(missed: impl Iterator<Item = &'a Fault>) -> bool {
    let mut all = true;
    for fault in missed {
        all = false;
        out::line(&format!("fault {fault} did not happen: its target never reached the state for it"));
    }
    all
}

/// Syntax of faults, for messages.
pub const SYNTAX: &str = "exit=POD:CODE[@TIME], node=NODE[@TIME], image=POD[@FOR] or preempt=JOB[@TIME]";

/// A fault that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseFaultError(String);

impl fmt::Display for ParseFaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; a fault is {SYNTAX}", self.0)
    }
}

impl std::error::Error for ParseFaultError {}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let (verb, rest) = text.split_once('=').ok_or_else(|| ParseFaultError(format!("{text}: = is missing")))?;
        let (target, after) = rest.rsplit_once('@').map_or((rest, None), |(target, time)| (target, Some(time)));
        let after_ms = match after {
            None => 0,
            Some(time) => settings::duration::parse_ms(time).map_err(|e| ParseFaultError(format!("{time}: {e}")))?,
        };
        if target.is_empty() {
            return Err(ParseFaultError(format!("{text}: a name must come after =")));
        }
        let named = || target.to_owned();
        let kind = match verb {
            "exit" => {
                let (pod, code) = target
                    .rsplit_once(':')
                    .ok_or_else(|| ParseFaultError(format!("{target}: the exit code is missing")))?;
                let code =
                    code.parse().map_err(|_| ParseFaultError(format!("{code}: not an exit code from 0 to 255")))?;
                if !(0..=255).contains(&code) {
                    return Err(ParseFaultError(format!("{code}: not an exit code from 0 to 255")));
                }
                FaultKind::Exit { pod: pod.to_owned(), code }
            }
            "node" => FaultKind::Node { node: named() },
            "image" => FaultKind::Image { pod: named() },
            "preempt" => FaultKind::Preempt { job: named() },
            _ => return Err(ParseFaultError(format!("{verb}: not a fault"))),
        };
        Ok(Self { kind, after_ms })
    }
}

/// Pods whose image cannot be pulled the first time, and for how long (milliseconds; absent: for good).
pub fn image_pull_faults(faults: &[Fault]) -> Vec<(String, Option<u64>)> {
    let image = |fault: &Fault| match &fault.kind {
        FaultKind::Image { pod } => Some((pod.clone(), (fault.after_ms > 0).then_some(fault.after_ms))),
        FaultKind::Exit { .. } | FaultKind::Node { .. } | FaultKind::Preempt { .. } => None,
    };
    faults.iter().filter_map(image).collect()
}

/// Faults that are still to come, other than those of images.
pub struct Faults {
    waiting: Vec<(Fault, Option<Timestamp>)>,
}

/// Ends a pod with a code: namespace, name, code.
pub type Exit<'a> = &'a mut dyn FnMut(&mut Session, &str, &str, i32) -> Result<(), Failure>;

impl Faults {
    /// Returns the faults of these that do not concern images.
    pub fn new(faults: &[Fault]) -> Self {
        let waiting = faults.iter().filter(|fault| !matches!(fault.kind, FaultKind::Image { .. }));
        Self { waiting: waiting.map(|fault| (fault.clone(), None)).collect() }
    }

    /// Returns the time of the next fault, if known.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.waiting.iter().filter_map(|(_, at)| *at).min()
    }

    /// Faults that did not happen yet.
    pub fn waiting(&self) -> impl Iterator<Item = &Fault> {
        self.waiting.iter().map(|(fault, _)| fault)
    }

    /// Sets the clock of faults whose pod or job runs, and lets those happen whose time has come.
    ///
    /// # Errors
    /// Returns an error if the cluster refuses it.
    pub fn inject(&mut self, session: &mut Session, now: Timestamp, exit: Exit<'_>) -> Result<(), Failure> {
        for (fault, at) in std::mem::take(&mut self.waiting) {
            let is_running = is_running(session, &fault.kind);
            let at = at.or_else(|| is_running.then(|| now.plus_ms(fault.after_ms)));
            if at.is_none_or(|at| at > now) {
                self.waiting.push((fault, at));
            } else if is_running {
                inject_now(session, &fault.kind, exit)?;
            } else {
                // It ended, or is just being replaced: what runs next of that name meets the fault.
                self.waiting.push((fault, None));
            }
        }
        Ok(())
    }
}

fn inject_now(session: &mut Session, kind: &FaultKind, exit: Exit<'_>) -> Result<(), Failure> {
    match kind {
        FaultKind::Exit { pod, code } => {
            for (namespace, _) in namespaces_of(session, pod, true) {
                exit(session, &namespace, pod, *code)?;
            }
        }
        FaultKind::Node { node } => session.cluster_mut().node(node, NodeState::NotReady)?,
        FaultKind::Preempt { job } => preempt(session, job)?,
        FaultKind::Image { .. } => {}
    }
    Ok(())
}

/// Returns whether what a fault is about runs.
fn is_running(session: &Session, kind: &FaultKind) -> bool {
    let state = session.operator.state();
    match kind {
        FaultKind::Exit { pod, .. } | FaultKind::Image { pod } => state
            .jobs
            .live_from(None)
            .flat_map(|(_, j)| j.pods.values())
            .any(|p| *p.fact.name == **pod && p.fact.phase == model::PodPhase::Running && !p.is_leaving()),
        FaultKind::Node { .. } => state.jobs.summaries().any(|(_, j)| j.phase == model::Phase::Running),
        FaultKind::Preempt { job } => {
            state.jobs.summaries().any(|(key, j)| *key.name == **job && j.phase == model::Phase::Running)
        }
    }
}

/// Namespaces of the jobs, or of the pods, of a name.
fn namespaces_of(session: &Session, name: &str, pods: bool) -> Vec<(String, Resource)> {
    let state = session.operator.state();
    let mut found = Vec::new();
    for (key, job) in state.jobs.iter() {
        if pods && job.pods.values().any(|p| *p.fact.name == *name) {
            found.push((key.namespace.to_string(), Resource::new("v1", "Pod")));
        }
        if !pods && *key.name == *name {
            found.extend(session.cluster().resource_named(&key.kind).map(|r| (key.namespace.to_string(), r)));
        }
    }
    found
}

/// Marks a job as preempted, as a scheduler would.
fn preempt(session: &mut Session, job: &str) -> Result<(), Failure> {
    for (namespace, resource) in namespaces_of(session, job, false) {
        let api = session.operator.registry().get(&resource);
        let Some(patch) = api.and_then(|api| api.annotations()?.preemption("injected by --fault")) else { continue };
        session.cluster_mut().merge_patch(&resource, &namespace, job, &patch, false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultKind};

    #[test]
    fn faults_are_read() {
        let fault: Fault = "exit=j-trainer-1:137@2s".parse().unwrap();
        assert_eq!(fault, Fault { kind: FaultKind::Exit { pod: "j-trainer-1".into(), code: 137 }, after_ms: 2000 });
        let fault: Fault = "node=local-1".parse().unwrap();
        assert_eq!(fault, Fault { kind: FaultKind::Node { node: "local-1".into() }, after_ms: 0 });
        for bad in ["exit", "exit=", "exit=p", "exit=p:x", "exit=p:300", "node=n@soon", "melt=n"] {
            assert!(bad.parse::<Fault>().unwrap_err().to_string().contains("a fault is"), "{bad}");
        }
    }
}
