//! A state beside the log: it is given back while it stands for records of this log, and never in any other way.

mod support;

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_log::disk::medium::Direct;
use event_log::{Checkpoint, Digest, Error, EventLog, Head, MemoryLog, NewRecord, Options, SledLog, Verify};
use model::{Position, Term};
use support::{Failing, InMemory, OnDisk, Place, append_next, check_contents, checkpoint_at, fill};

fn what_was_kept_last_is_given_back<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    fill(&mut *log, 30);
    assert_eq!(log.cached_state().unwrap(), None);
    for (position, state) in [(1, b"".to_vec()), (20, b"{\"x\":1}".to_vec()), (30, b"no JSON\n\xff".to_vec())] {
        let state = checkpoint_at(&*log, position, state);
        log.cache_state(state.clone()).unwrap();
        assert_eq!(log.cached_state().unwrap(), Some(state.clone()));
        append_next(&mut *log, 3).unwrap();
        drop(log);
        log = place.open(Verify::Tail).unwrap();
        assert_eq!(log.cached_state().unwrap(), Some(state));
        check_contents(&*log, Head::default());
    }
    // The log begins with a later state; then with that very one.
    let state = checkpoint_at(&*log, 25, b"[25]".to_vec());
    log.cache_state(state.clone()).unwrap();
    log.compact(&checkpoint_at(&*log, 10, b"[10]".to_vec())).unwrap();
    assert_eq!(log.cached_state().unwrap(), Some(state.clone()));
    log.compact(&state).unwrap();
    assert_eq!(log.cached_state().unwrap(), None, "the log itself begins with that state");
    append_next(&mut *log, 3).unwrap();
    assert_eq!(log.cached_state().unwrap(), None);
}

fn what_does_not_fit_is_refused<P: Place>() {
    let place = P::new();
    let mut log = place.reopen();
    fill(&mut *log, 30);
    let state = checkpoint_at(&*log, 20, b"[]".to_vec());
    log.cache_state(state.clone()).unwrap();
    for other in [
        Checkpoint { digest: Digest([1; 32]), ..state.clone() },
        Checkpoint { term: Term(4), ..state.clone() },
        Checkpoint { position: Position(0), ..state.clone() },
        Checkpoint { position: Position(31), ..state.clone() },
    ] {
        assert!(matches!(log.cache_state(other), Err(Error::BadCheckpoint { .. })));
        assert_eq!(log.cached_state().unwrap(), Some(state.clone()));
    }
}

#[test]
fn in_memory() {
    what_was_kept_last_is_given_back::<InMemory>();
    what_does_not_fit_is_refused::<InMemory>();
}

#[test]
fn on_disk() {
    what_was_kept_last_is_given_back::<OnDisk>();
    what_does_not_fit_is_refused::<OnDisk>();
}

#[test]
fn a_copy_of_a_disk_has_it() {
    let mut log = MemoryLog::new();
    fill(&mut log, 10);
    let state = checkpoint_at(&log, 10, b"[]".to_vec());
    log.cache_state(state.clone()).unwrap();
    assert_eq!(log.disk().copy().open().unwrap().cached_state().unwrap(), Some(state));
}

/// A directory with a log of ten records and a state cached beside it.
fn kept_on_disk() -> (OnDisk, Checkpoint) {
    let place = OnDisk::new();
    let mut log = place.reopen();
    fill(&mut *log, 10);
    let state = checkpoint_at(&*log, 9, b"{\"state\":\"of some length\"}".to_vec());
    log.cache_state(state.clone()).unwrap();
    (place, state)
}

#[test]
fn whatever_else_is_in_the_file_counts_as_none() {
    let (place, state) = kept_on_disk();
    let log = place.reopen();
    let path = place.path().join("kept");
    let whole = fs::read(&path).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        log.cached_state().unwrap()
    };
    for length in 0..whole.len() {
        assert_eq!(read(&whole[..length]), None, "cut to {length}");
    }
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        assert_eq!(read(&changed), None, "changed at {place}");
    }
    assert_eq!([read(&[&whole[..], b"more"].concat()), read(b""), read(&[0; 100])], [None, None, None]);
    assert_eq!(read(&whole), Some(state));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(log.cached_state().unwrap(), None, "it cannot be read at all");
}

#[test]
fn it_fits_its_own_log_alone() {
    let (place, _) = kept_on_disk();
    let bytes = fs::read(place.path().join("kept")).unwrap();
    for records in [10, 8] {
        let other = OnDisk::new();
        let mut log = other.reopen();
        for n in 0..records {
            log.append(&[NewRecord { term: Term(1), body: format!("{n}").as_bytes() }]).unwrap();
        }
        fs::write(other.path().join("kept"), &bytes).unwrap();
        assert_eq!(log.cached_state().unwrap(), None, "another log of {records} records");
    }
}

#[test]
fn a_failure_at_any_step_leaves_the_old_one_or_the_new_one_and_the_log() {
    let (mut old, mut new) = (0, 0);
    for nth in 1..=3 {
        for after in [false, true] {
            let (place, before) = kept_on_disk();
            let failing =
                Arc::new(Failing { left: AtomicUsize::new(usize::MAX / 2), after, kind: io::ErrorKind::StorageFull });
            let mut log = SledLog::open_with(place.path(), Options::default(), failing.clone()).unwrap();
            let later = checkpoint_at(&log, 10, b"[10]".to_vec());
            failing.left.store(nth, Ordering::SeqCst);
            assert!(log.cache_state(later.clone()).is_err(), "step {nth}");
            // The log is none the worse for it.
            append_next(&mut log, 3).unwrap();
            drop(log);
            let mut log = SledLog::open_with(place.path(), Options::default(), Arc::new(Direct)).unwrap();
            check_contents(&log, Head::default());
            let found = log.cached_state().unwrap();
            assert!(found == Some(before) || found.as_ref() == Some(&later), "step {nth}, after {after}");
            if found.as_ref() == Some(&later) {
                new += 1;
            } else {
                old += 1;
            }
            log.cache_state(later.clone()).unwrap();
            assert_eq!(log.cached_state().unwrap(), Some(later));
            let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(
                names.filter(|name| name.to_string_lossy().starts_with("kept")).count(),
                1,
                "nothing else is left"
            );
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}
