//! One suite for every back end.

mod support;

use event_log::{
    Checkpoint, Digest, Error, EventLog as _, Fault, FaultyLog, Head, MAX_BODY_BYTES, MemoryLog, NewRecord, Options,
    SledLog, Verify,
};
use model::{Position, Term};
use support::raw_disk::RawDisk;
use support::{InMemory, OnDisk, Place, append_next, body, check_contents, checkpoint_at, fill, frames};

fn an_empty_log_is_empty<P: Place>() {
    let place = P::new();
    for verify in [Verify::Full, Verify::Tail, Verify::Full] {
        let mut log = place.open(verify).unwrap();
        assert_eq!(log.head(), Head::default());
        assert_eq!(log.first(), Position(1));
        assert_eq!(log.checkpoint().unwrap(), None);
        assert_eq!(log.read(Position(1)).unwrap().count(), 0);
        assert!(matches!(log.read(Position(0)), Err(Error::Gap { .. })));
        assert!(matches!(log.read(Position(2)), Err(Error::Gap { .. })));
        assert_eq!(log.append(&[]).unwrap(), Head::default());
        let stats = log.stats();
        assert_eq!((stats.records, stats.first_term, stats.last_term, stats.body_bytes), (0, None, None, 0));
    }
}

fn what_was_appended_is_read<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    fill(&mut *log, 300);
    let head = check_contents(&*log, Head::default());
    let stats = log.stats();
    assert_eq!((stats.records, stats.first, stats.head), (300, Position(1), head));
    assert_eq!((stats.first_term, stats.last_term), (Some(Term(1)), Some(Term(4))));
    assert_eq!(stats.body_bytes, (1..=300).map(|n| body(n).len() as u64).sum::<u64>());
    // Some blocks are packed, others do not pack.
    assert!(stats.disk_bytes > stats.body_bytes / 8);
    for from in [1, 2, 50, 57, 58, 299, 300, 301] {
        let part = frames(&*log, from);
        assert_eq!(part.len() as u64, 301 - from);
        assert!(part.iter().zip(from..).all(|(frame, n)| frame.position == Position(n) && frame.body == body(n)));
    }
    drop(log);
    for verify in [Verify::Full, Verify::Tail] {
        let mut log = place.open(verify).unwrap();
        let before = log.head().position.0;
        check_contents(&*log, Head::default());
        append_next(&mut *log, 3).unwrap();
        assert_eq!(log.head().position.0, before + 3);
        assert_eq!(log.stats().body_bytes, (1..=before + 3).map(|n| body(n).len() as u64).sum::<u64>());
    }
}

fn what_does_not_pack_takes_its_bytes<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    for n in 0..300_u64 {
        let body: Vec<u8> =
            (0..20).flat_map(|part| *blake3::hash(&[n.to_le_bytes(), [part; 8]].concat()).as_bytes()).collect();
        log.append(&[NewRecord { term: Term(1), body: &body }]).unwrap();
    }
    let stats = log.stats();
    assert_eq!(stats.body_bytes, 300 * 640);
    assert!(stats.disk_bytes >= stats.body_bytes);
}

fn long_reads_give_what_short_ones_do<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    while log.head().position.0 < 5_000 {
        append_next(&mut *log, 200).unwrap();
    }
    drop(log);
    let log = place.reopen();
    check_contents(&*log, Head::default());
    let all = frames(&*log, 1);
    assert_eq!(frames(&*log, 7)[..], all[6..]);
    assert_eq!(frames(&*log, 4_000)[..], all[3_999..]);
    let some: Vec<_> = log.read(Position(1)).unwrap().take(10).map(Result::unwrap).collect();
    assert_eq!(some[..], all[..10], "a reader may be dropped at any time");
}

