//! A run as people read it: steps, what they led to, and how things stand at the end.
//!
//! Owns the wording of a run that is printed, and of a step. What differs from run to run without meaning (uids, versions,
//! stamps, our own annotations) is left out; times are shown relative to the start. The snapshots of the `snapshots` package
//! share the wording of steps. Tests: those snapshots, and `simulator/tests/runner.rs`.

use std::fmt::Write as _;

use apis::{ApiCall, Verb};
use model::Timestamp;
use model::json::canonical;
use serde_json::Value;

use crate::runner::{ScenarioOutcome, StepOutcome};
use crate::scenario::{Action, CrashPoint, OneOrMany, Patch, Pods, Scenario};
use crate::simulation::ExecutedCall;

/// Prefix of annotations that are ours alone.
pub const OWN_PREFIX: &str = "trainyard.dev/";

/// Renders a run.
pub fn render(scenario: &Scenario, outcome: &ScenarioOutcome) -> String {
    let mut out = String::new();
    if !scenario.description.is_empty() {
        line(&mut out, &scenario.description);
    }
    for (number, (step, led_to)) in scenario.steps.iter().zip(&outcome.steps).enumerate() {
        line(&mut out, &format!("{number} {}", describe(&step.action)));
        render_step(&mut out, led_to);
    }
    line(&mut out, "end");
    for (job, phases) in &outcome.phases {
        line(&mut out, &format!("  {job}: {}", phases.join(", ")));
    }
    for object in &outcome.objects {
        render_object(&mut out, object);
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn render_step(out: &mut String, step: &StepOutcome) {
    for (job, phases) in &step.phases {
        line(out, &format!("  {job}: {}", phases.join(", ")));
    }
    let mut patches: Vec<(String, u32)> = Vec::new();
    for done in &step.commands {
        if matches!(done.call.verb, Verb::Patch | Verb::PatchStatus | Verb::ApplyStatus) {
            let what = format!("{} {}", done.call.resource.kind, done.call.name);
            match patches.iter_mut().find(|(known, _)| *known == what) {
                Some((_, times)) => *times = times.saturating_add(1),
                None => patches.push((what, 1)),
            }
        } else {
            line(out, &format!("  {}", describe_command(done)));
        }
    }
    for (what, times) in patches {
        line(out, &format!("  ~ {what}{}", if times > 1 { format!(" ({times} times)") } else { String::new() }));
    }
    for event in &step.events {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        line(out, &format!("  ! {} {}: {}", text("type"), text("reason"), text("message")));
    }
}

/// `+ Pod j-trainer-0 #1` or `- Pod j-trainer-0 forced` or `- Pod j-trainer-0 grace 60s`.
fn describe_command(done: &ExecutedCall) -> String {
    let call = &done.call;
    let sign = if call.verb == Verb::Create { '+' } else { '-' };
    let mut text = format!("{sign} {} {}", call.resource.kind, call.name);
    if let Some(count) = call.body.as_ref().and_then(restart_count) {
        let _ = write!(text, " #{count}");
    }
    text.push_str(&grace_words(call));
    if done.attempts > 1 {
        let _ = write!(text, " (attempt {})", done.attempts);
    }
    text
}

/// Returns the grace period that a deletion names, after a space: ` forced` for none, ` grace 60s`. Empty where the pod's own counts.
pub fn grace_words(call: &ApiCall) -> String {
    match call.grace_seconds {
        None => String::new(),
        Some(0) => " forced".to_owned(),
        Some(seconds) => format!(" grace {seconds}s"),
    }
}

/// The restart count a pod shows, where its API has one.
pub fn restart_count(pod: &Value) -> Option<&str> {
    pod.pointer("/metadata/labels/RestartCount").and_then(Value::as_str)
}

/// Returns the restarts of a pod's containers, summed.
pub fn container_restarts(pod: &Value) -> u64 {
    let lists = ["containerStatuses", "initContainerStatuses"]
        .iter()
        .filter_map(|list| pod.get("status")?.get(list)?.as_array());
    lists.flatten().filter_map(|status| status.get("restartCount")?.as_u64()).fold(0, u64::saturating_add)
}

fn render_object(out: &mut String, object: &Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind");
    let name = match text("/metadata/namespace") {
        "" | "default" => text("/metadata/name").to_owned(),
        namespace => format!("{namespace}/{}", text("/metadata/name")),
    };
    let leaving = if object.pointer("/metadata/deletionTimestamp").is_some() { " terminating" } else { "" };
    match kind {
        "Node" | "Namespace" => {}
        "Pod" => {
            let node = text("/spec/nodeName");
            let node = if node.is_empty() { String::new() } else { format!(" on {node}") };
            let count = restart_count(object).map(|c| format!(" #{c}")).unwrap_or_default();
            let restarts = match container_restarts(object) {
                0 => String::new(),
                n => format!(", containers restarted {n} times"),
            };
            line(out, &format!("  Pod {name}{count} {}{node}{leaving}{restarts}", text("/status/phase")));
        }
        _ => {
            line(out, &format!("  {kind} {name}{leaving}"));
            if let Some(status) = object.get("status").and_then(Value::as_object)
                && kind != "Service"
            {
                render_status(out, status);
                for (key, value) in
                    object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten()
                {
                    if !key.starts_with(OWN_PREFIX) {
                        line(out, &format!("    annotation {key}: {}", value.as_str().unwrap_or_default()));
                    }
                }
            }
        }
    }
}

fn render_status(out: &mut String, status: &serde_json::Map<String, Value>) {
    let mut keys: Vec<&String> =
        status.keys().filter(|key| !matches!(key.as_str(), "conditions" | "trainyard")).collect();
    keys.sort_unstable();
    for key in keys {
        let value = status.get(key).map(relative).unwrap_or_default();
        line(out, &format!("    {key}: {}", value.as_str().map_or_else(|| canonical(&value), str::to_owned)));
    }
    for condition in status.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        let since = condition.get("lastTransitionTime").map(relative).unwrap_or_default();
        let message = text("message");
        let colon = if message.is_empty() { "" } else { ": " };
        line(
            out,
            &format!(
                "    condition {} {} {} {}{colon}{message}",
                text("type"),
                text("status"),
                text("reason"),
                since.as_str().unwrap_or_default()
            ),
        );
    }
}

/// Returns a value with its times as seconds since the start.
pub fn relative(value: &Value) -> Value {
    match value {
        Value::String(text) => match Timestamp::parse_rfc3339(text) {
            Some(at) => Value::String(format!("+{}s", at.since_ms(cluster::Options::default().now) / 1000)),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(relative).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), relative(v))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn names<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn pods(pods: &Pods) -> String {
    match pods {
        Pods::All => "all".to_owned(),
        Pods::Named(list) => names(list),
    }
}

fn each<T>(items: &OneOrMany<T>, show: impl Fn(&T) -> String) -> String {
    items.0.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn crash(verb: &str, point: CrashPoint) -> String {
    match (point.before, point.after) {
        (None, None) => verb.to_owned(),
        (Some(boundary), _) => format!("{verb} in the next step, before {boundary:?} {}", point.nth).to_lowercase(),
        (None, Some(boundary)) => format!("{verb} in the next step, after {boundary:?} {}", point.nth).to_lowercase(),
    }
}

fn milliseconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

fn patch(patch: &Patch) -> String {
    match patch.target_and_body() {
        Ok((target, body)) => {
            let kind = if target.kind.is_empty() { "job" } else { &target.kind };
            format!("patch {kind} {} {}", target.name, canonical(&body))
        }
        Err(reason) => format!("patch: {reason}"),
    }
}

/// A step in words.
pub fn describe(action: &Action) -> String {
    match action {
        Action::Apply(list) if list.0.is_empty() => "apply all".to_owned(),
        Action::Apply(list) => format!("apply {}", list.0.join(" ")),
        Action::StoreUnchecked(list) => format!("store unchecked {}", list.0.join(" ")),
        Action::Schedule(places) => format!("schedule {}", each(places, |p| format!("{} on {}", p.pod, p.node))),
        Action::Run(which) => format!("run {}", pods(which)),
        Action::Wait(waits) => {
            let one = |w: &crate::scenario::Wait| format!("{} {} since {}", w.pod, w.reason, milliseconds(w.since.0));
            format!("wait {}", each(waits, one))
        }
        Action::Exit(exits) => {
            let one = |e: &crate::scenario::Exit| {
                let container = e.container.as_ref().map(|c| format!(" ({c})")).unwrap_or_default();
                format!("{}{container} with {}", e.pod, e.code)
            };
            format!("exit {}", each(exits, one))
        }
        Action::Evict(which) => format!("evict {}", pods(which)),
        Action::Gone(which) => format!("gone {}", pods(which)),
        Action::Node(changes) => {
            let one = |n: &crate::scenario::NodeChange| {
                let ready = n.ready.as_ref().map(|word| format!(" Ready={}", word.0)).unwrap_or_default();
                let others =
                    n.conditions.iter().fold(String::new(), |all, (kind, word)| format!("{all} {kind}={}", word.0));
                format!("{}{ready}{others}", n.name)
            };
            format!("node {}", each(changes, one))
        }
        Action::Annotate(annotate) => {
            let target = [&annotate.job, &annotate.pod, &annotate.node].into_iter().flatten().next();
            let set = annotate.set.iter().map(|(key, value)| format!(" {key}={}", value.0));
            let removed = annotate.remove.0.iter().map(|key| format!(" -{key}"));
            let changes: String = set.chain(removed).collect();
            format!("annotate {}{changes}", target.map(ToString::to_string).unwrap_or_default())
        }
        Action::Progress(reports) => {
            let one = |report: &crate::scenario::Report| {
                let total = report.total.map(|total| format!(" of {total}")).unwrap_or_default();
                format!(
                    "{} {}{total} on {} GPUs in {}",
                    report.job,
                    report.done,
                    report.gpus,
                    milliseconds(report.took.0)
                )
            };
            format!("progress {}", each(reports, one))
        }
        Action::Log(logs) => {
            let one = |log: &crate::scenario::LogLines| {
                let times = if log.times == 1 { String::new() } else { format!(" {} times", log.times) };
                format!("{}{times} {:?}", log.pod, log.lines)
            };
            format!("log {}", each(logs, one))
        }
        Action::Patch(p) => patch(p),
        Action::Scale(scales) => format!("scale {}", each(scales, |s| format!("{} to {}", s.job, s.replicas))),
        Action::Delete(deletes) => format!("delete {}", each(deletes, |d| format!("{} {}", d.kind, d.name))),
        Action::Advance(by) => format!("advance {}", milliseconds(by.0)),
        Action::Fail(fail) => {
            let kind = fail.kind.as_deref().unwrap_or("everything");
            let applied = if fail.applied { ", done all the same" } else { "" };
            format!("fail {:?} {kind} {} times with {}{applied}", fail.verb, fail.times, fail.code)
        }
        Action::Hold(kinds) => format!("hold {}", kinds.0.join(" ")),
        Action::Release(kinds) => format!("release {}", kinds.0.join(" ")),
        Action::Relist(kinds) => format!("relist {}", kinds.0.join(" ")),
        Action::Crash(point) => crash("crash", *point),
        Action::LoseLog(point) => crash("lose log", *point),
        Action::RestoreLog(restore) => {
            let point = CrashPoint { before: restore.before, after: restore.after, nth: restore.nth };
            crash(&format!("restore log as of {}", restore.position), point)
        }
        Action::SwapLeader(point) => crash("swap leader", *point),
        Action::Together(actions) => actions.iter().map(describe).collect::<Vec<_>>().join(" & "),
    }
}
