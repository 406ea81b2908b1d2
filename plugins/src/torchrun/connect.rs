//! `exec` and `port-forward`: connections to a worker.
//!
//! Owns the streams between this terminal or its ports and a pod. Tests: `cli/tests/process_nodes/plugin.rs`.

use std::io::Read as _;
use std::process::ExitCode;
use std::str::FromStr;

use apis::{api::PodApi as _, torchrunjob::TorchrunJob};
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use terminal::out::{self, Failure, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::job::{self, API, JOBS};
use super::sync_pod::exit_code;
use crate::cluster::{Cluster, failed};

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;
/// Pieces of input that wait to be sent.
const INPUT_CHANNEL_CAPACITY: usize = 4;

/// Arguments of `exec`.
#[derive(Debug, Args)]
#[command(after_help = "The exit code is that of the program. With a terminal: kubectl exec -it JOB-RANK -- bash

Examples:
  kubectl torchrun exec train -- nvidia-smi
  kubectl torchrun exec train --rank 1 -i -- python - < probe.py")]
pub(crate) struct ExecArgs {
    /// Name of the job.
    job: String,
    /// Rank of the worker.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
    /// Pass this command's input on.
    #[arg(long = "stdin", short = 'i')]
    input: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Arguments of `port-forward`.
#[derive(Debug, Args)]
#[command(after_help = "It continues until Ctrl-C.

Examples:
  kubectl torchrun port-forward train 6006
  kubectl torchrun port-forward train 8080:80 --rank 1")]
pub(crate) struct PortForwardArgs {
    /// Name of the job.
    job: String,
    /// Ports: of the worker, or of this machine and of the worker. 0 stands for a free one of this machine.
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    ports: Vec<Ports>,
    /// Rank of the worker.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
}

/// A port of this machine and one of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    here: u16,
    there: u16,
}

/// A text that names no ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write [LOCAL:]REMOTE, for example 8080:80")]
pub(crate) struct PortsError;

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let (here, there) = text.split_once(':').unwrap_or((text, text));
        match (here.parse(), there.parse()) {
            (Ok(here), Ok(there)) if there > 0 => Ok(Self { here, there }),
            _ => Err(PortsError),
        }
    }
}

/// Runs a program in a worker.
pub(super) async fn exec(cluster: &Cluster, args: &ExecArgs) -> Result<ExitCode, Failure> {
    let object = cluster.get(&cluster.path(API, JOBS, &args.job)).await?;
    let pod = job::running_worker(cluster, &object, args.rank).await?;
    let found = job::workers(cluster, &object).await?.into_iter().find(|worker| job::rank(worker) == args.rank);
    let container = found.as_ref().map(|pod| TorchrunJob.main_containers(pod)).unwrap_or_default();
    let params = AttachParams::default().stdin(args.input).stdout(true).stderr(true).max_stdin_buf_size(PIECE);
    let params = container.into_iter().fold(params, AttachParams::container);
    let mut attached =
        cluster.pod_connections().exec(&pod, &args.command, &params).await.map_err(|error| failed(&error))?;
    let stdin = attached.stdin();
    if let Some(mut stdin) = stdin {
        let mut pieces = own_input();
        tokio::spawn(async move {
            while let Some(piece) = pieces.recv().await {
                if stdin.write_all(&piece).await.is_err() {
                    return;
                }
            }
            let _ = stdin.shutdown().await;
        });
    }
    let status = attached.take_status();
    let (stdout, stderr) = (attached.stdout(), attached.stderr());
    tokio::join!(pass_on(stdout, Stream::Out), pass_on(stderr, Stream::Error));
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(ExitCode::SUCCESS),
        Some(status) => match exit_code(&status) {
            Some(code) => Ok(ExitCode::from(code)),
            None => Err(Failure::missing(format!("{pod}: {}", status.message.unwrap_or_default()))),
        },
        None => Err(Failure::missing(format!("{pod}: the connection was closed before the program ended"))),
    }
}

/// This command's input, in pieces, read by a thread: a read that waits must not keep the end.
fn own_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, pieces) = mpsc::channel(INPUT_CHANNEL_CAPACITY);
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        let mut input = std::io::stdin().lock();
        while let Ok(count @ 1..) = input.read(&mut piece) {
            if sender.blocking_send(piece.get(..count).unwrap_or_default().to_vec()).is_err() {
                return;
            }
        }
    });
    pieces
}

async fn pass_on(from: Option<impl tokio::io::AsyncRead + Unpin>, to: Stream) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        to.write(piece.get(..count).unwrap_or_default());
    }
}

/// Connects ports.
pub(super) async fn port_forward(cluster: &Cluster, args: &PortForwardArgs) -> Result<ExitCode, Failure> {
    let object = cluster.get(&cluster.path(API, JOBS, &args.job)).await?;
    let pod = job::running_worker(cluster, &object, args.rank).await?;
    for ports in &args.ports {
        let listener = TcpListener::bind(("127.0.0.1", ports.here)).await;
        let listener = listener.map_err(|error| Failure::new(format!("port {}: {error}", ports.here)))?;
        out::line(&format!("{} -> {pod}:{}", listener.local_addr()?, ports.there));
        tokio::spawn(serve(listener, cluster.pod_connections(), pod.clone(), ports.there));
    }
    tokio::signal::ctrl_c().await?;
    Ok(ExitCode::from(out::SIGNAL + 2))
}

/// Carries every connection to a port of a pod, each over a `WebSocket` of its own.
async fn serve(listener: TcpListener, pods: Api<Pod>, pod: String, port: u16) {
    while let Ok((stream, _)) = listener.accept().await {
        let (pods, pod) = (pods.clone(), pod.clone());
        tokio::spawn(async move {
            if let Err(why) = carry(stream, &pods, &pod, port).await {
                out::warn(&format!("{pod}:{port}: {why}"));
            }
        });
    }
}

async fn carry(mut stream: TcpStream, pods: &Api<Pod>, pod: &str, port: u16) -> Result<(), Failure> {
    let mut forwarder = pods.portforward(pod, &[port]).await.map_err(|error| failed(&error))?;
    let problem = forwarder.take_error(port);
    let Some(mut there) = forwarder.take_stream(port) else { return Ok(()) };
    let copied = async {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
        None
    };
    let said = async {
        match problem {
            Some(problem) => match problem.await {
                Some(problem) => Some(problem),
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    };
    let refused: Option<String> = tokio::select! {
        said = said => said,
        none = copied => none,
    };
    forwarder.abort();
    refused.map_or(Ok(()), |problem| Err(Failure::missing(problem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_two_numbers() {
        assert_eq!("80".parse(), Ok(Ports { here: 80, there: 80 }));
        assert_eq!("0:80".parse(), Ok(Ports { here: 0, there: 80 }));
        for text in ["", "0", "80:", ":80", "80:0", "99999", "a:b"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
