//! The end of what a failed container wrote, as the message of its termination.
//!
//! Owns its bounds, which are the kubelet's for `FallbackToLogsOnError`, and the file in which torch's error handlers leave an
//! exception. Must not decide which runs have a message. Tests: at the end, and `tests/local/processes.rs`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use model::last_words::of_failing_rank;

/// Maximum size of a message in bytes.
const MAX_BYTES: usize = 2048;

/// Maximum number of lines of a message.
const MAX_LINES: usize = 80;

/// Bytes read from the end of a log: more than a message holds, since progress bars overwrite most of what they write.
const READ_BYTES: u64 = 32 * 1024;

/// Maximum size in bytes of an error file that is read.
const MAX_ERROR_FILE_BYTES: u64 = 1024 * 1024;

/// Returns the last lines a container wrote from byte `from` of its log on; empty when they cannot be read.
pub(crate) fn of_log(path: &Path, from: u64) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let start = from.max(file.metadata()?.len().saturating_sub(READ_BYTES));
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(of_failing_rank(&text).unwrap_or_else(|| last_lines(&text, start > from)))
    };
    read().unwrap_or_default()
}

/// Returns the number of processes that the kernel has killed for lack of memory since it booted; `None` where it does not show.
pub(crate) fn oom_kills() -> Option<u64> {
    oom_kills_in(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn oom_kills_in(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Returns the message of a program that SIGKILL ended. `before`: [`oom_kills`] when it began. `own`: its own last words.
pub(crate) fn of_killed(before: Option<u64>, own: String) -> String {
    let killed = before.zip(oom_kills()).map_or(0, |(before, now)| now.saturating_sub(before));
    with_oom_kills(killed, own)
}

/// The kernel counts for the whole machine, so that the message names no process.
fn with_oom_kills(killed: u64, own: String) -> String {
    let what = match killed {
        0 => return own,
        1 => "a process".to_owned(),
        _ => format!("{killed} processes"),
    };
    let message =
        format!("possibly out of memory: the kernel killed {what} of this machine for lack of memory while it ran");
    if own.is_empty() { message } else { format!("{message}\n{own}") }
}

/// Returns the last lines of a log file of a container, or of torchrun's output the failure; empty when it cannot be read.
#[must_use]
pub fn of_file(path: &Path) -> String {
    of_log(path, 0)
}

/// The last lines of a text that fit a message; of a line that overwrote itself, what stood there in the end.
fn last_lines(text: &str, begins_inside: bool) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if begins_inside && lines.len() > 1 {
        lines.remove(0);
    }
    let mut kept = Vec::new();
    let mut size = 0;
    for line in lines.into_iter().rev().take(MAX_LINES) {
        let line = line.trim_end_matches('\r');
        let line = line.rsplit_once('\r').map_or(line, |(_, last)| last);
        size += line.len() + 1;
        if size > MAX_BYTES + 1 {
            if kept.is_empty() {
                kept.push(end_of(line));
            }
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n")
}

/// The end of a text, as much as a message holds.
fn end_of(text: &str) -> &str {
    let mut start = text.len().saturating_sub(MAX_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Returns the exception that torch's error handler wrote to the file named by `TORCHELASTIC_ERROR_FILE`; `None` without one.
pub(crate) fn of_error_file(path: &Path) -> Option<String> {
    if fs::metadata(path).ok()?.len() > MAX_ERROR_FILE_BYTES {
        return None;
    }
    let text = last_lines(&model::last_words::error_file(&fs::read_to_string(path).ok()?)?, false);
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_killed_while_the_kernel_killed_for_lack_of_memory() {
        assert_eq!(oom_kills_in("nr_free_pages 1\noom_kill 12\nnuma_hit 3\n"), Some(12));
        assert_eq!(oom_kills_in("nr_free_pages 1\n"), None);
        assert_eq!(of_killed(None, "step 7".to_owned()), "step 7");
        assert_eq!(with_oom_kills(0, "step 7".to_owned()), "step 7");
        let expected =
            "possibly out of memory: the kernel killed a process of this machine for lack of memory while it ran";
        assert_eq!(with_oom_kills(1, String::new()), expected);
        assert_eq!(with_oom_kills(1, "step 7".to_owned()), format!("{expected}\nstep 7"));
        assert!(with_oom_kills(2, String::new()).contains("killed 2 processes"));
    }

    #[test]
    fn the_end_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        assert_eq!(of_log(&path, 0), "");
        fs::write(&path, "old\none\ntwo\n").unwrap();
        assert_eq!(of_log(&path, 4), "one\ntwo");
        fs::write(&path, "x\n".repeat(50_000)).unwrap();
        assert_eq!(of_log(&path, 0), vec!["x"; MAX_LINES].join("\n"));
        fs::write(&path, format!("{}\nlast\n", "y".repeat(MAX_BYTES))).unwrap();
        assert_eq!(of_log(&path, 0), "last");
        fs::write(&path, "é".repeat(MAX_BYTES)).unwrap();
        assert_eq!(of_log(&path, 0).len(), MAX_BYTES);
        fs::write(&path, format!("a\n{}b 100%\r\nc\n", "b 1%\r".repeat(3000))).unwrap();
        assert_eq!(of_log(&path, 0), "a\nb 100%\nc");
    }

    #[test]
    fn what_torch_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error.json");
        assert_eq!(of_error_file(&path), None);
        fs::write(&path, r#"{"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "1"}}}"#).unwrap();
        assert_eq!(of_error_file(&path).as_deref(), Some("ValueError: x"));
        fs::write(&path, "no json").unwrap();
        assert_eq!(of_error_file(&path), None);
    }

    #[test]
    fn of_torchrun_the_failing_rank_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let exception = "Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\nValueError: boom\n";
        let padding = "E1128 torch/distributed/elastic/multiprocessing/api.py:869] failed\n".repeat(60);
        let report =
            "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 7)\n";
        fs::write(&path, format!("{exception}{padding}{report}")).unwrap();
        // What a kubelet keeps would begin behind the exception.
        assert_eq!(of_log(&path, 0), "rank 1: ValueError: boom\nFile \"t.py\", line 2, in <module>");
    }
}
