//! Turns calls into HTTP requests, and responses into answers.
//!
//! Owns paths, bodies, preconditions, and the fields read of a response. Each write names the record it follows from: in the user
//! agent, which audit logs keep, and in an annotation of created objects. Tests: `dispatch/request/tests.rs`.

use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, ApiError, CallId, Registry, Resource, Verb, objects};
use http::{HeaderValue, Method, Request, header};
use kube::api::ListParams;
use kube::client::Body;
use model::{JobKey, ObjectRef, Stamp, Text};
use serde_json::{Map, Value, json};

use crate::client::transport::USER_AGENT;
use crate::watch::decode::{self, ObjectType};
use crate::watch::listing::LIST_PAGE_SIZE;
use crate::watch::projection::{self, FieldMask};
use crate::watch::sources::collection;

/// Annotation of created objects: term and position of the record that they follow from.
pub(crate) const RECORD_ANNOTATION: &str = "trainyard.dev/record";

/// Field manager of server-side apply, and of every other write.
pub(crate) const FIELD_MANAGER: &str = "trainyard";

/// Maximum number of bytes that are read of a log. More than a line of a training has.
const MAX_LOG_BYTES: &str = "16384";

/// Accepts any type: a log is a text, and an error an object.
const ANY: &str = "*/*";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Accepts metadata alone. The second choice is for servers that cannot reduce the response.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A call with its HTTP request.
#[derive(Debug)]
pub struct Prepared {
    /// Number of the call.
    pub id: CallId,
    /// True if the operator waits for the answer; false for Kubernetes Events.
    pub expects_answer: bool,
    /// The verb.
    pub verb: Verb,
    /// The kind of object.
    pub kind: Text,
    /// The job it is for.
    pub job: JobKey,
    /// Name of the object.
    pub name: Text,
    /// The record it follows from.
    pub cause: Stamp,
    /// Method, path and headers.
    pub head: Request<()>,
    /// The body, as it is sent.
    pub body: Vec<u8>,
    read: AnswerType,
}

/// What is read of a response.
#[derive(Debug)]
pub enum AnswerType {
    /// Nothing.
    Nothing,
    /// An object.
    Object(ObjectType),
    /// A text.
    Text,
    /// A page of a list.
    Page(ObjectType),
}

