//! What holds after a walk, once the faults stopped: the operator is idle, shows what it knows, and its log leads there again.

use engine::{Job, State};
use model::{ClusterFact, JobFact, JobKey, NodeFact, Phase, ResourceVersion, Stamp, Term, Timestamp};
use simulator::simulation::Simulation;

use super::{Walk, core};

/// A job that has ended is finished, with or without pods that stay; and rightly so: no change of a node touches it, and when
/// it wakes in another term, just before its deadline or long after, there is nothing to be done about it.
fn rests(state: &State, key: &JobKey, job: &Job) -> Result<(), String> {
    if !job.phase.is_terminal() {
        return Ok(());
    }
    if !state.jobs.is_finished(key) {
        return Err(format!("{:?}, and not finished", job.phase));
    }
    let mut state = state.clone();
    let stamp = Stamp { term: Term(state.stamp.term.0 + 1), position: state.stamp.position.next() };
    let last = job.deadline.map_or(Timestamp(u64::MAX >> 1), |deadline| Timestamp(deadline.0 - 1));
    state.begin(stamp, state.at.plus_ms(1 << 40).min(last));
    let nodes: Vec<NodeFact> = state.nodes.values().map(|node| node.fact.clone()).collect();
    for node in nodes {
        let (name, rv) = (node.name.clone(), ResourceVersion(node.rv.0 + 1));
        let worse = NodeFact { rv, ready: false, conditions: vec!["Xid".into()], ..node };
        for fact in [ClusterFact::Node(Box::new(worse)), ClusterFact::NodeGone { name }] {
            if state.apply_cluster_fact(&fact).contains_key(key) {
                return Err(format!("finished, and touched by {fact:?}"));
            }
        }
    }
    state.apply_job_fact(key, &JobFact::Due);
    if state.jobs.is_finished(key) {
        return Err("finished, and does not wake".to_owned());
    }
    let (events, effects) = (engine::step(&mut state, key), state.effects_of(key));
    if !events.is_empty() || !effects.is_empty() || !state.jobs.is_finished(key) {
        return Err(format!("finished with something to do: {events:?}, {effects:?}"));
    }
    Ok(())
}

impl Walk {
    /// The invariants, at rest.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        let operator = self.simulation.operator().ok_or("no operator")?;
        let state = operator.state();
        let kind = self.api.resource().kind;
        let Some((key, job)) = state.jobs.iter().find(|(key, j)| key.kind == kind && j.object.exists()) else {
            let gone = self.api.may_be_gone(&self.manifest) && self.pods().is_empty();
            return if gone { Ok(()) } else { Err("the job is lost".into()) };
        };
        if let Some(why) = &job.quarantine {
            return Err(format!("quarantined: {why}"));
        }
        self.api.check(&job, &self.simulation.backend.cluster.objects_of(&core("Pod")))?;
        let object = self.simulation.backend.cluster.get(&self.api.resource(), "default", "j").ok_or("no object")?;
        let mut written = (*object).clone();
        simulator::state::mask_generation(&mut written);
        let status = &written["status"];
        let api = self.api.registry();
        let word = api.api_of(key).map_or("", |api| api.phase_word(job.phase));
        let shown = simulator::state::word(&object);
        // A job nothing was decided for may have remarks.
        if shown != word && job.phase != Phase::New {
            return Err(format!("status says {shown}, state {word}"));
        }
        let shows = api.api_of(key).map(|api| api.status(key, &job)).unwrap_or_default();
        // Waits only shrink, which is not worth a write; what an ended job shows is final, even if its spec changes later.
        let matters = |path: &String| {
            let last_word = ["restarts", "replicaStatuses", "taskStatuses", "conditions", "numNodes", "workersStatus"]
                .iter()
                .any(|member| path.starts_with(member));
            !(path.starts_with("trainyard.wait") || job.phase.is_terminal() && last_word)
        };
        let mut differences = explain::differences(status, &shows);
        differences.retain(|(path, ..)| matters(path));
        if !differences.is_empty() {
            return Err(format!("written status, state: {differences:?}"));
        }
        if !job.planned_pods.is_empty() || !job.deleting_pods.is_empty() || operator.calls_in_flight() > 0 {
            return Err(format!("not at rest: {:?} {:?}", job.planned_pods, job.deleting_pods));
        }
        rests(state, key, &job)?;
        replay(&self.simulation)
    }
}

/// The log folds to the state, re-decides alike, and a checkpoint anywhere with the rest folds to the same.
pub(super) fn replay(simulation: &Simulation) -> Result<(), String> {
    let operator = simulation.operator().ok_or("no operator")?;
    let text = |state: &engine::State| String::from_utf8(state.to_checkpoint().unwrap()).unwrap();
    let records: Vec<engine::Record> = operator
        .log()
        .read(operator.log().first())
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| e.to_string())?
        .iter()
        .map(|f| engine::Record::decode(f.position, f.term, &f.body).map_err(|e| e.to_string()))
        .collect::<Result<_, _>>()?;
    let end = text(operator.state());
    let cut = records.len() / 2;
    let (mut folded, mut decided) = (engine::State::default(), engine::State::default());
    for (n, record) in records.iter().enumerate() {
        if n == cut {
            folded = engine::State::from_checkpoint(text(&folded).as_bytes()).map_err(|e| e.to_string())?;
        }
        folded.replay(record).map_err(|e| e.to_string())?;
        let events = decided.redecide(record).map_err(|e| e.to_string())?;
        if events != record.events() {
            return Err(format!("record {} decides {events:?}, not {:?}", record.position, record.events()));
        }
    }
    for (name, state) in [("folded", &folded), ("decided again", &decided)] {
        if text(state) != end {
            return Err(format!("{name}: not the operator's state"));
        }
    }
    Ok(())
}
