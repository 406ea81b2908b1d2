//! Reading beside a writer: a copy is a verified prefix that holds all that was acknowledged before it was made.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use event_log::{Error, EventLog as _, Head, NewRecord, Options, SledLog, Verify, verify};
use model::{Position, Term};
use support::{OnDisk, Place as _, append_next, check_contents, checkpoint_at, fill, live_epoch};

/// Every file of a log with its contents.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            out.extend(files(&entry.path()));
        } else {
            out.insert(entry.path().display().to_string(), fs::read(entry.path()).unwrap());
        }
    }
    out
}

#[test]
fn a_copy_changes_nothing_and_cannot_be_written() {
    let place = OnDisk::new();
    fill(&mut *place.reopen(), 100);
    let before = files(&place.path());
    let mut copy = SledLog::open(place.path(), Options { read_only: true, ..Options::default() }).unwrap();
    check_contents(&copy, Head::default());
    assert_eq!(copy.stats().records, 100);
    assert!(matches!(copy.append(&[NewRecord { term: Term(9), body: b"{}" }]), Err(Error::ReadOnly)));
    let checkpoint = checkpoint_at(&copy, 5, Vec::new());
    assert!(copy.compact(&checkpoint).is_err());
    assert_eq!(verify(place.path()).unwrap().first_bad, None);
    assert!(files(&place.path()) == before, "something was written");
}

#[test]
fn copies_beside_a_busy_writer_are_prefixes() {
    let place = OnDisk::new();
    let mut log = place.reopen();
    append_next(&mut *log, 1).unwrap();
    let (acknowledged, done) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::SeqCst) || log.head().position.0 > 20_000 {
                    break;
                }
                append_next(&mut *log, [1, 30, 3, 64][n % 4]).unwrap();
                acknowledged.store(log.head().position.0, Ordering::SeqCst);
                if n % 60 == 59 {
                    let checkpoint = checkpoint_at(&*log, log.head().position.0 - 20, b"{}".to_vec());
                    log.compact(&checkpoint).unwrap();
                }
            }
        });
        for _ in 0..25 {
            let before = acknowledged.load(Ordering::SeqCst);
            let copy = SledLog::open_copy(place.path()).unwrap();
            let after = acknowledged.load(Ordering::SeqCst);
            let head = copy.head().position.0;
            assert!(before <= head && head <= after + 64, "{before} {head} {after}");
            let base = copy.checkpoint().unwrap();
            check_contents(&copy, base.map_or_else(Head::default, |c| Head { position: c.position, digest: c.digest }));
            assert_eq!(verify(place.path()).unwrap().first_bad, None);
        }
        done.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
}

#[test]
fn readers_do_not_keep_a_writer_out() {
    let place = OnDisk::new();
    fill(&mut *place.reopen(), 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    SledLog::open_copy(place.path()).unwrap();
                }
            });
        }
        for _ in 0..20 {
            append_next(&mut *place.open(Verify::Tail).unwrap(), 1).unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_copy_of_a_crashed_log_has_all_of_it() {
    let (place, image) = (OnDisk::new(), OnDisk::new());
    let mut log = place.reopen();
    fill(&mut *log, 80);
    support::copy_tree(&place.path(), &image.path());
    // An older head, as after a power failure: without a writer, what is stored counts.
    let head = fs::read(image.path().join("HEAD")).unwrap();
    fill(&mut *log, 90);
    support::copy_tree(&place.path(), &image.path());
    fs::write(image.path().join("HEAD"), head).unwrap();
    assert_eq!(SledLog::open_copy(image.path()).unwrap().head().position, Position(90));
    assert!(live_epoch(&image.path()).exists());
}
