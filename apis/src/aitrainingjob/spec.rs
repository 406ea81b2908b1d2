//! AITrainingJob object -> [`JobSpec`]: defaults, validation with field paths, and the manifest that pods are rendered from.
//!
//! Values that the original operator accepted and acted on in its own way (unknown policy words, odd exit codes) are accepted
//! with a warning. Values that made it crash or hang are field errors. It must not render anything (that is `pods.rs`). Tests:
//! `tests/spec.rs` and `tests/refusals.rs`.

use model::{
    CleanPodPolicy, GroupEndPolicy, GroupSpec, JobEndPolicy, JobSpec, PhaseRules, Resize, RestartPolicy, RestartScope,
    SizeRange, Text,
};
use serde_json::{Value, json};

use super::crd::spec_schema;
use super::peers::peer_text_bytes;
use super::template::{group_ports, takes_part};
use crate::fields::{Findings, Unknown, Word, join, type_of};
use crate::names::{LABEL_MAX, is_label_value};
use crate::objects::text_at;
use crate::replicas::{self, Replica};
use crate::translation::{Translation, spec_of};
use crate::{pod_rules, template};

/// Longest environment entry, with its name, that Linux passes to a process: 128 KiB with the closing zero.
const ENV_ENTRY_MAX: u64 = 131_071;

/// Accepted values of the job's `failPolicy` and `completePolicy`.
pub(super) const JOB_END: [Word<JobEndPolicy>; 3] =
    [("Any", JobEndPolicy::Any), ("All", JobEndPolicy::All), ("None", JobEndPolicy::None)];

/// Accepted values of a group's `failPolicy` and `completePolicy`.
pub(super) const GROUP_END: [Word<GroupEndPolicy>; 4] = [
    ("Any", GroupEndPolicy::Any),
    ("Rank0", GroupEndPolicy::Rank0),
    ("All", GroupEndPolicy::All),
    ("None", GroupEndPolicy::None),
];

/// Accepted values of `restartPolicy`.
pub(super) const RESTART: [Word<RestartPolicy>; 6] = [
    ("Always", RestartPolicy::Always),
    ("OnFailure", RestartPolicy::OnFailure),
    ("OnNodeFail", RestartPolicy::OnNodeFail),
    ("Never", RestartPolicy::Never),
    ("ExitCode", RestartPolicy::ExitCode),
    ("OnNodeFailWithExitCode", RestartPolicy::OnNodeFailWithExitCode),
];

/// Accepted values of `restartScope`.
pub(super) const SCOPE: [Word<RestartScope>; 3] =
    [("All", RestartScope::All), ("Replica", RestartScope::Replica), ("Pod", RestartScope::Pod)];

/// Accepted values of `cleanPodPolicy`.
pub(super) const CLEAN: [Word<CleanPodPolicy>; 2] = [("All", CleanPodPolicy::All), ("None", CleanPodPolicy::None)];

/// Reads specs of this API.
pub(super) const TRANSLATION: Translation = Translation { read, schema: spec_schema, manifest };

fn read(object: &Value, findings: &mut Findings) -> Option<JobSpec> {
    let spec = spec_of(object, findings)?;
    let job = replicas::job_name(object, findings);
    let restartable_codes = exit_codes(spec, findings);
    let time_limit_s = findings.integer(spec, "spec", "timeLimit", i64::MIN, i64::MAX);
    check_pod_fields(spec, findings);
    let unknown = || Unknown::ActsAs(("None", JobEndPolicy::None));
    let fail = findings.word(spec, "spec", "failPolicy", &JOB_END, JobEndPolicy::Any, unknown());
    let complete = findings.word(spec, "spec", "completePolicy", &JOB_END, JobEndPolicy::All, unknown());
    let unknown = Unknown::ActsAs(("All", CleanPodPolicy::All));
    let clean_pods = findings.word(spec, "spec", "cleanPodPolicy", &CLEAN, CleanPodPolicy::All, unknown);
    let groups = replicas::groups(spec, findings, |replica, findings| group(job, replica, findings))?;
    let spec = JobSpec {
        groups,
        complete,
        fail,
        clean_pods,
        restartable_codes,
        // Zero and less are due as soon as a pod runs.
        time_limit_ms: time_limit_s.map(|s| u64::try_from(s).unwrap_or_default().saturating_mul(1000)),
        phase_rules: PhaseRules::default(),
        ..JobSpec::default()
    };
    if spec.time_limit_ms.is_none() && !can_end(&spec) {
        findings.warn(
            "spec.completePolicy",
            Some(&spec_word(object, "completePolicy", "All")),
            "with these complete and fail policies no result of any pod ends the job; it runs until it is deleted, marked \
             by an annotation, or given a timeLimit",
        );
    }
    Some(spec)
}

