//! The pod that fills a job's workspace, as the receiver of an upload.
//!
//! Owns waiting for it, and running commands in it. What is uploaded how is `upload`'s. Tests: `cli/tests/process_nodes/plugin.rs`.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::{Duration, Instant};

use apis::{api::UploadApi as _, torchrunjob::TorchrunJob};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use serde_json::Value;
use terminal::out::{self, Failure};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::job::{self, API, JOBS, text};
use super::upload::{Broken, Input, Receiver};
use crate::cluster::Cluster;

/// Interval between two looks at a job.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time within which a connection must take a piece, and a command end.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one message to a pod.
const PIECE: usize = 64 * 1024;
/// The archive, where a pod does not say it.
const ARCHIVE: &str = "/workspace/workspace.zip";

/// The pod that fills one generation of a job's workspace.
pub(super) struct SyncPod<'a> {
    cluster: &'a Cluster,
    job: String,
    generation: String,
    until: Instant,
    limit: Duration,
    /// Name and container of the pod, and path of the archive.
    found: Option<(String, String, String)>,
    reported: String,
}

/// What is known of an upload.
enum UploadState {
    /// The pod waits for it.
    Awaited { pod: String, container: String, file: String },
    /// It was taken.
    Delivered,
    /// Why there is no pod for it yet.
    NotYet(String),
}

impl<'a> SyncPod<'a> {
    pub(super) fn new(cluster: &'a Cluster, job: &str, generation: &str, limit: Duration) -> Self {
        Self {
            cluster,
            job: job.to_owned(),
            generation: generation.to_owned(),
            until: Instant::now() + limit,
            limit,
            found: None,
            reported: String::new(),
        }
    }

    /// Returns what is known of the upload. An API server that does not answer for a while is waited for.
    async fn state_of(&self) -> Result<UploadState, Failure> {
        match self.look().await {
            Err(failure) if failure.is_passing() => Ok(UploadState::NotYet(failure.to_string())),
            state => state,
        }
    }

    /// Looks at the job and its pods.
    async fn look(&self) -> Result<UploadState, Failure> {
        let Some(object) = self.cluster.find(&self.cluster.path(API, JOBS, &self.job)).await? else {
            return Err(Failure::missing(format!("TorchrunJob {} was deleted", self.job)));
        };
        let pods = job::sync_pods(self.cluster, &object).await?;
        let of_generation = pods.iter().filter(|pod| {
            let upload = TorchrunJob.awaited_upload(pod);
            upload.is_none_or(|upload| upload.generation == self.generation)
        });
        let mut waits = job::reason(&object);
        for pod in of_generation {
            let is_leaving = pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
            match text(pod, "/status/phase") {
                "Succeeded" => return Ok(UploadState::Delivered),
                "Running" if !is_leaving => {
                    let upload = TorchrunJob.awaited_upload(pod);
                    let container = upload.map_or("sync", |upload| upload.container);
                    if runs(pod, container) {
                        return Ok(UploadState::Awaited {
                            pod: text(pod, "/metadata/name").to_owned(),
                            container: container.to_owned(),
                            file: upload.map_or(ARCHIVE, |upload| upload.file).to_owned(),
                        });
                    }
                }
                phase => {
                    let fact = apis::pod::fact(&TorchrunJob, pod).ok();
                    let trouble = fact.as_ref().and_then(engine::pod_trouble).map(|(_, words)| words);
                    waits = trouble.unwrap_or_else(|| format!("pod {} is {phase}", text(pod, "/metadata/name")));
                }
            }
        }
        let delivered = job::condition(&object, "WorkspaceSync").filter(|one| one["reason"] == "SyncCompleted");
        let message = format!("generation {} is delivered", self.generation);
        if delivered.is_some_and(|condition| text(condition, "/message") == message) {
            return Ok(UploadState::Delivered);
        }
        if job::has_ended(&object) {
            return Err(Failure::missing(format!("TorchrunJob {} is {}: {waits}", self.job, job::phase(&object))));
        }
        let phase = job::phase(&object);
        Ok(UploadState::NotYet(if waits.is_empty() { phase.to_owned() } else { format!("{phase}: {waits}") }))
    }

    /// Waits until the generation is delivered.
    pub(super) async fn wait_delivered(&mut self) -> Result<(), Failure> {
        loop {
            if let UploadState::Delivered = self.state_of().await? {
                return Ok(());
            }
            self.pause("its workspace is unpacked").await?;
        }
    }

