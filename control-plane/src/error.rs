//! Errors, in words for users of the tests and of `cargo xtask cluster`.

use std::io;
use std::path::PathBuf;

/// Why the control plane, or something done with it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The programs are to be built, but Go is not there.
    #[error(
        "`go` was not found, and the control plane is built with it: install Go 1.26 or newer (https://go.dev/dl) and put it \
         on PATH, or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl"
    )]
    NoGo,
    /// The build did not succeed.
    #[error("building {what} in {directory} failed ({status}):\n{output}")]
    Build {
        /// Words for what is built.
        what: &'static str,
        /// Directory of the Go module.
        directory: PathBuf,
        /// Exit status of `go build`.
        status: String,
        /// The last lines it printed.
        output: String,
    },
    /// `KUBEBUILDER_ASSETS` or `PATH` lack a program.
    #[error("{} not found: {looked}", .programs.join(", "))]
    Missing {
        /// The programs that are needed and not there.
        programs: Vec<&'static str>,
        /// Places searched.
        looked: String,
    },
    /// A component ended, or did not come up.
    #[error("{component} {what}; the end of {}:\n{tail}", .log.display())]
    Component {
        /// Its name.
        component: &'static str,
        /// The failure.
        what: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// A component that is needed for this does not run.
    #[error("{component} does not run")]
    NotRunning {
        /// Its name.
        component: &'static str,
    },
    /// Something did not happen in time.
    #[error("waited {seconds} s in vain for {what}; last seen: {seen}")]
    TimedOut {
        /// The condition waited for.
        what: String,
        /// The time limit, in seconds.
        seconds: u64,
        /// The last state.
        seen: String,
    },
    /// kubectl reported an error.
    #[error("`kubectl {arguments}` failed: {message}")]
    Kubectl {
        /// Its arguments.
        arguments: String,
        /// The message.
        message: String,
    },
    /// etcd reported an error.
    #[error("etcd: {0}")]
    Etcd(String),
    /// An option cannot be what it is.
    #[error("{option}: {value}: {why}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: String,
        /// The problem.
        why: &'static str,
    },
    /// A certificate could not be made.
    #[error("certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file or process could not be used.
    #[error("{what}: {source}")]
    Io {
        /// The file, and its purpose.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Names what could not be done with a file or a process.
pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Error {
    let what = what.to_string();
    move |source| Error::Io { what, source }
}

/// The last lines of what a program printed, indented.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(count)..).unwrap_or_default();
    last.iter().fold(String::new(), |text, line| text + "  " + line + "\n")
}
