//! Requests to etcd itself, by the JSON gateway that it serves beside gRPC on its socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, io};

/// Drops all revisions before the present one, physically; gives that one.
pub(crate) fn compact(socket: &Path) -> Result<u64, Error> {
    let answer = post(socket, "/v3/kv/range", &json!({"key": "AA==", "limit": "1"}))?;
    let revision = answer.pointer("/header/revision").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let revision: u64 = revision.ok_or_else(|| Error::Etcd(format!("no revision in {answer}")))?;
    post(socket, "/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true}))?;
    Ok(revision)
}

fn post(socket: &Path, path: &str, body: &Value) -> Result<Value, Error> {
    let failed = || io(format!("etcd at {}", socket.display()));
    let mut stream = UnixStream::connect(socket).map_err(failed())?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed())?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(failed())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed())?;
    let (head, content) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split_ascii_whitespace().nth(1) != Some("200") {
        return Err(Error::Etcd(format!("{path}: {status}: {}", content.trim())));
    }
    serde_json::from_str(content).map_err(|error| Error::Etcd(format!("{path}: {error} in {content:?}")))
}
