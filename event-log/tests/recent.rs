//! Reading the end of a log: the cached state and all records after it, or nothing.

mod support;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use event_log::{Checkpoint, EventLog, Frame, SledLog};
use model::Position;
use support::{OnDisk, Place as _, append_next, body, checkpoint_at, fill, frames, live_epoch};

/// The records that are read after the cached state.
fn recent(place: &OnDisk) -> Option<(Checkpoint, Vec<Frame>)> {
    let recent = SledLog::open_recent(place.path())?;
    let frames = recent.frames().collect::<Result<_, _>>().unwrap();
    Some((recent.state().clone(), frames))
}

fn cache(log: &mut dyn EventLog, position: u64) -> Checkpoint {
    let state = checkpoint_at(log, position, format!("[{position}]").into_bytes());
    log.cache_state(state.clone()).unwrap();
    state
}

/// Appends up to a position, and caches the state on the way there.
fn fill_caching_at(log: &mut dyn EventLog, cached: u64, end: u64) -> Checkpoint {
    fill(log, cached);
    let state = cache(log, cached);
    fill(log, end);
    state
}

#[test]
fn the_records_after_the_cached_state_are_those_of_the_log() {
    for (cached, end) in [(1, 1), (1, 2), (40, 200), (3000, 3000), (3000, 3001), (2000, 6000)] {
        let place = OnDisk::new();
        let mut log = place.reopen();
        let state = fill_caching_at(&mut *log, cached, end);
        let want = (state.clone(), frames(&*log, cached + 1));
        assert_eq!(recent(&place).as_ref(), Some(&want), "{cached} of {end}, beside its writer");
        drop(log);
        assert_eq!(recent(&place).as_ref(), Some(&want), "{cached} of {end}, after an orderly end");
        // A later writer, whose engine has opened the file again.
        let mut log = place.reopen();
        append_next(&mut *log, 3).unwrap();
        assert_eq!(recent(&place), Some((state, frames(&*log, cached + 1))), "{cached} of {end}, opened again");
    }
}

#[test]
fn what_does_not_link_up_counts_as_nothing() {
    let place = OnDisk::new();
    assert!(recent(&place).is_none(), "there is no log");
    let mut log = place.reopen();
    fill(&mut *log, 400);
    assert!(recent(&place).is_none(), "no state is cached");
    fill_caching_at(&mut *log, 400, 500);
    assert!(recent(&place).is_some());

    let kept = place.path().join("kept");
    let bytes = fs::read(&kept).unwrap();
    let mut changed = bytes.clone();
    let last = changed.len() - 3;
    changed[last] ^= 1;
    fs::write(&kept, changed).unwrap();
    assert!(recent(&place).is_none(), "it is not as it was written");

    // The state of a log with the same positions and other records.
    let other = OnDisk::new();
    let mut log = other.reopen();
    append_next(&mut *log, 1).unwrap();
    while log.head().position.0 < 500 {
        let n = log.head().position.0;
        log.append(&[event_log::NewRecord { term: support::term(n), body: &body(n) }]).unwrap();
    }
    fs::write(other.path().join("kept"), &bytes).unwrap();
    assert!(recent(&other).is_none(), "it belongs to another log");
}

#[test]
fn a_state_that_compaction_left_behind_counts_as_nothing() {
    let place = OnDisk::new();
    let mut log = place.reopen();
    fill_caching_at(&mut *log, 300, 800);
    let checkpoint = checkpoint_at(&*log, 700, b"[700]".to_vec());
    log.compact(&checkpoint).unwrap();
    assert!(recent(&place).is_none());
    let state = fill_caching_at(&mut *log, 850, 900);
    assert_eq!(recent(&place), Some((state, frames(&*log, 851))));
}

#[test]
fn missing_blocks_after_the_state_are_noticed_and_those_before_are_not_needed() {
    let place = OnDisk::new();
    let mut log = place.reopen();
    let state = fill_caching_at(&mut *log, 3000, 4000);
    let want = frames(&*log, 3001);
    drop(log);
    let path = live_epoch(&place.path()).join("db");
    let whole = fs::read(&path).unwrap();
    let without = |position: u64| {
        // Every copy of the block's header goes.
        let mut bytes = whole.clone();
        let mut found = 0;
        for at in memchr::memmem::find_iter(&whole, &[0xF5, b'T', b'Y', b'B']) {
            let first = whole.get(at + 16..at + 24).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            if first == Some(position) {
                bytes[at] = 0;
                found += 1;
            }
        }
        assert!(found > 0, "{position}");
        fs::write(&path, bytes).unwrap();
        recent(&place)
    };
    assert_eq!(without(1), Some((state, want)), "the first record of the log is not read");
    assert_eq!(without(3001), None, "the first one after the state is");
}

#[test]
fn beside_a_busy_writer_all_that_was_acknowledged_is_there() {
    let place = OnDisk::new();
    let mut log = place.reopen();
    append_next(&mut *log, 1).unwrap();
    cache(&mut *log, 1);
    let (acknowledged, done) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..4000 {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                append_next(&mut *log, [1, 30, 3, 64][n % 4]).unwrap();
                acknowledged.store(log.head().position.0, Ordering::SeqCst);
                if n % 25 == 0 {
                    let head = log.head().position.0;
                    cache(&mut *log, head);
                }
            }
        });
        let mut read = 0;
        for _ in 0..200 {
            let before = acknowledged.load(Ordering::SeqCst);
            let Some((state, frames)) = recent(&place) else { continue };
            read += 1;
            let mut position = state.position;
            for frame in &frames {
                assert_eq!(frame.position, position.next());
                position = frame.position;
                assert_eq!(frame.body, body(position.0));
            }
            assert!(position >= Position(before), "{position} {before}");
        }
        done.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        assert!(read > 100, "{read} of 200 could be read");
    });
}
