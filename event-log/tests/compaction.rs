//! Compaction and creation, interrupted at every step: by an error, and by the end of the process.

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_log::disk::medium::{Medium, Step};
use event_log::{Checkpoint, EventLog, Head, Options, SledLog};
use model::Position;
use support::{
    OnDisk, Place as _, append_next, check_contents, checkpoint_at, child, copy_tree, fill, frames, variable,
};

/// Ends the n-th step from now with an error or with the process.
struct Interrupting {
    left: AtomicUsize,
    after: bool,
    abort: bool,
    count: AtomicUsize,
}

impl Interrupting {
    fn new(nth: usize, after: bool, abort: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(nth), after, abort, count: AtomicUsize::new(0) })
    }
}

impl Medium for Interrupting {
    fn run(&self, _step: Step, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_due = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_due && !self.after {
            return self.interrupt();
        }
        act()?;
        if is_due { self.interrupt() } else { Ok(()) }
    }
}

impl Interrupting {
    fn interrupt(&self) -> io::Result<()> {
        if self.abort {
            std::process::abort();
        }
        Err(io::Error::other("planned"))
    }
}

const NEVER: usize = usize::MAX / 2;
const RECORDS: u64 = 120;
const AT: u64 = 70;

fn state() -> Vec<u8> {
    b"[1,2,3]".repeat(5_000)
}

fn filled() -> OnDisk {
    let place = OnDisk::new();
    fill(&mut *place.reopen(), RECORDS);
    place
}

/// The log is the old one or the new one, whole, and continues.
fn check(place: &OnDisk, expected: &Checkpoint, what: &str) -> bool {
    let mut log = place.reopen();
    assert_eq!(log.head().position.0, RECORDS, "{what}");
    let compacted = log.first() != Position(1);
    if compacted {
        assert_eq!(log.checkpoint().unwrap().as_ref(), Some(expected), "{what}");
        check_contents(&*log, Head { position: expected.position, digest: expected.digest });
    } else {
        assert_eq!(log.checkpoint().unwrap(), None, "{what}");
        check_contents(&*log, Head::default());
    }
    let epochs = std::fs::read_dir(place.path()).unwrap().flatten();
    let epochs = epochs.filter(|entry| entry.file_name().to_string_lossy().starts_with("epoch-")).count();
    assert_eq!(epochs, 1, "{what}: leftovers");
    append_next(&mut *log, 3).unwrap();
    log.compact(expected).unwrap();
    assert_eq!(frames(&*log, AT + 1).len() as u64, RECORDS + 3 - AT, "{what}");
    compacted
}

/// Number of steps of a compaction of [`filled`].
fn steps() -> usize {
    let place = filled();
    let counting = Interrupting::new(NEVER, false, false);
    let mut log = SledLog::open_with(place.path(), Options::default(), counting.clone()).unwrap();
    let before = counting.count.load(Ordering::SeqCst);
    let checkpoint = checkpoint_at(&log, AT, state());
    log.compact(&checkpoint).unwrap();
    counting.count.load(Ordering::SeqCst) - before
}

#[test]
fn an_error_at_any_step_leaves_one_whole_log() {
    let (mut old, mut new) = (0, 0);
    for nth in 1..=steps() {
        for after in [false, true] {
            let place = filled();
            let medium = Interrupting::new(NEVER, after, false);
            let mut log = SledLog::open_with(place.path(), Options::default(), medium.clone()).unwrap();
            let checkpoint = checkpoint_at(&log, AT, state());
            medium.left.store(nth, Ordering::SeqCst);
            let result = log.compact(&checkpoint);
            if log.append(&[]).is_ok() {
                // Not poisoned: the old log is still in use, or only the removal of the old epoch failed.
                append_next(&mut log, 1).unwrap();
                check_contents(&log, before(&log));
                drop(log);
                let mut log = place.reopen();
                assert_eq!(log.head().position.0, RECORDS + 1);
                log.compact(&checkpoint).unwrap();
                continue;
            }
            assert!(result.is_err());
            drop(log);
            if check(&place, &checkpoint, &format!("step {nth}, after {after}")) { new += 1 } else { old += 1 }
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

fn before(log: &dyn EventLog) -> Head {
    let checkpoint = log.checkpoint().unwrap();
    checkpoint.map_or_else(Head::default, |c| Head { position: c.position, digest: c.digest })
}

#[test]
#[ignore = "run by the other tests as a child process"]
fn child_appends() {
    let (nth, after): (usize, bool) = (variable("NTH").parse().unwrap(), variable("AFTER") == "true");
    let creating = variable("CREATING") == "true";
    let medium = Interrupting::new(if creating { nth } else { NEVER }, after, true);
    let mut log = SledLog::open_with(variable("LOG_DIR"), Options::default(), medium.clone()).unwrap();
    let checkpoint = checkpoint_at(&log, AT, state());
    medium.left.store(nth, Ordering::SeqCst);
    log.compact(&checkpoint).unwrap();
}

fn run_child(place: &OnDisk, nth: usize, after: bool, creating: bool) {
    let variables = [
        ("LOG_DIR", place.path().display().to_string()),
        ("NTH", nth.to_string()),
        ("AFTER", after.to_string()),
        ("CREATING", creating.to_string()),
    ];
    let output = child(&variables).output().unwrap();
    assert!(!output.status.success(), "step {nth} was never reached");
}

#[test]
fn the_end_of_the_process_at_any_step_leaves_one_whole_log() {
    let image = filled();
    let checkpoint = checkpoint_at(&*image.reopen(), AT, state());
    let (mut old, mut new) = (0, 0);
    for nth in 1..=steps() {
        for after in [false, true] {
            let place = OnDisk::new();
            copy_tree(&image.path(), &place.path());
            run_child(&place, nth, after, false);
            if check(&place, &checkpoint, &format!("step {nth}, after {after}")) { new += 1 } else { old += 1 }
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

#[test]
fn a_log_whose_making_was_interrupted_is_made_again() {
    let counting = Interrupting::new(NEVER, false, false);
    let place = OnDisk::new();
    drop(SledLog::open_with(place.path(), Options::default(), counting.clone()).unwrap());
    let steps = counting.count.load(Ordering::SeqCst);
    assert!(steps >= 5);
    for nth in 1..=steps {
        for after in [false, true] {
            let place = OnDisk::new();
            let medium = Interrupting::new(nth, after, false);
            // The last step is closing, whose failure is not reported.
            drop(SledLog::open_with(place.path(), Options::default(), medium));
            fill(&mut *place.reopen(), 5);
            check_contents(&*place.reopen(), Head::default());
            let place = OnDisk::new();
            run_child(&place, nth, after, true);
            fill(&mut *place.reopen(), 5);
            check_contents(&*place.reopen(), Head::default());
        }
    }
}
