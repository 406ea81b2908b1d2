//! Checks of queues and their jobs at rest: nothing is under way, no job is in between, and what waits has a reason.

use engine::Job;
use engine::queues::report;
use model::JobKey;
use serde_json::Value;

use super::super::{core, has_ended, mpi, rest};
use super::Walk;

impl Walk {
    /// Checks a walk at rest.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(problem) = &self.stopped {
            return Err(problem.clone());
        }
        let operator = self.simulation.operator().ok_or("no operator")?;
        let state = operator.state();
        if operator.calls_in_flight() > 0 {
            return Err("calls are in flight".to_owned());
        }
        // Workers that an ended MPIJob is to leave are pods that run.
        let mut active = self.mpi.as_ref().map_or(0, |_| mpi::left(&self.simulation));
        for (key, job) in state.jobs.iter().filter(|(key, job)| job.object.exists() && &*key.kind != "TrainingQueue") {
            if let Some(why) = &job.quarantine {
                return Err(format!("{}: quarantined: {why}", key.name));
            }
            if !job.planned_pods.is_empty() || !job.deleting_pods.is_empty() {
                return Err(format!("{} is not at rest: {:?} {:?}", key.name, job.planned_pods, job.deleting_pods));
            }
            if !job.phase.is_terminal() && !job.object.is_deleting() {
                active += usize::from(self.whole_or_nothing(key, &job)?);
            }
        }
        let states = report::states(state, state.at);
        let may_wait = |reason: &str| matches!(reason, "NoQueue" | "Infeasible" | "Paused");
        let waits = states.iter().flat_map(|queue| &queue.report.waiting).find(|job| !may_wait(&job.reason));
        if let Some(waits) = waits.filter(|_| active == 0) {
            return Err(format!("nothing runs, and {} waits: {}", waits.name, waits.message));
        }
        rest::replay(&self.simulation)
    }

    /// Adds what each job holds to the story.
    pub(super) fn describe(&mut self) {
        let Some(operator) = self.simulation.operator() else { return };
        let state = operator.state();
        let line = |(key, job): (&JobKey, std::borrow::Cow<'_, Job>)| {
            let holding = &job.allocation;
            let earlier: Vec<String> =
                holding.released.iter().map(|(stamp, share)| format!("{share} until {stamp}")).collect();
            let target = state.queues.targets.get(key).map(|target| target.share.to_string());
            let pods: Vec<String> = job
                .pods
                .values()
                .map(|pod| format!("{} {:?} {:?}", pod.fact.name, pod.fact.phase, pod.fact.node))
                .collect();
            format!(
                "{} {:?} gated {} reported {} holds {} (stamp {}, acked {}), held {earlier:?}, target {target:?}, pods {pods:?}",
                key.name,
                job.phase,
                holding.gated,
                holding.has_target,
                holding.share,
                holding.stamp,
                job.stamps.acknowledged()
            )
        };
        self.story.push(format!("{}: {:?}", state.stamp, state.queues_wake()));
        self.story.extend(state.jobs.iter().map(line));
    }

    /// Returns true if a job runs. It has all of its pods, or none.
    fn whole_or_nothing(&self, key: &JobKey, job: &Job) -> Result<bool, String> {
        if *key.kind == *apis::mpijob::KIND {
            return mpi::whole_or_nothing(&self.simulation, key, job);
        }
        // A job whose spec cannot be accepted after its log was lost keeps the places that its object shows.
        let Some(spec) = job.spec() else { return Ok(!job.allocation.share.is_empty()) };
        let pods = self.simulation.backend.cluster.objects_of(&core("Pod"));
        let owned = |pod: &&std::sync::Arc<Value>| pod["metadata"]["ownerReferences"][0]["uid"] == *key.uid.0;
        let have = pods.iter().filter(owned).filter(|pod| !has_ended(pod)).count();
        let done: usize = job.groups.values().map(|group| group.done.len() + group.lost.len()).sum();
        let want: u32 = spec.groups.iter().map(|group| group.replicas).sum();
        let want = usize::try_from(want).unwrap_or_default();
        let share = job.allocation.share.len();
        if have == 0 {
            // The place of a pod that has ended is kept until the job ends.
            return Ok(share > 0 && share == done);
        }
        // A job that was edited to be larger keeps what it has until there is room for all of it.
        let is_growing = share > 0 && share < want && have + done >= share;
        if have > want || have + done < want && !is_growing {
            return Err(format!("{}: {:?} with {have} pods and {done} done, of {want}", key.name, job.phase));
        }
        Ok(true)
    }
}
