//! The job model: what a user asked for, free of any one API's spelling.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::autoscaler::Autoscaler;
use crate::coordination::Coordination;
use crate::id::Text;
use crate::owned::OwnedSpec;
use crate::phase::Phase;
use crate::policy::{
    Budget, CleanBy, CleanPodPolicy, ClockStart, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope, Retryable,
};
use crate::printable;
use crate::queue::QueueSpec;
use crate::requirements::PodRequirements;
use crate::share::{Demand, GpuRequest, SizeRange};

/// Specification of a job. Members that came later stand for their absence by default: [`JobSpec::default`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Replica groups in key order; a pod's rank is its place in this order.
    pub groups: Vec<GroupSpec>,
    /// Condition under which groups complete the job.
    pub complete: JobEndPolicy,
    /// Condition under which groups fail the job.
    pub fail: JobEndPolicy,
    /// Pods that are deleted once the job completed or failed.
    pub clean_pods: CleanPodPolicy,
    /// Exit codes that count as restartable, sorted.
    pub restartable_codes: Vec<i32>,
    /// Wall-clock limit in milliseconds from [`JobSpec::limit_from`] on.
    pub time_limit_ms: Option<u64>,
    /// Rules by which progress is shown.
    pub phase_rules: PhaseRules,
    /// Failures that [`RestartPolicy::Listed`] restarts besides the exit codes.
    pub retryable: Option<Retryable>,
    /// Retries after which the job fails; `None` is unlimited.
    pub budget: Option<Budget>,
    /// Restarts of containers at which the job fails, counted over the pods that run at the time; 0 is reached by the first.
    pub running_restart_limit: Option<u32>,
    /// Instant from which the time limit counts.
    pub limit_from: ClockStart,
    /// Pods that are deleted, by the way the job ended; absent where [`JobSpec::clean_pods`] stands for all.
    pub clean_by: Option<CleanBy>,
    /// Time in milliseconds after its end at which the job object is deleted; `None` is never.
    pub ttl_ms: Option<u64>,
    /// Set if older tools read an annotation about the end of the job.
    pub end_annotation: bool,
    /// Set if the job waits without pods until this is taken back. Pods that run once are created all the same.
    pub suspended: bool,
    /// Objects of the job besides pods and services of slots.
    pub owned: Vec<OwnedSpec>,
    /// Set if the job's object carries a finalizer. It is taken off once the job's owned objects of
    /// [`crate::Retain::Finalized`] are gone and no other job needs it.
    pub finalizer: bool,
    /// Edits that take effect on a job with pods.
    pub edits: Edits,
    /// Request for a share of the nodes; `None` for a job whose pods no queue holds back.
    pub demand: Option<Demand>,
    /// Settings of the queue that the object is; `None` for a job.
    pub queue: Option<Box<QueueSpec>>,
    /// Set if another controller creates and deletes the job's pods. They are observed and counted; the job's object shows that
    /// controller whether it may have them.
    pub externally_managed: bool,
    /// Set if its object shows how many jobs that reference it.
    pub counts_referrers: bool,
    /// Request to the coordinator; `None` for a job that does not wait for it.
    pub coordination: Option<Box<Coordination>>,
    /// Type of the objects by which another system restarts the containers of an old pod, where the cluster serves it; `None`: old pods
    /// are created again. API version and kind.
    pub restarts_by: Option<(Text, Text)>,
    /// Group whose first pod runs on the node with the most free storage, which is searched before the pod is created.
    pub storage_group: Option<Text>,
    /// Bounds of a group that is resized by what its pods report; `None`: none is.
    pub autoscaler: Option<Box<Autoscaler>>,
    /// Grace period in seconds of pods that are deleted for no failure, in which they save a checkpoint; `None`: that of their templates.
    pub checkpoint_grace_seconds: Option<u32>,
}

impl Default for JobSpec {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            complete: JobEndPolicy::All,
            fail: JobEndPolicy::Any,
            clean_pods: CleanPodPolicy::All,
            restartable_codes: Vec::new(),
            time_limit_ms: None,
            phase_rules: PhaseRules::default(),
            retryable: None,
            budget: None,
            running_restart_limit: None,
            limit_from: ClockStart::default(),
            clean_by: None,
            ttl_ms: None,
            end_annotation: true,
            suspended: false,
            owned: Vec::new(),
            finalizer: false,
            edits: Edits::default(),
            demand: None,
            queue: None,
            externally_managed: false,
            counts_referrers: false,
            coordination: None,
            restarts_by: None,
            storage_group: None,
            autoscaler: None,
            checkpoint_grace_seconds: None,
        }
    }
}