/// Fields that only reach the pods.
fn check_pod_fields(spec: &Value, findings: &mut Findings) {
    findings.text(spec, "spec", "schedulerName");
    if let Some(priority) = findings.text(spec, "spec", "priority")
        && !is_label_value(priority)
    {
        findings.error(
            "spec.priority",
            spec.get("priority"),
            "must be a label value: letters, digits and inner -_. up to 63",
        );
    }
}

/// Reads the restartable codes, sorted: a text of codes between commas, or one number.
fn exit_codes(spec: &Value, findings: &mut Findings) -> Vec<i32> {
    const PATH: &str = "spec.restartingExitCode";
    let value = spec.get("restartingExitCode").filter(|value| !value.is_null());
    let mut codes = Vec::new();
    match value {
        None => {}
        Some(Value::String(text)) => {
            for token in text.split(',').map(str::trim).filter(|token| !token.is_empty()) {
                match token.parse::<i32>() {
                    Ok(code) => codes.push(code),
                    Err(_) => findings.mistake(PATH, value, format!("`{token}` is no exit code; it is left out")),
                }
            }
        }
        Some(number @ Value::Number(_)) => match number.as_i64().and_then(|code| i32::try_from(code).ok()) {
            Some(code) => codes.push(code),
            None => findings.error(PATH, value, "must be exit codes: whole numbers between commas"),
        },
        Some(other) => {
            let problem = format!("must be exit codes between commas, as text or one number, not {}", type_of(other));
            findings.error(PATH, value, problem);
        }
    }
    codes.sort_unstable();
    codes.dedup();
    codes
}

fn group(job: Option<&str>, replica: Replica<'_>, findings: &mut Findings) -> GroupSpec {
    let Replica { lower, spec, path, .. } = replica;
    let replicas = replica.replicas(findings);
    let limit = findings.integer(spec, path, "restartLimit", i64::from(i32::MIN), i64::from(i32::MAX));
    let unknown = Unknown::ActsAs(("None", GroupEndPolicy::None));
    let complete = findings.word(spec, path, "completePolicy", &GROUP_END, GroupEndPolicy::All, unknown);
    let fail = findings.word(spec, path, "failPolicy", &GROUP_END, GroupEndPolicy::Any, unknown);
    let unknown = Unknown::ActsAs(("Never", RestartPolicy::Never));
    let restart = findings.word(spec, path, "restartPolicy", &RESTART, RestartPolicy::Never, unknown);
    let scope = findings.word(spec, path, "restartScope", &SCOPE, RestartScope::All, Unknown::Refused);
    let template = template::check(spec, path, pod_rules::AS_WRITTEN, findings);
    let services = template.containers.iter().any(takes_part);
    let sizes = sizes(replica, replicas, findings);
    let most = sizes.map_or(replicas, |sizes| sizes.max);
    if replica.check_name(findings)
        && services
        && let Some(job) = job
    {
        replica.check_service_names(
            job,
            most,
            "pods with containers named aitj-… get services of their own names",
            findings,
        );
    }
    check_peer_text(job.unwrap_or_default(), replica, most, findings);
    GroupSpec {
        name: Text::from(lower),
        display: replica.display(),
        replicas,
        complete,
        fail,
        restart,
        scope,
        restart_limit: limit.map(|n| u32::try_from(n).unwrap_or_default()),
        services,
        gpus: template.gpus,
        sizes,
        ..GroupSpec::default()
    }
}

