//! Reads the files that containers print to, from where it is wanted, to their end or beyond.
//!
//! Must not know HTTP. Tests: at the end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How much is read at once, in bytes.
const PIECE: usize = 64 * 1024;

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
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn write(directory: &Path, file: &str, text: &str) -> PathBuf {
        let folder = directory.join("logs/ns/p");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(file);
        fs::write(&path, text).unwrap();
        path
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
