//! `submit` and `sync`: a job and the files of its workspace, and its files again.
//!
//! Owns the order: what is wrong is found before anything is written, the job comes before its upload, and each step can be repeated.
//! Tests: `cli/tests/process_nodes/plugin.rs`, `cli/tests/local/torchrun.rs`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use apis::torchrunjob::GENERATION;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use inputs::archive::{self, Archive, DEFAULT_MAX_BYTES, Source};
use serde_json::{Value, json};
use settings::{Quantity, duration};
use terminal::columns::counted;
use terminal::list::yaml;
use terminal::out::{self, Failure};

use super::job::{self, API, JOBS, QUEUES, queue, text};
use super::logs;
use super::manifest::{self, Submission};
use super::sync_pod::SyncPod;
use super::upload::upload;
use crate::cluster::{Cluster, ClusterArgs};

/// What is uploaded.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// The directory whose files are uploaded, without those that git ignores.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(super) workdir: PathBuf,
    /// Leave files out: a pattern as in .gitignore. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Largest size of all files together, for example 500Mi. Default: 1Gi.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_size: Option<u64>,
    /// Give up when the files are not taken after this time.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = milliseconds)]
    timeout: u64,
}

/// Arguments of `submit`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl torchrun submit --queue gpus --gpus 16 python train.py --lr 1e-3
  kubectl torchrun submit -f job.yaml --workdir src --follow
  kubectl torchrun submit --queue gpus --dry-run=client python train.py

Repeated with the same name, it continues an upload that broke.")]
pub(crate) struct SubmitArgs {
    /// Manifest files: one TorchrunJob, and queues to apply before it.
    #[arg(long = "filename", short = 'f', value_name = "FILE", conflicts_with_all = ["queue", "name", "gpus", "num_nodes", "setup", "env", "restarts", "suspended", "command"])]
    pub(super) files: Vec<PathBuf>,
    /// The TorchrunQueue.
    #[arg(long, short, value_name = "NAME")]
    pub(super) queue: Option<String>,
    /// Name of the job. Default: that of the directory, and four digits.
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// GPUs of all workers together.
    #[arg(long, value_name = "N", conflicts_with = "num_nodes")]
    pub(super) gpus: Option<u32>,
    /// Number of workers.
    #[arg(long, value_name = "N")]
    pub(super) num_nodes: Option<u32>,
    /// Commands that each worker runs first.
    #[arg(long, value_name = "COMMANDS")]
    pub(super) setup: Option<String>,
    /// A variable of the workers. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// Restarts of workers with which the job fails. Default: 3.
    #[arg(long, value_name = "N")]
    pub(super) restarts: Option<u32>,
    /// Have the job wait until it is resumed.
    #[arg(long)]
    pub(super) suspended: bool,
    #[command(flatten)]
    pub(super) upload: Files,
    /// Print what the workers write until the job has ended.
    #[arg(long)]
    follow: bool,
    /// Print the manifest and the files, and send nothing.
    #[arg(long, value_name = "client", value_parser = ["client"])]
    dry_run: Option<String>,
    /// The program that torchrun starts, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
#[command(after_help = "Running workers take the files over within seconds and are not restarted.

Examples:
  kubectl torchrun sync train
  kubectl torchrun sync train --workdir src")]
pub(crate) struct SyncArgs {
    /// Name of the job.
    job: String,
    #[command(flatten)]
    upload: Files,
}

/// A text that is no number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a number with a suffix, for example 500Mi")]
struct SizeError;

fn bytes(text: &str) -> Result<u64, SizeError> {
    let size = Quantity::parse(text).and_then(|size| u64::try_from(size.ceil()).ok()).filter(|size| *size > 0);
    size.ok_or(SizeError)
}

fn milliseconds(text: &str) -> Result<u64, duration::Error> {
    duration::parse_ms(text)
}

impl Files {
    fn source(&self) -> Source<'_> {
        Source {
            directory: &self.workdir,
            exclude: &self.exclude,
            without: None,
            max_bytes: self.max_size.unwrap_or(DEFAULT_MAX_BYTES),
        }
    }

    fn pack(&self) -> Result<Archive, Failure> {
        archive::pack(&self.source(), tempfile::tempfile()?)
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.timeout)
    }
}

