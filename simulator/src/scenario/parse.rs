//! Reading scenario files: YAML text to [`Scenario`], with file, line and reason for everything that cannot be read.
//!
//! Owns what is checked before anything runs: unknown members, names that no manifest carries, crash points that say
//! both before and after. Tests: in `super::tests`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{Action, CrashPoint, NodeSpec, Scalar, Scenario, Step};
use crate::controllers::Controller;
use crate::expect::Expect;

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file; empty when the text came from elsewhere.
    pub file: String,
    /// Line, from 1; 0 when it is not known.
    pub line: u64,
    /// Column, from 1; 0 when it is not known.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.file.is_empty() { "scenario" } else { &self.file })?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        Ok(())
    }
}

/// A scenario that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file, or one it names, cannot be opened.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no YAML, or says something the language does not have.
    #[error("{place}: {reason}")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong.
        reason: String,
    },
    /// The text reads well but contradicts itself.
    #[error("{place}: {reason}")]
    Meaning {
        /// Where.
        place: Place,
        /// What is wrong.
        reason: String,
    },
}

/// A scenario of Trainyard: objects, and steps that happen to them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "Trainyard scenario")]
pub(super) struct File {
    /// Its purpose.
    #[serde(default)]
    description: String,
    /// Flags of the operator by name.
    #[serde(default)]
    flags: BTreeMap<String, Value>,
    /// Nodes of the cluster; three without GPUs when they are left out.
    #[serde(default)]
    nodes: Option<Vec<NodeShape>>,
    /// Controllers of other projects that act on its objects.
    #[serde(default)]
    with: Vec<Controller>,
    /// Objects that steps name.
    #[serde(default)]
    manifests: Vec<Value>,
    /// Files with more of them, from the directory of this file.
    #[serde(default)]
    manifest_files: Vec<String>,
    /// Steps in order, each with one verb.
    #[schemars(with = "Vec<Action>")]
    steps: Vec<Spanned<Action>>,
    /// Expectations of the run.
    #[serde(default)]
    expect: Expect,
}

/// A node: its name, or a map.
pub(super) struct NodeShape(NodeSpec);

/// A node with more than a name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LongNode {
    /// Its name.
    name: String,
    /// GPUs that it offers.
    #[serde(default)]
    gpus: u32,
    /// CPUs that it offers, as a quantity; without it they are not counted.
    #[serde(default)]
    cpu: Option<Scalar>,
    /// Memory that it offers, as a quantity; without it it is not counted.
    #[serde(default)]
    memory: Option<Scalar>,
    /// Labels besides its name's.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Set if it is cordoned: it takes no new pods.
    #[serde(default)]
    closed: bool,
}

impl<'de> Deserialize<'de> for NodeShape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> serde::de::Visitor<'de> for Shape {
            type Value = NodeShape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node's name, or a map with name, gpus, cpu, memory, labels and closed")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NodeShape, E> {
                Ok(NodeShape(NodeSpec::new(text)))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<NodeShape, A::Error> {
                let long = LongNode::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let LongNode { name, gpus, cpu, memory, labels, closed } = long;
                let (cpu, memory) = (cpu.map(|cpu| cpu.0), memory.map(|memory| memory.0));
                Ok(NodeShape(NodeSpec { name, gpus, cpu, memory, labels, closed }))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// Reads a scenario file and the manifest files it names.
///
/// # Errors
/// When a file cannot be opened or read; the error names file, line and reason.
pub fn load(path: &Path) -> Result<Scenario, Error> {
    let text = read(path)?;
    parse_at(&text, &path.display().to_string(), path.parent())
}

/// Reads a scenario from text. Manifest files are looked up from the working directory.
///
/// # Errors
/// When it cannot be read; the error names line and reason.
pub fn parse(text: &str, origin: &str) -> Result<Scenario, Error> {
    parse_at(text, origin, None)
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Unreadable { file: path.display().to_string(), source })
}

fn options() -> serde_saphyr::Options {
    // Manifests are read without a schema, where `yes` and `on` must stay words. No snippets: the line is enough.
    serde_saphyr::options! { strict_booleans: true, with_snippet: false }
}

fn syntax(error: &serde_saphyr::Error, file: &str) -> Error {
    let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
    let full = error.to_string();
    // The message repeats the place in its own words; ours stands in front.
    let cut = [format!(" at line {line}, column {column}"), format!(" at line {line} column {column}")]
        .iter()
        .fold(full, |text, tail| text.replace(tail.as_str(), ""));
    Error::Syntax { place: Place { file: file.to_owned(), line, column }, reason: cut.trim().to_owned() }
}

