//! One line: a record, or the checkpoint before the first.
//!
//! Owns the members of a line, and what may stand in one. Tests: `tests/jsonl.rs`, `tests/cached_state.rs`.

use std::io::Write;

use model::{Position, Term};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Error, Fault, write_error};
use crate::chain::checkpoint_digest;
use crate::digest::Digest;
use crate::types::{Checkpoint, Frame};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordLine<'a> {
    pub(super) position: Position,
    pub(super) term: Term,
    #[serde(default)]
    pub(super) digest: Option<String>,
    #[serde(borrow)]
    pub(super) record: &'a RawValue,
}

#[derive(Deserialize)]
pub(super) struct CheckpointLine<'a> {
    #[serde(borrow)]
    pub(super) checkpoint: CheckpointText<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CheckpointText<'a> {
    position: Position,
    term: Term,
    digest: String,
    seal: String,
    #[serde(borrow, default)]
    state: Option<&'a RawValue>,
    #[serde(default)]
    state_hex: Option<String>,
}

/// Returns the bytes as text if they can stand in a line and come back exactly.
fn embeddable(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    (raw.get().len() == text.len() && !text.contains(['\n', '\r'])).then_some(text)
}

/// Writes one record as a line, with its digest.
///
/// # Errors
/// [`Error::NotJson`] when its body is not JSON on one line; IO errors.
pub fn write_frame(frame: &Frame, out: &mut impl Write) -> Result<(), Error> {
    write_record(frame, true, out)
}

/// [`write_frame`], with its digest or without.
pub(super) fn write_record(frame: &Frame, proves: bool, out: &mut impl Write) -> Result<(), Error> {
    let Frame { position, term, digest, body } = frame;
    let record = embeddable(body).ok_or(Error::NotJson { at: *position })?;
    let written = if proves {
        writeln!(out, r#"{{"position":{position},"term":{term},"digest":"{digest}","record":{record}}}"#)
    } else {
        writeln!(out, r#"{{"position":{position},"term":{term},"record":{record}}}"#)
    };
    written.map_err(write_error)
}

/// Formats the line of a checkpoint in pieces, to be sent one after another. A state is large, so it is not copied.
pub fn checkpoint_line(checkpoint: Checkpoint) -> Vec<Vec<u8>> {
    let seal = Digest(checkpoint_digest(&checkpoint));
    let Checkpoint { position, term, digest, state } = checkpoint;
    let members = format!(r#""position":{position},"term":{term},"digest":"{digest}","seal":"{seal}""#);
    let begin = |member| format!(r#"{{"checkpoint":{{{members},"{member}":"#).into_bytes();
    if embeddable(&state).is_some() {
        vec![begin("state"), state, b"}}\n".to_vec()]
    } else {
        let digits = state.iter().fold(String::with_capacity(2 * state.len()), |mut digits, byte| {
            // Writing to a string does not fail.
            let _ = std::fmt::Write::write_fmt(&mut digits, format_args!("{byte:02x}"));
            digits
        });
        vec![begin("stateHex"), format!("\"{digits}\"}}}}\n").into_bytes()]
    }
}

/// Reads the checkpoint of a line that [`checkpoint_line`] made; `None` when these are not exactly its bytes.
pub(crate) fn read_checkpoint_line(bytes: &[u8]) -> Option<Checkpoint> {
    let line = bytes.strip_suffix(b"\n")?;
    let line: CheckpointLine<'_> = serde_json::from_slice(line).ok()?;
    line.checkpoint.read().ok()
}

impl CheckpointText<'_> {
    pub(super) fn read(&self) -> Result<Checkpoint, Fault> {
        let hex = |text: &str| text.parse::<Digest>().map_err(|e| Fault::Unreadable(e.to_string()));
        let state = match (self.state, &self.state_hex) {
            (Some(text), None) => text.get().as_bytes().to_vec(),
            (None, Some(digits)) => bytes_of(digits).ok_or_else(|| Fault::Unreadable("bad stateHex".to_owned()))?,
            _ => return Err(Fault::Unreadable("one of state and stateHex is needed".to_owned())),
        };
        let (position, term) = (self.position, self.term);
        let checkpoint = Checkpoint { position, term, digest: hex(&self.digest)?, state };
        if hex(&self.seal)?.0 != checkpoint_digest(&checkpoint) {
            return Err(Fault::Seal);
        }
        Ok(checkpoint)
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    pairs.map(|pair| Some(digit(*pair.first()?)? * 16 + digit(*pair.last()?)?)).collect()
}
