//! Policies by name, with settings: `Tiresias`, `gain`, `gain:a=0.3,b=4`.
//!
//! Owns the names and the reading of settings; a setting is a decimal number, read exactly. Tests: at the end of this file.

use crate::policies::afs::{AfsAuthors, AfsL};
use crate::policies::afs_p::AfsP;
use crate::policies::ffdl::FfdlOptimizer;
use crate::policies::gain::{CostAwareGain, Knobs, STEPS};
use crate::policies::las::{ElasticTiresias, Queues, Tiresias};
use crate::policies::ordered::{Order, Ordered};
use crate::policies::shares::{MaxMin, Optimus};
use crate::policies::sia::Sia;
use crate::policies::simple::{Elastic, Key, Simple};
use crate::policy::Policy;
use crate::units::{GpuMicros, Micros};

/// Names accepted by [`by_name`], in the order they are best shown: Voda's eight, references, our own. No two differ in
/// case alone. Voda's are also known by the names that published results use for them (`voda-fifo`, `voda-afs-l`, ...).
/// `afs-l`, in that case, is an alias of `afs-l-authors`: queues and published results name it so.
pub const NAMES: &[&str] = &[
    "FIFO",
    "ElasticFIFO",
    "SRJF",
    "ElasticSRJF",
    "Tiresias",
    "ElasticTiresias",
    "FfDLOptimizer",
    "AFS-L",
    "fifo-strict",
    "fifo-backfill",
    "srtf",
    "srsf",
    "sjf",
    "max-min",
    "optimus",
    "afs-l-authors",
    "afs-p",
    "sia",
    "gain",
];

/// Maximum number of characters of an unknown name in a message.
const QUOTED_MAX: usize = 60;

/// A policy cannot be made from its description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No policy has this name.
    #[error("unknown policy {name:?}; known are {}", NAMES.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The policy has no such setting.
    #[error("policy {policy} has no setting {setting:?}; it has {known}")]
    Setting {
        /// Name of the policy.
        policy: String,
        /// The setting asked for.
        setting: String,
        /// What there is.
        known: &'static str,
    },
    /// The value of a setting cannot be used.
    #[error("policy {policy}, setting {setting}: {value:?} is not {wanted}")]
    Value {
        /// Name of the policy.
        policy: String,
        /// The setting.
        setting: String,
        /// The value given.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
}

/// The policy of that description: a name, or a name, a colon and settings `key=value` separated by commas.
///
/// | policy | settings |
/// |---|---|
/// | `Tiresias`, `ElasticTiresias` | `limit` of the top queue in GPU-seconds (3600), `knob` of promotion (8; 0: none) |
/// | `ElasticTiresias` | `compaction`: more pending jobs than this (10) |
/// | `afs-p` | `lease` in seconds (7200) |
/// | `sia` | `p` (power, 0.5 for -0.5), `idle` (penalty, 1.1), `node` (GPUs of a node, 4) |
/// | `gain` | `p`, `a`, `b`, `median`, `theta`, `unsure-theta`, `inertia`, `cap`, `horizon`, `growth`: see [`Knobs`]; `ahead`: GPUs looked ahead at most |
///
/// # Errors
/// No policy has that name, or a setting is not known or has no usable value.
pub fn by_name(description: &str) -> Result<Box<dyn Policy>, NameError> {
    let (name, text) = description.split_once(':').unwrap_or((description, ""));
    let settings = Settings::read(name, text)?;
    Ok(match name {
        "FIFO" | "voda-fifo" => settings.none(Simple { key: Key::Submitted })?,
        "SRJF" | "voda-srjf" => settings.none(Simple { key: Key::Remaining })?,
        "ElasticFIFO" | "voda-elastic-fifo" => settings.none(Elastic { key: Key::Submitted })?,
        "ElasticSRJF" | "voda-elastic-srjf" => settings.none(Elastic { key: Key::Remaining })?,
        "Tiresias" | "voda-tiresias" => settings.tiresias(Some(8))?,
        "voda-tiresias-nopromote" => settings.tiresias(None)?,
        "ElasticTiresias" | "voda-elastic-tiresias" => settings.elastic_tiresias(Some(8))?,
        "voda-elastic-tiresias-nopromote" => settings.elastic_tiresias(None)?,
        "FfDLOptimizer" | "voda-ffdl" => settings.none(FfdlOptimizer)?,
        "AFS-L" | "voda-afs-l" => settings.none(AfsL)?,
        "fifo-strict" => settings.none(Ordered { order: Order::FifoStrict })?,
        "fifo-backfill" => settings.none(Ordered { order: Order::FifoBackfill })?,
        "srtf" => settings.none(Ordered { order: Order::Srtf })?,
        "srsf" => settings.none(Ordered { order: Order::Srsf })?,
        "sjf" => settings.none(Ordered { order: Order::Sjf })?,
        "max-min" => settings.none(MaxMin)?,
        "optimus" => settings.none(Optimus)?,
        "afs-l-authors" | "afs-l" => settings.none(AfsAuthors)?,
        "afs-p" => {
            settings.only(&["lease"], "lease")?;
            Box::new(AfsP { lease: Micros::from_secs(settings.whole("lease", 7200)?) })
        }
        "sia" => {
            settings.only(&["p", "idle", "node"], "p, idle, node")?;
            let usual = Sia::default();
            Box::new(Sia {
                power_milli: settings.milli("p", usual.power_milli)?,
                idle_milli: settings.milli("idle", usual.idle_milli)?,
                node: settings.whole("node", usual.node)?,
            })
        }
        "gain" => Box::new(CostAwareGain { knobs: settings.knobs()? }),
        _ => return Err(NameError::Unknown { name: name.chars().take(QUOTED_MAX).collect() }),
    })
}

