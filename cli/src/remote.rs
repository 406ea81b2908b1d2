//! The log of a live operator, read as if it were a file: `--server`.
//!
//! Owns the flags, and what to do about each refusal, in words. How it is read is `k8s_driver::remote_log`; what the lines hold is
//! verified like any export's. Tests: at the end of this file; with a real API server in `k8s-driver/tests/leadership.rs`.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use k8s_driver::api_server::{self, error_chain};
use k8s_driver::election::{Leader, LeaseOptions};
use k8s_driver::remote_log::{self, DEFAULT_NAMESPACE, Error, Lines, LocateOptions, LocatedLog, Remote, locate};
use local_run::records::{LogReader, LogSource, RemoteLog};
use model::Position;
use tokio::runtime::{Builder, Runtime};

use terminal::out::Failure;

/// Address and credentials of a live operator.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "A live operator")]
pub(crate) struct ServerArgs {
    /// Read the log of a live operator: its address (https://HOST:PORT), or `auto` to find the leader through the kubeconfig.
    #[arg(long, value_name = "URL|auto")]
    server: Option<String>,
    /// A file with a bearer token, sent to the address named by --server. Default: with --certificate-authority the kubeconfig's
    /// user; else a token that the API server issues for this log alone.
    #[arg(long, requires = "server", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates to trust, PEM. Default: those in the operator's Lease; with --token-file the system's.
    #[arg(long, requires = "server", value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, requires = "server", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, requires = "server")]
    context: Option<String>,
    /// Namespace of the operator. Default: trainyard-system.
    #[arg(long, requires = "server", value_name = "NAME")]
    operator_namespace: Option<String>,
    /// Name of the operator's Lease.
    #[arg(long, requires = "server", default_value = LeaseOptions::NAME, value_name = "NAME")]
    operator_lease: String,
}

impl ServerArgs {
    /// Returns whether a live operator was named.
    pub(crate) const fn given(&self) -> bool {
        self.server.is_some()
    }

    /// Returns how the cluster is reached.
    pub(crate) fn connection(&self) -> api_server::Options {
        api_server::Options {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            ..api_server::Options::default()
        }
    }

    /// Returns the log of the live operator if one is named, or else that at the path.
    pub(crate) fn source_or(&self, path: &Path) -> LogSource {
        if self.given() { LogSource::Remote(Arc::new(self.clone())) } else { LogSource::Path(path.to_owned()) }
    }

    fn options(&self) -> LocateOptions {
        LocateOptions {
            server: self.server.clone().filter(|server| server != "auto"),
            token_file: self.token_file.clone(),
            authority: self.certificate_authority.clone(),
            connection: self.connection(),
            namespace: self.operator_namespace.clone(),
            lease: self.operator_lease.clone(),
        }
    }
}

impl fmt::Display for ServerArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.server.as_deref().unwrap_or_default())
    }
}

impl RemoteLog for ServerArgs {
    fn open(&self) -> Result<LogReader, Failure> {
        let found = Found::locate(self)?;
        let lines = found.runtime.block_on(found.remote.log(Position(1), false));
        found.reader(lines)
    }

    /// An operator that is too old does not send its state.
    fn open_state(&self) -> Result<Option<LogReader>, Failure> {
        let found = Found::locate(self)?;
        match found.runtime.block_on(found.remote.state()) {
            Err(Error::Refused { code: 400, .. }) => Ok(None),
            lines => found.reader(lines).map(Some),
        }
    }
}

/// A live operator that was found.
struct Found {
    runtime: Runtime,
    options: LocateOptions,
    leader: Option<Leader>,
    address: String,
    remote: Remote,
}

