//! Bounds of what a job's object may hold: levels of nesting, GPUs of a pod, GPUs of a job. They are checked before anything is sized by
//! what an object says, so that no object costs other jobs their operator.
//!
//! The numbers are above what clusters run. It must not read an API's fields. Tests: at the end of this file.

use model::{FieldError, SpecFact};
use serde_json::Value;
use settings::Quantity;

use crate::fields::{join, shown};
use crate::template::is_gpu;

/// Most levels of nesting of an object. A pod template with all that Kubernetes knows has fewer than 20.
pub const MAX_DEPTH: usize = 64;
/// Levels of nesting that are read of an object: more than [`MAX_DEPTH`], so that a deeper one is told from one that is not, and fewer
/// than a reader of JSON takes.
pub const READ_DEPTH: usize = 100;
/// Most GPUs that a pod may ask for, or that a node may have.
pub const MAX_POD_GPUS: u32 = 10_000;
/// Most GPUs that all pods of a job together may ask for.
pub const MAX_JOB_GPUS: u64 = 100_000;

/// Returns what of an object is beyond the bounds.
pub fn check(object: &Value) -> Vec<FieldError> {
    let mut walk = Walk::default();
    walk.visit(object, "", 0, false);
    walk.found
}

/// Refuses a translated spec whose pods ask for more GPUs together than a job may.
pub(crate) fn check_gpus(fact: &mut SpecFact) {
    let Ok(spec) = &fact.spec else { return };
    let of_group = |(count, replicas): (u32, u32)| u64::from(count).saturating_mul(replicas.into());
    let groups = spec.gpu_groups().map(|(group, request)| of_group((request.count, group.replicas)));
    let total = groups.fold(0, u64::saturating_add);
    if total > MAX_JOB_GPUS {
        let problem = format!("the pods of a job may ask for at most {MAX_JOB_GPUS} GPUs together");
        fact.spec = Err(vec![FieldError::new("spec", format!("{total} GPUs"), problem)]);
    }
}

#[derive(Default)]
struct Walk {
    found: Vec<FieldError>,
    is_too_deep: bool,
}

impl Walk {
    /// `amounts`: true inside `limits` and `requests`.
    fn visit(&mut self, value: &Value, path: &str, depth: usize, amounts: bool) {
        if depth > MAX_DEPTH && (value.is_object() || value.is_array()) {
            if !self.is_too_deep {
                let field: Vec<&str> = path.split('.').take(3).collect();
                let problem = format!("an object may be nested at most {MAX_DEPTH} levels deep");
                self.found.push(FieldError::new(field.join("."), "nested deeper", problem));
            }
            self.is_too_deep = true;
            return;
        }
        let deeper = depth.saturating_add(1);
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let path = if path.is_empty() { key.clone() } else { join(path, key) };
                    if amounts && is_gpu(key) {
                        self.amount(member, &path);
                    }
                    self.visit(member, &path, deeper, matches!(key.as_str(), "limits" | "requests"));
                }
            }
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.visit(element, &format!("{path}[{index}]"), deeper, false);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn amount(&mut self, amount: &Value, path: &str) {
        let most = Quantity::whole(MAX_POD_GPUS.into());
        if Quantity::read(amount).is_some_and(|amount| amount > most) {
            let problem = format!("a pod may ask for at most {MAX_POD_GPUS} GPUs");
            self.found.push(FieldError::new(path, shown(Some(amount)), problem));
        }
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
        check(object).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_object_may_be_nested_to_a_bound() {
        assert_eq!(said(&json!({"spec": nested(MAX_DEPTH)})), [""; 0]);
        let want = "spec.a.a: an object may be nested at most 64 levels deep (nested deeper)";
        assert_eq!(said(&json!({"spec": nested(MAX_DEPTH + 1), "status": nested(MAX_DEPTH + 1)})), [want]);
        let lists = (0..=MAX_DEPTH).fold(json!([]), |inner, _| json!([inner]));
        assert_eq!(check(&json!({"spec": lists})).len(), 1);
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
