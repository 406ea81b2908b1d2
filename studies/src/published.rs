//! Published results of other simulators, how each of their rows is played here, and how near ours must come.
//!
//! Owns the file format, the tolerances and the comparison. Rows that this simulator does not claim to reproduce say why.
//! Tests: at the end of this file; the comparison itself in `tests/published.rs` (small traces) and `examples/study_bench.rs`
//! (all).

use std::io::Read;

use scheduler::Micros;

use super::input::Error;
use super::input::decimal::parse_nano;
use super::sim::Settings;
use super::summary::Summary;

/// One row of published results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The simulator, or cluster, it comes from.
    pub simulator: String,
    /// The trace, as a path below the directory of traces.
    pub trace: String,
    /// GPUs.
    pub gpus: u32,
    /// The policy, by that simulator's name.
    pub policy: String,
    /// Configuration of the run.
    pub config: String,
    /// Times in billionths of a second, in the order of [`TIMES`]; `None` where the row says nothing.
    pub times: [Option<u64>; TIMES.len()],
}

/// Columns that are compared.
pub const TIMES: [&str; 7] =
    ["avg_jct_s", "median_jct_s", "p90_jct_s", "p95_jct_s", "p99_jct_s", "max_jct_s", "makespan_s"];

/// Configuration with which a published row is reproduced.
#[derive(Debug, Clone)]
pub enum Plan {
    /// Like this.
    Play(Play),
    /// Not at all, for this reason.
    Skip(&'static str),
}

/// A study whose result should be the published one.
#[derive(Debug, Clone)]
pub struct Play {
    /// Name of the policy here.
    pub policy: String,
    /// The profile, as a path below the directory of traces.
    pub profile: Option<&'static str>,
    /// Settings of the run.
    pub settings: Settings,
    /// Tolerated difference.
    pub tolerance: Tolerance,
}

/// Tolerated difference between our result and a published row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// Every time as printed.
    Equal,
    /// Mean, median, 90th and 95th percentile within a second. Single jobs, which make the times beyond, within five: the
    /// other simulator's floats make a job that was halted late by up to a second each time.
    Second,
    /// The average within this many thousandths of a percent.
    Average(u32),
    /// Reported, but not compared, for this reason.
    Reported(&'static str),
}

impl Published {
    /// Reads all rows; `name` is what complaints call the file.
    ///
    /// # Errors
    /// The input cannot be read, lacks a column, or has a malformed row.
    pub fn read(name: &str, input: impl Read) -> Result<Vec<Self>, Error> {
        let table = super::input::open_table(name, input)?;
        let text = ["simulator", "trace", "policy", "config"].map(|column| table.need(column));
        let [simulator, trace, policy, config] = text;
        let (simulator, trace, policy, config) = (simulator?, trace?, policy?, config?);
        let gpus = table.need("gpus")?;
        let times = TIMES.map(|column| table.need(column));
        let times = times.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (rows, _) = table.rows(super::input::OnBadRow::Refuse, |row| {
            let mut read = [None; TIMES.len()];
            for (slot, &column) in read.iter_mut().zip(&times) {
                let value = row.text(column);
                if !value.is_empty() {
                    *slot = Some(parse_nano(value).map_err(|problem| row.bad(column, problem))?);
                }
            }
            Ok(Self {
                simulator: row.text(simulator).to_owned(),
                trace: row.text(trace).to_owned(),
                gpus: row.gpus(gpus)?,
                policy: row.text(policy).to_owned(),
                config: row.text(config).to_owned(),
                times: read,
            })
        })?;
        Ok(rows)
    }

