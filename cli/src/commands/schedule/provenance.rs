//! Collects the provenance of a report of studies: the command, the build, and the input files with their digests.

use std::fs::File;
use std::io;
use std::path::Path;

use event_log::EventLog as _;
use inputs::archive;
use local_run::records;
use studies::report::{Input, Provenance};
use terminal::out::Failure;
use terminal::shell::quoted;

use crate::commands::version;

/// Returns the provenance of a report that was made from these files.
///
/// # Errors
/// When one of them cannot be read.
pub(super) fn of<'a>(inputs: impl Iterator<Item = &'a Path>) -> Result<Provenance, Failure> {
    let words = std::iter::once("trainyard".to_owned()).chain(std::env::args().skip(1));
    Ok(Provenance {
        command: quoted(words),
        version: version::words(),
        inputs: inputs.map(input).collect::<Result<_, _>>()?,
    })
}

fn input(path: &Path) -> Result<Input, Failure> {
    let name = path.display().to_string();
    if path.is_dir() {
        let head = records::open_dir(path)?.head();
        let size = format!("{} records", head.position);
        return Ok(Input { name, size, digest: format!("log digest {}", head.digest) });
    }
    let failed = |error: io::Error| Failure::new(format!("{name}: {error}"));
    let mut file = File::open(path).map_err(failed)?;
    let (bytes, digest) = (file.metadata().map_err(failed)?.len(), archive::digest(&mut file).map_err(failed)?);
    Ok(Input { name, size: format!("{bytes} bytes"), digest: format!("SHA-256 {digest}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_size_and_digest() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("t.csv");
        std::fs::write(&path, "abc").unwrap();
        let found = of([path.as_path()].into_iter()).unwrap();
        let digest = "SHA-256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((&*found.inputs[0].size, &*found.inputs[0].digest), ("3 bytes", digest));
        assert!(found.version.starts_with("trainyard ") && found.command.starts_with("trainyard"), "{found:?}");
        assert!(of([place.path().join("none").as_path()].into_iter()).unwrap_err().to_string().contains("none: "));
    }
}