fn parse_at(text: &str, origin: &str, folder: Option<&Path>) -> Result<Scenario, Error> {
    let file: File = serde_saphyr::from_str_with_options(text, options()).map_err(|e| syntax(&e, origin))?;
    let mut manifests = file.manifests;
    for name in &file.manifest_files {
        let path = folder.map_or_else(|| name.into(), |folder| folder.join(name));
        let text = read(&path)?;
        let shown = path.display().to_string();
        let documents: Vec<Value> =
            serde_saphyr::from_multiple_with_options(&text, options()).map_err(|e| syntax(&e, &shown))?;
        manifests.extend(documents);
    }
    let scenario = Scenario {
        origin: origin.to_owned(),
        description: file.description,
        flags: file.flags,
        nodes: file.nodes.map_or_else(NodeSpec::defaults, |nodes| nodes.into_iter().map(|n| n.0).collect()),
        with: file.with,
        manifests,
        steps: file.steps.into_iter().map(|step| Step { line: step.referenced.line(), action: step.value }).collect(),
        expect: file.expect,
    };
    check(&scenario)?;
    Ok(scenario)
}

/// Checks a scenario before it runs.
fn check(scenario: &Scenario) -> Result<(), Error> {
    let wrong = |line: u64, reason: String| Error::Meaning {
        place: Place { file: scenario.origin.clone(), line, column: 0 },
        reason,
    };
    for (n, manifest) in scenario.manifests.iter().enumerate() {
        for member in ["/apiVersion", "/kind", "/metadata/name"] {
            if manifest.pointer(member).and_then(Value::as_str).is_none_or(str::is_empty) {
                let member = member.trim_start_matches('/').replace('/', ".");
                return Err(wrong(0, format!("manifest {n} has no {member}")));
            }
        }
    }
    for node in &scenario.nodes {
        for (member, quantity) in [("cpu", &node.cpu), ("memory", &node.memory)] {
            if let Some(text) =
                quantity.as_deref().filter(|text| settings::Quantity::read(&Value::from(*text)).is_none())
            {
                return Err(wrong(
                    0,
                    format!("node {}: {member}: `{text}` is no quantity, such as 500m or 64Gi", node.name),
                ));
            }
        }
    }
    if let Err(error) = settings::flags::config(&scenario.flags) {
        return Err(wrong(0, error.to_string()));
    }
    for (n, step) in scenario.steps.iter().enumerate() {
        check_action(scenario, &step.action, false)
            .map_err(|reason| wrong(step.line, format!("step {n} ({}): {reason}", step.action.verb())))?;
    }
    Ok(())
}

fn check_action(scenario: &Scenario, action: &Action, inside: bool) -> Result<(), String> {
    let point = |before: Option<_>, after: Option<_>, nth: u32| {
        if before.is_some() && after.is_some() {
            return Err("say either before or after, not both".to_owned());
        }
        if nth == 0 {
            return Err("nth counts from 1".to_owned());
        }
        Ok(())
    };
    match action {
        Action::Apply(names) | Action::StoreUnchecked(names) => {
            for name in &names.0 {
                if scenario.manifests.iter().filter(|m| super::names_manifest(name, m)).count() != 1 {
                    return Err(format!("`{name}` names no manifest, or several; write Kind/name"));
                }
            }
            Ok(())
        }
        Action::Crash(CrashPoint { before, after, nth })
        | Action::LoseLog(CrashPoint { before, after, nth })
        | Action::SwapLeader(CrashPoint { before, after, nth }) => {
            if inside {
                return Err("cannot be part of what is seen in one turn".to_owned());
            }
            point(*before, *after, *nth)
        }
        Action::RestoreLog(restore) => {
            if inside {
                return Err("cannot be part of what is seen in one turn".to_owned());
            }
            point(restore.before, restore.after, restore.nth)
        }
        Action::Together(actions) => {
            if inside {
                return Err("cannot stand inside another".to_owned());
            }
            actions.iter().try_for_each(|action| {
                check_action(scenario, action, true).map_err(|reason| format!("{}: {reason}", action.verb()))
            })
        }
        Action::Annotate(annotate) => {
            match [&annotate.job, &annotate.pod, &annotate.node].iter().filter(|target| target.is_some()).count() {
                1 => Ok(()),
                _ => Err("name exactly one of job, pod and node".to_owned()),
            }
        }
        Action::Node(changes) => {
            changes.0.iter().try_for_each(|change| match change.ready.as_ref().map_or("True", |word| word.0.as_str()) {
                "True" | "False" | "Unknown" | "removed" => Ok(()),
                other => Err(format!("`{other}` is no state of a node: write True, False, Unknown or removed")),
            })
        }
        Action::Patch(patch) => patch.target_and_body().map(|_| ()),
        Action::Schedule(_)
        | Action::Run(_)
        | Action::Wait(_)
        | Action::Exit(_)
        | Action::Evict(_)
        | Action::Gone(_)
        | Action::Scale(_)
        | Action::Progress(_)
        | Action::Log(_)
        | Action::Delete(_)
        | Action::Advance(_)
        | Action::Fail(_)
        | Action::Hold(_)
        | Action::Release(_)
        | Action::Relist(_) => Ok(()),
    }
}
