//! A control plane: starting it, disturbing it, looking at it, ending it.
//!
//! Owns the order in which things start and what counts as ready. Tests: `tests/`.

mod definition;
mod ready;

pub use self::definition::Definition;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use crate::binaries::Binaries;
use crate::certificates::{Authority, write_private};
use crate::component::{self, Component, ETCD_CLIENTS, KWOK_CONFIGURATION, Settings, log_of, scheduler_configuration};
use crate::error::{Error, io};
use crate::home::Home;
use crate::keeper::Keeper;
use crate::kubeconfig::{self, Identity, Proof};
use crate::options::Options;
use crate::port::Port;
use crate::process::{ProcessId, Running, Usage};
use crate::wait::Deadline;

/// Time limit of a component to end by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// A running control plane. When it is dropped, all its processes end; they end as well if the process that owns it does,
/// however that happens.
#[derive(Debug)]
pub struct ControlPlane {
    options: Options,
    settings: Settings,
    binaries: Binaries,
    processes: Mutex<BTreeMap<Component, Running>>,
    keeper: Keeper,
    authority: Authority,
    kubeconfig: PathBuf,
    _port: Port,
    home: Home,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready: the API server answers, pods can be created (a default service
    /// account is there), and all nodes take pods. Builds the programs first if need be.
    ///
    /// # Errors
    /// When options contradict each other, programs cannot be had, or a component does not come up; the error then shows the
    /// end of its log.
    pub fn start(options: Options) -> Result<Self, Error> {
        options.check()?;
        let components = options.components();
        let binaries = Binaries::ensure()?;
        binaries.require_components(&components)?;
        let deadline = Deadline::within(options.ready_within);
        let keeper = Keeper::start()?;
        let home = Home::open(options.directory.as_deref(), &keeper)?;
        let port = Port::reserve()?;
        let settings = Settings {
            port: port.number(),
            controller_manager: options.controller_manager,
            node_grace: options.node_grace(),
        };
        let authority = Authority::create(&home.path().join("pki"))?;
        let kubeconfig = home.path().join("kubeconfig");
        let plane = Self {
            options,
            settings,
            binaries,
            processes: Mutex::default(),
            keeper,
            authority,
            kubeconfig,
            _port: port,
            home,
        };
        plane.write_files()?;
        for &component in &components {
            plane.launch(component)?;
            plane.wait_until_ready(component, deadline)?;
        }
        plane.create_nodes()?;
        plane.wait_for_service_account(deadline)?;
        plane.wait_for_nodes(deadline)?;
        Ok(plane)
    }

    fn write_files(&self) -> Result<(), Error> {
        let logs = self.directory().join("logs");
        fs::create_dir_all(&logs).map_err(io(logs.display()))?;
        write_private(
            &self.directory().join("scheduler.yaml"),
            &scheduler_configuration(self.options.scheduler_extender),
        )?;
        write_private(&self.directory().join("kwok.yaml"), KWOK_CONFIGURATION)?;
        self.write_kubeconfig("kubeconfig", "admin", Some("system:masters"))?;
        self.write_kubeconfig("kwok.kubeconfig", "kwok", Some("system:masters"))?;
        self.write_kubeconfig("kube-scheduler.kubeconfig", "system:kube-scheduler", None)?;
        // Its controllers need more than its own role allows: they would be service accounts, one each, in a cluster that
        // others use. This is quicker to start.
        let user = "system:kube-controller-manager";
        self.write_kubeconfig("kube-controller-manager.kubeconfig", user, Some("system:masters"))?;
        Ok(())
    }

    fn write_kubeconfig(&self, file: &str, user: &str, group: Option<&str>) -> Result<PathBuf, Error> {
        let certificate = file_name(user);
        let proof = Proof::Certificate(self.authority.client(&certificate, user, group)?);
        let path = self.directory().join(file);
        kubeconfig::write(&path, self.settings.port, &self.authority, &proof, "default")?;
        Ok(path)
    }

    /// The directory with data, certificates, kubeconfigs and logs. Absolute.
    pub fn directory(&self) -> &Path {
        self.home.path()
    }

    /// The kubeconfig of an administrator. Absolute.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Makes a kubeconfig for someone else, in this plane's directory.
    ///
    /// # Errors
    /// When the file cannot be written, or the service account does not exist.
    pub fn kubeconfig_for(&self, identity: Identity<'_>) -> Result<PathBuf, Error> {
        let write = |kind: &str, name: &str, proof: &Proof, namespace: &str| {
            let path = self.directory().join(format!("{kind}-{}.kubeconfig", distinct(name)));
            kubeconfig::write(&path, self.settings.port, &self.authority, proof, namespace)?;
            Ok(path)
        };
        match identity {
            Identity::Admin => Ok(self.kubeconfig.clone()),
            Identity::User { name, group } => {
                let both = format!("{name} {}", group.unwrap_or_default());
                let files = self.authority.client(&format!("user-{}", distinct(&both)), name, group)?;
                write("user", &both, &Proof::Certificate(files), "default")
            }
            Identity::ServiceAccount { namespace, name } => {
                let token = self.run_kubectl(["create", "token", name, "-n", namespace, "--duration=24h"])?;
                let proof = Proof::Token(token.trim().to_owned());
                write("serviceaccount", &format!("{namespace} {name}"), &proof, namespace)
            }
            Identity::Token(token) => write("token", token, &Proof::Token(token.to_owned()), "default"),
        }
    }

    /// A command that runs kubectl as administrator. Its input is empty.
    pub fn kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.binaries.command("kubectl");
        command.args(arguments).stdin(Stdio::null());
        command.env("KUBECONFIG", &self.kubeconfig);
        // Nothing of the user's own settings, nothing left in his home directory.
        command.env("KUBECACHEDIR", self.directory().join("kubectl-cache")).env("KUBERC", "off");
        command
    }