fn large_and_empty_bodies_are_kept<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    let sizes = [0, 1, 6_031, 6_032, 6_033, 6_048, 6_049, 100_000, 0, 1_000_000, MAX_BODY_BYTES];
    let bodies: Vec<Vec<u8>> = sizes.iter().map(|n| vec![b'z'; *n]).collect();
    for body in &bodies {
        log.append(&[NewRecord { term: Term(1), body }]).unwrap();
    }
    let records: Vec<NewRecord<'_>> = bodies.iter().map(|body| NewRecord { term: Term(1), body }).collect();
    log.append(&records).unwrap();
    drop(log);
    let log = place.reopen();
    let got: Vec<usize> = frames(&*log, 1).iter().map(|frame| frame.body.len()).collect();
    assert_eq!(got, [sizes, sizes].concat());
    assert!(frames(&*log, 1).iter().all(|frame| frame.body.iter().all(|byte| *byte == b'z')));
}

/// A group, and the error it must give.
type Refused<'a> = (&'a [NewRecord<'a>], fn(&Error) -> bool);

fn refused_appends_poison<P: Place>() {
    let place = P::new();
    let too_big = vec![0; MAX_BODY_BYTES + 1];
    let refused: [Refused<'_>; 3] = [
        (&[NewRecord { term: Term(1), body: &too_big }], |e| matches!(e, Error::TooBig { .. })),
        (&[NewRecord { term: Term(0), body: b"" }], |e| matches!(e, Error::TermBackwards { .. })),
        (&[NewRecord { term: Term(9), body: b"" }, NewRecord { term: Term(8), body: b"" }], |e| {
            matches!(e, Error::TermBackwards { last: Term(9), offered: Term(8) })
        }),
    ];
    for (records, is_expected) in refused {
        let mut log = place.reopen();
        append_next(&mut *log, 2).unwrap();
        let head = log.head();
        let error = log.append(records).unwrap_err();
        assert!(is_expected(&error), "{error}");
        assert!(matches!(append_next(&mut *log, 1), Err(Error::Poisoned)));
        let checkpoint = checkpoint_at(&*log, 1, Vec::new());
        assert!(matches!(log.compact(&checkpoint), Err(Error::Poisoned)));
        assert_eq!(log.head(), head);
        check_contents(&*log, Head::default());
        drop(log);
        assert_eq!(place.reopen().head(), head, "nothing of a refused group is stored");
    }
}

fn only_one_opens<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    append_next(&mut *log, 2).unwrap();
    for verify in [Verify::Full, Verify::Tail] {
        assert!(matches!(place.open(verify), Err(Error::Locked { .. })));
    }
    append_next(&mut *log, 2).unwrap();
    drop(log);
    assert_eq!(place.reopen().head().position, Position(4));
}

fn compaction_keeps_what_follows<P: Place>() {
    for at in [1, 49, 57, 58, 120, 199, 200] {
        let place = P::new();
        let mut log = place.reopen();
        fill(&mut *log, 200);
        let head = log.head();
        let later = frames(&*log, at + 1);
        let state: Vec<u8> = (0..50_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let checkpoint = checkpoint_at(&*log, at, state);
        log.compact(&checkpoint).unwrap();
        for round in 0..3 {
            assert_eq!((log.head(), log.first()), (head, Position(at + 1)), "{at}");
            assert_eq!(log.checkpoint().unwrap().as_ref(), Some(&checkpoint), "{at}");
            assert_eq!(frames(&*log, at + 1), later, "{at}");
            assert!(matches!(log.read(Position(at)), Err(Error::Gap { .. })));
            let stats = log.stats();
            assert_eq!(stats.records, 200 - at);
            assert_eq!(stats.first_term, Some(later.first().map_or(checkpoint.term, |frame| frame.term)));
            assert_eq!(stats.body_bytes, later.iter().map(|frame| frame.body.len() as u64).sum::<u64>());
            drop(log);
            log = place.open(if round == 0 { Verify::Full } else { Verify::Tail }).unwrap();
        }
        append_next(&mut *log, 30).unwrap();
        let before = Head { position: checkpoint.position, digest: checkpoint.digest };
        check_contents(&*log, before);
        // Again, further on and once more at the same place.
        let next = checkpoint_at(&*log, 210, b"{}".to_vec());
        log.compact(&next).unwrap();
        log.compact(&next).unwrap();
        drop(log);
        let mut log = place.reopen();
        check_contents(&*log, Head { position: next.position, digest: next.digest });
        fill(&mut *log, 240);
        assert_eq!(log.checkpoint().unwrap(), Some(next));
    }
}

fn a_checkpoint_must_fit<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    fill(&mut *log, 20);
    let good = checkpoint_at(&*log, 10, b"state".to_vec());
    let bad = |change: &dyn Fn(&mut Checkpoint)| {
        let mut checkpoint = good.clone();
        change(&mut checkpoint);
        checkpoint
    };
    for checkpoint in [
        bad(&|c| c.position = Position(0)),
        bad(&|c| c.position = Position(11)),
        bad(&|c| c.position = Position(21)),
        bad(&|c| c.digest = Digest([1; 32])),
        bad(&|c| c.term = Term(7)),
    ] {
        assert!(matches!(log.compact(&checkpoint), Err(Error::BadCheckpoint { .. })), "{:?}", checkpoint.position);
    }
    append_next(&mut *log, 1).unwrap();
    log.compact(&good).unwrap();
    let early = Checkpoint { position: Position(9), ..good };
    assert!(matches!(log.compact(&early), Err(Error::BadCheckpoint { .. })));
}

