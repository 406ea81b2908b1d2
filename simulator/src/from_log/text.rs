//! Writes the file: YAML, with a comment for each step.
//!
//! Owns the spelling alone.

use std::fmt::Write as _;

use model::Timestamp;
use serde_json::{Value, json};
use settings::duration;

use super::recorded::RecordedScenario;

/// Words that YAML reads as something else than text.
const RESERVED: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

/// Returns a scenario as a file. `differences` are what its run and the log differ in.
pub(super) fn write(scenario: &RecordedScenario, log: &str, differences: &[String]) -> String {
    let key = &scenario.key;
    let job = key.written();
    let first = scenario.steps.first().map(|step| step.position.0).unwrap_or_default();
    let mut text = String::new();
    let about = format!("{} {job}, records {first} to {} of {log}", key.kind, scenario.end.0);
    let _ = writeln!(text, "# {} (`trainyard scenario from-log`)", comment(&about));
    for difference in differences {
        let _ = writeln!(text, "# The scenario does not do what the log recorded: {}", comment(difference));
    }
    let _ = writeln!(text, "description: {}", Value::from(format!("{} {job} as it was recorded", key.kind)));
    if !scenario.flags.is_empty() {
        let _ = writeln!(text, "flags: {}", flow(&json!(scenario.flags)));
    }
    if !scenario.nodes.is_empty() {
        let _ = writeln!(text, "nodes: {}", flow(&json!(scenario.nodes)));
    }
    if scenario.of_mpi_operator {
        text += "with: [mpi-operator]\n";
    }
    text += "manifests:\n";
    for manifest in &scenario.manifests {
        let yaml = serde_saphyr::to_string(manifest).unwrap_or_else(|_| manifest.to_string());
        for (n, line) in yaml.trim_end().lines().enumerate() {
            let _ = writeln!(text, "{}{line}", if n == 0 { "  - " } else { "    " });
        }
    }
    text += "steps:\n";
    let mut now = scenario.steps.first().map(|step| step.at).unwrap_or_default();
    let start = now;
    for step in &scenario.steps {
        // A deadline passes in the turn in which it met something else.
        let last = step.overdue;
        if step.at.0 > now.0 + last && !step.actions.is_empty() {
            let _ = writeln!(text, "  - advance: {}", duration::text(step.at.since_ms(now) - last));
            now = Timestamp(step.at.0 - last);
        }
        let in_turn = (step.at > now && !step.actions.is_empty())
            .then(|| json!({"advance": duration::text(step.at.since_ms(now))}));
        now = if step.actions.is_empty() { now } else { step.at };
        let since = duration::text(step.at.since_ms(start));
        let _ = writeln!(text, "  # record {}, {since} after the first", step.position);
        for remark in &step.remarks {
            let _ = writeln!(text, "  # not in the scenario: {}", comment(remark));
        }
        let actions: Vec<&Value> = in_turn.iter().chain(&step.actions).collect();
        match actions.as_slice() {
            [] => {}
            [one] => {
                let _ = writeln!(text, "  - {}", verb(one));
            }
            several => {
                text += "  - together:\n";
                for one in several {
                    let _ = writeln!(text, "      - {}", verb(one));
                }
            }
        }
    }
    if scenario.end.1 > now {
        let _ = writeln!(text, "  - advance: {}", duration::text(scenario.end.1.since_ms(now)));
    }
    text += "expect:\n";
    let full = key.to_string();
    let _ = writeln!(text, "  phases: {}", flow(&json!({&full: scenario.phases})));
    let last = match &scenario.state {
        // An API of another project, whose status is not the job's state.
        Some(state) if state.is_empty() => json!({}),
        Some(state) => json!({"job": job, "state": state}),
        None => json!({"objects": {format!("{}/{job}", key.kind): null}}),
    };
    let _ = writeln!(text, "  final: {}", flow(&last));
    text
}

/// Returns a text on one line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns an action as `verb: argument`.
fn verb(action: &Value) -> String {
    let members = action.as_object().into_iter().flatten();
    members.map(|(name, value)| format!("{name}: {}", flow(value))).collect::<Vec<_>>().join(", ")
}

/// Returns a value in YAML's flow style.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{}: {}", word(name), flow(value))).collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => word(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns a text as it is, where YAML reads it as text, and else in quotes.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(plain)
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_as_texts() {
        let all = ["j-0", "True", "no", "", "1e3", "a: b", "x#y", "\n", "nvidia.com/gpu", "- a", "null", "été"];
        let value = json!({"a": all, "b": {"c": null, "d": 3, "true": false}});
        let read: Value = serde_saphyr::from_str(&flow(&value)).unwrap();
        assert_eq!(read, value, "{}", flow(&value));
    }
}
