//! TrainingQueue object -> [`QueueSpec`], with defaults. Must not render anything. Tests: `tests.rs`.

use std::collections::BTreeMap;

use model::{JobSpec, QueueSpec, QuotaSpec, Reclaim, SpecFact, Text, WithinQueue};
use serde_json::{Value, json};

use super::crd::spec_schema;
use super::nodes;
use crate::fields::{Findings, Unknown, Word, join};
use crate::namespace_selector;
use crate::objects::at;
use crate::template::is_gpu;
use crate::translation::{self, Translation};

/// Values of `order`.
pub(super) const ORDERS: [Word<bool>; 2] = [("Priority", true), ("Submission", false)];
/// Values of `placement`.
pub(super) const PLACEMENTS: [Word<bool>; 2] = [("Pack", false), ("Spread", true)];
/// Values of `preemption.withinQueue`.
pub(super) const WITHIN: [Word<WithinQueue>; 3] =
    [("Never", WithinQueue::Never), ("LowerPriority", WithinQueue::LowerPriority), ("Any", WithinQueue::Any)];
/// Values of `preemption.reclaim`.
pub(super) const RECLAIM: [Word<Reclaim>; 3] =
    [("Never", Reclaim::Never), ("LowerPriority", Reclaim::LowerPriority), ("Any", Reclaim::Any)];
/// Policy of a queue that names none.
pub(super) const DEFAULT_POLICY: &str = "fifo-backfill";

const MAX_SECONDS: i64 = 1_000_000_000;
const MAX_GPUS: i64 = 10_000_000;

/// Reads specs of this API.
pub(super) const TRANSLATION: Translation = Translation { read, schema: spec_schema, manifest };

/// Reads a queue object. The manifest gives its generation even where the spec cannot be accepted.
pub(super) fn fact(object: &Value) -> SpecFact {
    let fact = TRANSLATION.fact(object);
    if fact.spec.is_ok() {
        return fact;
    }
    SpecFact { manifest: Text::from(model::json::canonical(&manifest(object))), ..fact }
}

fn manifest(object: &Value) -> Value {
    json!({"generation": at(object, &["metadata", "generation"]), "weight": at(object, &["spec", "weight"])})
}

fn read(object: &Value, findings: &mut Findings) -> Option<JobSpec> {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    if !spec.is_object() {
        findings.error(
            "spec",
            object.get("spec"),
            "must be an object, for example {quota: {nvidia.com/gpu: {nominal: 8}}}",
        );
        return None;
    }
    let cohort = findings.text(spec, "spec", "cohort").filter(|name| !name.is_empty()).map(Text::from);
    let quota = quota(spec, cohort.is_some(), findings);
    let policy = findings.text(spec, "spec", "policy").unwrap_or(DEFAULT_POLICY);
    if let Err(error) = scheduler::by_name(policy) {
        findings.error("spec.policy", spec.get("policy"), error.to_string());
    }
    let preemption = spec.get("preemption").unwrap_or(&none);
    findings.object(spec, "spec", "preemption");
    let seconds = |findings: &mut Findings, parent: &Value, base: &str, key: &str, default: u64| {
        let read = findings.integer(parent, base, key, 0, MAX_SECONDS).and_then(|n| u64::try_from(n).ok());
        read.unwrap_or(default).saturating_mul(1000)
    };
    let weight = findings.integer(spec, "spec", "weight", 1, 1_000_000).and_then(|n| u32::try_from(n).ok());
    let queue = QueueSpec {
        cohort,
        quota,
        weight: weight.unwrap_or(1),
        policy: Text::from(policy),
        by_priority: findings.word(spec, "spec", "order", &ORDERS, true, Unknown::Refused),
        within: findings.word(
            preemption,
            "spec.preemption",
            "withinQueue",
            &WITHIN,
            WithinQueue::Never,
            Unknown::Refused,
        ),
        reclaim: findings.word(preemption, "spec.preemption", "reclaim", &RECLAIM, Reclaim::Any, Unknown::Refused),
        min_run_ms: seconds(findings, preemption, "spec.preemption", "minRunSeconds", 120),
        round_ms: seconds(findings, spec, "spec", "roundSeconds", 10),
        spread: findings.word(spec, "spec", "placement", &PLACEMENTS, false, Unknown::Refused),
        paused: findings.boolean(spec, "spec", "paused").unwrap_or(false),
        namespaces: namespace_selector::of_spec(spec, findings),
        nodes: nodes::selector(spec, findings),
        shares_nodes: nodes::are_shared(spec, findings),
    };
    Some(JobSpec { queue: Some(Box::new(queue)), ..translation::without_groups() })
}

fn quota(spec: &Value, has_cohort: bool, findings: &mut Findings) -> BTreeMap<Text, QuotaSpec> {
    let mut quota = BTreeMap::new();
    let Some(resources) = findings.object(spec, "spec", "quota") else {
        findings.error("spec.quota", None, "a queue needs a quota, for example {nvidia.com/gpu: {nominal: 8}}");
        return quota;
    };
    for (resource, amounts) in resources {
        let base = join("spec.quota", resource);
        if !amounts.is_object() {
            findings.error(&base, Some(amounts), "must be an object, for example {nominal: 8}");
            continue;
        }
        let mut number = |key: &str| {
            let read = findings.integer(amounts, &base, key, 0, MAX_GPUS);
            read.and_then(|n| u32::try_from(n).ok())
        };
        let (nominal, borrowing, lending) = (number("nominal"), number("borrowing"), number("lending"));
        if !is_gpu(resource) {
            findings.warn(&base, Some(amounts), "only GPUs are counted: this quota limits nothing");
            continue;
        }
        if nominal.is_none() && !findings.has_error_at(&join(&base, "nominal")) {
            findings.error(
                join(&base, "nominal"),
                None,
                "a quota needs a number of GPUs; 0 for a queue that only borrows",
            );
        }
        if borrowing.is_some_and(|n| n > 0) && !has_cohort {
            findings.warn(
                join(&base, "borrowing"),
                amounts.get("borrowing"),
                "a queue without a cohort borrows nothing",
            );
        }
        if let (Some(lending), Some(nominal)) = (lending, nominal)
            && lending > nominal
        {
            findings.error(
                join(&base, "lending"),
                amounts.get("lending"),
                format!("must be at most the nominal quota, {nominal}"),
            );
        }
        let read =
            QuotaSpec { nominal: nominal.unwrap_or_default(), borrowing: borrowing.unwrap_or_default(), lending };
        quota.insert(Text::from(resource.as_str()), read);
    }
    quota
}
