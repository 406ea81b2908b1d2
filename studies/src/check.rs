//! A recorded log beside the study of its own workload.
//!
//! Owns what is compared, in words. It decides nothing and must not print. Tests: `cli/tests/local/recorded.rs`.

use std::collections::BTreeMap;

use model::Text;
use scheduler::Micros;

use crate::recorded::RecordedRun;
use crate::sim::StudyOutcome;
use crate::summary::seconds;

/// Jobs that differ and are named.
const SHOWN_MAX: usize = 10;

/// How far a study and a log agree.
#[derive(Debug)]
pub struct Agreement {
    /// In words, for people.
    pub lines: Vec<String>,
    /// True if every job started at the recorded time on the recorded nodes.
    pub is_complete: bool,
}

/// Compares a study with what was recorded.
pub fn agreement(policy: &str, runs: &BTreeMap<Text, RecordedRun>, outcome: &StudyOutcome) -> Agreement {
    let mut first: BTreeMap<usize, &[Text]> = BTreeMap::new();
    for places in outcome.places.iter().filter(|places| !places.on.is_empty()) {
        first.entry(places.job).or_insert(&places.on);
    }
    let (mut times, mut nodes, mut largest) = (0_usize, 0_usize, (Micros::ZERO, ""));
    let (mut recorded, mut played, mut ended) = (0_u64, 0_u64, 0_u64);
    let mut differences = Vec::new();
    for job in &outcome.jobs {
        let Some(run) = runs.get(&job.name) else { continue };
        let on = first.get(&job.place).copied().unwrap_or_default();
        let is_same_time = run.started == job.first_start;
        let is_same_place = sorted(on) == sorted(&run.on);
        times += usize::from(is_same_time);
        nodes += usize::from(is_same_place);
        if !is_same_time || !is_same_place {
            differences.push(format!(
                "{}: started at {:.3} s on {}, played at {:.3} s on {}",
                job.name,
                seconds(run.started),
                sorted(&run.on).join(" "),
                seconds(job.first_start),
                sorted(on).join(" "),
            ));
        }
        if let Some(end) = run.ended {
            ended += 1;
            recorded += end.since(job.submitted).0;
            played += job.completion().0;
            let difference = Micros(end.0.abs_diff(job.finished.0));
            if difference > largest.0 {
                largest = (difference, &job.name);
            }
        }
    }
    let all = outcome.jobs.len();
    let mut lines = Vec::new();
    lines.push(format!(
        "{policy}: {times} of {all} jobs started at the recorded time, {nodes} of {all} on the recorded nodes"
    ));
    let mean = |sum: u64| seconds(Micros(sum / ended.max(1)));
    let of = if largest.1.is_empty() { String::new() } else { format!(" ({})", largest.1) };
    lines.push(format!(
        "completion time of {ended} jobs that ended: mean {:.3} s recorded, {:.3} s played; largest difference {:.3} s{of}",
        mean(recorded),
        mean(played),
        seconds(largest.0)
    ));
    for difference in differences.iter().take(SHOWN_MAX) {
        lines.push(format!("  {difference}"));
    }
    if differences.len() > SHOWN_MAX {
        lines.push(format!("  and {} more", differences.len() - SHOWN_MAX));
    }
    Agreement { lines, is_complete: differences.is_empty() }
}

/// Nodes of pods, whatever their order.
fn sorted(on: &[Text]) -> Vec<&str> {
    let mut names: Vec<&str> = on.iter().map(|name| &**name).collect();
    names.sort_unstable();
    names
}
