//! Names and finds the files that containers print to.
//!
//! Must not read them. Tests: at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::plan::log_path;

/// A container's run: the pod's incarnation, and the restarts of the container in it.
type Run = (u32, u32);

/// The log file of a container: of the pod's `incarnation` (annotation `trainyard.dev/incarnation`), and of the
/// `restart`-th run inside that pod, counted from 0.
#[must_use]
pub fn log_file(
    data_dir: &Path,
    namespace: &str,
    pod: &str,
    container: &str,
    incarnation: u32,
    restart: u32,
) -> PathBuf {
    let run = if restart == 0 { incarnation.to_string() } else { format!("{incarnation}.{restart}") };
    log_path(data_dir, namespace, pod, container, &run)
}

/// Returns the file of a container's newest run, or of the run before that in the same pod.
///
/// # Errors
/// Returns an error if the directory cannot be read.
pub fn newest_log(
    data_directory: &Path,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> io::Result<Option<PathBuf>> {
    if ![namespace, pod, container].into_iter().all(crate::is_plain_name) {
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
        let name = entry.file_name();
        let of_container = |(of, run): (&str, Run)| (of == container).then_some(run);
        let Some(run) = name.to_str().and_then(log_run).and_then(of_container) else { continue };
        let changed = entry.metadata()?.modified()?;
        // Later pods of a name count from zero again, so time goes before numbers.
        newest = newest.max(Some((changed, run)));
    }
    let Some((_, (incarnation, restart))) = newest else { return Ok(None) };
    let Some(restart) = restart.checked_sub(u32::from(previous)) else { return Ok(None) };
    let path = log_file(data_directory, namespace, pod, container, incarnation, restart);
    Ok(path.exists().then_some(path))
}

/// Returns the container that a file of this name is of, with its run: the pod's incarnation, and the container's restarts in it.
pub fn log_run(file: &str) -> Option<(&str, (u32, u32))> {
    let (container, run) = file.strip_suffix(".log")?.rsplit_once('-')?;
    let (incarnation, restart) = run.split_once('.').unwrap_or((run, "0"));
    Some((container, (incarnation.parse().ok()?, restart.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn write(directory: &Path, file: &str) -> PathBuf {
        let folder = directory.join("logs/ns/p");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(file);
        fs::write(&path, "").unwrap();
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
            let found = newest_log(root, "ns", "p", container, previous).unwrap();
            found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        assert_eq!(at("c", false), None);
        age(&write(root, "c-7.log"), 50);
        assert_eq!((at("c", false).as_deref(), at("c", true)), (Some("c-7.log"), None));
        age(&write(root, "c-0.log"), 40);
        age(&write(root, "c-0.1.log"), 30);
        age(&write(root, "c-0.2.log"), 30);
        write(root, "c-x-3.log");
        write(root, "c-note.txt");
        assert_eq!((at("c", false).as_deref(), at("c", true).as_deref()), (Some("c-0.2.log"), Some("c-0.1.log")));
        assert_eq!(at("c-x", false).as_deref(), Some("c-x-3.log"));
        for name in ["", ".", "..", "../ns", "a/b"] {
            assert_eq!(newest_log(root, "ns", name, "c", false).unwrap(), None, "{name}");
            assert_eq!(newest_log(root, name, "p", "c", false).unwrap(), None, "{name}");
        }
    }
}
