//! Bounds of a job's object: levels of nesting, GPUs of a pod, GPUs of a job.
//!
//! Owns the numbers, which are greater than those of any cluster. They are checked before a number in an object sizes anything: one object
//! must not stop the operator. It must not read an API's fields. Tests: at the end of this file.

use model::{FieldError, SpecFact};
use serde_json::Value;
use settings::Quantity;

use crate::fields::{Findings, join};
use crate::template::is_gpu;

/// Most levels of nesting of an object. A pod template with all that Kubernetes knows has fewer than 20.
pub const MAX_DEPTH: usize = 64;
/// Levels of nesting that are read of an object. It is greater than [`MAX_DEPTH`], so that the check sees what is beyond it, and less than
/// the 128 levels at which `serde_json` stops.
pub const READ_DEPTH: usize = 100;
/// Most GPUs that a pod may ask for, or that a node may have.
pub const MAX_POD_GPUS: u32 = 10_000;
/// Most GPUs that all pods of a job together may ask for.
pub const MAX_JOB_GPUS: u64 = 100_000;

/// Checks the levels of nesting of an object, and the GPUs that each of its pods asks for.
pub(crate) fn check(object: &Value, findings: &mut Findings) {
    visit(object, "", 0, false, findings);
}

/// Refuses a translated spec whose pods ask for more GPUs together than a job may.
pub(crate) fn check_gpus(fact: &mut SpecFact) {
    let Ok(spec) = &fact.spec else { return };
    let groups = spec.gpu_groups();
    let groups = groups.map(|(group, request)| u64::from(request.count).saturating_mul(group.replicas.into()));
    let total = groups.fold(0, u64::saturating_add);
    if total > MAX_JOB_GPUS {
        let problem = format!("the pods of a job may ask for at most {MAX_JOB_GPUS} GPUs together");
        fact.spec = Err(vec![FieldError::new("spec", format!("{total} GPUs"), problem)]);
    }
}

/// Checks a value and what is in it. `amounts`: true for the members of `limits` and `requests`.
fn visit(value: &Value, path: &str, depth: usize, amounts: bool, findings: &mut Findings) {
    if depth > MAX_DEPTH && (value.is_object() || value.is_array()) {
        let field = path.split('.').take(3).collect::<Vec<_>>().join(".");
        if !findings.has_error_at(&field) {
            findings.error(field, Some(value), format!("an object may be nested at most {MAX_DEPTH} levels deep"));
        }
        return;
    }
    let deeper = depth.saturating_add(1);
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let path = if path.is_empty() { key.clone() } else { join(path, key) };
                let most = Quantity::whole(MAX_POD_GPUS.into());
                if amounts && is_gpu(key) && Quantity::read(member).is_some_and(|amount| amount > most) {
                    findings.error(&*path, Some(member), format!("a pod may ask for at most {MAX_POD_GPUS} GPUs"));
                }
                visit(member, &path, deeper, matches!(key.as_str(), "limits" | "requests"), findings);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                visit(element, &format!("{path}[{index}]"), deeper, false, findings);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use model::{GpuRequest, GroupSpec, JobSpec, Text};
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!("end"), |inner, _| json!({"a": inner}))
    }

    fn said(object: &Value) -> Vec<String> {
        let mut findings = Findings::default();
        check(object, &mut findings);
        findings.into_errors_and_warnings().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_object_may_be_nested_to_a_bound() {
        assert_eq!(said(&json!({"spec": nested(MAX_DEPTH)})), [""; 0]);
        let want = "an object may be nested at most 64 levels deep ({\"a\":\"end\"})";
        let deep = json!({"spec": nested(MAX_DEPTH + 1), "status": {"a": nested(MAX_DEPTH), "b": nested(MAX_DEPTH)}});
        assert_eq!(said(&deep), ["spec.a.a", "status.a.a", "status.b.a"].map(|field| format!("{field}: {want}")));
        let siblings = (0..MAX_DEPTH).fold(json!({"a": [], "b": []}), |inner, _| json!({"a": inner}));
        assert_eq!(said(&json!({"spec": siblings})).len(), 1, "each field is named once");
        let lists = (0..=MAX_DEPTH).fold(json!([]), |inner, _| json!([inner]));
        assert_eq!(said(&json!({"spec": lists})).len(), 1);
    }

    #[test]
    fn a_pod_asks_for_gpus_to_a_bound() {
        let of = |amount: Value| {
            let limits = json!({"cpu": "100000000", "nvidia.com/gpu": amount});
            said(
                &json!({"spec": {"containers": [{"resources": {"limits": limits}}], "nodeSelector": {"nvidia.com/gpu": "20000"}}}),
            )
        };
        for fits in [json!(8), json!("10k"), json!("x"), json!(-1), json!(null)] {
            assert_eq!(of(fits), [""; 0]);
        }
        let want =
            "spec.containers[0].resources.limits.nvidia.com/gpu: a pod may ask for at most 10000 GPUs (4294967295)";
        assert_eq!(of(json!(4_294_967_295_u64)), [want]);
        assert_eq!(of(json!("9E")).len(), 1);
    }

    #[test]
    fn a_job_asks_for_gpus_to_a_bound() {
        let of = |replicas: u32| {
            let group = GroupSpec {
                replicas,
                gpu_request: Some(GpuRequest { resource: "nvidia.com/gpu".into(), count: 10 }),
                ..GroupSpec::default()
            };
            let spec = JobSpec { groups: vec![group.clone(), group], ..JobSpec::default() };
            let mut fact = SpecFact::of(Ok(spec), Text::from("{}"));
            check_gpus(&mut fact);
            fact.spec.map(drop).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of(5_000), Ok(()));
        let want = "spec: the pods of a job may ask for at most 100000 GPUs together (100020 GPUs)";
        assert_eq!(of(5_001), Err(vec![want.to_owned()]));
    }
}
