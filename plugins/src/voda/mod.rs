//! `trainyard voda`, called `voda` as well: jobs of the MPI operator as Voda's users submit them, by its command line or its HTTP routes.
//!
//! Owns the verbs and their arguments. A manifest becomes an MPIJob in `manifest`; `jobs` writes and lists objects, `table` is what
//! people read, `allocation` the pure part of Voda's resource allocator, `serve` the routes, `metrics` its figures. It writes objects and reads them: what an
//! operator decides is not its own. Tests: beside each file, and `cli/tests/local/voda.rs`.

mod allocation;
mod jobs;
mod manifest;
mod metrics;
mod serve;
mod table;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches as _, Subcommand};
use inputs::manifests;
use jiff::tz::TimeZone;
use serde_json::Value;
use terminal::list::yaml;
use terminal::out::{self, Failure};
use tokio::runtime::Builder;

use self::jobs::{ApiServer, Refusal, Voda};
use crate::cluster::{Cluster, ClusterArgs};

/// The name by which this program is Voda's command.
pub const COMMAND: &str = "voda";

/// Arguments of `trainyard voda`.
#[derive(Debug, Args)]
#[command(
    about = "Submit MPIJobs as with Voda, and look after them.",
    after_help = "As a command of its own: ln -s $(which trainyard) ~/bin/voda

Examples:
  voda create -f mnist.yaml --queue voda
  voda create -f mnist.yaml --queue voda --dry-run
  voda get jobs
  voda algorithm ElasticTiresias --queue voda
  voda serve --queue voda"
)]
pub struct VodaArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The queue: of jobs that name none, and the one whose algorithm is set.
    #[arg(long, short, global = true, value_name = "NAME")]
    queue: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    OfFile(OfFile),
    #[command(flatten)]
    OfCluster(OfCluster),
}

/// Verbs that read a manifest, and may need no cluster.
#[derive(Debug, Subcommand)]
enum OfFile {
    /// Create a job of a manifest: its name gets the time at its end. It is created in the namespace that the manifest names, if
    /// --namespace names none.
    Create {
        /// The manifest of an MPIJob; - for standard input.
        #[arg(long, short, value_name = "FILE")]
        filename: PathBuf,
        /// Print the object that would be created, and send nothing. Needs no cluster.
        #[arg(long, value_name = "client", value_parser = ["client"], num_args = 0..=1, require_equals = true, default_missing_value = "client")]
        dry_run: Option<String>,
    },
    /// Print `MPIJobs` of Voda's version as those of the present one, under their own names. Needs no cluster.
    Convert {
        /// `MPIJobs`, or a List of them, as `kubectl get mpijobs -o yaml` prints it; - for standard input.
        #[arg(long, short, value_name = "FILE")]
        filename: PathBuf,
    },
}

/// Verbs that always need a cluster.
#[derive(Debug, Subcommand)]
enum OfCluster {
    /// Delete jobs, by their full names.
    Delete {
        /// Names of the jobs.
        #[arg(required = true, value_name = "NAME")]
        jobs: Vec<String>,
    },
    /// List jobs.
    Get {
        #[command(subcommand)]
        what: Listed,
    },
    /// Set the algorithm of the queue.
    Algorithm {
        /// Name of a policy, with its arguments: `trainyard schedule policies` lists them.
        name: String,
    },
    /// Set the time between two decisions of the queue where it has many jobs.
    Ratelimit {
        /// Time in seconds.
        seconds: i64,
    },
    /// Serve Voda's HTTP routes, without authentication: to this machine, unless another address is given.
    Serve(serve::ServeArgs),
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Listed {
    /// The jobs of the namespace, in Voda's columns.
    Jobs,
}

/// Runs this program as Voda's command.
///
/// # Errors
/// Returns an error if the verb fails.
pub fn command() -> Result<ExitCode, Failure> {
    let command = VodaArgs::augment_args(Command::new(COMMAND)).version(env!("CARGO_PKG_VERSION")).max_term_width(80);
    run(&VodaArgs::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit()))
}

/// Does what a verb says.
///
/// # Errors
/// Returns an error if the verb fails.
pub fn run(args: &VodaArgs) -> Result<ExitCode, Failure> {
    let queue = args.queue.as_deref();
    match &args.verb {
        Verb::OfFile(OfFile::Convert { filename }) => convert(&read(filename)?, queue),
        Verb::OfFile(OfFile::Create { filename, dry_run: Some(_) }) => {
            let job =
                jobs::preview(&read(filename)?, args.cluster.namespace(), queue, local::now(), &TimeZone::system());
            out::print(&yaml(&job.map_err(failure)?)?);
            Ok(ExitCode::SUCCESS)
        }
        Verb::OfFile(OfFile::Create { filename, dry_run: None }) => on_cluster(args, async |mut voda| {
            let text = read(filename)?;
            if let Some(named) = manifest::namespace(&text).filter(|_| args.cluster.namespace().is_none()) {
                voda.namespace = named;
            }
            done(voda.create(&text, local::now(), &TimeZone::system()).await)
        }),
        Verb::OfCluster(verb) => on_cluster(args, async |voda| match verb {
            OfCluster::Delete { jobs } => delete(&voda, jobs).await,
            OfCluster::Get { what: Listed::Jobs } => done(voda.jobs(local::now()).await),
            OfCluster::Algorithm { name } => done(voda.set_algorithm(name).await),
            OfCluster::Ratelimit { seconds } => done(voda.set_rate_limit(*seconds).await),
            OfCluster::Serve(serve) => serve::run(voda, serve).await,
        }),
    }
}

/// Runs a verb with the cluster that the arguments name.
fn on_cluster(
    args: &VodaArgs,
    verb: impl AsyncFnOnce(Voda<Cluster>) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let cluster = Cluster::connect(&args.cluster).await?;
        verb(Voda { namespace: cluster.namespace.clone(), queue: args.queue.clone(), objects: cluster }).await
    })
}

/// Prints the answer to a verb.
fn done(answer: Result<String, Refusal>) -> Result<ExitCode, Failure> {
    out::line(answer.map_err(failure)?.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Prints the jobs of a text as those of the present version.
fn convert(text: &str, queue: Option<&str>) -> Result<ExitCode, Failure> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| Failure::new(format!("no manifest: {error}")))?;
    for document in &documents {
        let items = document.get("items").and_then(Value::as_array);
        for object in items.map_or_else(|| std::slice::from_ref(document), Vec::as_slice) {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let job = manifest::converted(object, queue).map_err(|why| Failure::new(format!("{name}: {why}")))?;
            out::print(&format!("---\n{}", yaml(&job)?));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes each job; one that is not there does not keep the others.
async fn delete<O: ApiServer>(voda: &Voda<O>, jobs: &[String]) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    for job in jobs {
        match voda.delete(job).await {
            Ok(done) => out::line(&done),
            Err(refusal) if refusal.code == 404 => {
                out::warn(&refusal.text);
                code = ExitCode::from(out::FOUND);
            }
            Err(refusal) => return Err(failure(refusal)),
        }
    }
    Ok(code)
}

fn failure(refusal: Refusal) -> Failure {
    match refusal.code {
        404 => Failure::missing(refusal.text),
        429 | 500.. => Failure::passing(refusal.text),
        _ => Failure::new(refusal.text),
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let failed = |error: &dyn Display| Failure::new(format!("{}: {error}", file.display()));
    String::from_utf8(manifests::read(file).map_err(|error| failed(&error))?).map_err(|error| failed(&error))
}
