//! Reads a log's directory once, when it is opened for writing.
//!
//! Owns the reading of it: names, small files, and whether databases that are not named hold records. It changes nothing and judges
//! nothing; [`super::opening`] decides by it. Read under the writer's lock, so that nothing changes meanwhile; readers beside a writer
//! look at the files they need one by one ([`super::copy`], [`super::recent`]). Tests: `tests/damage.rs`, `tests/compaction.rs`.

use std::collections::BTreeMap;

use model::Position;

use super::engine::data_file;
use super::layout::{Layout, StoredHead, read_head};
use super::raw::RawScan;
use crate::error::Error;

/// Content of a log's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    /// The live epoch, as `current` names it.
    pub(super) live: Option<u64>,
    /// Content of `HEAD`.
    pub(super) stored: Option<StoredHead>,
    /// Epochs that have a directory, by number.
    pub(super) epochs: BTreeMap<u64, EpochFiles>,
}

/// Files of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochFiles {
    /// State of its database.
    pub(super) data: DataFile,
    /// Set if a copy of its blocks exists: an earlier opening did not come to its end.
    pub(super) has_evidence: bool,
}

/// State of an epoch's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataFile {
    /// There is none.
    Missing,
    /// It exists. It was not read, because an epoch is named as live.
    Unread,
    /// It holds no record.
    Empty,
    /// It holds records, or parts of records.
    Records,
}

impl Inventory {
    /// Reads the directory. Databases are read only where no epoch is named as live.
    pub(super) fn read(layout: &Layout) -> Result<Self, Error> {
        let stored = read_head(layout.dir())?;
        let live = layout.live()?;
        let mut epochs = BTreeMap::new();
        for epoch in layout.epochs()? {
            let data = match live {
                None => read_data(layout, epoch)?,
                Some(_) if data_file(&layout.epoch_dir(epoch)).exists() => DataFile::Unread,
                Some(_) => DataFile::Missing,
            };
            epochs.insert(epoch, EpochFiles { data, has_evidence: layout.evidence(epoch).exists() });
        }
        Ok(Self { live, stored, epochs })
    }
}

/// Reads a database that nothing names.
fn read_data(layout: &Layout, epoch: u64) -> Result<DataFile, Error> {
    let path = data_file(&layout.epoch_dir(epoch));
    if !path.exists() {
        return Ok(DataFile::Missing);
    }
    let mut scan = RawScan::new(layout.dir())?;
    scan.read(&path)?;
    let (chosen, _) = scan.choose(None)?;
    Ok(if chosen.end > Position(0) || chosen.suspect { DataFile::Records } else { DataFile::Empty })
}