    async fn pause(&self, for_what: &str) -> Result<(), Failure> {
        if Instant::now() > self.until {
            let (job, seconds) = (&self.job, self.limit.as_secs());
            return Err(Failure::timeout(format!(
                "TorchrunJob {job}: {for_what}, not within {seconds} s ({}). Continue with: kubectl torchrun sync {job}",
                self.reported
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok(())
    }
}

fn runs(pod: &Value, container: &str) -> bool {
    let states = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    states.into_iter().flatten().any(|state| state["name"] == container && !state["state"]["running"].is_null())
}

impl Receiver for SyncPod<'_> {
    async fn wait(&mut self) -> Result<bool, Failure> {
        loop {
            match self.state_of().await? {
                UploadState::Delivered => return Ok(false),
                UploadState::Awaited { pod, container, file } => {
                    self.found = Some((pod, container, file));
                    return Ok(true);
                }
                UploadState::NotYet(why) => {
                    if why != self.reported {
                        out::warn(&format!("TorchrunJob {} waits: {why}", self.job));
                        self.reported = why;
                    }
                    self.pause("its workspace can be filled").await?;
                }
            }
        }
    }

    fn path(&self) -> &str {
        self.found.as_ref().map_or(ARCHIVE, |(.., file)| file)
    }

    async fn run(&mut self, script: &str, words: &[&str], input: Option<Input<'_>>) -> Result<String, Broken> {
        let Some((pod, container, _)) = &self.found else { return Err(Broken::Lost("no pod".to_owned())) };
        let command = ["sh", "-c", script, "sh"].into_iter().chain(words.iter().copied());
        let params = AttachParams::default()
            .container(container)
            .stdin(input.is_some())
            .stdout(true)
            .stderr(true)
            .max_stdin_buf_size(PIECE);
        let connected = timeout(STALL_TIMEOUT, self.cluster.pod_connections().exec(pod, command, &params)).await;
        let attached = connected.map_err(|_| stalled())?.map_err(|error| lost(&error))?;
        carry(attached, input).await
    }
}

/// Feeds a command its input and takes its output and its end.
async fn carry(mut attached: AttachedProcess, input: Option<Input<'_>>) -> Result<String, Broken> {
    if let Some(input) = input
        && let Some(mut stdin) = attached.stdin()
    {
        let mut file = input.file;
        file.seek(SeekFrom::Start(input.from)).map_err(|error| Broken::Failed(error.to_string()))?;
        let mut piece = vec![0; PIECE];
        loop {
            let count = file.read(&mut piece).map_err(|error| Broken::Failed(error.to_string()))?;
            let bytes = piece.get(..count).unwrap_or_default();
            // A command that ended early says why below.
            if bytes.is_empty() || timeout(STALL_TIMEOUT, stdin.write_all(bytes)).await.map_err(|_| stalled())?.is_err()
            {
                break;
            }
            input.bar.inc(u64::try_from(count).unwrap_or_default());
        }
        let _ = stdin.shutdown().await;
    }
    let status = attached.take_status();
    let (stdout, stderr) = (attached.stdout(), attached.stderr());
    let end = async {
        let (printed, errors) = tokio::join!(all_of(stdout), all_of(stderr));
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        (printed, errors, status)
    };
    let (printed, errors, status) = timeout(STALL_TIMEOUT, end).await.map_err(|_| stalled())?;
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(printed),
        // An exit code is the command's own answer; everything else may pass.
        Some(status) if exit_code(&status).is_some() => {
            let message = if errors.trim().is_empty() { status.message.unwrap_or_default() } else { errors };
            Err(Broken::Failed(message.trim().to_owned()))
        }
        Some(status) => Err(Broken::Lost(status.message.unwrap_or_default())),
        None => Err(Broken::Lost("the connection was closed".to_owned())),
    }
}

/// Returns the exit code of a command that failed.
pub(super) fn exit_code(status: &Status) -> Option<u8> {
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_ref()?.parse().ok()
}

async fn all_of(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What came before a connection broke is as much as there is.
        let _ = stream.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn stalled() -> Broken {
    Broken::Lost(format!("nothing moved for {} s", STALL_TIMEOUT.as_secs()))
}

fn lost(error: &kube::Error) -> Broken {
    let text = k8s_driver::api_server::error_chain(error);
    match error {
        // Who may not connect to pods will not next time.
        kube::Error::Api(status) if status.code == 403 => Broken::Failed(text),
        _ => Broken::Lost(text),
    }
}