/// Creates the request of a call.
///
/// # Errors
/// The answer of a call that cannot be rendered.
pub fn prepare(mut call: ApiCall, registry: &Registry) -> Result<Prepared, ApiError> {
    let plural = registry.plural(&call.resource).ok_or_else(|| {
        invalid(format!("{} {} is not served by this build", call.resource.api_version, call.resource.kind))
    })?;
    let namespace = Some(&*call.namespace).filter(|namespace| !namespace.is_empty());
    let all = collection(&call.resource.api_version, plural, namespace);
    let one = format!("{all}/{}", call.name);
    let stamp = call.cause;
    let written = [("fieldManager", FIELD_MANAGER)];
    let whole = fields(registry, &call.resource);
    let (method, uri, content, accept, body, fields) = match call.verb {
        // It may decide a write, by whatever an administrator wrote on it.
        Verb::Get if namespace.is_none() => (Method::GET, one, None, JSON, None, Some(projection::WHOLE)),
        Verb::Get => (Method::GET, one, None, JSON, None, Some(whole)),
        Verb::Log => (Method::GET, log_path(&one, &call), None, ANY, None, None),
        Verb::List => (Method::GET, list_path(&all, &call)?, None, JSON, None, None),
        Verb::Create => {
            let body = creation(call.body.take(), stamp)?;
            // The metadata suffices for a created object, unless it was scheduled from the start, or is a job: its spec is read.
            let placed = objects::at(&body, &["spec", "nodeName"]).is_some();
            let is_job = registry.get(&call.resource).is_some();
            let accept = if placed || is_job { JSON } else { METADATA };
            let fields = call.object.is_some().then_some(whole);
            (Method::POST, query(&all, &written), Some(JSON), accept, Some(body), fields)
        }
        Verb::Delete => (Method::DELETE, one, Some(JSON), METADATA, Some(deletion(&call)), None),
        Verb::Patch | Verb::PatchStatus => {
            let one = if call.verb == Verb::PatchStatus { format!("{one}/status") } else { one };
            let body = with_preconditions(call.body.take().unwrap_or_default(), &call)?;
            // Where a patch writes the state of a job, the whole object shows whether it was stored.
            let writes_state = call.object == Some(ObjectRef::Status);
            let (accept, fields) = if writes_state { (JSON, whole) } else { (METADATA, projection::VERSION) };
            (Method::PATCH, query(&one, &written), Some(MERGE), accept, Some(body), Some(fields))
        }
        Verb::ApplyStatus => {
            let body = application(&mut call)?;
            let uri = query(&format!("{one}/status"), &[("fieldManager", FIELD_MANAGER), ("force", "true")]);
            // The whole object: metadata alone does not show whether the mirror was stored.
            (Method::PATCH, uri, Some(APPLY), JSON, Some(body), Some(projection::STATUS_ANSWER))
        }
    };
    let body = match body {
        Some(body) => serde_json::to_vec(&body).map_err(|error| invalid(error.to_string()))?,
        None => Vec::new(),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::ACCEPT, HeaderValue::from_static(accept))
        .header(header::USER_AGENT, user_agent(stamp));
    if let Some(content) = content {
        request = request.header(header::CONTENT_TYPE, HeaderValue::from_static(content));
    }
    let head = request.body(()).map_err(|error| invalid(error.to_string()))?;
    let ApiCall { id, job, object, verb, resource, name, .. } = call;
    let read = match fields {
        Some(fields) => {
            AnswerType::Object(ObjectType { api_version: resource.api_version, kind: resource.kind.clone(), fields })
        }
        None if verb == Verb::Log => AnswerType::Text,
        None if verb == Verb::List => {
            let fields = if &*resource.kind == "Node" { projection::NODE } else { projection::FOREIGN };
            AnswerType::Page(ObjectType { api_version: resource.api_version, kind: resource.kind.clone(), fields })
        }
        None => AnswerType::Nothing,
    };
    Ok(Prepared {
        id,
        expects_answer: object.is_some(),
        verb,
        kind: resource.kind,
        job,
        name,
        cause: stamp,
        head,
        body,
        read,
    })
}

/// Reads a response.
///
/// # Errors
/// The server's error; with code 0 if the response cannot be read.
pub fn answer(read: &AnswerType, status: u16, body: &[u8]) -> ApiAnswer {
    if !(200..300).contains(&status) {
        return Err(decode::refusal(status, body));
    }
    let unreadable = |error: &dyn std::fmt::Display| no_answer(format!("unreadable answer: {error}"));
    let object_type = match read {
        AnswerType::Nothing => return Ok(Arc::new(Value::Null)),
        AnswerType::Text => return Ok(Arc::new(Value::from(String::from_utf8_lossy(body)))),
        AnswerType::Page(object_type) => {
            let page = decode::page(body, object_type).map_err(|error| unreadable(&error))?;
            return Ok(Arc::new(json!({"metadata": {"continue": page.next}, "items": page.items})));
        }
        AnswerType::Object(object_type) => object_type,
    };
    // The write was done. An unreadable response counts as no answer.
    decode::object(body, object_type).map(Arc::new).map_err(|error| unreadable(&error))
}

/// Returns the error of a call without an answer: it may have been applied.
pub fn no_answer(message: String) -> ApiError {
    ApiError { code: 0, reason: Text::from(""), message }
}

impl Prepared {
    /// Returns the request, and the type its response is read as.
    pub fn into_request(self) -> (Request<Body>, AnswerType) {
        let body = self.body;
        (self.head.map(|()| Body::from(body)), self.read)
    }
}

fn fields(registry: &Registry, resource: &Resource) -> FieldMask {
    match &*resource.kind {
        "Pod" => projection::POD,
        "Service" => projection::SERVICE,
        _ if registry.get(resource).is_some() => projection::JOB,
        _ => projection::OWNED,
    }
}

