//! Prints the output of a job's pods on a cluster, from the API server.
//!
//! Owns which run of which pod is read, and following those that come later. The job and its ranks are the operator's log's.
//! Tests: `cli/tests/process_nodes/logs.rs`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use apis::JobApi;
use kube::api::LogParams;
use local_run::jobs::PodRank;
use model::JobKey;
use plugins::cluster::Cluster;
use serde_json::Value;
use terminal::out::{self, Failure};
use tokio::task::JoinSet;

use super::LogsArgs;
use super::ranks::{BEGIN_BYTES, Process};

/// Interval between two looks at a job that is followed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A job whose pods are read.
#[derive(Clone)]
struct Source<'a> {
    cluster: Cluster,
    api: Arc<dyn JobApi>,
    key: &'a JobKey,
    args: &'a LogsArgs,
    /// The process whose lines are printed.
    process: Option<Process>,
}

/// A run of a container.
struct Run {
    pod: String,
    container: String,
    /// Uid of the pod, and restarts of the container.
    id: (String, u64),
}

/// Prints what these pods wrote; returns whether there was anything to read.
pub(super) fn print(
    args: &LogsArgs,
    key: &JobKey,
    api: &Arc<dyn JobApi>,
    places: &[&PodRank],
    process: Option<Process>,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let source = Source::new(args, key, api, process).await?;
        if args.follow {
            return source.follow(places).await;
        }
        let mut any = false;
        for place in places {
            // Rank by rank.
            if let Some(run) = source.run_of(&place.name).await? {
                any |= source.print(&run.pod, &params(args, &run)).await?;
            }
        }
        Ok(if any { ExitCode::SUCCESS } else { super::nothing(args, key) })
    })
}

/// Returns what a pod wrote first; empty where it wrote nothing yet.
pub(super) fn begin(args: &LogsArgs, key: &JobKey, api: &Arc<dyn JobApi>, place: &PodRank) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let source = Source::new(args, key, api, None).await?;
        let Some(run) = source.run_of(&place.name).await? else { return Ok(String::new()) };
        let limit = i64::try_from(BEGIN_BYTES).ok();
        let params = LogParams { follow: false, tail_lines: None, limit_bytes: limit, ..params(args, &run) };
        source.cluster.log(&run.pod, &params).await
    })
}

fn params(args: &LogsArgs, run: &Run) -> LogParams {
    LogParams {
        container: Some(run.container.clone()).filter(|name| !name.is_empty()),
        follow: args.follow,
        previous: args.previous,
        tail_lines: args.tail.and_then(|lines| i64::try_from(lines).ok()),
        ..LogParams::default()
    }
}

impl<'a> Source<'a> {
    async fn new(
        args: &'a LogsArgs,
        key: &'a JobKey,
        api: &Arc<dyn JobApi>,
        process: Option<Process>,
    ) -> Result<Self, Failure> {
        let connection = args.location.connection();
        let cluster = Cluster::connect_to(&connection, Some(key.namespace.to_string())).await?;
        Ok(Self { cluster, api: Arc::clone(api), key, args, process })
    }

    /// Prints what a pod wrote. The last lines of a process are counted here: the API server does not know whose they are.
    async fn print(&self, pod: &str, params: &LogParams) -> Result<bool, Failure> {
        let Some((process, lines)) = self.process.zip(self.args.tail) else {
            return self.cluster.print_log(pod, params, self.label()).await;
        };
        let params = LogParams { tail_lines: None, ..params.clone() };
        let text = self.cluster.log(pod, &params).await?;
        let shown = super::lines_of(&text, Some(process));
        shown.iter().skip(shown.len().saturating_sub(lines)).for_each(|line| out::line(line));
        Ok(!text.is_empty())
    }

    /// Returns how a line is printed; `None` for one that is not.
    fn label(&self) -> impl Fn(&str, &str) -> Option<String> + Send + 'static {
        let (all, process) = (self.args.all, self.process);
        move |pod, line| {
            let text = process.map_or(Some(line), |process| process.text_of(line))?;
            Some(if all { format!("{pod} | {text}") } else { text.to_owned() })
        }
    }

    /// Returns the run of a pod's container that can be read now: one that was started.
    async fn run_of(&self, pod: &str) -> Result<Option<Run>, Failure> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}", self.cluster.namespace);
        let Some(object) = self.cluster.find(&path).await? else { return Ok(None) };
        let main = self.api.pods().and_then(|pods| pods.main_containers(&object).into_iter().next()).map(str::to_owned);
        let container = self.args.container.clone().or(main).unwrap_or_default();
        let statuses = ["/status/containerStatuses", "/status/initContainerStatuses"]
            .map(|list| object.pointer(list).and_then(Value::as_array));
        let mut statuses = statuses.into_iter().flatten().flatten();
        let Some(status) = statuses.find(|status| status["name"] == container.as_str()) else { return Ok(None) };
        let restarts = status["restartCount"].as_u64().unwrap_or_default();
        let waits = status["state"].get("waiting").is_some_and(|waiting| !waiting.is_null());
        if restarts == 0 && (waits || status["state"].is_null()) {
            return Ok(None);
        }
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Some(Run { pod: pod.to_owned(), container, id: (uid, restarts) }))
    }

    /// Returns whether the job has ended, or its object is gone.
    async fn is_over(&self) -> Result<bool, Failure> {
        let version = format!("/apis/{}", self.api.resource().api_version);
        let path = self.cluster.path(&version, self.api.descriptor().plural, &self.key.name);
        let Some(object) = self.cluster.find(&path).await? else { return Ok(true) };
        let is_other = object.pointer("/metadata/uid").and_then(Value::as_str) != Some(&*self.key.uid.0);
        Ok(is_other || self.api.adopt(&object).mirror.phase.is_terminal())
    }

    /// Prints what is written until the job has ended.
    async fn follow(&self, places: &[&PodRank]) -> Result<ExitCode, Failure> {
        let (mut known, mut pods, mut readers) = (BTreeSet::new(), BTreeSet::new(), JoinSet::new());
        loop {
            // Pods are looked at after the job: nothing begins once it has ended.
            let is_over = self.is_over().await?;
            for place in places {
                let Some(run) = self.run_of(&place.name).await?.filter(|run| known.insert(run.id.clone())) else {
                    continue;
                };
                let mut params = params(self.args, &run);
                if !pods.insert(run.pod.clone()) {
                    // Of a later run nothing is left out.
                    params.tail_lines = None;
                }
                let (cluster, label) = (self.cluster.clone(), self.label());
                readers.spawn(async move { cluster.print_log(&run.pod, &params, label).await });
            }
            while let Some(done) = readers.try_join_next() {
                done??;
            }
            if is_over {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        while let Some(done) = readers.join_next().await {
            done??;
        }
        Ok(ExitCode::SUCCESS)
    }
}
