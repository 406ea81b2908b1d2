//! Simulates: jobs arrive, run, change size and end in virtual time, as a policy decides.
//!
//! Owns time, progress and what is recorded. It must not decide which job gets GPUs, and reads no clock. Tests: `tests/published.rs`
//! and at the end of each file.

mod clock;
mod estimator;
mod knowledge;
mod live;
mod outcome;
mod placed_jobs;
mod run;
mod scheduling;

pub use knowledge::{Knowledge, SizeKnowledge, SpeedKnowledge};
pub use outcome::{JobRecord, Places, Sample, SizeChange, StudyOutcome};
pub use run::{Error, run};
pub use scheduling::{ClusterSetup, Workers};

use scheduler::Micros;

/// Settings with which a trace is played.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Things happen at whole multiples of this: a job that ends in between is noticed at the next. Never zero.
    pub tick: Micros,
    /// Decisions fall on whole multiples of this; `None`: at every arrival, end, and wish of the policy.
    pub round: Option<Micros>,
    /// Time without progress after every start and every change of size.
    pub restart_cost: Micros,
    /// Share of its speed, in thousandths, that a job loses per node it spans beyond the fewest that could hold it;
    /// `None`: placement is not simulated.
    pub spread_loss_milli: Option<u32>,
    /// Cluster on which `scheduler::scheduling` decides, as in the operator; `None`: the policy alone decides, as in published studies.
    pub setup: Option<Box<ClusterSetup>>,
    /// Knowledge of the decisions.
    pub knowledge: Knowledge,
    /// True if every change of size is recorded, as the report needs it.
    pub keep_changes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tick: Micros::from_secs(1),
            round: None,
            restart_cost: Micros::ZERO,
            spread_loss_milli: None,
            setup: None,
            knowledge: Knowledge::default(),
            keep_changes: false,
        }
    }
}

impl Settings {
    /// Returns the settings in words, for tables and reports.
    pub fn words(&self) -> String {
        let when =
            self.round.map_or_else(|| "decisions at events".to_owned(), |round| format!("rounds of {}", span(round)));
        let mut words = vec![when, format!("restarts {}", span(self.restart_cost))];
        match self.knowledge.sizes {
            SizeKnowledge::Exact => {}
            SizeKnowledge::Noisy { sigma_milli, seed } => {
                words.push(format!(
                    "sizes off by sigma {}.{:03} (seed {seed})",
                    sigma_milli / 1000,
                    sigma_milli % 1000
                ));
            }
            SizeKnowledge::Unknown => words.push("sizes unknown".to_owned()),
        }
        if self.knowledge.speeds == SpeedKnowledge::Learnt {
            words.push("speeds learnt".to_owned());
        }
        if self.setup.is_some() {
            words.push("decided as the operator does".to_owned());
        }
        if let Some(loss) = self.spread_loss_milli {
            words.push(format!("placed on nodes, {}.{} % lost per node too many", loss / 10, loss % 10));
        }
        words.join("; ")
    }
}

fn span(time: Micros) -> String {
    format!("{} s", crate::summary::seconds(time))
}
