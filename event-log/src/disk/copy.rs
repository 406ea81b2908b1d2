//! Reading a log without owning it: copies beside a writer, verification, and saving the good part of a damaged log.
//!
//! Owns the retries that make a copy of moving files whole. It writes nothing in the log's directory and never asks the
//! storage engine. Tests: `tests/copy.rs`, `tests/damage.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::Position;

use super::engine::data_file;
use super::examine::{Examined, examine};
use super::layout::{Layout, read_head};
use super::medium::Direct;
use super::raw::{Chosen, CopyStore, RawScan};
use super::{Report, SledLog};
use crate::chain::{Tip, frames_from};
use crate::digest::Head;
use crate::error::{Damage, Error};
use crate::log::Log;

const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// One look at a directory.
struct Look {
    chosen: Chosen,
    examined: Examined,
    stored: Option<Head>,
    has_writer: bool,
}

impl Look {
    /// Returns true if every record is there that was acknowledged before the files were read.
    fn is_whole(&self) -> bool {
        let reach = self.examined.tip.head.position;
        match self.stored {
            // What a writer is about to commit may look like damage beyond the stored head.
            Some(stored) if self.has_writer => reach >= stored.position && !self.contradicts(stored),
            _ => self.examined.first_bad.is_none(),
        }
    }

    fn contradicts(&self, stored: Head) -> bool {
        matches!(&self.examined.first_bad, Some((at, _)) if *at <= stored.position)
    }
}

/// Looks at a log until all that was acknowledged has been seen, or it is clear that it is not there.
fn look(dir: &Path) -> Result<Look, Error> {
    let layout = Layout::new(dir, Arc::new(Direct));
    let mut gathered: Option<(u64, RawScan)> = None;
    let mut last = Err(Error::NotALog { path: dir.to_owned(), reason: "no log is there" });
    let mut head_file_bad = false;
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let has_writer = layout.has_writer();
        // The head first: it is stored after its records.
        let stored = match read_head(dir) {
            Ok(stored) => stored.map(|stored| stored.head),
            Err(error @ Error::Damaged { .. }) if has_writer => {
                last = Err(error); // being overwritten just now
                continue;
            }
            Err(Error::Damaged { .. }) => {
                head_file_bad = true;
                None
            }
            Err(other) => return Err(other),
        };
        let Some(live) = layout.live()? else { return last };
        let mut scan = match gathered.take() {
            Some((epoch, scan)) if epoch == live => scan,
            _ => RawScan::new(&std::env::temp_dir())?,
        };
        match scan.read(&data_file(&layout.epoch_dir(live))) {
            Ok(()) => {}
            Err(error) => {
                let missing = !data_file(&layout.epoch_dir(live)).exists();
                if layout.live()? == Some(live) && missing {
                    return Err(Error::damaged(Position(0), Damage::Current("it names an epoch that is not there")));
                }
                last = Err(error); // compaction took it away
                continue;
            }
        }
        let evidence = layout.evidence(live);
        if evidence.exists() {
            // Another open did not come to its end, or is in progress and may have removed it meanwhile.
            let _ = scan.read(&evidence);
        }
        let (chosen, scan) = scan.choose(stored)?;
        let mut examined = examine(&chosen, stored)?;
        if head_file_bad && examined.first_bad.is_none() {
            examined.first_bad = Some((examined.tip.head.position.next(), Damage::HeadFile));
        }
        let seen = Look { chosen, examined, stored, has_writer };
        if seen.is_whole() || !(has_writer || layout.has_writer()) {
            return Ok(seen);
        }
        last = Ok(seen);
        gathered = Some((live, scan));
    }
    last
}

/// Returns a read-only log over the chain up to `head`.
fn log_upto(look: Look, head: Head) -> Result<SledLog, Error> {
    let Look { chosen, examined: Examined { base, tip, .. }, .. } = look;
    let tip = if head == tip.head { tip } else { tip_at(&chosen, base, head)? };
    let store = CopyStore { blocks: chosen.blocks };
    Ok(SledLog(Box::new(Log::assume(store, base, tip)?)))
}

fn tip_at(chosen: &Chosen, base: Tip, head: Head) -> Result<Tip, Error> {
    if head.position <= base.head.position {
        return Ok(base);
    }
    let (tip, result) =
        frames_from(&chosen.blocks, base, base.head.position.next(), Some(head), head.position.0)?.finish();
    result.map(|()| tip)
}

pub(super) fn open_copy(dir: &Path) -> Result<SledLog, Error> {
    let look = look(dir)?;
    if !look.is_whole() {
        let (at, reason) = look.examined.first_bad.unwrap_or((Position(0), Damage::Missing));
        return Err(Error::Damaged { at, reason });
    }
    let head = match look.stored {
        Some(stored) if look.has_writer => stored,
        _ => look.examined.tip.head,
    };
    log_upto(look, head)
}

/// Reads all of a stored log and says how far it is good. Changes nothing; works beside a writer.
///
/// # Errors
/// [`Error::NotALog`], [`Error::TooNew`], IO errors, or [`Error::Damaged`] when even the files that lead to the records
/// are unreadable.
pub fn verify(dir: impl AsRef<Path>) -> Result<Report, Error> {
    let look = look(dir.as_ref())?;
    let Examined { base, tip, ref first_bad } = look.examined;
    let first_bad = if look.is_whole() { None } else { first_bad.clone() };
    Ok(Report {
        good_prefix_head: tip.head,
        first: base.head.position.next(),
        records: tip.head.position.0.saturating_sub(base.head.position.0),
        body_bytes: tip.body_bytes,
        stored_head: look.stored,
        first_bad,
    })
}

/// Opens the good prefix of a log, damaged or not, read-only: what [`verify`] reports as good, for export.
///
/// # Errors
/// As for [`verify`].
pub fn salvage(dir: impl AsRef<Path>) -> Result<SledLog, Error> {
    let look = look(dir.as_ref())?;
    let head = look.examined.tip.head;
    log_upto(look, head)
}