impl JobSpec {
    /// Returns what happens to the pods of a job that ends in this phase.
    pub fn clean(&self, phase: Phase) -> CleanPodPolicy {
        match (&self.clean_by, phase) {
            (Some(by), Phase::Succeeded) => by.succeeded,
            (Some(by), Phase::Failed) => by.failed,
            (Some(by), _) => by.other,
            (None, Phase::Succeeded | Phase::Failed) => self.clean_pods,
            (None, _) => CleanPodPolicy::All,
        }
    }

    /// The group of that (lower-case) name.
    pub fn group(&self, name: &str) -> Option<&GroupSpec> {
        self.groups.iter().find(|g| &*g.name == name)
    }

    /// Returns the groups whose pods count in a queue, each with the request of a pod: those with GPUs, but those that run once.
    pub fn gpu_groups(&self) -> impl Iterator<Item = (&GroupSpec, &GpuRequest)> {
        let groups = self.groups.iter().filter(|group| !group.once);
        groups.filter_map(|group| Some((group, group.gpu_request.as_ref()?)))
    }
}

/// One replica group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// Object-safe (lower-case) name.
    pub name: Text,
    /// The name as the user spelt it, when that differs.
    pub display: Option<Text>,
    /// Number of pods.
    pub replicas: u32,
    /// Condition under which its pods complete it.
    pub complete: GroupEndPolicy,
    /// Condition under which its pods fail it.
    pub fail: GroupEndPolicy,
    /// Which outcomes are restarted.
    pub restart: RestartPolicy,
    /// Pods that a restart takes along.
    pub scope: RestartScope,
    /// Restarts its failures may cause; `None` is unlimited.
    pub restart_limit: Option<u32>,
    /// Set if each pod gets a Service of its own.
    pub services: bool,
    /// Set if its pods ask for GPUs, so that a node's GPU fault concerns them.
    pub gpus: bool,
    /// Number of pods that the group can do with; `None` is all of them.
    pub min: Option<u32>,
    /// Shape of its pods: what of the number of replicas is written into each. Pods of another shape are replaced together.
    pub shape: Option<Text>,
    /// Number of pods that each of its pods trains with, where that is noted on them.
    pub size: Option<Text>,
    /// States of other groups that its pods wait for.
    pub after: Vec<Dependency>,
    /// Set if its pods run once for each shape: a success counts through halts and restarts, and survives a lost log.
    pub once: bool,
    /// Set if pods of a group that runs once are deleted when they have succeeded.
    pub drops_succeeded: bool,
    /// Retries of the group's own pods after which the job fails.
    pub budget: Option<Budget>,
    /// GPUs that each of its pods requests; recorded for jobs with a demand.
    pub gpu_request: Option<GpuRequest>,
    /// What each of its pods requires of its node besides; recorded with the GPUs.
    pub requirements: Option<Arc<PodRequirements>>,
    /// Set if restarts of containers in its pods count for [`JobSpec::running_restart_limit`].
    pub counts_restarts: bool,
    /// Why none of its pods may be created, in words; `None` when they may.
    pub closed: Option<Text>,
    /// Numbers of pods that the queues may choose; `None` for all replicas or nothing.
    pub sizes: Option<SizeRange>,
}

impl Default for GroupSpec {
    fn default() -> Self {
        Self {
            name: Text::from(""),
            display: None,
            replicas: 0,
            complete: GroupEndPolicy::All,
            fail: GroupEndPolicy::Any,
            restart: RestartPolicy::Never,
            scope: RestartScope::All,
            restart_limit: None,
            services: false,
            gpus: false,
            min: None,
            shape: None,
            size: None,
            after: Vec::new(),
            once: false,
            drops_succeeded: false,
            budget: None,
            gpu_request: None,
            requirements: None,
            counts_restarts: false,
            closed: None,
            sizes: None,
        }
    }
}

impl GroupSpec {
    /// Returns the number of pods that the group cannot do without.
    pub fn minimum(&self) -> u32 {
        self.min.unwrap_or(self.replicas)
    }

