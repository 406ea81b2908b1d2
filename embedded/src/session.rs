//! Cluster and operator of one run or simulation.
//!
//! Owns opening both, manifests as `kubectl apply` applies them, and questions about the jobs. It must not print.

use apis::{ApiAnswer, ApiCall, ApiError, Registry, Resource};
use cluster::Cluster;
use engine::State;
use event_log::EventLog;
use model::{Config, JobKey, Phase, Timestamp};
use operator::{Operator, Options, Step};
use serde_json::Value;

use crate::backend::{Backend as _, EmbeddedCluster};
use crate::settle::{Error, Hooks, settle};

/// A manifest that the cluster rejected.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name}: {error}")]
pub struct Rejected {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The API server's answer.
    pub error: ApiError,
}

/// Cluster and operator.
pub struct Session {
    /// The operator.
    pub operator: Operator,
    backend: EmbeddedCluster,
    registry: Registry,
}

impl Session {
    /// Opens an operator on `log` for a cluster that serves every API of `registry`.
    ///
    /// # Errors
    /// When the log cannot be read or does not fold.
    pub fn open(
        backend: EmbeddedCluster,
        registry: Registry,
        log: Box<dyn EventLog>,
        config: Config,
    ) -> Result<Self, Error> {
        let operator = Operator::open(log, registry.clone(), Options { config, ..Options::default() })?;
        Ok(Self { operator, backend, registry })
    }

    /// The cluster.
    pub const fn cluster(&self) -> &Cluster {
        &self.backend.cluster
    }

    /// The cluster, for users, kubelets and faults.
    pub const fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.backend.cluster
    }

    /// The cluster, for controllers of other projects that act beside the operator.
    pub const fn backend_mut(&mut self) -> &mut EmbeddedCluster {
        &mut self.backend
    }

    /// Runs cluster and operator until nothing moves at the time `clock` gives. Reports every call and its answer to `on_answer`.
    ///
    /// # Errors
    /// As for [`settle`].
    pub fn settle(
        &mut self,
        clock: &mut dyn FnMut() -> Timestamp,
        on_answer: &mut dyn FnMut(&ApiCall, &ApiAnswer),
    ) -> Result<(), Error> {
        settle(&mut self.backend, &mut self.operator, &self.registry, clock, &mut Execute { on_answer }).map(|_| ())
    }

    /// Applies manifests as `kubectl apply` does: the others are applied although one is rejected. Returns the rejected ones.
    ///
    /// # Errors
    /// When the cluster cannot be stored.
    pub fn apply(&mut self, manifests: &[Value]) -> Result<Vec<Rejected>, Error> {
        let mut rejected = Vec::new();
        for manifest in manifests {
            let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Err(error) = self.backend.cluster.apply(manifest) {
                rejected.push(Rejected { kind: text("/kind"), name: text("/metadata/name"), error });
            }
        }
        self.backend.sync()?;
        Ok(rejected)
    }

    /// Returns the time of the next deadline of cluster or operator.
    pub fn next_wake(&self) -> Option<Timestamp> {
        [self.operator.next_wake(), self.backend.next_wake()].into_iter().flatten().min()
    }

    /// Takes the phases that jobs entered since the last call.
    pub fn take_steps(&mut self) -> Vec<Step> {
        self.operator.take_steps()
    }

    /// Returns whether a manifest is a job of a served API.
    pub fn is_job(&self, manifest: &Value) -> bool {
        self.registry.serves_jobs(&Resource::of(manifest))
    }

    /// Returns the uid of the stored job that a manifest names.
    pub fn job_uid(&self, manifest: &Value) -> Option<String> {
        let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = Resource::of(manifest);
        let object = self.cluster().get(&resource, text("/metadata/namespace"), text("/metadata/name"))?;
        self.is_job(manifest).then(|| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns the name that the job's API has for a phase.
    pub fn phase_word(&self, key: &JobKey, phase: Phase) -> &'static str {
        self.registry.api_of(key).map_or("", |api| api.phase_word(phase))
    }

    /// Returns the jobs that exist, by key.
    pub fn jobs(&self) -> Vec<(JobKey, Phase)> {
        jobs_of(self.operator.state(), &self.registry)
    }
}

/// Returns the jobs of a state that exist, by key.
pub fn jobs_of(state: &State, registry: &Registry) -> Vec<(JobKey, Phase)> {
    let jobs = state.jobs.summaries().filter(|(key, job)| job.known && !job.gone && registry.is_job(&key.kind));
    jobs.map(|(key, job)| (key.clone(), job.phase)).collect()
}

/// Executes every call, without faults.
struct Execute<'a> {
    on_answer: &'a mut dyn FnMut(&ApiCall, &ApiAnswer),
}

