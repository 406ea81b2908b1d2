//! A state beside the log, so that whoever opens a long one need not begin at its beginning.
//!
//! Owns the file, and whether what it holds stands for a prefix of a log. The log is never changed, and whoever has no
//! bookmark, or one that does not fit, reads the log instead: so a bookmark may be old, torn, lost or another log's. It
//! decides nothing about what a state means. Tests: at the end of this file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use model::{Position, Term};

use crate::chain::checkpoint_digest;
use crate::error::{Damage, Error};
use crate::types::{Checkpoint, Digest, EventLog};

/// First word of the file, and the version of its form.
const WORDS: [&str; 2] = ["trainyard-bookmark", "1"];

/// Puts a state into the file, in place of the one there: when this is interrupted, one of them is there.
///
/// # Errors
/// When it cannot be written; an older one is then still there.
pub fn write(path: &Path, checkpoint: &Checkpoint) -> Result<(), Error> {
    let new = path.with_extension("new");
    let Checkpoint { position, term, digest, state } = checkpoint;
    let own = Digest(checkpoint_digest(checkpoint));
    let head = format!("{} {} {position} {term} {digest} {own}\n", WORDS[0], WORDS[1]);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(head.as_bytes())?;
        file.write_all(state)?;
        file.sync_all()
    });
    written.map_err(|e| Error::io("write", &new, e))?;
    fs::rename(&new, path).map_err(|e| Error::io("rename", &new, e))?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Error::io("sync", dir, e))
}

/// Reads what [`write`] wrote; `None` when there is none.
///
/// # Errors
/// [`Error::Damaged`] when the file is not exactly what was written, or IO errors.
pub fn read(path: &Path) -> Result<Option<Checkpoint>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    parse(bytes).map(Some).ok_or(Error::damaged(Position(0), Damage::Checkpoint))
}

fn parse(mut bytes: Vec<u8>) -> Option<Checkpoint> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let state = bytes.split_off(end.checked_add(1)?);
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let [name, form, position, term, digest, own] = head.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let checkpoint = Checkpoint {
        position: Position(position.parse().ok()?),
        term: Term(term.parse().ok()?),
        digest: digest.parse().ok()?,
        state,
    };
    let own: Digest = own.parse().ok()?;
    ([name, form] == WORDS && own.0 == checkpoint_digest(&checkpoint)).then_some(checkpoint)
}

/// Whether a state stands for a prefix of the log: the record at its position has its digest, which stands for every record
/// before it.
///
/// # Errors
/// When that record cannot be read.
pub fn fits(log: &dyn EventLog, checkpoint: &Checkpoint) -> Result<bool, Error> {
    let at = checkpoint.position;
    if at < log.first() || at > log.head().position {
        return Ok(false);
    }
    let frame = log.read(at)?.next().transpose()?;
    Ok(frame.is_some_and(|frame| (frame.digest, frame.term) == (checkpoint.digest, checkpoint.term)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryLog, NewRecord};

    fn log(bodies: &[&str]) -> MemoryLog {
        let mut log = MemoryLog::new();
        for body in bodies {
            log.append(&[NewRecord { term: Term(3), body: body.as_bytes() }]).unwrap();
        }
        log
    }

    fn at(log: &MemoryLog, position: u64, state: &[u8]) -> Checkpoint {
        let frame = log.read(Position(position)).unwrap().next().unwrap().unwrap();
        Checkpoint { position: frame.position, term: frame.term, digest: frame.digest, state: state.to_vec() }
    }

    #[test]
    fn what_was_written_last_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bookmark");
        assert_eq!(read(&path).unwrap(), None);
        let log = log(&["a", "b", "c"]);
        for checkpoint in [at(&log, 1, b""), at(&log, 3, b"{\"x\":\n1}")] {
            write(&path, &checkpoint).unwrap();
            assert_eq!(read(&path).unwrap(), Some(checkpoint));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        assert!(write(&dir.path().join("missing/bookmark"), &at(&log, 1, b"")).is_err());
    }

    #[test]
    fn whatever_else_is_in_the_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bookmark");
        write(&path, &at(&log(&["a", "b"]), 2, b"{\"state\":\"of some length\"}")).unwrap();
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            matches!(read(&path), Err(Error::Damaged { reason: Damage::Checkpoint, .. }))
        };
        for length in 0..whole.len() {
            assert!(refused(&whole[..length]), "cut to {length}");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            // Hexadecimal digits of either case are the same digest.
            assert!(refused(&changed), "changed at {place}");
        }
        assert!(refused(&[&whole[..], b"more"].concat()) && refused(b"") && refused(&[0; 100]));
    }

    #[test]
    fn it_fits_its_own_log_alone() {
        let (mut own, other, short) = (log(&["a", "b", "c"]), log(&["a", "x", "c"]), log(&["a"]));
        let mark = at(&own, 2, b"s");
        assert!(fits(&own, &mark).unwrap());
        assert!(!fits(&other, &mark).unwrap() && !fits(&short, &mark).unwrap());
        assert!(!fits(&own, &Checkpoint { term: Term(4), ..mark.clone() }).unwrap());
        assert!(!fits(&own, &Checkpoint { position: Position(0), ..mark.clone() }).unwrap());
        own.compact(&at(&own, 2, b"s")).unwrap();
        assert!(!fits(&own, &mark).unwrap(), "the log itself begins with that state");
    }
}
