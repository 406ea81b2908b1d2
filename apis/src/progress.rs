//! Progress of a job, in an annotation of its object that its program or a collector writes: the same for every API.
//!
//! Owns the form of the annotation. Each write states the sums since the job was created, so that none is missed. Must not learn
//! from it: `engine::queues` does. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{FieldError, Measurement, Progress};
use serde_json::{Value, json};

use crate::fields::{Findings, join};
use crate::objects::annotation;

/// Annotation of a job with the work it has done, by the number of GPUs that it was done on.
pub const PROGRESS: &str = "trainyard.dev/progress";

/// Path of the annotation.
const PATH: &str = "metadata.annotations[trainyard.dev/progress]";
/// Upper bound of units and GPUs.
const MAX: i64 = i64::MAX;
/// Upper bound of a number of GPUs.
const MAX_GPUS: i64 = 10_000_000;

/// Reads the progress that a job reports; `None` where it reports none, or none that can be read.
pub fn read(object: &Value) -> Option<Progress> {
    let mut findings = Findings::default();
    let progress = find(object, &mut findings)?;
    (!findings.has_errors()).then_some(progress)
}

/// Returns what is wrong with the progress that a job reports.
pub(crate) fn problem(object: &Value) -> Option<FieldError> {
    let mut findings = Findings::default();
    find(object, &mut findings);
    findings.into_errors_and_warnings().0.into_iter().next()
}

fn find(object: &Value, findings: &mut Findings) -> Option<Progress> {
    let text = annotation(object, PROGRESS)?;
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    if !value.is_object() {
        let example = r#"must be a JSON object, for example {"done": 3, "total": 60, "sizes": [{"gpus": 2, "done": 3, "seconds": 90}]}"#;
        findings.error(PATH, Some(&json!(text)), example);
        return None;
    }
    let whole = |findings: &mut Findings, value: &Value, base: &str, key: &str, max: i64| {
        findings.integer(value, base, key, 0, max).and_then(|number| u64::try_from(number).ok())
    };
    let done = whole(findings, &value, PATH, "done", MAX);
    let total = whole(findings, &value, PATH, "total", MAX).filter(|total| *total > 0);
    let mut sizes: BTreeMap<u32, Measurement> = BTreeMap::new();
    let mut sum: u64 = 0;
    for (n, each) in findings.list(&value, PATH, "sizes").iter().enumerate() {
        let base = format!("{PATH}.sizes[{n}]");
        let gpus = whole(findings, each, &base, "gpus", MAX_GPUS).and_then(|gpus| u32::try_from(gpus).ok());
        let units = whole(findings, each, &base, "done", MAX);
        let took_ms = milliseconds(each.get("seconds"));
        for (key, is_missing) in [("gpus", gpus.is_none_or(|gpus| gpus == 0)), ("done", units.is_none())] {
            let path = join(&base, key);
            if is_missing && !findings.has_error_at(&path) {
                findings.error(path, each.get(key), "must be a whole number above 0");
            }
        }
        if took_ms.is_none() {
            findings.error(join(&base, "seconds"), each.get("seconds"), "must be a number of seconds, 0 or more");
        }
        if let (Some(gpus), Some(units), Some(took_ms)) = (gpus, units, took_ms) {
            sizes.entry(gpus).or_default().add(Measurement { units, took_ms });
            sum = sum.saturating_add(units);
        }
    }
    Some(Progress { done: done.unwrap_or(sum), total, sizes })
}

/// Reads a number of seconds, which may have decimals.
fn milliseconds(value: Option<&Value>) -> Option<u64> {
    let seconds = Duration::try_from_secs_f64(value?.as_f64()?).ok()?;
    u64::try_from(seconds.as_millis()).ok()
}

/// Renders the annotation.
pub fn text(progress: &Progress) -> String {
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    let size = |(gpus, measured): (&u32, &Measurement)| json!({"gpus": gpus, "done": measured.units, "seconds": seconds(measured.took_ms)});
    let sizes: Vec<Value> = progress.sizes.iter().map(size).collect();
    let mut value = json!({"done": progress.done, "sizes": sizes});
    if let (Some(total), Some(members)) = (progress.total, value.as_object_mut()) {
        members.insert("total".to_owned(), json!(total));
    }
    model::json::canonical(&value)
}

/// Renders the merge patch of a job object that writes the annotation.
pub fn patch(progress: &Progress) -> Value {
    json!({"metadata": {"annotations": {PROGRESS: text(progress)}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Value {
        json!({"metadata": {"annotations": {PROGRESS: text}}})
    }

    #[test]
    fn what_is_written_is_read_back() {
        let sizes = [(2, Measurement { units: 3, took_ms: 90_500 }), (4, Measurement { units: 8, took_ms: 1000 })];
        for total in [None, Some(60)] {
            let progress = Progress { done: 11, total, sizes: sizes.into() };
            assert_eq!(read(&object(&text(&progress))), Some(progress));
        }
        assert_eq!(read(&json!({})), None);
    }

    #[test]
    fn what_is_done_is_the_sum_where_it_is_not_said() {
        let read = read(&object(
            r#"{"sizes": [{"gpus": 1, "done": 2, "seconds": 9}, {"gpus": 1, "done": 3, "seconds": 1.5}]}"#,
        ));
        let sizes = [(1, Measurement { units: 5, took_ms: 10_500 })].into();
        assert_eq!(read, Some(Progress { done: 5, total: None, sizes }));
    }

    #[test]
    fn nonsense_is_refused_with_its_path() {
        for (text, want) in [
            ("12", ": must be a JSON object, for example {"),
            ("{", ": must be a JSON object, for example {"),
            (r#"{"done": -1}"#, ".done: "),
            (r#"{"done": "many"}"#, ".done: "),
            (r#"{"total": 1.5}"#, ".total: "),
            (r#"{"sizes": 3}"#, ".sizes: "),
            (r#"{"sizes": [{"done": 1, "seconds": 1}]}"#, ".sizes[0].gpus: must be a whole number above 0"),
            (r#"{"sizes": [{"gpus": 0, "done": 1, "seconds": 1}]}"#, ".sizes[0].gpus: must be a whole number above 0"),
            (r#"{"sizes": [{"gpus": 1, "done": 1, "seconds": -4}]}"#, ".sizes[0].seconds: must be a number of seconds"),
            (
                r#"{"sizes": [{"gpus": 1, "done": 1, "seconds": 1e300}]}"#,
                ".sizes[0].seconds: must be a number of seconds",
            ),
        ] {
            assert_eq!(read(&object(text)), None, "{text}");
            let problem = problem(&object(text)).unwrap().to_string();
            assert!(problem.starts_with(&format!("{PATH}{want}")), "{problem}");
        }
    }
}