/// Returns the numbers of pods that a queue may choose; `None` where the group is to keep its number. The original ignores these
/// fields: what contradicts itself is left out.
fn sizes(replica: Replica<'_>, replicas: u32, findings: &mut Findings) -> Option<SizeRange> {
    let Replica { spec, path, .. } = replica;
    let is_chosen = spec.get("edlPolicy").is_none_or(|policy| policy.is_null() || policy == "Auto");
    let number = |key: &str| spec.get(key).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let (min, max) = (number("minReplicas"), number("maxReplicas"));
    if !is_chosen || replicas == 0 || (min.is_none() && max.is_none()) {
        return None;
    }
    let range = SizeRange {
        min: min.unwrap_or(replicas),
        preferred: replicas,
        max: max.unwrap_or(replicas),
        resize: Resize::Restart,
    };
    let mut is_sound = true;
    let mut check = |key: &str, holds: bool, bound: String| {
        if !holds {
            findings.mistake(
                join(path, key),
                spec.get(key),
                format!("must be {bound}: a queue does not resize the group"),
            );
        }
        is_sound &= holds;
    };
    check("minReplicas", range.min > 0, "at least 1".to_owned());
    check("minReplicas", range.min <= replicas, format!("at most replicas, which is {replicas}"));
    check("maxReplicas", range.max >= replicas, format!("at least replicas, which is {replicas}"));
    is_sound.then_some(range)
}

/// Checks the length of the list of peers. One too long for an environment entry keeps every process of the job from
/// starting.
fn check_peer_text(job: &str, replica: Replica<'_>, replicas: u32, findings: &mut Findings) {
    let Replica { lower: group, spec, path, .. } = replica;
    let ports = group_ports(spec.get("template").unwrap_or(&Value::Null));
    // The namespace is 63 characters at most; counting it so keeps a job's verdict the same in every namespace.
    let longest = peer_text_bytes(job, group, LABEL_MAX, replicas, &ports);
    if longest > ENV_ENTRY_MAX {
        let problem = format!(
            "the list of its pods in {}_HOSTS may be {longest} bytes long; Linux starts no process with an environment \
             entry above {ENV_ENTRY_MAX}",
            group.to_uppercase()
        );
        findings.warn(join(path, "replicas"), spec.get("replicas"), problem);
    }
}

/// Returns true if some result of the pods completes or fails the job.
fn can_end(spec: &JobSpec) -> bool {
    let reach = |policy: &JobEndPolicy, group: fn(&GroupSpec) -> bool| match policy {
        JobEndPolicy::Any => spec.groups.iter().any(group),
        JobEndPolicy::All => spec.groups.iter().all(group),
        JobEndPolicy::None => false,
        JobEndPolicy::Sets(sets) => sets.iter().any(|set| set.iter().all(|name| spec.group(name).is_some_and(group))),
    };
    reach(&spec.complete, can_complete) || reach(&spec.fail, can_fail)
}

fn can_complete(group: &GroupSpec) -> bool {
    match group.complete {
        GroupEndPolicy::None => false,
        GroupEndPolicy::All => true,
        GroupEndPolicy::Any | GroupEndPolicy::Rank0 | GroupEndPolicy::Minimum => group.replicas > 0,
    }
}

fn can_fail(group: &GroupSpec) -> bool {
    match group.fail {
        GroupEndPolicy::None => false,
        // A group without pods is complete before it is failed.
        GroupEndPolicy::All => group.replicas > 0 || group.complete != GroupEndPolicy::All,
        GroupEndPolicy::Any | GroupEndPolicy::Rank0 | GroupEndPolicy::Minimum => group.replicas > 0,
    }
}

fn spec_word(object: &Value, key: &str, default: &str) -> Value {
    Value::from(text_at(object, &["spec", key]).filter(|text| !text.is_empty()).unwrap_or(default))
}

/// Returns the manifest that pods and services are rendered from. Counts and policies stand in the [`JobSpec`].
fn manifest(object: &Value) -> Value {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    json!({
        "labels": object.get("metadata").and_then(|metadata| metadata.get("labels")),
        "spec": {
            "priority": spec.get("priority"),
            "schedulerName": spec.get("schedulerName"),
            "replicaSpecs": replicas::templates(object),
        },
    })
}
