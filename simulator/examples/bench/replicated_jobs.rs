//! A state with many jobs, folded from the records of one real job repeated under other names.

use engine::{Record, State};
use model::{JobKey, Phase, PodFact, Position, Stamp, Term};

use crate::AnyError;
use crate::uids::long_uids;
use crate::workload::{JobFault, Workload};

/// Stage of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobStage {
    /// Every pod runs.
    Running,
    /// They have ended and were cleaned up; their objects are still there.
    Over,
}

impl JobStage {
    /// Returns the number of jobs at this stage.
    fn reached(self, state: &State) -> usize {
        let jobs = state.jobs.summaries();
        let here = jobs.filter(|(key, job)| match self {
            Self::Running => job.phase == Phase::Running && job.rv.0 > 0,
            Self::Over => state.jobs.is_finished(key),
        });
        here.count()
    }
}

/// Records of one job up to a stage of its life.
pub(crate) struct ReplicatedJobs {
    stage: JobStage,
    cluster: Vec<(Term, String)>,
    /// The job's own, with their positions.
    job: Vec<(Position, Term, String)>,
    name: String,
    uids: Vec<String>,
    /// The state with the jobs added so far.
    pub(crate) state: State,
}

impl ReplicatedJobs {
    /// Runs the one job up to a stage.
    pub(crate) fn new(stage: JobStage) -> Result<Self, AnyError> {
        let mut workload = Workload::new(|_| JobFault::None)?;
        workload.next_job(0);
        let mut replicated_jobs = Self {
            stage,
            cluster: Vec::new(),
            job: Vec::new(),
            name: String::new(),
            uids: Vec::new(),
            state: State::default(),
        };
        until(&mut workload, JobStage::Running)?;
        for (key, job) in workload.state().jobs.iter() {
            replicated_jobs.name = key.name.to_string();
            let all = std::iter::once(&key.uid).chain(job.pods.keys()).chain(job.services.keys());
            replicated_jobs.uids =
                all.map(|uid| long_uids(&format!("\"{uid}\"")).trim_matches('"').to_owned()).collect();
        }
        until(&mut workload, stage)?;
        let log = workload.log();
        for frame in log.read(log.first())? {
            let frame = frame?;
            let record = Record::decode(frame.position, frame.term, &frame.body)?;
            let body = long_uids(std::str::from_utf8(&frame.body)?);
            match record.body {
                engine::Body::Cluster { .. } | engine::Body::Queues { .. } => {
                    replicated_jobs.cluster.push((frame.term, body));
                }
                engine::Body::Job { .. } => replicated_jobs.job.push((frame.position, frame.term, body)),
            }
        }
        for (term, body) in &replicated_jobs.cluster {
            fold(&mut replicated_jobs.state, *term, body)?;
        }
        Ok(replicated_jobs)
    }

    /// Adds jobs `from..to`, each with names and uids of its own.
    pub(crate) fn grow(&mut self, from: u32, to: u32) -> Result<(), AnyError> {
        for n in from..to {
            let before = self.state.stamp.position;
            for (_, term, body) in &self.job {
                let mut body = self.repeated_after(before, body).replace(&self.name, &format!("llama-finetune-{n:05}"));
                for uid in &self.uids {
                    // The first eight digits are a small count: their upper half is free to distinguish the jobs.
                    let other = format!("{n:05x}{}", uid.get(5..).unwrap_or_default());
                    body = body.replace(uid, &other);
                }
                fold(&mut self.state, *term, &body)?;
            }
        }
        let there = self.stage.reached(&self.state);
        if there != usize::try_from(to)? {
            return Err(format!("{there} of {to} jobs are {:?}", self.stage).into());
        }
        Ok(())
    }

    /// A body whose stamps name the job's records where they stand when it is repeated after `before`.
    fn repeated_after(&self, before: Position, body: &str) -> String {
        let mut parts = body.split("\"position\":");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (number, rest) = part.split_at(part.bytes().take_while(u8::is_ascii_digit).count());
            let place = number.parse::<u64>().ok().and_then(|at| self.job.iter().position(|(p, ..)| p.0 == at));
            let now = place.map(|place| (before.0 + 1 + place as u64).to_string());
            out.extend(["\"position\":", now.as_deref().unwrap_or(number), rest]);
        }
        out
    }

    /// Facts that turn pods of many jobs to Pending and back to Running, one pod at a time, in an order that jumps between jobs.
    pub(crate) fn pod_facts(&self, count: u32) -> Result<Vec<(JobKey, PodFact)>, AnyError> {
        let jobs: Vec<_> = self.state.jobs.iter().collect();
        let mut out: Vec<(JobKey, PodFact)> = Vec::new();
        let mut at = 0_usize;
        let mut versions: std::collections::BTreeMap<model::Uid, PodFact> = std::collections::BTreeMap::new();
        for n in 0..count {
            // A stride that is prime to every number of jobs used here visits them all.
            at = (at + 7919) % jobs.len();
            let Some((key, job)) = jobs.get(at) else { continue };
            // Each job sees the same: a pod goes and comes back, then the next one does.
            let pods = usize::try_from(n)? / jobs.len() / 2 % job.pods.len().max(1);
            let Some(pod) = job.pods.values().nth(pods) else { continue };
            let fact = versions.entry(pod.fact.uid.clone()).or_insert_with(|| pod.fact.clone());
            fact.rv.0 += 1;
            fact.phase = match fact.phase {
                model::PodPhase::Running => model::PodPhase::Pending,
                _ => model::PodPhase::Running,
            };
            out.push(((*key).clone(), fact.clone()));
        }
        Ok(out)
    }
}

fn until(workload: &mut Workload, stage: JobStage) -> Result<(), AnyError> {
    while stage.reached(workload.state()) == 0 {
        if !workload.step()? {
            return Err(format!("the job is never {stage:?}").into());
        }
    }
    Ok(())
}

fn fold(state: &mut State, term: Term, body: &str) -> Result<(), AnyError> {
    let position: Position = state.stamp.position.next();
    Ok(state.replay(&Record::decode(position, term, body.as_bytes())?)?)
}

/// The stamp of the next record.
pub(crate) fn next(state: &State) -> Stamp {
    Stamp { term: state.stamp.term, position: state.stamp.position.next() }
}
