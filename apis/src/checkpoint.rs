//! Grace period of checkpoints: the annotation by which a job of any API asks for time to save before its pods are killed.
//!
//! Owns the annotation and its bounds. It must not decide which deletions have this period: `engine` does. Tests: at the end of this file.

use model::{FieldError, SpecFact};
use serde_json::{Value, json};
use settings::duration;

use crate::objects::annotation;

/// Annotation of a job with the time that its pods have from SIGTERM to SIGKILL where they are deleted for no failure: preempted,
/// suspended, resized. A duration such as `90s` or `5m`.
pub const GRACE_PERIOD: &str = "trainyard.dev/checkpoint-grace-period";

/// Path of the annotation.
const PATH: &str = "metadata.annotations[trainyard.dev/checkpoint-grace-period]";
/// Upper bound in seconds: a day.
const MAX_SECONDS: u32 = 86_400;
/// What is wrong with another value.
const PROBLEM: &str = "must be a duration of 1s to 24h, for example 90s or 5m";

/// Returns the annotation as it is written.
pub(crate) fn grace_period(object: &Value) -> Option<&str> {
    annotation(object, GRACE_PERIOD)
}

/// Returns the grace period that an object asks for, in seconds.
///
/// # Errors
/// Returns an error if the annotation is no duration within the bounds. A period of 0 would kill the pods at once, and leave them no
/// time at all.
pub(crate) fn grace_seconds(object: &Value) -> Result<Option<u32>, FieldError> {
    let Some(text) = grace_period(object) else { return Ok(None) };
    let seconds = duration::parse_ms(text).ok().and_then(|ms| u32::try_from(ms.div_ceil(1000)).ok());
    match seconds.filter(|seconds| (1..=MAX_SECONDS).contains(seconds)) {
        Some(seconds) => Ok(Some(seconds)),
        None => Err(FieldError::new(PATH, json!(text).to_string(), PROBLEM)),
    }
}

/// Adds the grace period that an object asks for to its translated spec. A value that cannot be read is an error of the spec, as a wrong
/// field is. Another controller deletes the pods of an externally managed job: a remark says so.
pub(crate) fn add(object: &Value, fact: &mut SpecFact) {
    match (grace_seconds(object), &mut fact.spec) {
        (Ok(None), _) | (Ok(Some(_)), Err(_)) => {}
        (Ok(Some(_)), Ok(spec)) if spec.externally_managed => {
            let problem = "has no effect: another controller deletes the pods of this job, with the grace period of their template";
            let text = grace_period(object).unwrap_or_default();
            fact.warnings.push(FieldError::new(PATH, json!(text).to_string(), problem));
        }
        (Ok(seconds), Ok(spec)) => spec.checkpoint_grace_seconds = seconds,
        (Err(error), Ok(_)) => fact.spec = Err(vec![error]),
        (Err(error), Err(errors)) => errors.push(error),
    }
}

#[cfg(test)]
mod tests {
    use model::{JobSpec, Text};

    use super::*;

    fn object(text: &str) -> Value {
        json!({"metadata": {"annotations": {GRACE_PERIOD: text}}})
    }

    #[test]
    fn a_period_is_a_duration_of_a_second_to_a_day() {
        for (text, want) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("24h", 86_400), ("1500ms", 2), ("1ms", 1)] {
            assert_eq!(grace_seconds(&object(text)).unwrap(), Some(want), "{text}");
        }
        assert_eq!(grace_seconds(&json!({})).unwrap(), None);
        for text in ["", "0", "0s", "60", "24h1ms", "-5s", "soon", "1d", "\u{1b}[31m"] {
            let error = grace_seconds(&object(text)).unwrap_err();
            assert_eq!((error.path.as_str(), error.problem.as_str()), (PATH, PROBLEM), "{text}");
            assert_eq!(error.value, json!(text).to_string());
        }
    }

    #[test]
    fn it_is_a_part_of_the_spec_and_a_wrong_one_is_an_error_of_it() {
        let fact = |spec| SpecFact::of(spec, Text::from("{}"));
        let mut right = fact(Ok(JobSpec::default()));
        add(&object("2m"), &mut right);
        assert_eq!(right.spec.unwrap().checkpoint_grace_seconds, Some(120));
        let mut wrong = fact(Ok(JobSpec::default()));
        add(&object("x"), &mut wrong);
        assert_eq!(wrong.spec.unwrap_err().len(), 1);
        let mut refused = fact(Err(vec![FieldError::new("spec", "1", "is wrong")]));
        add(&object("x"), &mut refused);
        assert_eq!(refused.spec.unwrap_err().len(), 2);
        let mut external = fact(Ok(JobSpec { externally_managed: true, ..JobSpec::default() }));
        add(&object("2m"), &mut external);
        assert_eq!((external.spec.unwrap().checkpoint_grace_seconds, external.warnings.len()), (None, 1));
    }
}