impl Found {
    fn locate(args: &ServerArgs) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let options = args.options();
        let LocatedLog { target, leader } =
            runtime.block_on(locate(&options)).map_err(|error| lost(&error, &options))?;
        let address = target.address.clone();
        // A client works in the runtime that it was made in.
        let remote = runtime.block_on(async { Remote::new(target) });
        let remote = remote.map_err(|error| refused(&error, &options, leader.as_ref()))?;
        Ok(Self { runtime, options, leader, address, remote })
    }

    /// Reads what the operator sends.
    fn reader(self, lines: Result<Lines, Error>) -> Result<LogReader, Failure> {
        let lines = lines.map_err(|error| refused(&error, &self.options, self.leader.as_ref()))?;
        let stream = Stream { runtime: self.runtime, lines, rest: Vec::new(), at: 0 };
        let input: Box<dyn BufRead> = Box::new(BufReader::new(stream));
        Ok(LogReader::new(input, self.address)?)
    }
}

/// Lines that arrive, as a file. The runtime works while it is read.
struct Stream {
    runtime: Runtime,
    lines: Lines,
    rest: Vec<u8>,
    at: usize,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.rest.len() {
            match self.runtime.block_on(self.lines.next()).map_err(io::Error::other)? {
                None => return Ok(0),
                Some(bytes) => (self.rest, self.at) = (bytes.into(), 0),
            }
        }
        let rest = self.rest.get(self.at..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        self.at += count;
        Ok(count)
    }
}

/// Advises what to do if no log was found.
fn lost(error: &remote_log::LocateError, options: &LocateOptions) -> Failure {
    let namespace = options.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let advice = match error {
        remote_log::LocateError::Token(remote_log::TokenError::Refused { .. }) => format!(
            "\nallow it: kubectl create rolebinding trainyard-log-USER --namespace {namespace} --role=trainyard-log-token \
             --user=USER"
        ),
        remote_log::LocateError::Token(remote_log::TokenError::Missing { .. }) => {
            "\ninstall it with the operator: kubectl apply -k deploy/base".to_owned()
        }
        remote_log::LocateError::TokenWithoutAddress => {
            "\n--server auto needs none: the API server issues a token for the operator's log alone; or name the address and \
             what to trust: --server https://HOST:PORT --certificate-authority FILE"
                .to_owned()
        }
        remote_log::LocateError::Lease(_) => format!(
            "\nis the operator in another namespace than {DEFAULT_NAMESPACE}? name it with --operator-namespace; \
             or name the log's address with --server https://HOST:PORT"
        ),
        remote_log::LocateError::NoLeader { .. } => "\nwait until one does, or read its log directory".to_owned(),
        remote_log::LocateError::Client(_) => "\nor name the log's address with --server https://HOST:PORT".to_owned(),
        remote_log::LocateError::Token(remote_log::TokenError::Silent { .. })
        | remote_log::LocateError::Silent { .. }
        | remote_log::LocateError::NotServed { .. }
        | remote_log::LocateError::File { .. } => String::new(),
    };
    Failure::new(format!("{}{advice}", error_chain(error)))
}

/// Advises what to do if the server rejects the request, or cannot be reached.
fn refused(error: &Error, options: &LocateOptions, leader: Option<&Leader>) -> Failure {
    let namespace = options.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let advice = match error {
        Error::Unauthorized { .. } if options.token_file.is_some() => {
            "\nthe token may have expired: make a new one with `kubectl create token SERVICEACCOUNT`".to_owned()
        }
        Error::Unauthorized { .. } if options.authority.is_some() => {
            "\nmake a token: kubectl create token SERVICEACCOUNT > FILE; \
                                                                   then give it with --token-file FILE"
                .to_owned()
        }
        Error::Unauthorized { .. } => format!(
            "\nthe token was issued for the leader that the Lease in namespace {namespace} names: does another one answer, or an \
             older operator?"
        ),
        Error::Forbidden { user, .. } => format!("\nallow it: {}", binding(user)),
        Error::NotLeader { leader: Some(address), .. } => format!("\nits log is at {address}: --server {address}"),
        Error::NotLeader { leader: None, .. } => "\n--server auto finds the leader".to_owned(),
        Error::Unreachable { .. } if options.server.is_none() => {
            // A pod's identity begins with its name.
            let pod = leader.and_then(|l| l.identity.rsplit_once('_')).map_or("POD", |(pod, _)| pod);
            format!(
                "\nfrom outside the cluster: kubectl port-forward --namespace {namespace} pod/{pod} 8443; \
                 then --server https://127.0.0.1:8443"
            )
        }
        Error::Unreachable { reason, .. } if reason.contains("ertificate") => {
            "\nname what to trust with --certificate-authority FILE; a self-made certificate stands in the operator's \
             Lease, annotation trainyard.dev/log-certificate"
                .to_owned()
        }
        Error::Refused { code: 429, .. } => "\nwait until another reader is done".to_owned(),
        Error::Address { .. }
        | Error::Client { .. }
        | Error::Unreachable { .. }
        | Error::BeyondHead { .. }
        | Error::Refused { .. }
        | Error::Broken { .. } => String::new(),
    };
    Failure::new(format!("{}{advice}", error_chain(error)))
}