    /// Returns the settings to play it with.
    pub fn plan(&self) -> Plan {
        let profile = if self.trace.starts_with("philly_vc/") {
            "profiles/afs_models.csv"
        } else {
            "profiles/pollux_t4_fixed_batch.csv"
        };
        match self.simulator.as_str() {
            "tiresias-sim" if !self.config.starts_with("scheme=count") => {
                Plan::Skip("its placement by switch and node is not rebuilt")
            }
            "tiresias-sim" if self.policy.contains("gittins") => {
                Plan::Skip("needs that simulator's table of past durations")
            }
            "tiresias-sim" if self.policy == "lpjf" => Plan::Skip("called unusable by its authors"),
            "tiresias-sim" => {
                let exact = self.trace == "tiresias_60.csv";
                let tolerance = if exact { Tolerance::Equal } else { Tolerance::Second };
                play(format!("tiresias-sim:{}", self.policy), None, Settings::default(), tolerance)
            }
            "afs-sim" | "voda-port-on-afs-sim" => {
                play(self.policy.clone(), Some(profile), Settings::default(), of_afs_sim(&self.policy))
            }
            "pollux-sim" if self.policy == "tiresias" => {
                let (round, restart_cost) = (Some(Micros::from_secs(60)), Micros::from_secs(30));
                let settings = Settings { round, restart_cost, ..Settings::default() };
                // Compared as the mean over the workloads, by the caller that plays them all.
                play(self.policy.clone(), Some(profile), settings, Tolerance::Average(5000))
            }
            "pollux-sim" => Plan::Skip("tunes batch sizes and fits speeds while it runs"),
            _ => Plan::Skip("measured on a real cluster"),
        }
    }
}

fn play(policy: String, profile: Option<&'static str>, settings: Settings, tolerance: Tolerance) -> Plan {
    Plan::Play(Play { policy, profile, settings, tolerance })
}

fn of_afs_sim(policy: &str) -> Tolerance {
    match policy {
        "fifo-backfill" | "srtf" | "srsf" => Tolerance::Second,
        rigid if rigid.starts_with("tiresias-las-") => Tolerance::Second,
        "afs-p" => Tolerance::Reported("draws at random"),
        tiresias if tiresias.contains("tiresias") => Tolerance::Average(5000),
        voda if voda.starts_with("voda-") => Tolerance::Average(1000),
        _ => Tolerance::Average(100),
    }
}

/// The times of a summary in the order of [`TIMES`], in billionths of a second.
pub fn times(summary: &Summary) -> [u64; TIMES.len()] {
    let p = &summary.completion;
    let average = u128::from(summary.total_completion.0) * 1000 / summary.jobs.max(1) as u128;
    let average = u64::try_from(average).unwrap_or(u64::MAX);
    let nano = |t: Micros| t.0.saturating_mul(1000);
    [average, nano(p.median), nano(p.p90), nano(p.p95), nano(p.p99), nano(p.max), nano(summary.makespan)]
}

impl Tolerance {
    /// Returns whether `ours` is near enough to the published times; in billionths of a second.
    pub fn holds(self, ours: &[u64; TIMES.len()], theirs: &[Option<u64>; TIMES.len()]) -> bool {
        // Published numbers are rounded to tenths or hundredths.
        const ROUNDING: u64 = 50_000_000;
        let within = |limit: fn(usize) -> u64| {
            let near = |(i, (&ours, &theirs)): (usize, (&u64, &Option<u64>))| {
                theirs.is_none_or(|theirs| ours.abs_diff(theirs) <= limit(i) + ROUNDING)
            };
            ours.iter().zip(theirs).enumerate().all(near)
        };
        match self {
            Self::Equal => within(|_| 0),
            Self::Second => within(|i| if i < 4 { 1_000_000_000 } else { 5_000_000_000 }),
            Self::Average(share) => match theirs[0] {
                None => true,
                Some(theirs) => {
                    let limit = u128::from(theirs) * u128::from(share) / 100_000;
                    u128::from(ours[0].abs_diff(theirs)) <= limit + u128::from(ROUNDING)
                }
            },
            Self::Reported(_) => true,
        }
    }

    /// In words.
    pub fn words(self) -> String {
        match self {
            Self::Equal => "equal".to_owned(),
            Self::Second => "1 s".to_owned(),
            Self::Average(share) => format!("{}.{} %", share / 1000, share % 1000 / 100),
            Self::Reported(why) => format!("reported: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "simulator,trace,gpus,policy,config,avg_jct_s,median_jct_s,p90_jct_s,p95_jct_s,p99_jct_s,max_jct_s,makespan_s";

    fn row(text: &str) -> Published {
        let rows = Published::read("r.csv", format!("{HEADER}\n{text}\n").as_bytes()).unwrap();
        rows.into_iter().next().unwrap()
    }

    #[test]
    fn rows_are_planned_by_what_they_are() {
        let count = row("tiresias-sim,tiresias_60.csv,8,fifo,scheme=count cluster=n2g4,1556.48,1415.5,1,1,1,3997,5747");
        let Plan::Play(play) = count.plan() else { panic!("played") };
        assert_eq!((play.policy.as_str(), play.profile, play.tolerance), ("tiresias-sim:fifo", None, Tolerance::Equal));
        let yarn = row("tiresias-sim,tiresias_60.csv,8,fifo,scheme=yarn cluster=n2g4,1,1,1,1,1,1,1");
        assert!(matches!(yarn.plan(), Plan::Skip(_)));
        let afs = row("afs-sim,philly_vc/x.csv,64,afs-l,,1,1,1,1,1,1,1");
        let Plan::Play(play) = afs.plan() else { panic!("played") };
        assert_eq!((play.profile, play.tolerance), (Some("profiles/afs_models.csv"), Tolerance::Average(100)));
        let pollux = row("pollux-sim,pollux/pollux_w1.csv,64,tiresias,,2473.65,,,,,,");
        assert_eq!(pollux.times[1], None);
        let Plan::Play(play) = pollux.plan() else { panic!("played") };
        assert_eq!(play.settings.round, Some(Micros::from_secs(60)));
    }

    #[test]
    fn tolerances_hold_up_to_their_limit_and_no_further() {
        let theirs = [Some(1_000_000_000_000); TIMES.len()];
        let ours = |delta: u64| [1_000_000_000_000 + delta; TIMES.len()];
        assert!(Tolerance::Equal.holds(&ours(40_000_000), &theirs));
        assert!(!Tolerance::Equal.holds(&ours(100_000_000), &theirs));
        assert!(Tolerance::Second.holds(&ours(1_000_000_000), &theirs));
        assert!(!Tolerance::Second.holds(&ours(1_100_000_000), &theirs));
        assert!(Tolerance::Average(100).holds(&ours(1_000_000_000), &theirs));
        assert!(!Tolerance::Average(100).holds(&ours(1_100_000_000), &theirs));
    }
}
