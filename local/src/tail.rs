//! Log files to the terminal: follows the files containers write to, line by line, and hands lines to the sink.
//!
//! Containers write straight into their files, so a terminal that stands still never holds up a pod. One thread looks at
//! all files a few times a second; a pod's files are read to their end before its next status is reported, so a container's
//! last words come before its end. Tests: at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::options::{Output, Sink};

/// Interval at which files are read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A line longer than this is handed on in pieces, so that a program that never ends a line cannot fill the memory.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Whose output a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

struct Followed {
    uid: String,
    label: Label,
    file: File,
    unfinished: Vec<u8>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<PathBuf, Followed>,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    sink: Sink,
}

/// Follows log files until it is dropped.
pub(crate) struct Tail {
    shared: Arc<Shared>,
}

impl Tail {
    /// Starts with no files.
    pub(crate) fn new(sink: Sink) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), sink });
        let for_thread = Arc::clone(&shared);
        thread::spawn(move || for_thread.run());
        Self { shared }
    }

    /// Follows a file from a byte on, when it is not followed already.
    pub(crate) fn follow(&self, uid: &str, label: Label, path: &Path, from: u64) {
        let mut state = self.shared.lock();
        if state.files.contains_key(path) {
            return;
        }
        // The supervisor made the file before it named it; if it is gone again there is nothing to show.
        let Ok(mut file) = File::open(path) else { return };
        if file.seek(SeekFrom::Start(from)).is_err() {
            return;
        }
        let followed = Followed { uid: uid.to_owned(), label, file, unfinished: Vec::new() };
        state.files.insert(path.to_owned(), followed);
        self.shared.wake.notify_one();
    }

    /// Hands on all that a pod has written so far. With `done`, also a last line without an end, and follows it no more.
    pub(crate) fn drain(&self, uid: &str, done: bool) {
        let mut state = self.shared.lock();
        for followed in state.files.values_mut().filter(|followed| followed.uid == uid) {
            followed.read(&self.shared.sink);
            if done {
                followed.finish(&self.shared.sink);
            }
        }
        if done {
            state.files.retain(|_, followed| followed.uid != uid);
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A sink that panics leaves the table whole; going on without it loses output only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            for followed in state.files.values_mut() {
                followed.read(&self.sink);
            }
            state = if state.files.is_empty() {
                self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.wake.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

impl Followed {
    fn read(&mut self, sink: &Sink) {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = match self.file.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            for piece in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
                self.unfinished.extend_from_slice(piece);
                if piece.ends_with(b"\n") || self.unfinished.len() >= MAX_LINE_BYTES {
                    self.finish(sink);
                }
            }
        }
    }

    fn finish(&mut self, sink: &Sink) {
        if self.unfinished.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.unfinished);
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Label { namespace, pod, container } = self.label.clone();
        sink(Output::Line { namespace, pod, container, text: String::from_utf8_lossy(line).into_owned() });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;

    fn text(output: Output) -> String {
        match output {
            Output::Line { pod, text, .. } => format!("{pod}|{text}"),
            Output::Warning { message, .. } => message,
        }
    }

    #[test]
    fn lines_come_whole_and_the_rest_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut file = File::create(&path).unwrap();
        let (tx, rx) = mpsc::channel();
        let tx = Mutex::new(tx);
        let tail = Tail::new(Arc::new(move |output| tx.lock().unwrap().send(text(output)).unwrap()));
        let label = Label { namespace: "ns".into(), pod: "p".into(), container: "c".into() };
        file.write_all(b"old\none\ntw").unwrap();
        tail.follow("u", label.clone(), &path, 4);
        tail.follow("u", label, &path, 0); // known already: no line twice
        assert_eq!(rx.recv_timeout(Duration::from_secs(20)).unwrap(), "p|one");
        file.write_all(b"o\r\n\n\xff\nrest").unwrap();
        tail.drain("other", true);
        tail.drain("u", true);
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), ["p|two", "p|", "p|\u{fffd}", "p|rest"]);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        std::fs::write(&path, vec![b'x'; MAX_LINE_BYTES * 2 + 1]).unwrap();
        let (tx, rx) = mpsc::channel();
        let tx = Mutex::new(tx);
        let tail = Tail::new(Arc::new(move |output| tx.lock().unwrap().send(text(output).len()).unwrap()));
        tail.follow("u", Label { namespace: "ns".into(), pod: String::new(), container: "c".into() }, &path, 0);
        tail.drain("u", true);
        let lengths: Vec<usize> = rx.try_iter().collect();
        assert_eq!(lengths.iter().sum::<usize>(), MAX_LINE_BYTES * 2 + 1 + lengths.len());
        assert!(lengths.len() >= 3);
    }
}
