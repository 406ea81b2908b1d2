//! Opening a log for writing: beginning one, or trusting the engine with one that is there.
//!
//! Owns the order that keeps records safe from the engine: raw blocks are copied and linked up to the stored head before
//! sled may open its files, because sled erases what it takes for torn. The copy has a name until the log is open, so that
//! even a process that ends in between loses nothing. Tests: `tests/damage.rs`, `tests/compaction.rs`.

use std::fs::{self, File};
use std::io;

use model::Position;

use super::Verify;
use super::engine::{Epoch, data_file};
use super::examine::examine;
use super::layout::{Layout, StoredHead};
use super::raw::{RawBlocks, RawScan};
use super::store::DiskStore;
use crate::chain::{base_of, verify_all};
use crate::copying::copy_chain;
use crate::digest::Head;
use crate::error::{Damage, Error};
use crate::log::Log;

/// Begins a log in a directory that holds none.
pub(super) fn begin(layout: &Layout, stored: Option<StoredHead>, lock: File) -> Result<Log<DiskStore>, Error> {
    // Epochs without a name for the live one: a first start that was interrupted, unless there are records in them.
    for epoch in layout.epochs()? {
        let path = data_file(&layout.epoch_dir(epoch));
        if path.exists() {
            let mut scan = RawScan::new(layout.dir())?;
            scan.read(&path)?;
            let (chosen, _) = scan.choose(None)?;
            if chosen.end > Position(0) || chosen.suspect {
                return Err(Error::damaged(Position(0), Damage::Current("missing")));
            }
        }
    }
    if stored.is_some_and(|stored| stored.head.position > Position(0)) {
        return Err(Error::damaged(Position(0), Damage::Current("missing")));
    }
    layout.sweep(0)?;
    let epoch = Epoch::create(layout, 1)?;
    layout.sync_epoch(1)?;
    layout.set_live(1)?;
    let mut log = Log::open(DiskStore::new(layout.clone(), 1, epoch, None, lock)?, Verify::Tail)?;
    log.store_mut().opened();
    Ok(log)
}

/// Opens a log that exists.
pub(super) fn reopen(
    layout: &Layout,
    live: u64,
    stored: Option<StoredHead>,
    verify: Verify,
    lock: &File,
) -> Result<Log<DiskStore>, Error> {
    let head = stored.map(|stored| stored.head);
    if !data_file(&layout.epoch_dir(live)).exists() {
        return Err(Error::damaged(Position(0), Damage::Current("it names an epoch that is not there")));
    }
    let has_evidence = layout.evidence(live).exists();
    let trusted = verify == Verify::Tail && !has_evidence && stored.is_some_and(|stored| stored.shut);
    let evidence = if trusted { None } else { Some(sound_evidence(layout, live, head)?) };
    layout.sweep(live)?;
    let attempt = Epoch::open(layout, live).and_then(|epoch| {
        let store = DiskStore::new(layout.clone(), live, epoch, head, share(lock, layout)?)?;
        Log::open(store, verify)
    });
    let lost = match attempt {
        Err(Error::Damaged { at, reason }) => format!("at position {at}: {reason}"),
        Err(Error::Engine { message, .. }) => message,
        Err(other) => return Err(other),
        Ok(mut log) => {
            layout.drop_evidence(live)?;
            log.store_mut().opened();
            return Ok(log);
        }
    };
    let blocks = match evidence {
        Some(blocks) => blocks,
        None => sound_evidence(layout, live, head)?,
    };
    rebuild(layout, live, head, &blocks, share(lock, layout)?, lost)
}

/// Clones the lock's handle. Both handles are one lock, which is released when the last of them is closed.
fn share(lock: &File, layout: &Layout) -> Result<File, Error> {
    lock.try_clone().map_err(|e| Error::io("share the lock of", layout.dir(), e))
}

/// Copies the raw blocks of an epoch, checks that they reach the stored head, and names the copy.
fn sound_evidence(layout: &Layout, epoch: u64, stored: Option<Head>) -> Result<RawBlocks, Error> {
    let (new, evidence) = (layout.evidence_new(), layout.evidence(epoch));
    let fail = |action| move |e: io::Error| Error::io(action, layout.dir(), e);
    let file = File::options().create(true).truncate(true).read(true).write(true).open(&new);
    let mut scan = RawScan::into_file(file.map_err(fail("copy blocks to"))?);
    scan.read(&data_file(&layout.epoch_dir(epoch)))?;
    if evidence.exists() {
        scan.read(&evidence)?; // an earlier opening did not come to its end
    }
    let (chosen, _) = scan.choose(stored)?;
    if chosen.suspect {
        let examined = examine(&chosen, stored)?;
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
    live: u64,
    stored: Option<Head>,
    blocks: &RawBlocks,
    lock: File,
    lost: String,
) -> Result<Log<DiskStore>, Error> {
    let base = base_of(blocks)?.unwrap_or_default();
    let (tip, result) = verify_all(blocks, base)?;
    result?;
    if stored.is_some_and(|stored| stored.position > tip.head.position) {
        return Err(Error::damaged(tip.head.position.next(), Damage::Engine(lost)));
    }
    tracing::warn!(reason = %lost, head = %tip.head.position, "storage engine lost records its file held; epoch rebuilt");
    let next = live.saturating_add(1);
    let mut epoch = Epoch::create(layout, next)?;
    copy_chain(blocks, base, tip, &mut epoch)?;
    layout.sync_epoch(next)?;
    layout.set_live(next)?;
    let mut log = Log::open(DiskStore::new(layout.clone(), next, epoch, stored, lock)?, Verify::Full)?;
    layout.remove_epoch(live)?;
    layout.drop_evidence(live)?;
    log.store_mut().opened();
    Ok(log)
}
