//! Errors of the runtime.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::execution::ExecutionError;
use crate::gpus::GpuError;

/// Error that keeps pods from being run on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program that supervises pods is not there.
    #[error("cannot find the program for pod supervisors {}: {source}", path.display())]
    Supervisor {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// This machine does not let programs listen on all of 127.0.0.0/8.
    #[error("pods need loopback addresses of their own, but {address} cannot be used: {source}")]
    Loopback {
        /// The address that was tried.
        address: Ipv4Addr,
        /// Why.
        source: io::Error,
    },
    /// The GPUs asked for are not to be had.
    #[error(transparent)]
    Gpus(#[from] GpuError),
    /// Other runs have every loopback network.
    #[error("every loopback address for pods is taken by other runs on this machine: wait for one of them to end")]
    NoNetwork,
    /// Other runs cannot be seen.
    #[error("cannot claim loopback addresses: {0}")]
    Claim(#[source] io::Error),
    /// Processes of an earlier run cannot be ended.
    #[error("processes of an earlier run still run and cannot be ended: {processes}; end them first")]
    Leftovers {
        /// Their pids and names.
        processes: String,
    },
    /// A pod has no such container.
    #[error("pod {pod} has no container {container}")]
    NoSuchContainer {
        /// Namespace and name of the pod.
        pod: String,
        /// The name.
        container: String,
    },
    /// A program cannot be started in a container.
    #[error(transparent)]
    NotStarted(#[from] ExecutionError),
    /// No such pod runs.
    #[error("pod {namespace}/{name} does not run here")]
    NoSuchPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}
