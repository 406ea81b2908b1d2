//! The zip archive of a directory that becomes a workspace.
//!
//! Owns which files are in it: those that git would not ignore, never `.git`, nothing that was excluded; and its size limit. The same
//! files make the same bytes, so that an upload can continue where it broke. It must not know where the archive goes. Tests: at the end.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use sha2::{Digest as _, Sha256};
use terminal::out::Failure;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// Largest sum of file sizes where no other is given, in bytes.
pub const DEFAULT_MAX_BYTES: u64 = 1 << 30;
/// Number of files that the message about a directory that is too large names.
const MAX_NAMED: usize = 3;
/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// Files to pack.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The directory.
    pub directory: &'a Path,
    /// Patterns of files to leave out, as in `.gitignore`.
    pub exclude: &'a [String],
    /// A directory to leave out.
    pub without: Option<&'a Path>,
    /// Largest sum of file sizes.
    pub max_bytes: u64,
}

/// A file of a directory.
#[derive(Debug)]
pub struct Entry {
    path: PathBuf,
    /// Its path in the directory.
    pub name: String,
    metadata: Metadata,
}

/// A packed directory.
#[derive(Debug)]
pub struct Archive {
    /// The archive, at its beginning.
    pub file: File,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of it, in hexadecimal digits.
    pub digest: String,
    /// Number of files in it.
    pub files: usize,
}

impl Entry {
    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        if self.metadata.is_file() { self.metadata.len() } else { 0 }
    }
}

/// Lists the files of a directory that are packed, by path.
///
/// # Errors
/// Returns an error if a file cannot be read, or all of them are too large together.
pub fn list(source: &Source<'_>) -> Result<Vec<Entry>, Failure> {
    let directory = source.directory;
    if !directory.is_dir() {
        return Err(Failure::new(format!("{}: is no directory", directory.display())));
    }
    let mut excluded = OverrideBuilder::new(directory);
    for pattern in source.exclude {
        let added = excluded.add(&format!("!{pattern}"));
        added.map_err(|error| Failure::new(format!("--exclude {pattern}: {error}")))?;
    }
    let without = source.without.and_then(|path| path.canonicalize().ok());
    let mut walk = WalkBuilder::new(directory);
    walk.hidden(false).ignore(false).require_git(false).follow_links(false).overrides(excluded.build()?);
    walk.sort_by_file_path(Ord::cmp);
    walk.filter_entry(move |entry| {
        let is_left_out =
            || without.as_ref().is_some_and(|without| entry.path().canonicalize().is_ok_and(|path| path == *without));
        entry.file_name() != ".git" && !is_left_out()
    });
    let mut entries = Vec::new();
    for entry in walk.build() {
        let entry = entry?;
        let name = entry.path().strip_prefix(directory).unwrap_or_else(|_| entry.path());
        let kind = entry.file_type();
        if name.as_os_str().is_empty() || !kind.is_some_and(|kind| kind.is_dir() || kind.is_file() || kind.is_symlink())
        {
            continue;
        }
        let Some(name) = name.to_str() else {
            return Err(Failure::new(format!("{}: its name is no UTF-8", entry.path().display())));
        };
        let metadata = fs::symlink_metadata(entry.path()).map_err(|error| of_file(entry.path(), &error))?;
        entries.push(Entry { name: name.to_owned(), path: entry.into_path(), metadata });
    }
    check_size(source, &entries)?;
    Ok(entries)
}

fn check_size(source: &Source<'_>, entries: &[Entry]) -> Result<(), Failure> {
    let sum: u64 = entries.iter().map(Entry::bytes).sum();
    if sum <= source.max_bytes {
        return Ok(());
    }
    let mut largest: Vec<&Entry> = entries.iter().collect();
    largest.sort_by_key(|entry| std::cmp::Reverse(entry.bytes()));
    let named: Vec<String> =
        largest.iter().take(MAX_NAMED).map(|entry| format!("{} {}", entry.name, size(entry.bytes()))).collect();
    Err(Failure::new(format!(
        "{}: {} of files, at most {} are uploaded; the largest: {}. Leave files out with --exclude or .gitignore, or raise --max-size",
        source.directory.display(),
        size(sum),
        size(source.max_bytes),
        named.join(", ")
    )))
}

/// Packs a directory into a file, which is empty.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or the directory is too large.
pub fn pack(source: &Source<'_>, to: File) -> Result<Archive, Failure> {
    let entries = list(source)?;
    let mut zip = ZipWriter::new(to);
    for entry in &entries {
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", entry.path.display()));
        let options = options(&entry.metadata);
        if entry.metadata.is_dir() {
            zip.add_directory(entry.name.as_str(), options).map_err(|error| failed(&error))?;
        } else if entry.metadata.is_symlink() {
            let target = fs::read_link(&entry.path).map_err(|error| failed(&error))?;
            zip.add_symlink(entry.name.as_str(), target.to_string_lossy(), options).map_err(|error| failed(&error))?;
        } else {
            zip.start_file(entry.name.as_str(), options).map_err(|error| failed(&error))?;
            let mut file = File::open(&entry.path).map_err(|error| failed(&error))?;
            io::copy(&mut file, &mut zip).map_err(|error| failed(&error))?;
        }
    }
    let mut file = zip.finish()?;
    let bytes = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let digest = digest(&mut file)?;
    file.rewind()?;
    Ok(Archive { file, bytes, digest, files: entries.iter().filter(|entry| !entry.metadata.is_dir()).count() })
}

