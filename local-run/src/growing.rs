//! Files that another process appends to, read as they grow.
//!
//! Owns the place up to which a file was read, and the line that has no end yet. It must not print. Tests: at the end.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use terminal::out::Failure;

/// Maximum number of bytes read at once.
const READ_BYTES: u64 = 1 << 20;

/// A file and the place up to which it was read.
pub(crate) struct GrowingFile {
    path: PathBuf,
    at: u64,
    rest: Vec<u8>,
}

impl GrowingFile {
    /// Reads a file from a byte.
    pub(crate) const fn from(path: PathBuf, at: u64) -> Self {
        Self { path, at, rest: Vec::new() }
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Hands on the complete lines that were written since the last read; with `last` also a line without an end.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&mut self, last: bool, each: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", self.path.display()));
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.at)).map_err(failed)?;
        loop {
            let mut bytes = Vec::new();
            let count = (&mut file).take(READ_BYTES).read_to_end(&mut bytes).map_err(failed)?;
            self.at += u64::try_from(count).unwrap_or_default();
            self.rest.extend(bytes);
            let complete = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let end = if count == 0 && last { self.rest.len() } else { complete };
            if end > 0 {
                each(&String::from_utf8_lossy(&self.rest[..end]));
                self.rest.drain(..end);
            }
            if count == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_are_handed_on_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut writer = File::create(&path).unwrap();
        let mut file = GrowingFile::from(path, 0);
        let mut read = |last: bool| {
            let mut text = String::new();
            file.read(last, &mut |lines| text.push_str(lines)).unwrap();
            text
        };
        // The letter's two bytes come apart.
        writer.write_all("one\nt\u{e4}".as_bytes().split_last().unwrap().1).unwrap();
        assert_eq!(read(false), "one\n");
        writer.write_all(&[0xa4]).unwrap();
        assert_eq!(read(false), "");
        writer.write_all(b"\nthree").unwrap();
        assert_eq!(read(false), "t\u{e4}\n");
        assert_eq!(read(true), "three");
        assert_eq!(read(true), "");
    }
}
