//! Translation of a job object's spec: reading, checks against the schema as it is meant, and the manifest, alike for every API.
//!
//! It must not give a field a meaning. Tests: each API's `tests/spec.rs` and `tests/refusals.rs`.

use model::{EndTiming, JobEndPolicy, JobKey, JobSpec, Milestones, Phase, PhaseRules, Running, SpecFact, Text};
use serde_json::{Value, json};

use crate::api::{JobApi, Referenced};
use crate::fields::{Finding, Findings};
use crate::{bounds, checkpoint, demand, kueue, schema};

/// Translates the spec of a job object: what its API reads of it, what its pods ask a queue for, and the Workload of Kueue. An object
/// beyond the bounds is refused before anything else looks into it.
pub fn spec_fact(api: &dyn JobApi, key: &JobKey, object: &Value, referenced: &Referenced) -> SpecFact {
    let mut findings = Findings::default();
    bounds::check(object, &mut findings);
    if findings.has_errors() {
        return SpecFact::refused(findings.into_errors_and_warnings().0);
    }
    let mut fact = match api.references() {
        Some(references) => references.spec_fact_with(object, referenced),
        None => api.spec_fact(object),
    };
    checkpoint::add(api, object, &mut fact);
    demand::add(api, key, object, &mut fact);
    bounds::check_gpus(&mut fact);
    kueue::add(api, key, object, &mut fact);
    fact
}

/// Returns what the translation of an object depends on besides what its API reads ([`JobApi::spec_inputs`]).
pub fn inputs(object: &Value) -> Value {
    json!([demand::inputs(object), checkpoint::grace_period(object)])
}

/// Reader of an API's specs.
#[derive(Debug, Clone, Copy)]
pub struct Translation {
    /// Reads the spec of an object, and adds what is to be said of it.
    pub read: fn(&Value, &mut Findings) -> Option<JobSpec>,
    /// Returns the schema of `spec` as it is meant.
    pub schema: fn() -> &'static Value,
    /// Returns what pods and services are rendered from.
    pub manifest: fn(&Value) -> Value,
}

impl Translation {
    /// Reads the spec of a job object. What cannot be accepted is field errors inside the fact.
    pub fn fact(&self, object: &Value) -> SpecFact {
        let (spec, findings) = self.examine(object);
        let (errors, warnings) = findings.into_errors_and_warnings();
        match spec {
            Some(spec) if errors.is_empty() => {
                let manifest = Text::from(model::json::canonical(&(self.manifest)(object)));
                SpecFact { warnings, ..SpecFact::of(Ok(spec), manifest) }
            }
            Some(_) | None => SpecFact { warnings, ..SpecFact::refused(errors) },
        }
    }

    /// Returns everything that is to be said of the spec of a job object.
    pub fn findings(&self, object: &Value) -> Vec<Finding> {
        self.examine(object).1.into_list()
    }

    fn examine(&self, object: &Value) -> (Option<JobSpec>, Findings) {
        let mut findings = Findings::default();
        let spec = (self.read)(object, &mut findings);
        findings.merge(schema::check((self.schema)(), object.get("spec").unwrap_or(&Value::Null), "spec"));
        (spec, findings)
    }
}

/// Returns the spec of an object that has no pods and never ends: to the engine, a job without groups.
pub fn without_groups() -> JobSpec {
    JobSpec {
        complete: JobEndPolicy::None,
        fail: JobEndPolicy::None,
        end_annotation: false,
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: false,
            running: Running::All,
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::Latest,
            queued: false,
        },
        ..JobSpec::default()
    }
}

/// Spells the phase of such an object: it is active once it is known.
pub const fn active(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        Phase::Pending
        | Phase::Creating
        | Phase::Running
        | Phase::Restarting
        | Phase::Terminating
        | Phase::Succeeded
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed
        | Phase::Suspended
        | Phase::Preparing
        | Phase::Queued => "Active",
    }
}

/// Returns the `spec` of a job object; `None` when it is no object.
pub fn spec_of<'a>(object: &'a Value, findings: &mut Findings) -> Option<&'a Value> {
    let spec = object.get("spec");
    let found = spec.filter(|spec| spec.is_object());
    if found.is_none() {
        findings.error("spec", spec, "must be an object with replicaSpecs");
    }
    found
}
