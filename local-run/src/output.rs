//! Output of pods on its way to the screen.
//!
//! Owns the queue between the threads that read the pods' log files and the loop that prints. It is bounded: while standard
//! output keeps up, readers of log files wait for room; when it does not, lines are dropped and counted. They stay in the log
//! files. A pod never waits. Tests: at the end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terminal::out;

/// Maximum size of the lines waiting, in bytes.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Size of what is taken at once, in bytes.
const BATCH_BYTES: usize = 128 << 10;
/// Memory that a line takes beside its text, in bytes.
const LINE_OVERHEAD_BYTES: usize = 64;
/// Interval at which a thread that waits for room checks whether standard output is still read.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    /// Pod and text.
    lines: VecDeque<(String, String)>,
    bytes: usize,
    dropped: u64,
    closed: bool,
}

/// Lines of pods that wait to be printed.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    state: Mutex<State>,
    room: Condvar,
}

/// Lines taken at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The lines, each after its pod's name.
    pub(crate) lines: Vec<(String, String)>,
    /// Number of lines dropped since the last batch.
    pub(crate) dropped: u64,
}

impl Lines {
    /// Queues a line, or drops it when there is no room and standard output does not keep up. Returns whether the queue was
    /// empty, so that the loop has to be woken.
    pub(crate) fn offer(&self, pod: String, text: String) -> bool {
        self.offer_while(pod, text, &out::keeps_up)
    }

    fn offer_while(&self, pod: String, text: String, keeps_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.lock();
        while state.bytes >= MAX_WAITING_BYTES && !state.closed {
            if !keeps_up() {
                state.dropped += 1;
                return false;
            }
            state = self.room.wait_timeout(state, ROOM_POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.closed {
            return false;
        }
        let was_empty = state.lines.is_empty();
        state.bytes += size(&pod, &text);
        state.lines.push_back((pod, text));
        was_empty
    }

    /// Takes lines that are printed together; absent when nothing waits.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut state = self.lock();
        let mut batch = Batch { dropped: std::mem::take(&mut state.dropped), ..Batch::default() };
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some((pod, text)) = state.lines.pop_front()
        {
            let size = size(&pod, &text);
            state.bytes -= size;
            bytes += size;
            batch.lines.push((pod, text));
        }
        self.room.notify_all();
        (batch != Batch::default()).then_some(batch)
    }

    /// Returns true if no line is queued.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.lines.is_empty() && state.dropped == 0
    }

    /// Drops what comes from now on, and releases the threads that wait for room.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(pod: &str, text: &str) -> usize {
    pod.len() + text.len() + LINE_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_what_is_dropped_is_counted() {
        let lines = Lines::default();
        let text = "x".repeat(1000);
        let mut woken = 0;
        for _ in 0..10_000 {
            woken += u32::from(lines.offer_while("p".to_owned(), text.clone(), &|| false));
        }
        assert_eq!(woken, 1, "the loop is woken once");
        assert!(lines.lock().bytes < MAX_WAITING_BYTES + 2000);
        let mut batches = 0;
        let (mut found, mut dropped) = (0, 0);
        while let Some(batch) = lines.take() {
            batches += 1;
            found += batch.lines.iter().filter(|(pod, line)| pod == "p" && *line == text).count();
            dropped += batch.dropped;
            assert!(batch.lines.iter().map(|(_, line)| line.len()).sum::<usize>() < BATCH_BYTES + 2000);
        }
        assert!(batches > 10 && dropped > 0);
        assert_eq!(u64::try_from(found).unwrap() + dropped, 10_000);
        assert!(lines.is_empty());
    }

    #[test]
    fn a_reader_of_files_waits_for_a_printer_that_keeps_up() {
        let lines = Lines::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100_000 {
                    lines.offer_while("p".to_owned(), n.to_string(), &|| true);
                }
                lines.close();
            });
            let mut next = 0;
            while next < 100_000 {
                for (_, line) in lines.take().into_iter().flat_map(|batch| batch.lines) {
                    assert_eq!(line, next.to_string());
                    next += 1;
                }
            }
        });
        assert!(!lines.offer_while("p".to_owned(), "late".to_owned(), &|| true));
        assert!(lines.is_empty());
    }
}