/// Returns the SHA-256 of what follows in a file, in hexadecimal digits.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn digest(file: &mut File) -> io::Result<String> {
    let (mut reader, mut hash, mut piece) = (BufReader::with_capacity(PIECE, file), Sha256::new(), vec![0; PIECE]);
    loop {
        match reader.read(&mut piece)? {
            0 => {
                let digits = |hex: String, byte: &u8| hex + &format!("{byte:02x}");
                return Ok(hash.finalize().iter().fold(String::new(), digits));
            }
            count => hash.update(piece.get(..count).unwrap_or_default()),
        }
    }
}

/// Time and mode of a file, as a zip archive has them: Python takes a module of an older time for unchanged.
fn options(metadata: &Metadata) -> SimpleFileOptions {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(metadata.permissions().mode() & 0o777)
        .large_file(metadata.len() >= u64::from(u32::MAX));
    let time = jiff::Timestamp::from_second(metadata.mtime()).ok().and_then(|at| {
        let at = jiff::tz::Offset::UTC.to_datetime(at);
        let number = |n: i8| u8::try_from(n).ok();
        DateTime::from_date_and_time(
            u16::try_from(at.year()).ok()?,
            number(at.month())?,
            number(at.day())?,
            number(at.hour())?,
            number(at.minute())?,
            number(at.second())?,
        )
        .ok()
    });
    time.map_or(options, |time| options.last_modified_time(time))
}

/// Returns a number of bytes in words.
pub fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

fn of_file(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(directory: &Path, name: &str, content: &[u8]) {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn source(directory: &Path) -> Source<'_> {
        Source { directory, exclude: &[], without: None, max_bytes: 10_000 }
    }

    fn names(source: &Source<'_>) -> Vec<String> {
        list(source).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn what_git_ignores_and_what_is_excluded_stays_out() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        for name in ["train.py", "lib/a.py", "lib/a.pyc", "data/x.bin", ".env", ".git/HEAD", "lib/keep.pyc", "out/log"]
        {
            write(at, name, b"x");
        }
        write(at, ".gitignore", b"*.pyc\n!keep.pyc\n/data/\n");
        assert_eq!(
            names(&source(at)),
            [".env", ".gitignore", "lib", "lib/a.py", "lib/keep.pyc", "out", "out/log", "train.py"]
        );
        let exclude = ["*.py".to_owned(), "/.env".to_owned()];
        let out = at.join("out");
        let fewer = Source { exclude: &exclude, without: Some(&out), ..source(at) };
        assert_eq!(names(&fewer), [".gitignore", "lib", "lib/keep.pyc"]);
        let bad = ["a{b".to_owned()];
        let error = list(&Source { exclude: &bad, ..source(at) }).unwrap_err().to_string();
        assert!(error.starts_with("--exclude a{b: "), "{error}");
        assert!(list(&source(&at.join("train.py"))).unwrap_err().to_string().ends_with("train.py: is no directory"));
    }

    #[test]
    fn a_directory_that_is_too_large_is_refused_with_its_largest_files() {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "big.bin", &[0; 9000]);
        write(place.path(), "other.bin", &[0; 2000]);
        let error = list(&source(place.path())).unwrap_err().to_string();
        assert!(error.contains("10.74 KiB of files, at most 9.77 KiB are uploaded"), "{error}");
        assert!(error.contains("the largest: big.bin 8.79 KiB, other.bin 1.95 KiB. Leave files out"), "{error}");
    }

    #[test]
    fn the_same_files_make_the_same_bytes_with_their_modes_and_times() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        write(at, "run.sh", b"#!/bin/sh\n");
        fs::set_permissions(at.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        write(at, "lib/a.py", b"print()\n");
        symlink("run.sh", at.join("link")).unwrap();
        let packed = || pack(&source(at), tempfile::tempfile().unwrap()).unwrap();
        let (one, two) = (packed(), packed());
        assert_eq!((&one.digest, one.bytes, one.files), (&two.digest, two.bytes, 3));
        let mut archive = zip::ZipArchive::new(one.file).unwrap();
        let mode =
            |archive: &mut zip::ZipArchive<File>, name: &str| archive.by_name(name).unwrap().unix_mode().unwrap();
        assert_eq!(mode(&mut archive, "run.sh") & 0o777, 0o755);
        assert_eq!(mode(&mut archive, "link") & 0o170_000, 0o120_000);
        assert_eq!(io::read_to_string(archive.by_name("lib/a.py").unwrap()).unwrap(), "print()\n");
        let year = archive.by_name("run.sh").unwrap().last_modified().unwrap().year();
        assert!(year >= 2024, "{year}");
        write(at, "lib/a.py", b"print(1)\n");
        assert_ne!(packed().digest, two.digest);
    }
}
