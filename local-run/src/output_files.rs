//! Files in a data directory with what pods wrote.
//!
//! Owns which file is whose, which is the last one, and following it over restarts. The files are written by `local`. It must
//! not print. Tests: `cli/tests/local/logs.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use engine::Job;
use model::JobKey;
use terminal::out::Failure;

use crate::growing::GrowingFile;
use crate::jobs::{self, PodRank};

/// One file of a container's output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogFile {
    written: SystemTime,
    incarnation: u32,
    restart: u32,
    /// Its path.
    pub path: PathBuf,
}

/// Output of a pod's container.
#[derive(Debug)]
pub struct ContainerOutput {
    /// The pod's name.
    pub name: String,
    directory: PathBuf,
    container: Option<String>,
}

impl ContainerOutput {
    /// Finds the output of a pod: of this container, or of the one whose result counts.
    pub fn of(container: Option<&str>, data_dir: &Path, key: &JobKey, job: &Job, pod: &PodRank) -> Self {
        let fact = job.pods.values().find(|known| *known.fact.name == *pod.name);
        let main = fact.and_then(|known| known.fact.containers.iter().find(|container| container.main));
        Self {
            name: pod.name.clone(),
            directory: data_dir.join("logs").join(&*key.namespace).join(&pod.name),
            container: container.or_else(|| main.map(|container| &*container.name)).map(str::to_owned),
        }
    }

    /// Returns the file of the last run, or of the one before.
    pub fn file(&self, previous: bool) -> Option<LogFile> {
        let mut present = files(&self.directory, self.container.as_deref());
        let last = present.pop();
        if previous { present.pop() } else { last }
    }
}

/// Returns the file that a pod's container wrote last.
pub fn newest(data_dir: &Path, key: &JobKey, pod: &str) -> Option<PathBuf> {
    files(&data_dir.join("logs").join(&*key.namespace).join(pod), None).pop().map(|file| file.path)
}

/// Returns the files of a container, those of earlier attempts included, oldest first; of the container that wrote last where none is
/// named. Each attempt numbers its files from 0, so they are ordered by time.
fn files(directory: &Path, container: Option<&str>) -> Vec<LogFile> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let earlier = entries(directory).filter(|entry| entry.file_name().to_string_lossy().starts_with("previous-"));
    let files = entries(directory).chain(earlier.flat_map(|entry| entries(&entry.path())));
    let mut found: Vec<(String, LogFile)> = files
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (container, (incarnation, restart)) = local::log_run(&name)?;
            let file =
                LogFile { written: entry.metadata().ok()?.modified().ok()?, incarnation, restart, path: entry.path() };
            Some((container.to_owned(), file))
        })
        .collect();
    let newest = found.iter().max_by_key(|(_, file)| file.written).map(|(container, _)| container.clone());
    let wanted = container.map(str::to_owned).or(newest);
    found.retain(|(container, _)| Some(container) == wanted.as_ref());
    let mut files: Vec<LogFile> = found.into_iter().map(|(_, file)| file).collect();
    files.sort();
    files
}

/// Output that is read as it is written.
pub struct FollowedOutput {
    output: ContainerOutput,
    file: Option<GrowingFile>,
}

impl FollowedOutput {
    /// Follows the output of a container.
    pub const fn new(output: ContainerOutput) -> Self {
        Self { output, file: None }
    }

    /// Hands on what was written since the last step, with the pod's name; with `last` also a line without an end. The first step
    /// begins with the last `tail` lines that count, or with the first line.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn step(
        &mut self,
        tail: Option<usize>,
        counts: &dyn Fn(&str) -> bool,
        last: bool,
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), Failure> {
        let newest = self.output.file(false);
        if self.file.as_ref().map(GrowingFile::path) != newest.as_ref().map(|file| &*file.path) {
            // The rest of the file of the run before.
            self.drain(true, each)?;
            let start = match (&newest, tail) {
                (Some(file), Some(lines)) if self.file.is_none() => start_of_last(&file.path, lines, counts)?,
                _ => 0,
            };
            self.file = newest.map(|file| GrowingFile::from(file.path, start));
        }
        self.drain(last, each)
    }

    fn drain(&mut self, last: bool, each: &mut dyn FnMut(&str, &str)) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.read(last, &mut |text| each(&self.output.name, text))
    }
}

/// Output of jobs that another process runs, as it is written.
pub(crate) struct JobOutput {
    data_dir: PathBuf,
    /// Files that were written before are of earlier attempts.
    since: SystemTime,
    pods: BTreeMap<String, FollowedOutput>,
}

impl JobOutput {
    /// Returns the output of a data directory's pods from now on.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), since: SystemTime::now(), pods: BTreeMap::new() }
    }

    /// Hands on what a job's pods have written since the last step, with the pods' names; with `last` also a line without an end.
    pub(crate) fn step(
        &mut self,
        key: &JobKey,
        job: &Job,
        last: bool,
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), Failure> {
        for pod in jobs::ranks(key, job) {
            let output = ContainerOutput::of(None, &self.data_dir, key, job, &pod);
            let id = format!("{}/{}", key.namespace, pod.name);
            if !self.pods.contains_key(&id) && output.file(false).is_none_or(|file| file.written < self.since) {
                continue;
            }
            let followed = self.pods.entry(id).or_insert_with(|| FollowedOutput::new(output));
            followed.step(None, &|_| true, last, each)?;
        }
        Ok(())
    }
}

/// Returns the byte at which the last lines of a file begin that count.
fn start_of_last(path: &Path, lines: usize, counts: &dyn Fn(&str) -> bool) -> Result<u64, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let (mut start, mut left) = (bytes.len(), lines);
    for line in bytes.split_inclusive(|byte| *byte == b'\n').rev() {
        if left == 0 {
            break;
        }
        start = start.saturating_sub(line.len());
        left = left.saturating_sub(usize::from(counts(&String::from_utf8_lossy(line))));
    }
    Ok(u64::try_from(start).unwrap_or_default())
}