/// Submits a job.
pub(super) async fn submit(cluster: &ClusterArgs, args: &SubmitArgs) -> Result<ExitCode, Failure> {
    if args.dry_run.is_some() {
        return dry_run(cluster, args);
    }
    let cluster = Cluster::connect(cluster).await?;
    let Submission { job, queues } = manifest::submission(args, &cluster.namespace)?;
    let name = text(&job, "/metadata/name").to_owned();
    for queue in &queues {
        cluster.apply(&cluster.path(API, QUEUES, text(queue, "/metadata/name")), queue).await?;
    }
    let found = job::find_queue(&cluster, &job).await?;
    if found.is_none() {
        out::warn(&format!(
            "there is no TorchrunQueue {} in namespace {}: the job waits for it",
            queue(&job),
            cluster.namespace
        ));
    }
    // What is wrong with the job or its files is found before anything is created.
    let workspace = manifest::workspace(&job, found.as_ref())?;
    let is_uploaded = workspace.as_ref().is_none_or(|(_, is_uploaded)| *is_uploaded);
    let archive = is_uploaded.then(|| args.upload.pack()).transpose()?;
    let path = format!("{API}/namespaces/{}/{JOBS}", cluster.namespace);
    if cluster.create(&path, &job).await?.is_none() {
        let present = cluster.get(&cluster.path(API, JOBS, &name)).await?;
        if !manifest::asks_for_the_same(&job, &present) {
            return Err(Failure::missing(format!(
                "there is a TorchrunJob {name} that asks for something else: choose another --name, or delete it. New files for it: kubectl torchrun sync {name}"
            )));
        }
        if job::has_ended(&present) {
            return Err(Failure::missing(format!(
                "TorchrunJob {name} has ended: it is {}. Delete it, or choose another --name",
                job::phase(&present)
            )));
        }
    }
    out::line(&format!("TorchrunJob {name} is submitted"));
    if let Some(archive) = &archive {
        let generation = workspace.map_or_else(|| "1".to_owned(), |(generation, _)| generation);
        deliver(&cluster, &name, &generation, archive, args.upload.limit()).await?;
    }
    if args.follow {
        return logs::follow(&cluster, &name).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Uploads an archive and says so.
async fn deliver(
    cluster: &Cluster,
    job: &str,
    generation: &str,
    archive: &Archive,
    limit: Duration,
) -> Result<(), Failure> {
    let bar = bar(archive.bytes);
    let mut pod = SyncPod::new(cluster, job, generation, limit);
    let uploaded = upload(&mut pod, archive, generation, &bar).await;
    bar.finish_and_clear();
    if let Err(failure) = uploaded {
        // A timeout says itself what to do.
        return Err(failure.with(&format!("\nwhat has arrived is kept: kubectl torchrun sync {job} continues")));
    }
    pod.wait_delivered().await?;
    let (files, size) = (counted(archive.files, "file"), archive::size(archive.bytes));
    out::line(&format!("generation {generation} of its workspace is delivered: {files}, {size}"));
    Ok(())
}

/// A bar on standard error; nothing where that is no terminal.
fn bar(bytes: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(
        "uploading {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta}",
    );
    let bar = ProgressBar::with_draw_target(Some(bytes), target);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints what would be sent.
fn dry_run(cluster: &ClusterArgs, args: &SubmitArgs) -> Result<ExitCode, Failure> {
    let Submission { job, queues } = manifest::submission(args, cluster.namespace_or("default"))?;
    for object in queues.iter().chain([&job]) {
        out::print(&format!("---\n{}", yaml(object)?));
    }
    let files = archive::list(&args.upload.source())?;
    for file in &files {
        out::error_line(&format!("{:>10}  {}", archive::size(file.bytes()), file.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Uploads the files of a job again, or continues an upload that broke.
pub(super) async fn sync(cluster: &Cluster, args: &SyncArgs) -> Result<ExitCode, Failure> {
    let path = cluster.path(API, JOBS, &args.job);
    let object = cluster.get(&path).await?;
    if job::has_ended(&object) {
        return Err(Failure::missing(format!("TorchrunJob {} has ended: it is {}", args.job, job::phase(&object))));
    }
    let found = job::find_queue(cluster, &object).await?;
    let workspace = manifest::workspace(&object, found.as_ref())?;
    let Some((generation, is_uploaded)) = workspace else {
        return Err(Failure::missing(format!(
            "TorchrunJob {}: there is no TorchrunQueue {} in namespace {}",
            args.job,
            queue(&object),
            cluster.namespace
        )));
    };
    let archive = is_uploaded.then(|| args.upload.pack()).transpose()?;
    let generation =
        if is_delivered(&object, &generation) { raise(cluster, &path, &generation).await? } else { generation };
    if let Some(archive) = archive {
        deliver(cluster, &args.job, &generation, &archive, args.upload.limit()).await?;
    } else {
        SyncPod::new(cluster, &args.job, &generation, args.upload.limit()).wait_delivered().await?;
        out::line(&format!("generation {generation} of its workspace is delivered from its source"));
    }
    Ok(ExitCode::SUCCESS)
}

fn is_delivered(job: &Value, generation: &str) -> bool {
    let message = format!("generation {generation} is delivered");
    job::condition(job, "WorkspaceSync").is_some_and(|condition| text(condition, "/message") == message)
}

/// Asks for the next generation of a workspace.
async fn raise(cluster: &Cluster, path: &str, generation: &str) -> Result<String, Failure> {
    let number: u64 = generation.parse().map_err(|_| {
        Failure::new(format!("annotation {GENERATION}: {generation:?} is no number: raise it with kubectl annotate"))
    })?;
    let next = number.saturating_add(1).to_string();
    cluster.merge(path, &json!({"metadata": {"annotations": {GENERATION: next}}})).await?;
    Ok(next)
}
