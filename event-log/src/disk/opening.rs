//! Decides how a log's directory is opened for writing.
//!
//! Owns the cases and nothing else: a function of the [`Inventory`], without IO. [`super::open`] carries it out. Tests: the table at the
//! end of this file.

use model::Position;

use super::Verify;
use super::inventory::{DataFile, Inventory};
use crate::digest::Head;
use crate::error::Damage;

/// Way of opening a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opening {
    /// The directory holds no record and names no epoch: begin a log.
    Begin {
        /// Epochs that a first start left behind when it was interrupted.
        leftovers: Vec<u64>,
    },
    /// The log was closed in order, and the caller does not ask for more: the storage engine may open it at once.
    Trust(Live),
    /// The storage engine may open it once its blocks are copied and proved to reach the stored head.
    Prove {
        /// The log.
        log: Live,
        /// Set if an earlier copy of its blocks exists, which may hold what the engine has lost since.
        has_evidence: bool,
    },
    /// Acknowledged records may be missing: nothing is changed.
    Refuse(Damage),
}

/// A log that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    /// Its live epoch.
    pub(super) epoch: u64,
    /// Its stored head.
    pub(super) head: Option<Head>,
    /// Other epochs: those of a compaction that was interrupted.
    pub(super) leftovers: Vec<u64>,
}

/// Decides how the directory is opened.
pub(super) fn decide(inventory: &Inventory, verify: Verify) -> Opening {
    let Inventory { live, stored, epochs } = inventory;
    let Some(live) = *live else {
        let has_records = epochs.values().any(|files| matches!(files.data, DataFile::Records | DataFile::Unread));
        if has_records || stored.is_some_and(|stored| stored.head.position > Position(0)) {
            return Opening::Refuse(Damage::Current("missing"));
        }
        // A first start that was interrupted before it named its epoch.
        return Opening::Begin { leftovers: epochs.keys().copied().collect() };
    };
    let Some(files) = epochs.get(&live).filter(|files| files.data != DataFile::Missing) else {
        return Opening::Refuse(Damage::Current("it names an epoch that is not there"));
    };
    let leftovers = epochs.keys().copied().filter(|epoch| *epoch != live).collect();
    let log = Live { epoch: live, head: stored.map(|stored| stored.head), leftovers };
    let is_shut = stored.is_some_and(|stored| stored.shut);
    match verify {
        Verify::Tail if is_shut && !files.has_evidence => Opening::Trust(log),
        Verify::Tail | Verify::Full => Opening::Prove { log, has_evidence: files.has_evidence },
    }
}

#[cfg(test)]
mod tests {
    use super::super::inventory::EpochFiles;
    use super::super::layout::StoredHead;
    use super::*;
    use crate::digest::Digest;

    const NO: bool = false;
    const YES: bool = true;

    fn head(position: u64) -> Head {
        Head { position: Position(position), digest: Digest([7; 32]) }
    }

    /// Returns an inventory: the live epoch; position of the stored head, and whether the log was shut; epochs with the state of their
    /// databases, and whether they have evidence.
    fn inventory(live: Option<u64>, stored: Option<(u64, bool)>, epochs: &[(u64, DataFile, bool)]) -> Inventory {
        let stored = stored.map(|(position, shut)| StoredHead { head: head(position), shut });
        let files = |(epoch, data, has_evidence): &(u64, DataFile, bool)| {
            (*epoch, EpochFiles { data: *data, has_evidence: *has_evidence })
        };
        Inventory { live, stored, epochs: epochs.iter().map(files).collect() }
    }

    #[test]
    fn without_a_live_epoch_a_log_begins_where_there_are_no_records() {
        use DataFile::{Empty, Missing, Records};
        let begin = |leftovers: &[u64]| Opening::Begin { leftovers: leftovers.to_vec() };
        let refused = || Opening::Refuse(Damage::Current("missing"));
        let cases = [
            ("an empty directory", None, vec![], begin(&[])),
            ("a head that was never synced", Some((0, NO)), vec![], begin(&[])),
            ("a first start interrupted", Some((0, NO)), vec![(1, Empty, NO)], begin(&[1])),
            ("and before its database", None, vec![(1, Missing, NO), (2, Empty, YES)], begin(&[1, 2])),
            ("a head with records", Some((1, YES)), vec![], refused()),
            ("a database with records", None, vec![(1, Empty, NO), (3, Records, NO)], refused()),
            ("both", Some((9, NO)), vec![(1, Records, NO)], refused()),
        ];
        for (case, stored, epochs, wanted) in cases {
            for verify in [Verify::Tail, Verify::Full] {
                assert_eq!(decide(&inventory(None, stored, &epochs), verify), wanted, "{case}");
            }
        }
    }

    #[test]
    fn the_engine_is_trusted_with_a_log_that_was_shut() {
        use DataFile::{Missing, Unread};
        let live = |position: Option<u64>, leftovers: &[u64]| Live {
            epoch: 2,
            head: position.map(head),
            leftovers: leftovers.to_vec(),
        };
        let trust = |position, leftovers: &[u64]| Opening::Trust(live(position, leftovers));
        let prove = |position, has_evidence| Opening::Prove { log: live(position, &[]), has_evidence };
        let refused = || Opening::Refuse(Damage::Current("it names an epoch that is not there"));
        let one = |has_evidence| vec![(2, Unread, has_evidence)];
        let (shut, open) = (Some((7, YES)), Some((7, NO)));
        let cases = [
            ("shut", Verify::Tail, shut, one(NO), trust(Some(7), &[])),
            ("all is to be verified", Verify::Full, shut, one(NO), prove(Some(7), NO)),
            ("not shut", Verify::Tail, open, one(NO), prove(Some(7), NO)),
            ("without a head", Verify::Tail, None, one(NO), prove(None, NO)),
            ("shut after an opening that did not end", Verify::Tail, shut, one(YES), prove(Some(7), YES)),
            ("the same, all is to be verified", Verify::Full, open, one(YES), prove(Some(7), YES)),
            (
                "epochs of compactions that were interrupted",
                Verify::Tail,
                shut,
                vec![(1, Unread, YES), (2, Unread, NO), (3, Missing, NO)],
                trust(Some(7), &[1, 3]),
            ),
            ("no epoch of that number", Verify::Tail, shut, vec![(1, Unread, NO)], refused()),
            ("none with a database", Verify::Full, None, vec![(2, Missing, YES)], refused()),
        ];
        for (case, verify, stored, epochs, wanted) in cases {
            assert_eq!(decide(&inventory(Some(2), stored, &epochs), verify), wanted, "{case}");
        }
    }
}
