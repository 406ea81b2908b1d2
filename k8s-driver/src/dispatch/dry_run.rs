//! Prints writes instead of sending them, for `--dry-run`.
//!
//! Owns the printed text. Each write is answered as if it had been done, so that the writes which follow are printed as well. Objects
//! that were not created are known to this process alone. The same call a second time means that the cluster differs from the dry
//! run, for example because another operator works on it. Such a call is neither printed nor answered, and its job rests. Tests:
//! at the end of this file.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use apis::{Verb, objects};
use serde_json::{Map, Value, json};

use crate::dispatch::request::Prepared;
use crate::hash::hash;

/// Format of printed calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One line of text each.
    Text,
    /// One JSON object each, with the whole body.
    Json,
}

/// Prints calls.
pub struct DryRun {
    format: Format,
    output: Mutex<Output>,
}

struct Output {
    out: Box<dyn Write + Send>,
    /// Hashes of what was printed.
    printed: BTreeSet<u64>,
}

/// Version of objects that were not created: greater than any real one, so that no list counts them as deleted.
const UNREACHED_VERSION: &str = "9007199254740991";

impl DryRun {
    /// Creates a dry run that prints to `out`.
    pub fn new(format: Format, out: Box<dyn Write + Send>) -> Self {
        Self { format, output: Mutex::new(Output { out, printed: BTreeSet::new() }) }
    }

    /// Prints a call and returns its answer as if it had been done; `None` if it was printed before.
    pub(crate) fn answer(&self, prepared: &Prepared) -> Option<Arc<Value>> {
        let name = hash(&(prepared.head.method(), prepared.head.uri(), &prepared.body));
        let line = match self.format {
            Format::Text => words(prepared),
            Format::Json => object(prepared).to_string(),
        };
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if !output.printed.insert(name) {
            return None;
        }
        // A closed output ends printing, not the process.
        let _ = writeln!(output.out, "{line}").and_then(|()| output.out.flush());
        drop(output);
        let body = body(prepared);
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), Value::from(UNREACHED_VERSION));
        Some(Arc::new(match prepared.verb {
            Verb::Create => {
                let mut made = body;
                if let Some(Value::Object(members)) = made.get_mut("metadata") {
                    members.insert("uid".to_owned(), Value::from(format!("dry-run-{}", prepared.id)));
                    members.append(&mut metadata);
                }
                made
            }
            Verb::ApplyStatus => json!({
                "metadata": {"resourceVersion": body.pointer("/metadata/resourceVersion")},
                "status": body.pointer("/status"),
            }),
            Verb::Delete | Verb::Patch | Verb::PatchStatus | Verb::Get | Verb::Log | Verb::List => Value::Null,
        }))
    }
}

fn body(prepared: &Prepared) -> Value {
    serde_json::from_slice(&prepared.body).unwrap_or_default()
}

fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Delete => "delete",
        Verb::Patch => "patch",
        Verb::PatchStatus => "patch status",
        Verb::ApplyStatus => "apply status",
        Verb::Get => "get",
        Verb::Log => "get the log of",
        Verb::List => "list",
    }
}

fn words(prepared: &Prepared) -> String {
    let Prepared { kind, name, job, cause, .. } = prepared;
    let body = body(prepared);
    let more = match prepared.verb {
        Verb::ApplyStatus => {
            let word = body.get("status").and_then(objects::state_word);
            word.map(|word| format!(", state {word}")).unwrap_or_default()
        }
        Verb::Delete if body.get("gracePeriodSeconds") == Some(&json!(0)) => ", by force".to_owned(),
        _ if !prepared.expects_answer => {
            let text = |member| body.get(member).and_then(Value::as_str).unwrap_or_default();
            format!(": {} {}: {}", text("type"), text("reason"), text("message"))
        }
        _ => String::new(),
    };
    format!("would {} {kind} {}/{name} (record {cause}){more}", verb(prepared.verb), job.namespace)
}

fn object(prepared: &Prepared) -> Value {
    json!({
        "verb": verb(prepared.verb),
        "kind": &*prepared.kind,
        "namespace": &*prepared.job.namespace,
        "name": &*prepared.name,
        "job": &*prepared.job.name,
        "record": prepared.cause.to_string(),
        "request": format!("{} {}", prepared.head.method(), prepared.head.uri()),
        "body": body(prepared),
    })
}

#[cfg(test)]
mod tests {
    use apis::{ApiCall, Registry, Resource};
    use model::{JobKey, ObjectRef, Position, ResourceVersion, Stamp, Term, Uid};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn call(verb: Verb, kind: &str, body: Option<Value>) -> Prepared {
        let version = if kind == "AITrainingJob" { "elasticdeeplearning.ai/v1" } else { "v1" };
        let call = ApiCall {
            id: 7,
            job: JobKey {
                namespace: "ns".into(),
                name: "j".into(),
                kind: "AITrainingJob".into(),
                uid: Uid::from("ju"),
            },
            object: Some(ObjectRef::Status),
            cause: Stamp { term: Term(5), position: Position(42) },
            verb,
            resource: Resource::new(version, kind),
            namespace: "ns".into(),
            name: "x".into(),
            body,
            uid: None,
            rv: Some(ResourceVersion(31)),
            grace_seconds: Some(0),
        };
        crate::dispatch::request::prepare(call, &Registry::all()).unwrap()
    }

    #[test]
    fn writes_are_reported_once_and_answered_as_if_they_were_done() {
        let page = Page::default();
        let dry_run = DryRun::new(Format::Text, Box::new(page.clone()));
        let create = || call(Verb::Create, "Pod", Some(json!({"metadata": {"name": "x"}})));
        let made = dry_run.answer(&create()).unwrap();
        assert_eq!((&made["metadata"]["name"], &made["metadata"]["uid"]), (&json!("x"), &json!("dry-run-7")));
        assert!(apis::objects::resource_version(&made) > ResourceVersion(1_000_000));
        assert_eq!(dry_run.answer(&create()), None);
        let status = call(Verb::ApplyStatus, "AITrainingJob", Some(json!({"status": {"phase": "Running"}})));
        assert_eq!(dry_run.answer(&status).unwrap()["metadata"]["resourceVersion"], "31");
        let conditions = json!({"status": {"conditions": [{"type": "Created", "status": "True"}]}});
        dry_run.answer(&call(Verb::ApplyStatus, "AITrainingJob", Some(conditions))).unwrap();
        dry_run.answer(&call(Verb::Delete, "Pod", None)).unwrap();
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "would create Pod ns/x (record 5/42)",
                "would apply status AITrainingJob ns/x (record 5/42), state Running",
                "would apply status AITrainingJob ns/x (record 5/42), state Created",
                "would delete Pod ns/x (record 5/42), by force",
            ]
        );
    }

    #[test]
    fn json_holds_the_whole_request() {
        let page = Page::default();
        let dry_run = DryRun::new(Format::Json, Box::new(page.clone()));
        dry_run.answer(&call(Verb::Create, "Pod", Some(json!({"metadata": {"name": "x"}})))).unwrap();
        let line: Value = serde_json::from_slice(&page.0.lock().unwrap()).unwrap();
        assert_eq!(
            line,
            json!({"verb": "create", "kind": "Pod", "namespace": "ns", "name": "x", "job": "j", "record": "5/42",
                "request": "POST /api/v1/namespaces/ns/pods?fieldManager=trainyard",
                "body": {"metadata": {"name": "x", "annotations": {"trainyard.dev/record": "5/42"}}}})
        );
    }
}
