//! Counts the steps of one commit, and makes each of them fail.

mod support;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use event_log::disk::medium::{Medium, Step};
use event_log::{Error, EventLog as _, Head, NewRecord, Options, SledLog};
use model::Term;
use support::{Failing, OnDisk, Place as _, append_next, check_contents, fill};

/// Notes every step after it was carried out.
#[derive(Default)]
struct Counting(Mutex<Vec<Step>>);

impl Medium for Counting {
    fn run(&self, step: Step, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()?;
        self.0.lock().unwrap().push(step);
        Ok(())
    }
}

#[test]
fn a_commit_is_one_batch_one_flush_one_sync() {
    let place = OnDisk::new();
    let counting = Arc::new(Counting::default());
    let mut log = SledLog::open_with(place.path(), Options::default(), counting.clone()).unwrap();
    for size in [1, 64, 256, 1] {
        counting.0.lock().unwrap().clear();
        append_next(&mut log, size).unwrap();
        let steps = counting.0.lock().unwrap().clone();
        assert_eq!(steps, [Step::Put, Step::Flush, Step::SyncData, Step::WriteHead], "group of {size}");
    }
    counting.0.lock().unwrap().clear();
    log.append(&[NewRecord { term: Term(9), body: &vec![b'x'; 1 << 20] }]).unwrap();
    assert_eq!(counting.0.lock().unwrap().len(), 4, "a large record is no exception");
    log.append(&[]).unwrap();
    assert_eq!(counting.0.lock().unwrap().len(), 4, "nothing to append costs nothing");
}

#[test]
fn a_failure_at_any_step_poisons_and_leaves_all_or_nothing() {
    for nth in 1..=4 {
        for after in [false, true] {
            let place = OnDisk::new();
            let failing =
                Arc::new(Failing { left: AtomicUsize::new(usize::MAX / 2), after, kind: io::ErrorKind::StorageFull });
            let mut log = SledLog::open_with(place.path(), Options::default(), failing.clone()).unwrap();
            fill(&mut log, 40);
            failing.left.store(nth, Ordering::SeqCst);
            let error = append_next(&mut log, 60).unwrap_err();
            match error {
                Error::Full { .. } => assert!(!after),
                Error::Io { .. } => assert!(after),
                other => panic!("{other}"),
            }
            assert!(matches!(append_next(&mut log, 1), Err(Error::Poisoned)));
            assert_eq!(log.head().position.0, 40);
            check_contents(&log, Head::default());
            drop(log);
            let mut log = place.reopen();
            let head = log.head().position.0;
            assert!(head == 40 || head == 100, "step {nth}, after {after}: {head}");
            assert!(nth > 1 || after || head == 40, "nothing was stored");
            append_next(&mut *log, 5).unwrap();
            check_contents(&*log, Head::default());
        }
    }
}