impl Hooks<EmbeddedCluster> for Execute<'_> {
    fn execute(&mut self, backend: &mut EmbeddedCluster, call: &ApiCall) -> Option<ApiAnswer> {
        let answer = backend.cluster.execute(call);
        (self.on_answer)(call, &answer);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::{Mode, NodeSpec};
    use event_log::MemoryLog;
    use model::LossKind;
    use operator::{Launch, ShareStep};
    use serde_json::json;

    use super::*;
    use crate::kubelet::{Kubelet, PodBehaviour};

    fn session(mode: Mode, node: NodeSpec) -> Session {
        let options = cluster::Options { mode, nodes: vec![node], ..cluster::Options::default() };
        let registry = Registry::all();
        let backend = EmbeddedCluster::serving(Cluster::new(&options), &registry).unwrap();
        Session::open(backend, registry, Box::new(MemoryLog::new()), Config::default()).unwrap()
    }

    fn job(name: &str, replicas: i32) -> Value {
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicaSpecs": {"t": {"replicas": replicas, "template": {"spec": {"containers": [
                {"name": "aitj-c", "image": "i", "command": ["true"]}]}}}}}})
    }

    #[test]
    fn a_job_runs_to_its_end_and_its_phases_and_calls_are_reported() {
        let mut session = session(Mode::Automatic, NodeSpec::named("n1"));
        let rejected = session.apply(&[job("j", 2), json!({"apiVersion": "v1", "kind": "Nothing"})]).unwrap();
        assert_eq!(rejected.len(), 1, "{rejected:?}");
        assert!(session.job_uid(&job("j", 2)).is_some());
        let mut kubelet = Kubelet::new(PodBehaviour::default());
        let (mut now, mut created) = (session.cluster().now(), 0);
        let end = now.plus_ms(u64::try_from(Duration::from_secs(600).as_millis()).unwrap());
        while now < end {
            let mut count = |call: &ApiCall, answer: &ApiAnswer| {
                created +=
                    u32::from(call.verb == apis::Verb::Create && &*call.resource.kind == "Pod" && answer.is_ok());
            };
            session.settle(&mut || now, &mut count).unwrap();
            kubelet.plan(session.cluster_mut());
            kubelet.act(session.cluster_mut());
            session.settle(&mut || now, &mut count).unwrap();
            let Some(next) = [session.next_wake(), kubelet.next_wake()].into_iter().flatten().min() else { break };
            now = next.max(now);
        }
        assert_eq!(created, 2);
        let (key, phase) = session.jobs().pop().unwrap();
        assert_eq!(session.phase_word(&key, phase), "Succeed");
        let steps = session.take_steps();
        assert!(steps.iter().any(|step| step.phase == Phase::Running));
        assert!(session.take_steps().is_empty());
        // Each once, although the pods have ended since.
        let delays =
            |of: fn(&Launch) -> Option<u64>| steps.iter().filter_map(|step| of(&step.launch)).collect::<Vec<_>>();
        assert_eq!(delays(|launch| launch.first_pod_ms), [1000]);
        assert_eq!(delays(|launch| launch.all_pods_ms), [1000]);
    }

    #[test]
    fn steps_show_who_is_admitted_after_which_time_and_who_loses_places() {
        let gpu = || ("nvidia.com/gpu".to_owned(), "4".to_owned());
        let mut session = session(Mode::Manual, NodeSpec { resources: [gpu()].into(), ..NodeSpec::named("n1") });
        let queue = json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": "q"},
            "spec": {"quota": {"nvidia.com/gpu": {"nominal": 4}},
                "preemption": {"withinQueue": "LowerPriority", "minRunSeconds": 0}}});
        let gang = |name: &str, priority: &str| {
            let mut job = job(name, 1);
            job["metadata"]["labels"] = json!({"trainyard.dev/queue": "q", "trainyard.dev/priority": priority});
            job["spec"]["replicaSpecs"]["t"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"limits": {"nvidia.com/gpu": "4"}});
            job
        };
        let start = session.cluster().now();
        let mut steps = |after_ms: u64, manifests: &[Value]| {
            let now = start.plus_ms(after_ms);
            session.cluster_mut().set_now(now);
            assert!(session.apply(manifests).unwrap().is_empty());
            session.settle(&mut || now, &mut |_, _| {}).unwrap();
            let steps = session.take_steps().into_iter();
            steps.filter_map(|step| Some((step.job.name.to_string(), step.share?))).collect::<Vec<_>>()
        };
        let admitted = |name: &str, waited_ms| {
            (name.to_owned(), ShareStep::Admitted { queue: "q".into(), waited_ms: Some(waited_ms) })
        };
        let lost = ("low".to_owned(), ShareStep::Lost { queue: "q".into(), kind: LossKind::Preempted });
        assert_eq!(steps(0, &[queue, gang("low", "0")]), [admitted("low", 0)]);
        assert_eq!(steps(90_000, &[gang("high", "5")]), [lost, admitted("high", 0)]);
        assert_eq!(steps(120_000, &[gang("later", "5")]), []);
    }
}
