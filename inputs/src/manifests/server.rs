//! What an API server says of the objects of some files, asked by dry run: nothing is stored.
//!
//! Owns the requests, and how an answer becomes problems at the place of each object. A kind is looked up in the server's own
//! discovery, so that any kind can be asked about. Tests: `cli/tests/cluster/validate.rs`, and at the end of
//! this file.

use std::collections::BTreeMap;
use std::time::Duration;

use apis::Severity;
use http::{HeaderMap, Method, Request, StatusCode};
use k8s_driver::api_server::{self, Connection, exchange};
use kube::Client;
use serde_json::Value;
use terminal::out::{Failure, plain};

use super::{Problem, Source};

/// Time limit of an answer.
const LIMIT: Duration = Duration::from_secs(30);
/// Field manager of what is asked about.
const MANAGER: &str = "trainyard-validate";

/// Name in a URL, and scope, of each kind that a version serves.
type Kinds = BTreeMap<String, (String, bool)>;

/// An API server that is asked about objects.
pub struct Server {
    client: Client,
    namespace: String,
    /// Its address.
    pub address: String,
    /// Kinds by version, as far as they were asked for; `None` for a version that is not served.
    known: BTreeMap<String, Option<Kinds>>,
}

/// An answer: its code, its warnings, its body.
struct Response {
    status: StatusCode,
    warnings: Vec<String>,
    body: Value,
}

impl Server {
    /// Connects; without a namespace that of the context is meant.
    ///
    /// # Errors
    /// Returns an error if there is no way to the server.
    pub async fn connect(options: &api_server::Options, namespace: Option<String>) -> Result<Self, Failure> {
        let Connection { client, namespace: own, server, .. } = api_server::connect(options).await?;
        Ok(Self { client, namespace: namespace.unwrap_or(own), address: server, known: BTreeMap::new() })
    }

    /// Returns true if the server serves the kind of an object.
    pub(super) async fn serves(&mut self, source: &Source) -> Result<bool, Failure> {
        let text = |key: &str| source.object.get(key).and_then(Value::as_str).unwrap_or_default();
        Ok(self.kind(text("apiVersion"), text("kind")).await?.is_some())
    }

    /// Returns what the server says of an object; nothing if it accepts it without a warning.
    pub(super) async fn problems(&mut self, source: &Source) -> Result<Vec<Problem>, Failure> {
        let object = &source.object;
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (Some(version), Some(kind)) = (text("/apiVersion"), text("/kind")) else { return Ok(Vec::new()) };
        let Some((plural, is_namespaced)) = self.kind(version, kind).await? else {
            let problem = format!("the API server serves no {kind} of {version}: install its definition first");
            return Ok(vec![source.problem(Severity::Error, "kind", problem)]);
        };
        let namespace = text("/metadata/namespace").unwrap_or(&self.namespace).to_owned();
        let name = text("/metadata/name");
        let shown = name.or_else(|| text("/metadata/generateName")).unwrap_or_default();
        let of = if is_namespaced { format!("{kind} {namespace}/{shown}") } else { format!("{kind} {shown}") };
        let within = if is_namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        let path = format!("{}{within}/{plural}", root(version));
        let rules = format!("dryRun=All&fieldValidation=Strict&fieldManager={MANAGER}");
        let created = self.send(Method::POST, &format!("{path}?{rules}"), "application/json", object).await?;
        let answer = match name.filter(|_| created.status == StatusCode::CONFLICT) {
            // It exists: what is asked is whether it may become this one.
            Some(name) => {
                let path = format!("{path}/{name}?{rules}&force=true");
                self.send(Method::PATCH, &path, "application/apply-patch+yaml", object).await?
            }
            None => created,
        };
        Ok(read(source, &of, &answer))
    }

    /// Looks a kind up: its name in URLs, and whether it stands in namespaces.
    async fn kind(&mut self, version: &str, kind: &str) -> Result<Option<(String, bool)>, Failure> {
        if version.is_empty() {
            return Ok(None);
        }
        if !self.known.contains_key(version) {
            let answer = self.send(Method::GET, &root(version), "application/json", &Value::Null).await?;
            let kinds = match answer.status {
                StatusCode::OK => Some(kinds(&answer.body)),
                StatusCode::NOT_FOUND => None,
                status => return Err(Failure::new(format!("{}: {}", self.address, message(status, &answer.body)))),
            };
            self.known.insert(version.to_owned(), kinds);
        }
        let kinds = self.known.get(version).and_then(Option::as_ref);
        Ok(kinds.and_then(|kinds| kinds.get(kind)).cloned())
    }

    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<Response, Failure> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, content);
        let request = request.header(http::header::ACCEPT, "application/json").body(bytes.into())?;
        let answer = exchange(&self.client, request, LIMIT).await;
        let answer = answer.map_err(|error| Failure::new(format!("the API server {}: {error}", self.address)))?;
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok(Response { status: answer.status, warnings: warnings(&answer.headers), body })
    }
}

/// Returns the path of a version: `/api/v1`, or `/apis/GROUP/VERSION`.
fn root(version: &str) -> String {
    if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") }
}