fn an_empty_log_begins_at_a_checkpoint<P: Place>() {
    let mut whole = MemoryLog::new();
    fill(&mut whole, 60);
    let checkpoint = checkpoint_at(&whole, 40, b"state".to_vec());
    let place = P::new();
    let mut log = place.reopen();
    log.compact(&checkpoint).unwrap();
    assert_eq!(log.head(), Head { position: Position(40), digest: checkpoint.digest });
    append_next(&mut *log, 20).unwrap();
    drop(log);
    let log = place.reopen();
    assert_eq!(log.head(), whole.head());
    assert_eq!(log.checkpoint().unwrap(), Some(checkpoint));
}

fn faults_leave_what_they_say<P: Place>() {
    for (fault, records) in [(Fault::Lost, 2), (Fault::Full, 2), (Fault::Stored, 3)] {
        let place = P::new();
        let mut log = FaultyLog::new(place.reopen(), vec![(3, fault)]);
        append_next(&mut log, 1).unwrap();
        append_next(&mut log, 1).unwrap();
        assert!(append_next(&mut log, 1).is_err());
        assert!(matches!(append_next(&mut log, 1), Err(Error::Poisoned)));
        assert_eq!(log.appends(), 3);
        drop(log);
        let mut log = place.reopen();
        assert_eq!(log.head().position, Position(records), "{fault:?}");
        fill(&mut *log, 10);
        check_contents(&*log, Head::default());
    }
}

macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $test() { super::$test::<super::InMemory>(); })*
        }
        mod on_disk {
            $(#[test] fn $test() { super::$test::<super::OnDisk>(); })*
        }
    };
}

suite!(
    an_empty_log_is_empty,
    what_was_appended_is_read,
    what_does_not_pack_takes_its_bytes,
    long_reads_give_what_short_ones_do,
    large_and_empty_bodies_are_kept,
    refused_appends_poison,
    only_one_opens,
    compaction_keeps_what_follows,
    a_checkpoint_must_fit,
    an_empty_log_begins_at_a_checkpoint,
    faults_leave_what_they_say,
);

#[test]
fn both_back_ends_chain_alike() {
    let (memory, disk) = (InMemory::new(), OnDisk::new());
    let (mut one, mut other) = (memory.reopen(), disk.reopen());
    fill(&mut *one, 150);
    for _ in 0..150 {
        append_next(&mut *other, 1).unwrap();
    }
    assert_eq!(one.head(), other.head(), "digests do not depend on grouping or on the back end");
    assert_eq!(frames(&*one, 1), frames(&*other, 1));
}

#[test]
fn memory_logs_are_copied_and_truncated() {
    let mut log = MemoryLog::new();
    fill(&mut log, 100);
    let copy = log.clone();
    let short = log.truncated(Position(57)).unwrap();
    append_next(&mut log, 5).unwrap();
    assert_eq!(copy.head().position, Position(100));
    assert_eq!(short.head().position, Position(57));
    check_contents(&copy, Head::default());
    check_contents(&short, Head::default());
    assert!(matches!(log.truncated(Position(106)), Err(Error::Gap { .. })));
    assert_eq!(log.truncated(Position(0)).unwrap().head(), Head::default());
    let checkpoint = checkpoint_at(&log, 50, Vec::new());
    log.compact(&checkpoint).unwrap();
    assert!(matches!(log.truncated(Position(49)), Err(Error::Gap { .. })));
    assert_eq!(log.truncated(Position(50)).unwrap().head().position, Position(50));
    let disk = log.disk();
    drop(log);
    assert_eq!(disk.open().unwrap().head().position, Position(105));
}

