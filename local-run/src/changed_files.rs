//! Changed manifest files of a run: `--watch`.
//!
//! Owns when a change counts: once the files have stood still for one poll, so that half a file is not read. It must not apply
//! anything. Tests: `cli/tests/local/watch.rs`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use inputs::manifests;
use serde_json::Value;
use terminal::out::Failure;

/// Interval between two looks at the files.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time of the last change and length of each file; absent for one that cannot be read.
type Stamps = Vec<Option<(SystemTime, u64)>>;

/// The manifest files of a run that follows them.
pub(crate) struct ChangedFiles {
    files: Vec<PathBuf>,
    lax: bool,
    /// As they were when they were read last.
    read: Stamps,
    /// As they were at the last look.
    seen: Stamps,
    looked: Instant,
}

impl ChangedFiles {
    /// Follows files that were just read.
    pub(crate) fn new(files: &[PathBuf], lax: bool) -> Self {
        let read = stamps(files);
        Self { files: files.to_vec(), lax, seen: read.clone(), read, looked: Instant::now() }
    }

    /// Returns the objects of the files if these have changed since they were read last.
    pub(crate) fn take(&mut self) -> Option<Result<Vec<Value>, Failure>> {
        if self.looked.elapsed() < POLL_INTERVAL {
            return None;
        }
        self.looked = Instant::now();
        let now = stamps(&self.files);
        let still = now == self.seen;
        self.seen = now;
        if !still || self.seen == self.read {
            return None;
        }
        self.read.clone_from(&self.seen);
        Some(manifests::load(&self.files, self.lax))
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    let stamp = |file: PathBuf| {
        let metadata = fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    manifests::expanded(files).into_iter().map(stamp).collect()
}