    /// A command that runs helm as administrator. Its input is empty.
    pub fn helm<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.binaries.command("helm");
        command.args(arguments).stdin(Stdio::null()).env("KUBECONFIG", &self.kubeconfig);
        for kind in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{kind}_HOME"), self.directory().join("helm").join(kind));
        }
        command
    }

    /// Runs kubectl as administrator and gives what it printed.
    ///
    /// # Errors
    /// When it cannot be run, or fails: with what it said.
    pub fn run_kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String, Error> {
        let mut command = self.kubectl(arguments);
        let output = command.output().map_err(io("running kubectl"))?;
        printed(&command, &output)
    }

    /// `kubectl apply` of manifests, in YAML or JSON. Gives what it printed.
    ///
    /// # Errors
    /// When the API server refuses one, with its words.
    pub fn apply(&self, manifests: &str) -> Result<String, Error> {
        let mut command = self.kubectl(["apply", "-f", "-"]);
        let child = self.feed(&mut command, manifests)?;
        let output = child.wait_with_output().map_err(io("running kubectl"))?;
        printed(&command, &output)
    }

    /// Runs a further program as part of this plane: it ends with it, however that ends, and what it prints goes to
    /// `logs/NAME.log`. Its input is empty.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, name: &str, mut command: Command) -> Result<Child, Error> {
        let log = self.directory().join("logs").join(format!("{}.log", file_name(name)));
        crate::process::print_to(&mut command, &log)?;
        self.keeper.adopt(&mut command);
        command.stdin(Stdio::null()).spawn().map_err(io(format!("starting {name}")))
    }

    /// Starts a command and gives it all of its input.
    fn feed(&self, command: &mut Command, input: &str) -> Result<Child, Error> {
        self.keeper.adopt(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(io("running kubectl"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // If it does not want its input, it says itself why.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(child)
    }

    /// Stops a component in its tracks (SIGSTOP), and waits until it has: it neither answers nor closes connections.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, component: Component) -> Result<(), Error> {
        self.running(component, Running::pause)
    }

    /// Lets a paused component continue (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, component: Component) -> Result<(), Error> {
        self.running(component, |running| running.signal(Signal::CONT))
    }

    /// Ends a component in an orderly way, and waits for that.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop(&self, component: Component) -> Result<(), Error> {
        self.take(component)?.end(STOP_TIMEOUT)
    }

    /// Ends a component by SIGKILL.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&self, component: Component) -> Result<(), Error> {
        self.take(component)?.kill()
    }

    /// Starts a component that was stopped, killed or has ended, on the same port and data, and waits until it is ready.
    ///
    /// Simulated nodes take up again only when their leases have run out, four fifths of [`field@Options::node_grace`] after kwok
    /// ended: kwok takes another's lease for that of a kubelet which lives.
    ///
    /// # Errors
    /// When it runs, or does not come up.
    pub fn start_again(&self, component: Component) -> Result<(), Error> {
        self.launch(component)?;
        self.wait_until_ready(component, Deadline::within(self.options.ready_within))
    }

    /// Drops all revisions but the present one from etcd, and gives that. The API server's watch cache still has some of them:
    /// see [`Self::forget_history`].
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn compact(&self) -> Result<u64, Error> {
        crate::etcd::compact(&self.etcd_socket())
    }

    /// Makes every resourceVersion of the past unusable: a watch from one gets 410 Gone. Compacts etcd and restarts the API
    /// server, so that watches are cut off, too.
    ///
    /// # Errors
    /// When etcd does not answer, or the API server does not come up again.
    pub fn forget_history(&self) -> Result<(), Error> {
        self.stop(Component::ApiServer)?;
        self.compact()?;
        self.start_again(Component::ApiServer)
    }

    /// Returns the resources a component has used since its last start.
    ///
    /// # Errors
    /// When it does not run.
    pub fn usage(&self, component: Component) -> Result<Usage, Error> {
        let id = self.process(component)?;
        id.usage().ok_or_else(|| not_running(component))
    }

    /// A component's process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&self, component: Component) -> Result<ProcessId, Error> {
        self.running(component, |running| Ok(running.id()))
    }

    /// Returns the file to which a component's output is appended.
    pub fn log(&self, component: Component) -> PathBuf {
        log_of(self.directory(), component)
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<Component, Running>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running<T>(&self, component: Component, act: impl FnOnce(&mut Running) -> Result<T, Error>) -> Result<T, Error> {
        let mut processes = self.processes();
        let running = processes.get_mut(&component);
        act(running.ok_or_else(|| not_running(component))?)
    }

    fn take(&self, component: Component) -> Result<Running, Error> {
        let running = self.processes().remove(&component);
        running.ok_or_else(|| not_running(component))
    }

    fn launch(&self, component: Component) -> Result<(), Error> {
        let mut processes = self.processes();
        if let Some(running) = processes.get_mut(&component)
            && running.check().is_ok()
        {
            return Err(running.failure("runs already"));
        }
        let mut command = self.binaries.command(component.program());
        command.args(component::arguments(component, &self.settings));
        command.args(self.options.arguments.get(&component).into_iter().flatten());
        let running = Running::start(component, command, self.directory(), &self.keeper)?;
        processes.insert(component, running);
        Ok(())
    }

    fn etcd_socket(&self) -> PathBuf {
        self.directory().join(ETCD_CLIENTS)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for (_, running) in std::mem::take(&mut *self.processes()).into_iter().rev() {
            // The keeper kills what cannot be killed here.
            let _ = running.kill();
        }
    }
}

fn not_running(component: Component) -> Error {
    Error::NotRunning { component: component.program() }
}

fn printed(command: &Command, output: &Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments = command.get_args().skip_while(|argument| *argument == "kubectl");
    Err(Error::Kubectl {
        arguments: arguments.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" "),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// A name as part of a file's name.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' }).collect()
}

/// Different for each text, and without it: it may be a secret.
fn distinct(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