fn closed_disk(records: u64) -> RawDisk {
    let disk = RawDisk::default();
    fill(&mut disk.open().unwrap(), records);
    disk
}

#[test]
fn any_block_lost_or_exchanged_in_memory_is_damage() {
    let disk = closed_disk(120);
    let keys = disk.keys();
    for (n, key) in keys.iter().enumerate() {
        let bad = disk.copy();
        assert!(bad.cut(*key));
        assert!(matches!(bad.open(), Err(Error::Damaged { .. })), "{key:?} cut");
        if let Some(next) = keys.get(n + 1) {
            let bad = disk.copy();
            assert!(bad.swap(*key, *next));
            assert!(matches!(bad.open(), Err(Error::Damaged { .. })), "{key:?} swapped");
        }
    }
}

#[test]
fn any_flipped_bit_in_memory_is_damage_and_named_exactly() {
    let disk = closed_disk(40);
    for key in disk.keys() {
        for offset in 0.. {
            let bad = disk.copy();
            if !bad.damage(key, offset, 1 << (offset % 8)) {
                break;
            }
            let Err(Error::Damaged { at, .. }) = bad.open() else { panic!("{key:?} byte {offset}") };
            assert!(at >= key.position && at.0 <= key.position.0 + 64, "{at} for {key:?} byte {offset}");
            if offset > 400 {
                break; // the rest is body, as what was tried is
            }
        }
    }
}

#[test]
fn a_torn_group_goes_unless_it_was_acknowledged() {
    let disk = RawDisk::default();
    let mut log = disk.open().unwrap();
    fill(&mut log, 10);
    let before = log.head();
    append_next(&mut log, 60).unwrap();
    drop(log);
    let last_group: Vec<_> = disk.keys().into_iter().filter(|key| key.position > before.position).collect();
    assert!(last_group.len() > 3);
    for key in &last_group {
        let torn = disk.copy();
        torn.cut(*key);
        assert!(matches!(torn.open(), Err(Error::Damaged { .. })), "the noted head says that it was acknowledged");
        torn.forget_head();
        let mut log = torn.open().unwrap();
        assert_eq!(log.head(), before, "{key:?}");
        fill(&mut log, 80);
        check_contents(&log, Head::default());
    }
}

#[test]
fn directories_that_are_no_logs_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let must_exist = Options { must_exist: true, ..Options::default() };
    assert!(matches!(SledLog::open(dir.path(), must_exist), Err(Error::NotALog { .. })));
    assert!(matches!(SledLog::open_copy(dir.path()), Err(Error::NotALog { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::write(dir.path().join("thesis.tex"), "").unwrap();
    assert!(matches!(SledLog::open(dir.path(), Options::default()), Err(Error::NotALog { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_newer_format_is_refused_in_words() {
    let place = OnDisk::new();
    fill(&mut *place.reopen(), 5);
    std::fs::write(place.path().join("current"), "trainyard-log 3\nepoch-1\n").unwrap();
    let error = place.open(Verify::Full).err().unwrap();
    assert!(matches!(error, Error::TooNew { needed: 3, have: 2 }));
    assert_eq!(error.to_string(), "log has format 3, this build reads up to format 2");
}

#[test]
fn a_directory_of_the_first_format_is_read_and_written_on() {
    // It differs in that no block of it is packed, and one short record alone never is.
    let place = OnDisk::new();
    {
        let mut log = place.reopen();
        for _ in 0..6 {
            append_next(&mut *log, 1).unwrap();
        }
    }
    std::fs::write(place.path().join("current"), "trainyard-log 1\nepoch-1\n").unwrap();
    for verify in [Verify::Full, Verify::Tail] {
        let mut log = place.open(verify).unwrap();
        append_next(&mut *log, 64).unwrap();
        check_contents(&*log, Head::default());
    }
}