/// The command that lets a user read logs with a token of the user's own.
fn binding(user: &str) -> String {
    let subject = match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={user}"),
    };
    let name: String =
        user.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let name = name.trim_matches('-');
    format!("kubectl create clusterrolebinding trainyard-log-{name} --clusterrole=trainyard-log-reader {subject}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(error: &Error, options: &LocateOptions) -> String {
        refused(error, options, None).to_string()
    }

    #[test]
    fn a_token_that_is_not_issued_says_what_to_do() {
        let options = LocateOptions { namespace: Some("ops".to_owned()), ..LocateOptions::default() };
        let missing = remote_log::TokenError::Missing { namespace: "ops".to_owned() };
        let missing = lost(&remote_log::LocateError::Token(missing), &options).to_string();
        assert!(missing.contains("ops/trainyard-log-reader\ninstall it with the operator"), "{missing}");
        let own = lost(&remote_log::LocateError::TokenWithoutAddress, &options).to_string();
        assert!(own.contains("--server https://HOST:PORT --certificate-authority FILE"), "{own}");
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let address = || "https://h:1".to_owned();
        let auto = LocateOptions::default();
        let message = || "m".to_owned();
        let unauthorized = Error::Unauthorized { address: address(), message: message() };
        assert!(text_of(&unauthorized, &auto).contains("the Lease in namespace trainyard-system"));
        let vouched = LocateOptions { authority: Some("ca".into()), ..LocateOptions::default() };
        assert!(text_of(&unauthorized, &vouched).contains("kubectl create token SERVICEACCOUNT > FILE"));
        let own = LocateOptions { token_file: Some("t".into()), ..LocateOptions::default() };
        assert!(text_of(&unauthorized, &own).contains("may have expired"));
        let account = "system:serviceaccount:team-a:robot".to_owned();
        let forbidden = Error::Forbidden { address: address(), message: message(), user: account };
        assert!(text_of(&forbidden, &auto).ends_with(
            "kubectl create clusterrolebinding trainyard-log-system-serviceaccount-team-a-robot \
             --clusterrole=trainyard-log-reader --serviceaccount=team-a:robot"
        ));
        let leader = Some("https://other:8443".to_owned());
        let elsewhere = Error::NotLeader { address: address(), message: message(), leader };
        assert!(text_of(&elsewhere, &auto).ends_with("--server https://other:8443"));
        let away = Error::Unreachable { address: address(), reason: "refused".to_owned() };
        assert!(text_of(&away, &auto).contains("port-forward --namespace trainyard-system pod/POD 8443"));
        let pod = Leader { identity: "trainyard-1_0af".to_owned(), term: model::Term(1), advertised: None };
        assert!(refused(&away, &auto, Some(&pod)).to_string().contains("pod/trainyard-1 8443"));
        let named = LocateOptions { server: Some(address()), ..LocateOptions::default() };
        let untrusted = Error::Unreachable { address: address(), reason: "invalid peer certificate".to_owned() };
        assert!(text_of(&untrusted, &named).contains("--certificate-authority FILE"));
    }
}
