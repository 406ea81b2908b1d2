//! The autoscaler of TorchElastic: its bounds in a spec, the line of a log that it measures by, and its state in a status.
//!
//! Owns the words of `status.elasticScalingStatues` and the format of the line. It must not decide about sizes: the engine does. Tests:
//! at the end of this file, `tests/spec.rs`, and the scenarios `autoscaler-*`.

use engine::Job;
use model::{Autoscaler, Scaling, ScalingCondition, Text, Timestamp};
use serde_json::{Map, Value, json};

use super::constants::Task;
use super::tasks::TaskSpec;
use crate::conditions::time;
use crate::objects::{at, text_at};
use crate::replicas::count_of;

/// Annotation on a job: workers that were started for another number of workers may be restarted.
pub(super) const RESTART: &str = "distributed.io/ready-to-restart-worker";
/// Member of a status, as the original spells it.
pub(super) const STATUSES: &str = "elasticScalingStatues";
/// Container whose log is read.
pub(super) const CONTAINER: &str = super::constants::CONTAINER;

/// Conditions by their words.
const CONDITIONS: [(&str, ScalingCondition); 5] = [
    ("Start", ScalingCondition::Start),
    ("Continue", ScalingCondition::Continue),
    ("ReachMaxMetric", ScalingCondition::ReachMaxMetric),
    ("ReachMaxReplicas", ScalingCondition::ReachMaxReplicas),
    ("Stop", ScalingCondition::Stop),
];

/// Upper bound of a measurement in microseconds. A longer step is no measurement: the original dropped it.
const MAX_US: u64 = 1_000_000;
/// Word of a line with a measurement.
const MARK: &str = "Epoch";
/// Number of fields of such a line, which tabs separate.
const FIELDS: usize = 6;

/// Returns the settings of a job whose launcher has these bounds; `None` where one is missing, or there are no workers.
pub(super) fn settings(tasks: &[TaskSpec<'_>], bounds: (Option<u32>, Option<u32>)) -> Option<Box<Autoscaler>> {
    let (Some(min), Some(max)) = bounds else { return None };
    let has_workers = tasks.iter().any(|task| task.task == Task::Worker);
    has_workers.then(|| Box::new(Autoscaler { group: Text::from(Task::Worker.lower()), min, max }))
}

/// Reads the time of a step from the last line of a log, in microseconds. Source of the format: `PyTorch`'s training of `ImageNet`.
pub(super) fn latency_us(log: &str) -> Option<u64> {
    let line = log.trim_end_matches(['\r', '\n']).rsplit('\n').next().unwrap_or_default();
    let fields: Vec<&str> = line.split('\t').collect();
    let field = |n: usize| fields.get(n).copied().unwrap_or_default();
    let is_measurement = fields.len() >= FIELDS
        && field(0).contains(MARK)
        && find(field(0), (2, 4), None).is_some()
        && find(field(5), (1, 2), Some((1, 2))).is_some();
    let number = find(field(1), (1, 2), Some((3, 3))).filter(|_| is_measurement)?;
    let (whole, decimals) = number.split_once('.')?;
    let thousandths = whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(decimals.parse().ok()?)?;
    Some(thousandths.saturating_mul(1000)).filter(|us| *us <= MAX_US)
}

/// Least and greatest number of digits.
type Digits = (usize, usize);

/// Returns the first number in a text with these digits before one character of any kind, and after it where that is asked for.
fn find(text: &str, before: Digits, after: Option<Digits>) -> Option<&str> {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
    let starts = text.char_indices().map(|(start, _)| start);
    starts.filter_map(|start| text.get(start..)).find_map(|rest| {
        let most = digits(rest).min(before.1);
        (before.0..=most).rev().find_map(|count| {
            let Some((least, greatest)) = after else { return rest.get(..count) };
            let separator = rest.get(count..)?.chars().next()?.len_utf8();
            let begin = count.saturating_add(separator);
            let decimals = digits(rest.get(begin..)?).min(greatest);
            if decimals < least { None } else { rest.get(..begin.saturating_add(decimals)) }
        })
    })
}

/// Renders the member of a status; `None` for a job without an autoscaler.
pub(super) fn statuses(job: &Job) -> Option<Value> {
    let Scaling { condition, continues, replicas, last, at, message } = &job.autoscaler.as_ref()?.scaling;
    let (word, _) = CONDITIONS.into_iter().find(|(_, known)| known == condition)?;
    let mut status = Map::new();
    let mut add = |key: &str, value: Value| status.insert(key.to_owned(), value);
    add("elasticCondition", json!(word));
    if *continues {
        add("continue", json!(true));
    }
    add("curReplicas", json!(replicas));
    if *last > 0 {
        add("lastReplicas", json!(last));
    }
    add("lastUpdateTime", time(*at));
    if !message.is_empty() {
        add("message", json!(message));
    }
    Some(json!({ Task::Worker.name(): status }))
}

/// Reads that member of a status that the original operator wrote.
pub(super) fn adopt(object: &Value) -> Option<Box<Scaling>> {
    let status = at(object, &["status", STATUSES, Task::Worker.name()])?;
    let word = text_at(status, &["elasticCondition"])?;
    let (_, condition) = CONDITIONS.into_iter().find(|(known, _)| *known == word)?;
    let count = |key: &str| status.get(key).and_then(count_of).unwrap_or_default();
    Some(Box::new(Scaling {
        condition,
        continues: status.get("continue").and_then(Value::as_bool).unwrap_or_default(),
        replicas: count("curReplicas"),
        last: count("lastReplicas"),
        at: text_at(status, &["lastUpdateTime"]).and_then(Timestamp::parse_rfc3339).unwrap_or_default(),
        message: Text::from(text_at(status, &["message"]).unwrap_or_default()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with this time and accuracy.
    fn line(time: &str, accuracy: &str) -> String {
        format!(
            "Epoch: [3][ 40/391]\tTime {time} (none)\tData  0.001 ( 0.002)\tLoss 2.1e+00\tAcc@1  40.63\tAcc@5 {accuracy}"
        )
    }

    #[test]
    fn the_last_line_has_the_time_of_a_step() {
        for (time, want) in [
            (" 0.123", Some(123_000)),
            (" 1.000", Some(1_000_000)),
            (" 1.001", None),
            ("12.345", None),
            ("  .123", None),
            (" 0.12", None),
            (" 0:123", None),
            ("123.456", None),
            ("x0.0405", Some(40_000)),
        ] {
            assert_eq!(latency_us(&line(time, "75.00 ( 70.21)")), want, "{time}");
        }
        let log = format!("{}\nEpoch done\n{}\r\n", line("0.9000", "1.0"), line("0.2500", "1.0"));
        assert_eq!(latency_us(&log), Some(250_000));
    }

    #[test]
    fn what_is_no_such_line_has_none() {
        let good = line("0.123", "75.0");
        for bad in [
            "",
            "\n",
            "Epoch: [3][ 40/391]\tTime 0.123",
            "loss 0.3",
            &good.replace("Epoch", "Step"),
            &good.replace("Epoch: [3][ 40/391]", "Epoch: [3][4]"),
            &good.replace("Acc@5 75.0", "Acc@5 none"),
            &format!("{good}\nsaved a checkpoint"),
        ] {
            assert_eq!(latency_us(bad), None, "{bad}");
        }
    }
}
