//! `trainyard collect`: writes the progress of jobs onto their objects, read from the CSV files of a directory.
//!
//! Owns the loop and what is said about files. Keeps no state but the annotation. What counts of a file is `epochs`'. Tests:
//! `cli/tests/local/collect.rs`.

mod epochs;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use apis::objects::{annotation, text_at};
use apis::progress::{PROGRESS, patch, text};
use apis::{JobApi, Registry};
use clap::Args;
use model::Progress;
use terminal::out::{self, Failure};
use terminal::stop::StopSignals;
use tokio::runtime::Builder;

use crate::cluster::{Cluster, ClusterArgs};

/// Size in bytes above which a file is not read.
const MAX_BYTES: u64 = 64 << 20;

/// Arguments of `trainyard collect`.
#[derive(Debug, Args)]
#[command(after_help = "A file NAME.csv reports the job NAME. Its first line names the columns epoch
(counted from 0), workers and epoch_time_sec, and total_epochs where that is
known. Other columns are passed over, and lines that are cut off do not count.

Examples:
  trainyard collect --metrics /metrics
  trainyard collect --metrics /metrics --print")]
pub struct CollectArgs {
    /// The directory with the files.
    #[arg(long, value_name = "DIR")]
    metrics: PathBuf,
    /// Kind of the jobs.
    #[arg(long, default_value = apis::mpijob::KIND)]
    kind: String,
    /// Time between two looks at the files, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Look once.
    #[arg(long)]
    once: bool,
    /// Print the progress of each job, and write nothing.
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Collects until it is stopped.
///
/// # Errors
/// Returns an error if the files cannot be read, or the cluster refuses what is written.
pub fn run(args: &CollectArgs) -> Result<ExitCode, Failure> {
    let mut reader = Reader::default();
    if args.print {
        for (name, progress) in reader.read(&args.metrics)? {
            out::line(&format!("{name}\t{}", text(&progress)));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let registry = Registry::all();
    let found = registry.iter().find(|api| api.resource().kind.eq_ignore_ascii_case(&args.kind));
    let api = found.ok_or_else(|| Failure::new(format!("--kind {}: no such kind of job is served", args.kind)))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = StopSignals::catch()?;
        let cluster = Cluster::connect(&args.cluster).await?;
        loop {
            match collect(&cluster, &**api, reader.read(&args.metrics)?).await {
                Err(error) if error.is_passing() && !args.once => out::warn(&error.to_string()),
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            if args.once {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(args.interval)) => {}
                () = signals.next() => return Ok(ExitCode::SUCCESS),
            }
        }
    })
}

/// Writes the progress of the jobs that are there, where their objects have another.
async fn collect(cluster: &Cluster, api: &dyn JobApi, all: BTreeMap<String, Progress>) -> Result<(), Failure> {
    let base = format!("/apis/{}", api.resource().api_version);
    let list = cluster.get(&format!("{base}/namespaces/{}/{}", cluster.namespace, api.descriptor().plural)).await?;
    for job in list["items"].as_array().into_iter().flatten() {
        let Some(name) = text_at(job, &["metadata", "name"]) else { continue };
        let Some(progress) = all.get(name) else { continue };
        if annotation(job, PROGRESS) != Some(&*text(progress)) {
            cluster.merge(&cluster.path(&base, api.descriptor().plural, name), &patch(progress)).await?;
            out::line(&format!("{} {name}: {}", api.resource().kind, text(progress)));
        }
    }
    Ok(())
}

/// Reads the files of a directory, and says once what is wrong with each.
#[derive(Debug, Default)]
struct Reader {
    said: BTreeMap<String, String>,
}

impl Reader {
    /// Returns the progress of the files, by the name of the job.
    fn read(&mut self, directory: &Path) -> Result<BTreeMap<String, Progress>, Failure> {
        let failed = |error| Failure::new(format!("--metrics {}: {error}", directory.display()));
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .filter(|_| path.extension().is_some_and(|it| it == "csv"));
            let Some(name) = name.map(str::to_owned) else { continue };
            let problem = match progress(&path) {
                Ok(epochs) => {
                    let unread = epochs.unread;
                    if epochs.progress != Progress::default() {
                        all.insert(name.clone(), epochs.progress);
                    }
                    (unread > 0).then(|| format!("{unread} lines cannot be read and do not count"))
                }
                Err(error) => Some(error.to_string()),
            };
            self.say(name, &path, problem);
        }
        Ok(all)
    }

    fn say(&mut self, name: String, path: &Path, problem: Option<String>) {
        let Some(problem) = problem else {
            self.said.remove(&name);
            return;
        };
        if self.said.get(&name) != Some(&problem) {
            out::warn(&format!("{}: {problem}", path.display()));
            self.said.insert(name, problem);
        }
    }
}

/// Reason for which a file shows no progress.
#[derive(Debug, thiserror::Error)]
enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is too long.
    #[error("it has {0} bytes; files above {MAX_BYTES} are not read")]
    TooLong(u64),
    /// It has no epochs.
    #[error(transparent)]
    Epochs(#[from] epochs::Error),
}

/// Reads a file.
fn progress(path: &Path) -> Result<epochs::Epochs, FileError> {
    let size = fs::metadata(path)?.len();
    if size > MAX_BYTES {
        return Err(FileError::TooLong(size));
    }
    Ok(epochs::read(&fs::read(path)?)?)
}
