//! Printing from a thread of its own, for commands that continue while standard output stands still.
//!
//! Owns the queue between a command and its standard output: bounded, never waited for. Knows nothing of what is printed.
//! Tests: at the end.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Text waiting to be printed, in bytes, from which on a caller that can wait is asked to.
const ROOM_BYTES: usize = 1 << 20;
/// Maximum size of the text waiting to be printed, in bytes. What does not fit is dropped and counted.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Maximum size of one write, in bytes.
const WRITE_BYTES: usize = 256 << 10;
/// Time for one write from which on the reader counts as slow.
const SLOW_WRITE_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Start of the write under way, and the lines in it.
    writing: Option<(Instant, u64)>,
    /// Lines that did not fit.
    dropped: u64,
    /// Nothing can be written any more.
    gone: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Standard output behind a queue.
pub(super) struct Printer {
    shared: Arc<Shared>,
}

impl Printer {
    /// Starts the thread that writes to `out`. `failed` is called once, by that thread, when `out` takes nothing any more.
    pub(super) fn start(
        mut out: impl Write + Send + 'static,
        failed: impl FnOnce(&io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("printer".to_owned()).spawn(move || {
            if let Err(error) = of_thread.write_all(&mut out) {
                failed(&error);
            }
        })?;
        Ok(Self { shared })
    }

    /// Queues text. Never waits.
    pub(super) fn print(&self, text: &str) {
        let mut state = self.shared.lock();
        if state.gone {
            return;
        }
        if state.waiting.len() + text.len() > MAX_QUEUED_BYTES {
            state.dropped += lines(text.as_bytes());
            return;
        }
        state.waiting.extend_from_slice(text.as_bytes());
        self.shared.changed.notify_all();
    }

    /// Returns whether text that can wait should be printed now.
    pub(super) fn has_room(&self) -> bool {
        self.shared.lock().waiting.len() < ROOM_BYTES
    }

    /// Returns whether standard output takes what is written without delay.
    pub(super) fn keeps_up(&self) -> bool {
        self.shared.lock().writing.is_none_or(|(since, _)| since.elapsed() < SLOW_WRITE_TIMEOUT)
    }

    /// Returns whether nothing can be printed any more.
    pub(super) fn is_gone(&self) -> bool {
        self.shared.lock().gone
    }

    /// Waits until everything is written, or cannot be, at most for `timeout`. Returns whether that is so.
    pub(super) fn wait_written(&self, timeout: Duration) -> bool {
        let done = |state: &mut State| !state.gone && (!state.waiting.is_empty() || state.writing.is_some());
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), timeout, done);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Number of lines that were dropped or still wait.
    pub(super) fn unwritten(&self) -> u64 {
        let state = self.shared.lock();
        state.dropped + lines(&state.waiting) + state.writing.map_or(0, |(_, lines)| lines)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, out: &mut impl Write) -> io::Result<()> {
        loop {
            let empty = |state: &mut State| state.waiting.is_empty();
            let mut state = self.changed.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
            let size = state.waiting.len().min(WRITE_BYTES);
            let rest = state.waiting.split_off(size);
            let piece = std::mem::replace(&mut state.waiting, rest);
            state.writing = Some((Instant::now(), lines(&piece)));
            drop(state);
            let written = out.write_all(&piece).and_then(|()| out.flush());
            let mut state = self.lock();
            state.writing = None;
            if written.is_err() {
                state.gone = true;
                state.waiting = Vec::new();
            }
            self.changed.notify_all();
            drop(state);
            written?;
        }
    }
}

fn lines(text: &[u8]) -> u64 {
    u64::try_from(text.split(|byte| *byte == b'\n').count() - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// A reader that takes a write for each message, and stops reading when the sender is gone.
    struct Slow(Receiver<()>, Sender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.1.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_holds_up_nothing() {
        let ((go, ready), (text, read), (fail, failed)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let printer = Printer::start(Slow(ready, text), move |e| fail.send(e.kind()).unwrap()).unwrap();
        printer.print("one\n");
        let line = format!("{}\n", "x".repeat(1023));
        let most = u64::try_from(MAX_QUEUED_BYTES / line.len()).unwrap();
        for _ in 0..2 * most {
            printer.print(&line);
        }
        assert!(!printer.has_room());
        assert!(!printer.wait_written(Duration::ZERO));
        let unwritten = printer.unwritten();
        assert_eq!(unwritten, 2 * most + 1);
        let in_one_write = u64::try_from(WRITE_BYTES / line.len()).unwrap();
        assert!(printer.shared.lock().dropped >= most - in_one_write - 1, "what is kept is bounded");
        assert!(printer.shared.lock().waiting.len() <= MAX_QUEUED_BYTES);

        go.send(()).unwrap();
        assert_eq!(&read.recv().unwrap()[..4], b"one\n");
        assert!(!printer.is_gone());

        drop(go);
        assert_eq!(failed.recv().unwrap(), io::ErrorKind::BrokenPipe);
        assert!(printer.is_gone() && printer.has_room() && printer.keeps_up());
        printer.print(&line);
        assert!(printer.wait_written(Duration::ZERO), "nothing waits for a reader that is gone");
    }

    #[test]
    fn a_reader_gets_everything_in_order() {
        let ((go, ready), (text, read)) = (mpsc::channel(), mpsc::channel());
        let printer = Printer::start(Slow(ready, text), |_| ()).unwrap();
        let wanted = (0..20_000).fold(String::new(), |text, n| text + &format!("line {n} {}\n", "y".repeat(20)));
        wanted.split_inclusive('\n').for_each(|line| printer.print(line));
        let mut found = Vec::new();
        while found.len() < wanted.len() {
            go.send(()).unwrap();
            found.extend(read.recv().unwrap());
        }
        assert!(String::from_utf8(found).unwrap() == wanted);
        assert!(printer.wait_written(Duration::from_secs(60)));
        assert_eq!(printer.unwritten(), 0);
    }
}