/// Settings as written, in order; the last of one key counts.
struct Settings<'t> {
    policy: &'t str,
    pairs: Vec<(&'t str, &'t str)>,
}

impl<'t> Settings<'t> {
    fn read(policy: &'t str, text: &'t str) -> Result<Self, NameError> {
        let pair = |item: &'t str| {
            item.split_once('=').map(|(k, v)| (k.trim(), v.trim())).ok_or_else(|| NameError::Value {
                policy: policy.to_owned(),
                setting: item.to_owned(),
                value: String::new(),
                wanted: "of the form key=value",
            })
        };
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Ok(Self { policy, pairs: items.map(pair).collect::<Result<_, _>>()? })
    }

    fn only(&self, keys: &[&str], known: &'static str) -> Result<(), NameError> {
        match self.pairs.iter().find(|(key, _)| !keys.contains(key)) {
            None => Ok(()),
            Some((key, _)) => {
                Err(NameError::Setting { policy: self.policy.to_owned(), setting: (*key).to_owned(), known })
            }
        }
    }

    fn none(&self, policy: impl Policy + 'static) -> Result<Box<dyn Policy>, NameError> {
        self.only(&[], "none")?;
        Ok(Box::new(policy))
    }

    fn get(&self, key: &str) -> Option<&'t str> {
        self.pairs.iter().rev().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    fn bad(&self, key: &str, value: &str, wanted: &'static str) -> NameError {
        NameError::Value { policy: self.policy.to_owned(), setting: key.to_owned(), value: value.to_owned(), wanted }
    }

    fn whole<N: std::str::FromStr>(&self, key: &str, default: N) -> Result<N, NameError> {
        let parse = |value: &str| value.parse().map_err(|_| self.bad(key, value, "a whole number in range"));
        self.get(key).map_or(Ok(default), parse)
    }

    /// A decimal number of at most three decimals, in thousandths.
    fn milli(&self, key: &str, default: u32) -> Result<u32, NameError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let read = || {
            let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
            let digits = fraction.len() <= 3 && fraction.bytes().all(|b| b.is_ascii_digit());
            let fraction: u32 = if digits { format!("{fraction:0<3}").parse().ok()? } else { return None };
            whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(fraction)
        };
        read().ok_or_else(|| self.bad(key, value, "a number of at most three decimals"))
    }

    fn tiresias(&self, knob: Option<u32>) -> Result<Box<dyn Policy>, NameError> {
        self.only(&["limit", "knob"], "limit, knob")?;
        Ok(Box::new(Tiresias { queues: self.queues(knob)? }))
    }

    fn queues(&self, knob: Option<u32>) -> Result<Queues, NameError> {
        let limit = GpuMicros::from_gpu_secs(self.whole("limit", 3600)?);
        let knob = self.whole("knob", knob.unwrap_or(0))?;
        Ok(Queues { limits: vec![limit], promote_knob: (knob > 0).then_some(knob) })
    }

    fn elastic_tiresias(&self, knob: Option<u32>) -> Result<Box<dyn Policy>, NameError> {
        self.only(&["limit", "knob", "compaction"], "limit, knob, compaction")?;
        Ok(Box::new(ElasticTiresias { queues: self.queues(knob)?, compaction: self.whole("compaction", 10)? }))
    }

    fn knobs(&self) -> Result<Knobs, NameError> {
        let keys = ["p", "a", "b", "median", "theta", "unsure-theta", "inertia", "cap", "horizon", "growth", "ahead"];
        self.only(&keys, "p, a, b, median, theta, unsure-theta, inertia, cap, horizon, growth, ahead")?;
        let usual = Knobs::default();
        let ahead = self.whole("ahead", 16_u32)?;
        let steps: Vec<u32> = STEPS.into_iter().filter(|&step| step <= ahead).collect();
        if steps.is_empty() {
            return Err(self.bad("ahead", "0", "1 or more"));
        }
        let below_one = |key, usual| match self.milli(key, usual)? {
            milli @ 0..1000 => Ok(milli),
            _ => Err(self.bad(key, self.get(key).unwrap_or_default(), "below 1")),
        };
        Ok(Knobs {
            rank_milli: self.milli("p", usual.rank_milli)?,
            work_milli: self.milli("a", usual.work_milli)?,
            median_milli: self.milli("median", usual.median_milli)?,
            theta_milli: below_one("theta", usual.theta_milli)?,
            unsure_theta_milli: below_one("unsure-theta", usual.unsure_theta_milli)?,
            inertia_milli: self.milli("inertia", usual.inertia_milli)?,
            cap_milli: self.milli("cap", usual.cap_milli)?,
            change_milli: self.milli("b", usual.change_milli)?,
            horizon_milli: self.milli("horizon", usual.horizon_milli)?,
            growth: self.whole("growth", usual.growth)?,
            steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_and_prints_itself() {
        for &name in NAMES {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        let aliases = ["voda-fifo", "voda-tiresias-nopromote", "voda-elastic-tiresias-nopromote", "voda-ffdl"];
        assert!(aliases.iter().all(|name| by_name(name).is_ok()));
    }

    #[test]
    fn no_two_names_differ_in_case_alone() {
        let lower: std::collections::BTreeSet<String> = NAMES.iter().map(|name| name.to_ascii_lowercase()).collect();
        assert_eq!(lower.len(), NAMES.len(), "{NAMES:?}");
    }

    #[test]
    fn both_spellings_of_afs_l_keep_their_meaning() {
        assert_eq!(by_name("AFS-L").unwrap().name(), "AFS-L");
        assert_eq!(by_name("afs-l").unwrap().name(), "afs-l-authors");
    }

    #[test]
    fn settings_are_read_exactly() {
        let text = format!("{:?}", by_name("gain:a=0.25,b=4,ahead=2").unwrap());
        assert!(
            text.contains("work_milli: 250,") && text.contains("change_milli: 4000,") && text.contains("steps: [1, 2]"),
            "{text}"
        );
        let text = format!("{:?}", by_name("Tiresias:limit=1800,knob=0").unwrap());
        assert!(text.contains("GpuMicros(1800000000)") && text.contains("promote_knob: None"), "{text}");
    }

    #[test]
    fn bad_descriptions_name_what_is_wrong() {
        let error = |text| by_name(text).unwrap_err().to_string();
        assert!(error("fifo").starts_with("unknown policy \"fifo\"; known are FIFO, "));
        assert_eq!(error("FIFO:x=1"), "policy FIFO has no setting \"x\"; it has none");
        assert_eq!(error("Tiresias:compaction=1"), "policy Tiresias has no setting \"compaction\"; it has limit, knob");
        assert_eq!(error("gain:a=NaN"), "policy gain, setting a: \"NaN\" is not a number of at most three decimals");
        assert_eq!(error("gain:a"), "policy gain, setting a: \"\" is not of the form key=value");
        assert_eq!(error("gain:theta=1"), "policy gain, setting theta: \"1\" is not below 1");
        assert_eq!(error("gain:a=-1"), "policy gain, setting a: \"-1\" is not a number of at most three decimals");
    }
}