    /// Returns the numbers of pods that the queues may choose.
    pub fn size_range(&self) -> SizeRange {
        self.sizes.unwrap_or_else(|| SizeRange::fixed(self.replicas))
    }

    /// The name as the user spelt it.
    pub fn display(&self) -> &Text {
        self.display.as_ref().unwrap_or(&self.name)
    }
}

/// A state of another group that the pods of a group wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the other group.
    pub group: Text,
    /// The state.
    pub reached: Reached,
}

/// State that a group has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// All of its pods have a node, or have ended.
    Scheduled,
    /// All of its pods run, or have succeeded.
    Running,
    /// All of its pods have succeeded.
    Succeeded,
    /// All of its pods run, or have ended.
    Started,
}

/// Edits of a spec that take effect on a job with pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Edits {
    /// All: what is created afterwards follows the edit.
    #[default]
    All,
    /// Numbers, limits and policies. What its objects are rendered from stays until the job has no pods.
    Numbers,
    /// None: the spec by which they were created stays in force.
    BeforePods,
}

/// Rules by which progress towards running is shown. They differ between APIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseRules {
    /// Set if scheduled-but-not-started pods are a phase of their own.
    pub creating: bool,
    /// Set if `Restarting` stays until every pod runs.
    pub sticky_restarting: bool,
    /// Pods that must run for the job to be `Running`.
    pub running: Running,
    /// Set if pods that are being deleted are in no counter.
    pub ignores_leaving: bool,
    /// Time at which the terminal phase is shown.
    pub ends: EndTiming,
    /// Milestones that are kept of many.
    pub milestones: Milestones,
    /// Set if a job whose pods may be created, but wait for nodes, is `Queued`.
    pub queued: bool,
}

impl Default for PhaseRules {
    fn default() -> Self {
        Self {
            creating: true,
            sticky_restarting: true,
            running: Running::All,
            ignores_leaving: false,
            ends: EndTiming::AfterCleanUp,
            milestones: Milestones::Latest,
            queued: false,
        }
    }
}

/// Pods that must run for a job to be `Running`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Running {
    /// All pods of every group.
    #[default]
    All,
    /// The minimum of each of these groups. While none of them has replicas, the job is `Suspended`.
    Minimum(BTreeSet<Text>),
    /// One pod of these groups, from its placement on a node on. A job stays `Running` while no pod is being replaced.
    Any(BTreeSet<Text>),
}

/// Time at which the terminal phase is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndTiming {
    /// Once the pods that are deleted for it are gone.
    #[default]
    AfterCleanUp,
    /// Once it is decided; pods are deleted afterwards.
    Decided,
}

/// Milestones that are kept where there are more than fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Milestones {
    /// The latest ones.
    #[default]
    Latest,
    /// The latest one of each phase, and other late ones.
    EachPhase,
}

/// Maximum number of characters of a path, and of a value, in a message.
const SHOWN_MAX: usize = 300;
/// Maximum number of characters of a problem in a message: it may quote a value.
const PROBLEM_MAX: usize = 1000;

/// A field of a manifest that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// Path of the field, for example `spec.replicaSpecs.trainer.replicas`.
    pub path: String,
    /// The value as JSON text (cut when long), or `missing`.
    pub value: String,
    /// The problem, and a value that would be right.
    pub problem: String,
    /// The nearest right field name or value, if there is one.
    pub suggestion: Option<String>,
}

impl FieldError {
    /// Returns an error without a suggestion.
    pub fn new(path: impl Into<String>, value: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), value: value.into(), problem: problem.into(), suggestion: None }
    }
}

/// Cuts a text after `max` characters.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(text.get(..end).unwrap_or_default().to_owned() + "…"),
        None => Cow::Borrowed(text),
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of members are a user's, as values are.
        let path = cut(&self.path, SHOWN_MAX).replace('\n', "\\n");
        let hint =
            self.suggestion.as_ref().map(|suggestion| format!("; did you mean {suggestion}?")).unwrap_or_default();
        let text = format!("{path}: {} ({}){hint}", cut(&self.problem, PROBLEM_MAX), cut(&self.value, SHOWN_MAX));
        f.write_str(&printable::escaped(&text))
    }
}