/// Returns the path of the last line of a pod's log.
fn log_path(pod: &str, call: &ApiCall) -> String {
    let body = call.body.as_ref();
    let container = body.and_then(|body| objects::text_at(body, &["container"])).unwrap_or_default();
    query(&format!("{pod}/log"), &[("container", container), ("tailLines", "1"), ("limitBytes", MAX_LOG_BYTES)])
}

/// Returns the path of a page of a list.
fn list_path(all: &str, call: &ApiCall) -> Result<String, ApiError> {
    let member = |key| call.body.as_ref().and_then(|body| objects::text_at(body, &[key])).unwrap_or_default();
    let written = |key| Some(member(key).to_owned()).filter(|text| !text.is_empty());
    let params = ListParams {
        field_selector: written("fieldSelector"),
        continue_token: written("continue"),
        limit: Some(LIST_PAGE_SIZE),
        ..ListParams::default()
    };
    let request = kube::core::Request::new(all).list(&params).map_err(|error| invalid(error.to_string()))?;
    Ok(request.uri().to_string())
}

fn query(path: &str, pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{path}?{}", pairs.join("&"))
}

fn user_agent(cause: Stamp) -> String {
    if cause == Stamp::default() { USER_AGENT.to_owned() } else { format!("{USER_AGENT} (record {cause})") }
}

/// Returns the object to create, with the record it follows from.
fn creation(body: Option<Value>, cause: Stamp) -> Result<Value, ApiError> {
    let mut body = body.unwrap_or_default();
    if cause != Stamp::default() {
        let annotations = member(member(&mut body, "metadata")?, "annotations")?;
        if let Value::Object(annotations) = annotations {
            annotations.insert(RECORD_ANNOTATION.to_owned(), Value::from(cause.to_string()));
        }
    }
    Ok(body)
}

fn deletion(call: &ApiCall) -> Value {
    let mut options = Map::new();
    options.insert("apiVersion".to_owned(), json!("v1"));
    options.insert("kind".to_owned(), json!("DeleteOptions"));
    if let Some(grace) = call.grace_seconds {
        options.insert("gracePeriodSeconds".to_owned(), json!(grace));
    }
    let mut preconditions = Map::new();
    if let Some(uid) = &call.uid {
        preconditions.insert("uid".to_owned(), json!(&*uid.0));
    }
    if let Some(rv) = call.rv {
        preconditions.insert("resourceVersion".to_owned(), json!(rv.to_string()));
    }
    if !preconditions.is_empty() {
        options.insert("preconditions".to_owned(), Value::Object(preconditions));
    }
    Value::Object(options)
}

/// Adds the call's preconditions to the metadata of a body.
fn with_preconditions(mut body: Value, call: &ApiCall) -> Result<Value, ApiError> {
    if let Value::Object(metadata) = member(&mut body, "metadata")? {
        if let Some(uid) = &call.uid {
            metadata.insert("uid".to_owned(), json!(&*uid.0));
        }
        if let Some(rv) = call.rv {
            metadata.insert("resourceVersion".to_owned(), json!(rv.to_string()));
        }
    }
    Ok(body)
}

/// Returns the body of server-side apply: the object's name, preconditions and desired status.
fn application(call: &mut ApiCall) -> Result<Value, ApiError> {
    let status = call.body.as_mut().and_then(|body| body.get_mut("status")).map(Value::take).unwrap_or_default();
    let body = json!({
        "apiVersion": &*call.resource.api_version,
        "kind": &*call.resource.kind,
        "metadata": {"name": &*call.name, "namespace": &*call.namespace},
        "status": status,
    });
    with_preconditions(body, call)
}

/// Returns a member that is an object, creating it if it is absent or null.
fn member<'a>(parent: &'a mut Value, name: &str) -> Result<&'a mut Value, ApiError> {
    let Value::Object(map) = parent else { return Err(invalid(format!("{name}: its parent is no object"))) };
    let value = map.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    if value.is_object() { Ok(value) } else { Err(invalid(format!("{name}: must be an object ({value})"))) }
}

fn invalid(message: String) -> ApiError {
    ApiError { code: 422, reason: Text::from("Invalid"), message }
}

#[cfg(test)]
mod tests;
