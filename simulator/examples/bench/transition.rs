//! One transition: a pod's fact is taken in and its job decided.

use std::time::Instant;

use engine::State;
use model::{JobFact, JobKey, PodFact};

use crate::AnyError;
use crate::replicated_jobs::{JobStage, ReplicatedJobs, next};
use crate::table::{aimed, median, row, topic};

const AIM_US: f64 = 20.0;
const BATCH: u32 = 2000;
const BATCHES: usize = 21;

/// One transition, as a turn does it.
fn transition(state: &mut State, key: &JobKey, fact: PodFact) -> usize {
    state.begin(next(state), state.at.plus_ms(1));
    state.apply_job_fact(key, &JobFact::Pod(Box::new(fact)));
    engine::step(state, key).len()
}

/// Times the same transitions in one state; gives microseconds for a transition, and for one with its effects.
fn time(replicated_jobs: &mut ReplicatedJobs) -> Result<(f64, f64), AnyError> {
    let (mut plain, mut whole) = (Vec::new(), Vec::new());
    let mut commands = 0_usize;
    for batch in 0..BATCHES * 2 {
        let facts = replicated_jobs.pod_facts(BATCH)?;
        let start = Instant::now();
        for (key, fact) in facts {
            transition(&mut replicated_jobs.state, &key, fact);
            if batch % 2 == 1 {
                commands += replicated_jobs.state.effects_of(&key).len();
            }
        }
        let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH);
        if batch % 2 == 0 { &mut plain } else { &mut whole }.push(each);
    }
    if commands == 0 {
        return Err("the transitions had no effect".into());
    }
    Ok((median(&mut plain), median(&mut whole)))
}

/// Measures with 1, 100 and `most` jobs known.
pub(crate) fn run(most: u32) -> Result<(), AnyError> {
    topic("transition: one pod of an 8-pod job changes: observe and step (medians of interleaved batches)");
    let mut first = 0.0;
    for jobs in [1, 100, most] {
        let mut replicated_jobs = ReplicatedJobs::new(JobStage::Running)?;
        replicated_jobs.grow(0, jobs)?;
        let (plain, whole) = time(&mut replicated_jobs)?;
        if jobs == 1 {
            first = plain;
        }
        aimed(&format!("{jobs} jobs known, us"), &format!("{plain:.2}"), "< 20", plain < AIM_US);
        row(&format!("{jobs} jobs known, with its effects, us"), &format!("{whole:.2}"));
        if jobs == most {
            let growth = plain / f64::max(first, 1e-9);
            row(&format!("growth from 1 to {jobs} jobs (caches, depth of one map)"), &format!("{growth:.2}"));
        }
    }
    Ok(())
}

/// The same transitions and nothing else: what callgrind counts the instructions of.
pub(crate) fn count(jobs: u32, transitions: u32) -> Result<(), AnyError> {
    let mut replicated_jobs = ReplicatedJobs::new(JobStage::Running)?;
    replicated_jobs.grow(0, jobs)?;
    let mut events = 0;
    for (key, fact) in replicated_jobs.pod_facts(transitions)? {
        events += transition(&mut replicated_jobs.state, &key, fact);
    }
    println!("{transitions} transitions, {events} events");
    Ok(())
}
