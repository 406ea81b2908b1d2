//! Jobs that other processes submit to a run: their names, GPUs and origin, and that the run continues for them.
//!
//! Owns taking them. The process that submits is in `submit`. Tests: `cli/tests/local/submit.rs`.

use std::collections::BTreeSet;

use apis::Resource;
use embedded::Session;
use local::Origin;
use serde_json::Value;
use terminal::columns::counted;
use terminal::out::Failure;

use crate::jobs;
use crate::requests::{Answer, JobRef, Submission, Submitted};
use crate::turns::Run;
use crate::{attempts, nodes};

impl Run {
    /// Takes in the manifests of another process.
    pub(crate) fn submit(&mut self, submission: &Submission, session: &mut Session) -> Result<Answer, Failure> {
        let mut manifests = submission.manifests.clone();
        let mut said = Vec::new();
        for manifest in manifests.iter_mut().filter(|manifest| session.is_job(manifest)) {
            let Some(standing) = standing(session, manifest) else { continue };
            let job = target(manifest);
            if submission.numbered {
                let name = free_name(session, manifest);
                said.push(format!("{} is {standing}: this job is {name}", job.written()));
                manifest["metadata"]["name"] = name.into();
            } else {
                said.push(format!("{} {} is {standing}: the manifest is applied to it", job.kind, job.written()));
            }
        }
        if let Some(count) = submission.gpus {
            let all = self.processes.claim_gpus(count)?;
            nodes::grow(session.cluster_mut(), all);
        }
        let origin = Origin { workdir: submission.workdir.clone(), environment: submission.environment.clone().into() };
        for manifest in manifests.iter().filter(|manifest| session.is_job(manifest)) {
            self.origins.set(target(manifest), origin.clone());
        }
        let prepared =
            attempts::prepare(session, &manifests, submission.rerun, &mut |line| said.push(line.to_owned()))?;
        let rejected: Vec<String> = session.apply(&prepared)?.iter().map(ToString::to_string).collect();
        if rejected.len() == manifests.len() {
            return Err(Failure::new(rejected.join("\ntrainyard: ")));
        }
        said.extend(rejected);
        let mut jobs = Vec::new();
        for manifest in &manifests {
            self.processes.provide(manifest);
            self.places.add(manifest);
            jobs.extend(session.job_uid(manifest).map(|uid| Submitted { job: target(manifest), uid }));
        }
        let others = jobs.iter().filter(|job| !self.mine.contains(&job.uid));
        self.submitted.extend(others.map(|job| job.uid.clone()));
        self.progress.except(self.submitted.iter().cloned());
        let names: Vec<String> = jobs.iter().map(|Submitted { job, .. }| job.written()).collect();
        self.progress.say(&format!("as asked: {} runs as well, for another process", names.join(", ")));
        Ok(Answer { done: true, message: said.join("\n"), jobs })
    }

    /// Prints once that the run continues for others.
    pub(crate) fn note_others(&mut self, session: &Session) {
        let left: BTreeSet<_> = session.jobs().into_iter().filter(|(_, phase)| !phase.is_terminal()).collect();
        let others = left.iter().filter(|(key, _)| self.submitted.contains(&*key.uid.0)).count();
        if self.is_for_others || others == 0 || others < left.len() || self.stopped.is_some() {
            return;
        }
        self.is_for_others = true;
        let jobs = counted(others, "job");
        self.progress.say(&format!(
            "the jobs of this run have ended; the run continues for {jobs} that other processes submitted"
        ));
    }

    /// Returns the names of the pods that other processes' jobs have or had.
    pub(crate) fn pods_of_others(&self, session: &Session) -> BTreeSet<String> {
        if self.submitted.is_empty() {
            return BTreeSet::new();
        }
        let state = session.operator.state();
        let others = state.jobs.summaries().filter(|(key, _)| self.submitted.contains(&*key.uid.0));
        let others = others.filter_map(|(key, _)| Some((key, state.job(key)?)));
        others.flat_map(|(key, job)| jobs::ranks(key, &job)).map(|place| place.name).collect()
    }
}

/// Returns what a job of a manifest's name is, unless it has ended or is not there.
fn standing(session: &Session, manifest: &Value) -> Option<&'static str> {
    let uid = session.job_uid(manifest)?;
    match session.jobs().into_iter().find(|(key, _)| *key.uid.0 == *uid) {
        Some((_, phase)) if phase.is_terminal() => None,
        Some((key, phase)) => {
            Some(session.phase_word(&key, phase)).map(|word| if word.is_empty() { "there" } else { word })
        }
        None => Some("there"),
    }
}

/// Returns the manifest's name with the first number that no job has, nor had.
fn free_name(session: &Session, manifest: &Value) -> String {
    let job = target(manifest);
    let resource = Resource::of(manifest);
    let named = |number: u32| format!("{}-{number}", job.name);
    let is_free = |name: &String| session.cluster().get(&resource, &job.namespace, name).is_none();
    (2..=u32::MAX).map(named).find(is_free).unwrap_or_else(|| named(0))
}

fn target(manifest: &Value) -> JobRef {
    let text = |name: &str| manifest["metadata"][name].as_str().unwrap_or_default().to_owned();
    JobRef { kind: Resource::of(manifest).kind.to_string(), namespace: text("namespace"), name: text("name") }
}
