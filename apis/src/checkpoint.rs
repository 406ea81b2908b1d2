//! Grace period of checkpoints: the annotation by which a job of any API asks for time to save before its pods are killed.
//!
//! Owns the annotation and its bounds. It must not decide which deletions have this period: `engine` does. Tests: at the end of this file.

use model::SpecFact;
use serde_json::{Value, json};
use settings::duration;

use crate::api::JobApi;
use crate::fields::Findings;
use crate::objects::annotation;

/// Annotation of a job with the time that its pods have from SIGTERM to SIGKILL where they are deleted for no failure: preempted,
/// suspended, resized. A duration such as `90s` or `5m`.
pub const GRACE_PERIOD: &str = "trainyard.dev/checkpoint-grace-period";

/// Path of the annotation.
const PATH: &str = "metadata.annotations[trainyard.dev/checkpoint-grace-period]";
/// Upper bound in seconds: a day.
const MAX_SECONDS: u32 = 86_400;
/// Problem of any other value.
const PROBLEM: &str = "must be a duration of 1s to 24h, for example 90s or 5m";
/// Problem of the annotation on a job whose pods another controller deletes.
const NO_EFFECT: &str =
    "has no effect: another controller deletes the pods of this job, with the grace period of their template";

/// Returns the annotation as it is written.
pub(crate) fn grace_period(object: &Value) -> Option<&str> {
    annotation(object, GRACE_PERIOD)
}

/// Reads the grace period that a job asks for, in seconds. A value that is no duration within the bounds is an error: with a period of 0
/// the pods would be killed at once.
pub(crate) fn grace_seconds(api: &dyn JobApi, object: &Value, findings: &mut Findings) -> Option<u32> {
    let text = grace_period(object)?;
    let seconds = duration::parse_ms(text).ok().and_then(|ms| u32::try_from(ms.div_ceil(1000)).ok());
    let seconds = seconds.filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
    if seconds.is_none() {
        findings.error(PATH, Some(&json!(text)), PROBLEM);
    } else if api.is_external() {
        findings.warn(PATH, Some(&json!(text)), NO_EFFECT);
    }
    seconds.filter(|_| !api.is_external())
}

/// Adds the grace period that a job asks for to its translated spec, and what is wrong with it.
pub(crate) fn add(api: &dyn JobApi, object: &Value, fact: &mut SpecFact) {
    let mut findings = Findings::default();
    let seconds = grace_seconds(api, object, &mut findings);
    let (errors, warnings) = findings.into_errors_and_warnings();
    fact.warnings.extend(warnings);
    match &mut fact.spec {
        Ok(spec) if errors.is_empty() => spec.checkpoint_grace_seconds = seconds,
        Ok(_) => fact.spec = Err(errors),
        Err(known) => known.extend(errors),
    }
}

#[cfg(test)]
mod tests {
    use model::{FieldError, JobSpec, Text};

    use super::*;
    use crate::elasticjob::ElasticJob;
    use crate::mpijob::MpiJob;

    fn object(text: &str) -> Value {
        json!({"metadata": {"annotations": {GRACE_PERIOD: text}}})
    }

    /// Reads the annotation of a job, with the errors and the remarks on it.
    fn read(api: &dyn JobApi, object: &Value) -> (Option<u32>, Vec<FieldError>, Vec<FieldError>) {
        let mut findings = Findings::default();
        let seconds = grace_seconds(api, object, &mut findings);
        let (errors, warnings) = findings.into_errors_and_warnings();
        (seconds, errors, warnings)
    }

    #[test]
    fn a_period_is_a_duration_of_a_second_to_a_day() {
        for (text, want) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("24h", 86_400), ("1500ms", 2), ("1ms", 1)] {
            assert_eq!(read(&ElasticJob, &object(text)), (Some(want), vec![], vec![]), "{text}");
        }
        assert_eq!(read(&ElasticJob, &json!({})), (None, vec![], vec![]));
        for text in ["", "0", "0s", "60", "24h1ms", "-5s", "soon", "1d", "\u{1b}[31m"] {
            let error = FieldError::new(PATH, json!(text).to_string(), PROBLEM);
            assert_eq!(read(&ElasticJob, &object(text)), (None, vec![error], vec![]), "{text}");
        }
    }

    #[test]
    fn it_has_no_effect_where_another_controller_deletes_the_pods() {
        let remark = FieldError::new(PATH, "\"2m\"", NO_EFFECT);
        assert_eq!(read(&MpiJob, &object("2m")), (None, vec![], vec![remark]));
        assert_eq!(read(&MpiJob, &object("x")).1.len(), 1, "a wrong value is wrong all the same");
    }

    #[test]
    fn it_is_a_part_of_the_spec_and_a_wrong_one_is_an_error_of_it() {
        let fact = |spec| SpecFact::of(spec, Text::from("{}"));
        let mut right = fact(Ok(JobSpec::default()));
        add(&ElasticJob, &object("2m"), &mut right);
        assert_eq!(right.spec.unwrap().checkpoint_grace_seconds, Some(120));
        let mut wrong = fact(Ok(JobSpec::default()));
        add(&ElasticJob, &object("x"), &mut wrong);
        assert_eq!(wrong.spec.unwrap_err().len(), 1);
        let mut refused = fact(Err(vec![FieldError::new("spec", "1", "is wrong")]));
        add(&ElasticJob, &object("x"), &mut refused);
        assert_eq!(refused.spec.unwrap_err().len(), 2);
        let mut external = fact(Ok(JobSpec { externally_managed: true, ..JobSpec::default() }));
        add(&MpiJob, &object("2m"), &mut external);
        assert_eq!((external.spec.unwrap().checkpoint_grace_seconds, external.warnings.len()), (None, 1));
    }
}
