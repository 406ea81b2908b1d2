//! Opening a log for writing, as it was decided: beginning one, or letting the engine open one that exists.
//!
//! Owns the lock that comes first, and the order that keeps records safe from the engine: raw blocks are copied and linked up to
//! the stored head before sled may open its files, because sled erases what it takes for torn. The copy has a name until the log is
//! open, so that even a process that ends in between loses nothing. Tests: `tests/damage.rs`, `tests/compaction.rs`.

use std::fs::{self, File};
use std::io;

use model::Position;

use super::Verify;
use super::engine::{Epoch, data_file};
use super::examine::examine;
use super::layout::Layout;
use super::opening::{Live, Opening};
use super::raw::{RawBlocks, RawScan};
use super::store::DiskStore;
use crate::chain::{base_of, verify_all};
use crate::copying::copy_chain;
use crate::error::{Damage, Error};
use crate::log::Log;

/// Takes the writer's lock of a directory that is a log or may become one. Nothing changes in another one.
pub(super) fn claim(layout: &Layout, must_exist: bool) -> Result<File, Error> {
    if must_exist {
        layout.check_is_log()?;
    } else {
        fs::create_dir_all(layout.dir()).map_err(|e| Error::io("create", layout.dir(), e))?;
    }
    if layout.live()?.is_none() {
        layout.check_unused()?;
    }
    layout.lock()
}

/// Opens a log as it was decided.
pub(super) fn execute(layout: &Layout, opening: Opening, verify: Verify, lock: File) -> Result<Log<DiskStore>, Error> {
    match opening {
        Opening::Begin { leftovers } => begin(layout, &leftovers, lock),
        Opening::Trust(log) => reopen(layout, &log, None, verify, &lock),
        Opening::Prove { log, has_evidence } => {
            let blocks = sound_evidence(layout, &log, has_evidence)?;
            reopen(layout, &log, Some(blocks), verify, &lock)
        }
        Opening::Refuse(damage) => Err(Error::damaged(Position(0), damage)),
    }
}

/// Begins a log in a directory that holds none.
fn begin(layout: &Layout, leftovers: &[u64], lock: File) -> Result<Log<DiskStore>, Error> {
    layout.remove_epochs(leftovers)?;
    let epoch = Epoch::create(layout, 1)?;
    layout.sync_epoch(1)?;
    layout.set_live(1)?;
    let mut log = Log::open(DiskStore::new(layout.clone(), 1, epoch, None, lock)?, Verify::Tail)?;
    log.store_mut().opened();
    Ok(log)
}

/// Opens a log that exists. `evidence`: its blocks, where they were copied before.
fn reopen(
    layout: &Layout,
    live: &Live,
    evidence: Option<RawBlocks>,
    verify: Verify,
    lock: &File,
) -> Result<Log<DiskStore>, Error> {
    layout.remove_epochs(&live.leftovers)?;
    let attempt = Epoch::open(layout, live.epoch).and_then(|epoch| {
        let store = DiskStore::new(layout.clone(), live.epoch, epoch, live.head, share(lock, layout)?)?;
        Log::open(store, verify)
    });
    let lost = match attempt {
        Err(Error::Damaged { at, reason }) => format!("at position {at}: {reason}"),
        Err(Error::Engine { message, .. }) => message,
        Err(other) => return Err(other),
        Ok(mut log) => {
            layout.drop_evidence(live.epoch)?;
            log.store_mut().opened();
            return Ok(log);
        }
    };
    let blocks = match evidence {
        Some(blocks) => blocks,
        // The engine was trusted because there was none.
        None => sound_evidence(layout, live, false)?,
    };
    rebuild(layout, live, &blocks, share(lock, layout)?, lost)
}

/// Clones the lock's handle. Both handles are one lock, which is released when the last of them is closed.
fn share(lock: &File, layout: &Layout) -> Result<File, Error> {
    lock.try_clone().map_err(|e| Error::io("share the lock of", layout.dir(), e))
}

/// Copies the raw blocks of an epoch, checks that they reach the stored head, and names the copy.
fn sound_evidence(layout: &Layout, live: &Live, has_evidence: bool) -> Result<RawBlocks, Error> {
    let (new, evidence) = (layout.evidence_new(), layout.evidence(live.epoch));
    let fail = |action| move |e: io::Error| Error::io(action, layout.dir(), e);
    let file = File::options().create(true).truncate(true).read(true).write(true).open(&new);
    let mut scan = RawScan::into_file(file.map_err(fail("copy blocks to"))?);
    scan.read(&data_file(&layout.epoch_dir(live.epoch)))?;
    if has_evidence {
        scan.read(&evidence)?; // an earlier opening did not come to its end
    }
    let (chosen, _) = scan.choose(live.head)?;
    if chosen.suspect {
        let examined = examine(&chosen, live.head)?;
        if let Some((at, reason)) = examined.first_bad {
            fs::remove_file(&new).map_err(fail("remove a copy in"))?;
            return Err(Error::Damaged { at, reason });
        }
    }
    fs::rename(&new, &evidence).map_err(fail("name a copy in"))?;
    Ok(chosen.blocks)
}

/// Writes a new epoch from raw blocks: the engine lost, or cannot open, what its file held.
fn rebuild(
    layout: &Layout,
    live: &Live,
    blocks: &RawBlocks,
    lock: File,
    lost: String,
) -> Result<Log<DiskStore>, Error> {
    let base = base_of(blocks)?.unwrap_or_default();
    let (tip, result) = verify_all(blocks, base)?;
    result?;
    if live.head.is_some_and(|stored| stored.position > tip.head.position) {
        return Err(Error::damaged(tip.head.position.next(), Damage::Engine(lost)));
    }
    tracing::warn!(reason = %lost, head = %tip.head.position, "storage engine lost records its file held; epoch rebuilt");
    let next = live.epoch.saturating_add(1);
    let mut epoch = Epoch::create(layout, next)?;
    copy_chain(blocks, base, tip, &mut epoch)?;
    layout.sync_epoch(next)?;
    layout.set_live(next)?;
    let mut log = Log::open(DiskStore::new(layout.clone(), next, epoch, live.head, lock)?, Verify::Full)?;
    layout.remove_epoch(live.epoch)?;
    layout.drop_evidence(live.epoch)?;
    log.store_mut().opened();
    Ok(log)
}
