//! Finds the files that containers print to.
//!
//! Must not read them. Tests: at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A container's run: the pod's incarnation, and how often the container had been started in it before.
type Run = (u32, u32);

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

/// Returns the run that a file holds, if it is this container's.
fn run_of(file: &str, container: &str) -> Option<Run> {
    let run = file.strip_prefix(container)?.strip_prefix('-')?.strip_suffix(".log")?;
    let (incarnation, restart) = run.split_once('.').unwrap_or((run, "0"));
    Some((incarnation.parse().ok()?, restart.parse().ok()?))
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
