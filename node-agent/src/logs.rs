//! The files that containers print to: which one is meant, and reading it from where it is wanted, to its end or beyond.
//!
//! Must not know HTTP. Tests: at the end.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How much is read at once, in bytes.
const PIECE: usize = 64 * 1024;

/// A container's run: the pod's incarnation, and how often the container had been started in it before.
type Run = (u32, u32);

/// The file of a container's newest run, or of the run before that in the same pod.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn find(
    data_directory: &Path,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> io::Result<Option<PathBuf>> {
    if ![namespace, pod, container].into_iter().all(local::is_plain_name) {
        return Ok(None);
    }
    let folder = data_directory.join("logs").join(namespace).join(pod);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest: Option<(SystemTime, Run)> = None;
    for entry in entries {
        let entry = entry?;
        let Some(run) = entry.file_name().to_str().and_then(|name| run_of(name, container)) else { continue };
        let changed = entry.metadata()?.modified()?;
        // Later pods of a name count from zero again, so time goes before numbers.
        newest = newest.max(Some((changed, run)));
    }
    let Some((_, (incarnation, restart))) = newest else { return Ok(None) };
    let Some(restart) = restart.checked_sub(u32::from(previous)) else { return Ok(None) };
    let run = if restart == 0 { incarnation.to_string() } else { format!("{incarnation}.{restart}") };
    let path = folder.join(format!("{container}-{run}.log"));
    Ok(path.exists().then_some(path))
}

/// The run a file holds, if it is this container's.
fn run_of(file: &str, container: &str) -> Option<Run> {
    let run = file.strip_prefix(container)?.strip_prefix('-')?.strip_suffix(".log")?;
    let (incarnation, restart) = run.split_once('.').unwrap_or((run, "0"));
    Some((incarnation.parse().ok()?, restart.parse().ok()?))
}

/// A file that is read piece by piece, while it may still grow.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    /// Bytes that may still be read.
    left: u64,
}

impl Reader {
    /// Opens a file; `lines` of its end are read first (absent: all), and `limit` bytes at most.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(path: &Path, lines: Option<u64>, limit: Option<u64>) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if let Some(lines) = lines {
            let from = start_of_last(&mut file, lines)?;
            file.seek(SeekFrom::Start(from))?;
        }
        Ok(Self { file, left: limit.unwrap_or(u64::MAX) })
    }

    /// What has come since; empty when there is nothing (yet).
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<Vec<u8>> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let mut piece = vec![0; most];
        let got = self.file.read(&mut piece)?;
        piece.truncate(got);
        self.left = self.left.saturating_sub(u64::try_from(got).unwrap_or(u64::MAX));
        Ok(piece)
    }

    /// Whether as much was read as was asked for.
    pub(crate) const fn is_full(&self) -> bool {
        self.left == 0
    }
}

/// Where the last `lines` lines of a file begin.
fn start_of_last(file: &mut File, lines: u64) -> io::Result<u64> {
    let mut at = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(at);
    }
    let end = at;
    let mut found = 0;
    let mut piece = vec![0; PIECE];
    while at > 0 {
        let from = at.saturating_sub(u64::try_from(PIECE).unwrap_or(u64::MAX));
        let length = usize::try_from(at - from).unwrap_or(PIECE);
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut piece[..length])?;
        for (n, _) in piece[..length].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let next = from + u64::try_from(n).unwrap_or(u64::MAX) + 1;
            // The end of the last line is no line.
            if next < end {
                found += 1;
                if found == lines {
                    return Ok(next);
                }
            }
        }
        at = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, file: &str, text: &str) -> PathBuf {
        let folder = directory.join("logs/ns/p");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(file);
        fs::write(&path, text).unwrap();
        path
    }

    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::now() - std::time::Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn the_newest_run_is_meant_unless_the_one_before_is() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let at = |container: &str, previous: bool| {
            let found = find(root, "ns", "p", container, previous).unwrap();
            found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        assert_eq!(at("c", false), None);
        age(&write(root, "c-7.log", ""), 50);
        assert_eq!((at("c", false).as_deref(), at("c", true)), (Some("c-7.log"), None));
        age(&write(root, "c-0.log", ""), 40);
        age(&write(root, "c-0.1.log", ""), 30);
        age(&write(root, "c-0.2.log", ""), 30);
        write(root, "c-x-3.log", "");
        write(root, "c-note.txt", "");
        assert_eq!((at("c", false).as_deref(), at("c", true).as_deref()), (Some("c-0.2.log"), Some("c-0.1.log")));
        assert_eq!(at("c-x", false).as_deref(), Some("c-x-3.log"));
        for name in ["", ".", "..", "../ns", "a/b"] {
            assert_eq!(find(root, "ns", name, "c", false).unwrap(), None, "{name}");
            assert_eq!(find(root, name, "p", "c", false).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn the_last_lines_and_what_comes_after() {
        use std::io::Write as _;
        let directory = tempfile::tempdir().unwrap();
        let long = "x".repeat(PIECE);
        for (text, lines, want) in [
            ("", 3, String::new()),
            ("a\nb\nc\n", 2, "b\nc\n".to_owned()),
            ("a\nb\nc", 2, "b\nc".to_owned()),
            ("a\nb\n", 9, "a\nb\n".to_owned()),
            ("a\nb\n", 0, String::new()),
            ("\n\n\n", 2, "\n\n".to_owned()),
            (&format!("{long}\n{long}\n"), 1, format!("{long}\n")),
        ] {
            let path = write(directory.path(), "c-0.log", text);
            let mut reader = Reader::open(&path, Some(lines), None).unwrap();
            let mut got = Vec::new();
            loop {
                let piece = reader.next().unwrap();
                if piece.is_empty() {
                    break;
                }
                got.extend(piece);
            }
            assert_eq!(String::from_utf8(got).unwrap(), want, "{lines} of {}", text.len());
            File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
            assert_eq!(reader.next().unwrap(), b"more");
        }
    }

    #[test]
    fn no_more_than_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = write(directory.path(), "c-0.log", "abcdef");
        let mut reader = Reader::open(&path, None, Some(4)).unwrap();
        assert_eq!(reader.next().unwrap(), b"abcd");
        assert!(reader.is_full() && reader.next().unwrap().is_empty());
    }
}