/// Reads an `APIResourceList`; subresources are left out.
fn kinds(list: &Value) -> Kinds {
    let resources = list.get("resources").and_then(Value::as_array).into_iter().flatten();
    let named = resources.filter_map(|resource| {
        let name = resource.get("name")?.as_str().filter(|name| !name.contains('/'))?;
        let is_namespaced = resource.get("namespaced")?.as_bool()?;
        Some((resource.get("kind")?.as_str()?.to_owned(), (name.to_owned(), is_namespaced)))
    });
    named.collect()
}

/// Reads the texts of `Warning` headers: `299 - "text"`.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
    let texts = texts.filter_map(|text| text.split_once('"').and_then(|(_, text)| text.rsplit_once('"')));
    texts.map(|(text, _)| text.replace("\\\"", "\"")).collect()
}

/// Returns the message of a refusal.
fn message(status: StatusCode, body: &Value) -> String {
    let text = body.get("message").and_then(Value::as_str).filter(|text| !text.is_empty());
    text.map_or_else(|| format!("answered {status}"), plain)
}

/// Returns what an answer says of an object, which is called `of`.
fn read(source: &Source, of: &str, answer: &Response) -> Vec<Problem> {
    let warned =
        |text: &String| source.problem_of_all(Severity::Remark, &format!("{of}: the API server warns: {text}"));
    let mut problems: Vec<Problem> = answer.warnings.iter().map(warned).collect();
    if answer.status.is_success() {
        return problems;
    }
    let causes =
        answer.body.pointer("/details/causes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |cause: &Value, key: &str| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let fields = causes.iter().map(|cause| (text(cause, "field"), text(cause, "message")));
    let fields: Vec<_> = fields.filter(|(field, _)| !field.is_empty() && field != "<nil>").collect();
    if fields.is_empty() {
        let text = message(answer.status, &answer.body);
        problems.push(source.problem_of_all(Severity::Error, &format!("{of}: the API server says: {text}")));
    }
    let said = |text: &str| format!("{of}: the API server says: {text}");
    problems.extend(fields.iter().map(|(field, text)| source.problem(Severity::Error, field, said(text))));
    problems
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn source(text: &str) -> Source {
        super::super::Source::of("job.yaml", text)
    }

    fn lines(answer: &Response) -> Vec<String> {
        let source = source("kind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: A b\n");
        read(&source, "Pod default/a", answer).iter().map(|problem| problem.line(false)).collect()
    }

    #[test]
    fn each_cause_stands_at_its_field() {
        let body = json!({"message": "Pod \"a\" is invalid", "details": {"causes": [
            {"reason": "FieldValueInvalid", "message": "Invalid value: \"A b\": must be lower case", "field": "spec.containers[0].name"},
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers[0].image"},
        ]}});
        let answer = Response { status: StatusCode::UNPROCESSABLE_ENTITY, warnings: Vec::new(), body };
        let want = [
            "job.yaml:6:5: spec.containers[0].name: Pod default/a: the API server says: Invalid value: \"A b\": must be lower case",
            "job.yaml:6:5: spec.containers[0].image: Pod default/a: the API server says: Required value",
        ];
        let lines = lines(&answer);
        assert_eq!(lines.len(), 2);
        for (line, want) in lines.iter().zip(want) {
            let text = want.split_once(": ").unwrap().1;
            assert!(line.starts_with("job.yaml:6:") && line.contains(text), "{line}");
        }
    }

    #[test]
    fn an_answer_without_causes_is_given_as_it_is() {
        let body = json!({"message": "namespaces \"x\" not found", "details": {"name": "x"}});
        let answer = Response { status: StatusCode::NOT_FOUND, warnings: vec!["old version".to_owned()], body };
        let lines = lines(&answer);
        assert!(lines[0].contains("warning: ") && lines[0].ends_with("the API server warns: old version"), "{lines:?}");
        assert!(lines[1].ends_with("Pod default/a: the API server says: namespaces \"x\" not found"), "{lines:?}");
        let bare = Response { status: StatusCode::BAD_GATEWAY, warnings: Vec::new(), body: Value::Null };
        assert!(self::lines(&bare)[0].ends_with("the API server says: answered 502 Bad Gateway"));
    }

    #[test]
    fn discovery_and_warnings_are_read() {
        let list = json!({"resources": [
            {"name": "pods", "kind": "Pod", "namespaced": true}, {"name": "pods/status", "kind": "Pod", "namespaced": true},
            {"name": "nodes", "kind": "Node", "namespaced": false},
        ]});
        let want = [("Node", ("nodes", false)), ("Pod", ("pods", true))];
        let want = want.map(|(kind, (name, scope))| (kind.to_owned(), (name.to_owned(), scope)));
        assert_eq!(kinds(&list), want.into());
        let mut headers = HeaderMap::new();
        headers.append("warning", HeaderValue::from_static("299 - \"unknown field \\\"spec.x\\\"\""));
        assert_eq!(warnings(&headers), ["unknown field \"spec.x\""]);
        assert_eq!((root("v1"), root("g/v1")), ("/api/v1".to_owned(), "/apis/g/v1".to_owned()));
    }
}
