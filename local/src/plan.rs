//! Pod object to [`Plan`]: everything a supervisor needs, resolved, or a reason why the pod cannot run here.
//!
//! Starts nothing. Tests: at the end; the environment, names and volumes have their own.

use std::path::{Path, PathBuf};

use serde_json::Value;
use settings::Quantity;

use crate::accounts::Accounts;
use crate::environment::{self, EnvironmentError, ReferenceContext};
use crate::expand::expand;
use crate::gpus::{self, Gpus};
use crate::mounts::Mounts;
use crate::names::Names;
use crate::object_files::ObjectFiles;
use crate::objects::Objects;
use crate::options::{Options, Peer};
use crate::pod::{self, Pod, Resources};
use crate::private::{self, Access};
use crate::security::{self, Identity, Rights, RunsAsRoot};
use crate::torch;
use crate::volumes::{self, Place, is_plain_name};
use crate::wire::{Container, Plan, Program, RestartPolicy};

/// The program name that stands for this product's own binary, wherever that is.
const OWN_PROGRAM: &str = "trainyard";

/// Address of the machine itself.
pub(crate) const HOST_IP: &str = "127.0.0.1";

/// Grace period of a pod that names none, in seconds.
const DEFAULT_GRACE_SECONDS: u64 = 30;

/// Names the file in which torch's error handlers leave the exception that ended a program.
const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// Why a pod cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// A container cannot be made; it can when an object is there that is missing now.
    Container {
        /// Empty when it is about the whole pod.
        name: String,
        message: String,
    },
    /// The machine has not got what the pod needs.
    Admission { message: String },
}

/// Reason for which a container cannot be created.
#[derive(Debug, thiserror::Error)]
enum ContainerError {
    /// It cannot have this name.
    #[error("the container name {0:?} cannot be used")]
    Name(String),
    /// What it runs is in its image.
    #[error(
        "container {name:?} has no command: images are not pulled on this machine, so the command of the image {image:?} is not known; \
         add `command: [...]` to the container"
    )]
    NoCommand { name: String, image: String },
    /// It would run as a user that it forbids.
    #[error(transparent)]
    User(#[from] RunsAsRoot),
    /// Its environment cannot be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// Inputs of a plan.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub(crate) options: &'a Options,
    /// Directory that the pod's job was submitted from, where it is not the runner's.
    pub(crate) workdir: Option<PathBuf>,
    pub(crate) objects: &'a Objects,
    pub(crate) names: &'a mut Names,
    pub(crate) gpus: &'a mut Gpus,
    /// Files of the pod's volumes that follow their objects.
    pub(crate) files: Vec<ObjectFiles>,
    /// Differences between this machine and a cluster.
    pub(crate) warnings: Vec<String>,
}

/// Values that the containers of a pod share.
#[derive(Clone, Copy)]
struct Shared<'a> {
    plan: &'a Plan,
    places: &'a [Place],
    /// The environment that PyTorch reads.
    torch: &'a [(String, String)],
    group: Option<&'a Group<'a>>,
}

/// The pods that a pod trains with.
struct Group<'a> {
    peer: Peer,
    /// Address of rank 0.
    master: String,
    /// The port of this machine that stands for a written one.
    port_of: Box<dyn Fn(u16) -> u16 + 'a>,
}

/// Log file of a container: one per pod incarnation and restart in place.
pub(crate) fn log_path(data_dir: &Path, namespace: &str, pod: &str, container: &str, run: &str) -> PathBuf {
    data_dir.join("logs").join(namespace).join(pod).join(format!("{container}-{run}.log"))
}

impl Planner<'_> {
    /// Plans a pod. GPUs it gets stay its own until they are given back under its uid.
    pub(crate) fn plan(&mut self, object: &Value) -> Result<Plan, PlanError> {
        let whole = |message: String| PlanError::Container { name: String::new(), message };
        let pod: Pod =
            serde::Deserialize::deserialize(object).map_err(|error| whole(format!("unreadable pod: {error}")))?;
        let metadata = &pod.metadata;
        for (what, name) in [("name", &metadata.name), ("namespace", &metadata.namespace), ("uid", &metadata.uid)] {
            if !is_plain_name(name) {
                return Err(whole(format!("metadata.{what}: {name:?} cannot be used")));
            }
        }
        if pod.spec.containers.is_empty() {
            return Err(whole("spec.containers: a pod needs a container".to_owned()));
        }
        let unhonoured = security::unhonoured(object);
        if let Some(first) = unhonoured.first().filter(|_| self.options.refuse_unhonoured) {
            let message = format!("{first}; leave it out, or run the pod on another node");
            return Err(PlanError::Container { name: first.container.clone().unwrap_or_default(), message });
        }
        self.names.add_pod(&metadata.namespace, &metadata.name, &metadata.labels, metadata.controller());
        let pod_ip = self.names.address(&metadata.namespace, &metadata.name).to_string();
        let (data_dir, access) = (&self.options.data_dir, access(&pod));
        let volumes = volumes::prepare(data_dir, &pod, &access, self.objects, &mut *self.names, &mut self.warnings)
            .map_err(|error| whole(error.to_string()))?;
        let (places, files) = volumes;
        self.files = files;
        self.warn_of_ignored(&pod);
        self.warnings.extend(unhonoured.iter().map(ToString::to_string));

        let mut plan = Plan {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            restart_policy: pod.spec.restart_policy,
            active_deadline_ms: pod.spec.active_deadline_seconds.map(|seconds| seconds.saturating_mul(1000)),
            grace_ms: pod.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS).saturating_mul(1000),
            pod_ip,
            host_ip: HOST_IP.to_owned(),
            conditions: pod.status.conditions.clone(),
            back_off: self.options.back_off,
            init: Vec::new(),
            main: Vec::new(),
        };
        let visible = self.devices(&pod)?;
        let group = self.group(object, &metadata.namespace);
        let torch = group.as_ref().map(|group| torch::variables(&group.peer, &group.master)).unwrap_or_default();
        let planned = (|| {
            for (n, container) in pod.spec.init_containers.iter().chain(&pod.spec.containers).enumerate() {
                let refuse = |error: ContainerError| PlanError::Container {
                    name: container.name.clone(),
                    message: error.to_string(),
                };
                let shared = Shared { plan: &plan, places: &places, torch: &torch, group: group.as_ref() };
                let made = self.container(&pod, shared, container, visible[n].as_deref()).map_err(refuse)?;
                if n < pod.spec.init_containers.len() { plan.init.push(made) } else { plan.main.push(made) }
            }
            Ok(())
        })();
        if let Err(refusal) = planned {
            self.gpus.release(&plan.uid);
            return Err(refusal);
        }
        if let Some(prepare) = &self.options.prepare {
            let path = |container: &str, path: &str| {
                let container = plan.init.iter().chain(&plan.main).find(|one| one.name == container)?;
                Some(PathBuf::from(container.mounts.rewrite(path)))
            };
            if let Err(error) = prepare(object, &path) {
                self.gpus.release(&plan.uid);
                return Err(whole(error.to_string()));
            }
        }
        Ok(plan)
    }

    fn container(
        &mut self,
        pod: &Pod,
        Shared { plan, places, torch, group }: Shared<'_>,
        container: &pod::Container,
        visible: Option<&str>,
    ) -> Result<Container, ContainerError> {
        let metadata = &pod.metadata;
        if !is_plain_name(&container.name) {
            return Err(ContainerError::Name(container.name.clone()));
        }
        if container.command.is_empty() {
            return Err(ContainerError::NoCommand { name: container.name.clone(), image: container.image.clone() });
        }
        let mut identity = identity(pod, container)?;
        identity.umask = private::program_mask();
        let hostname = if pod.spec.hostname.is_empty() { &metadata.name } else { &pod.spec.hostname };
        let mut given = vec![("HOSTNAME".to_owned(), hostname.clone())];
        let error_file =
            volumes::pod_dir(&self.options.data_dir, &metadata.uid).join(format!("{}.error", container.name));
        given.push((ERROR_FILE.to_owned(), error_file.to_string_lossy().into_owned()));
        for place in places {
            given.push((volumes::variable(&place.name), place.path.to_string_lossy().into_owned()));
        }
        if let Some(home) = &identity.home {
            given.push(("HOME".to_owned(), home.clone()));
        }
        let words = || container.command.iter().chain(&container.args);
        given.extend(torch::of_command(torch, words().map(String::as_str)));
        if let Some(visible) = visible {
            given.push(("CUDA_VISIBLE_DEVICES".to_owned(), visible.to_owned()));
        }
        let scope = ReferenceContext { pod, objects: self.objects, pod_ip: &plan.pod_ip, host_ip: &plan.host_ip };
        let mut env = environment::of_container(scope, container, &given, self.names)?;
        let mounts = Mounts::of(container, places);
        for (name, value) in &mut env {
            *value = mounts.rewrite(value);
            if let Some(Group { master, port_of, .. }) = group {
                *value = torch::with_port(name, value, master, port_of);
            }
        }

        let lookup = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let mut argv: Vec<String> = Vec::new();
        let mut before = String::new();
        for arg in words() {
            let expanded = expand(arg, lookup);
            let arg = mounts.rewrite(&self.names.rewrite_arg(&metadata.namespace, &before, &expanded));
            argv.push(match group {
                Some(Group { master, port_of, .. }) => torch::with_ports(&arg, master, port_of),
                None => arg,
            });
            before = expanded;
        }
        let error_file = lookup(ERROR_FILE).map_or(error_file, PathBuf::from);
        if argv[0] == OWN_PROGRAM {
            argv[0] = self.options.supervisor_program.to_string_lossy().into_owned();
        }
        Ok(Container {
            name: container.name.clone(),
            image: container.image.clone(),
            program: Program {
                argv,
                env,
                workdir: self.workdir(&mounts.rewrite(&container.working_dir)),
                identity,
                streams: None,
            },
            log: log_path(
                &self.options.data_dir,
                &metadata.namespace,
                &metadata.name,
                &container.name,
                incarnation(metadata),
            ),
            sidecar: container.restart_policy.as_deref() == Some("Always"),
            // A pod that names no policy gets the one that needs no termination message file. An API server has written
            // Kubernetes' default (`File`) into the pods that a node agent gets.
            message_from_log: container.termination_message_policy != "File",
            error_file,
            mounts,
        })
    }

    /// The pods that a pod trains with, where it has a place among others.
    fn group<'o>(&mut self, object: &'o Value, namespace: &str) -> Option<Group<'o>> {
        let peer = self.options.peers.as_ref().and_then(|peers| peers(object))?;
        let master = self.names.address(namespace, &peer.master).to_string();
        let port_of = self.options.port_of.clone();
        let port_of = Box::new(move |port| port_of.as_ref().map_or(port, |port_of| port_of(object, port)));
        Some(Group { peer, master, port_of })
    }

    fn workdir(&self, wanted: &str) -> PathBuf {
        let of_runner = || self.options.workdir.clone().or_else(|| std::env::current_dir().ok());
        let base = self.workdir.clone().or_else(of_runner).unwrap_or_default();
        base.join(wanted)
    }

    /// `CUDA_VISIBLE_DEVICES` of each container, init containers first; nothing where GPUs are not looked after.
    fn devices(&mut self, pod: &Pod) -> Result<Vec<Option<String>>, PlanError> {
        let containers = || pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let asked: Vec<u32> = containers().map(|container| gpus_asked(&container.resources)).collect();
        let total: u64 = asked.iter().map(|count| u64::from(*count)).sum();
        if !self.gpus.configured() {
            if total > 0 {
                self.warnings.push(format!("{total} GPUs are requested, but this run has none: add --gpus N"));
            }
            return Ok(vec![None; asked.len()]);
        }
        let mut visible = Vec::new();
        for count in asked {
            let Some(indices) = self.gpus.take(&pod.metadata.uid, count) else {
                self.gpus.release(&pod.metadata.uid);
                let free = self.gpus.free();
                return Err(PlanError::Admission { message: format!("{total} GPUs are requested, {free} are free") });
            };
            visible.push(Some(indices.join(",")));
        }
        Ok(visible)
    }

    fn warn_of_ignored(&mut self, pod: &Pod) {
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            let name = &container.name;
            let probes = [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
            if probes.iter().any(|probe| probe.is_some()) {
                self.warnings.push(format!("probes of container {name:?} are not run: it is ready while it runs"));
            }
            if container.lifecycle.is_some() {
                self.warnings.push(format!("lifecycle hooks of container {name:?} are not run"));
            }
        }
    }
}

/// Returns the users of the pod's volumes. A container rejected for its security context needs none.
fn access(pod: &Pod) -> Access {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let identities: Vec<Identity> = containers.filter_map(|container| identity(pod, container).ok()).collect();
    Access {
        users: identities.iter().filter_map(|identity| identity.uid).collect(),
        group: identities.iter().find_map(|identity| identity.volume_group),
    }
}

/// Returns the user a container runs as.
fn identity(pod: &Pod, container: &pod::Container) -> Result<Identity, RunsAsRoot> {
    let (outer, own) = (&pod.spec.security_context, &container.security_context);
    if outer.is_empty() && own.is_empty() {
        return Ok(Identity::default());
    }
    Rights::of_this_process().identity(outer, own, &Accounts::of_this_machine())
}

/// Distinguishes the logs of successive pods of the same name.
fn incarnation(metadata: &pod::Metadata) -> &str {
    let written = metadata.annotations.get("trainyard.dev/incarnation").map_or("0", String::as_str);
    if is_plain_name(written) { written } else { "0" }
}

/// Whole GPUs a container asks for, of all makers together.
fn gpus_asked(resources: &Resources) -> u32 {
    let mut kinds: Vec<&String> = resources.limits.keys().chain(resources.requests.keys()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let counts = kinds.into_iter().filter(|kind| gpus::is_gpu(kind)).filter_map(|kind| {
        let asked = Quantity::read(resources.asked(kind)?)?.ceil();
        // More than fit a number is more than any machine has: refused later.
        Some(u32::try_from(asked.max(0)).unwrap_or(u32::MAX))
    });
    counts.fold(0, u32::saturating_add)
}

impl RestartPolicy {
    /// Returns whether a container that ended with `code` is started again in its pod.
    pub(crate) fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(container: &Value) -> Value {
        json!({
            "metadata": {"name": "j-w-0", "namespace": "ns", "uid": "u1", "annotations": {"trainyard.dev/incarnation": "3"},
                "ownerReferences": [{"name": "j", "controller": true}]},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        })
    }

    fn plan_with(options: &Options, gpus: &mut Gpus, object: &Value) -> (Result<Plan, PlanError>, Vec<String>) {
        let (objects, mut names) = (Objects::default(), Names::new(64));
        let (files, warnings) = (Vec::new(), Vec::new());
        let mut planner =
            Planner { options, workdir: None, objects: &objects, names: &mut names, gpus, files, warnings };
        let plan = planner.plan(object);
        (plan, planner.warnings)
    }

    fn plan(object: &Value) -> Result<Plan, PlanError> {
        let mut options = Options::new("/data", "/bin/the-binary");
        options.workdir = Some("/some-dir".into());
        plan_with(&options, &mut Gpus::none(), object).0
    }

    #[test]
    fn command_arguments_and_places() {
        let got = plan(&pod(&json!({
            "name": "c", "image": "img", "command": ["trainyard", "$(A)"], "args": ["j-w-1.ns:$(P)", "$$(A)", "trainyard"],
            "workingDir": "sub", "env": [{"name": "A", "value": "x y"}, {"name": "P", "value": "80"}],
        })))
        .unwrap();
        let container = &got.main[0];
        let peer = Names::new(64).address("ns", "j-w-1").to_string();
        assert_eq!(container.program.argv, ["/bin/the-binary", "x y", &format!("{peer}:80"), "$(A)", "trainyard"]);
        assert_eq!(container.program.workdir, Path::new("/some-dir/sub"));
        assert_eq!(container.log, Path::new("/data/logs/ns/j-w-0/c-3.log"));
        assert_eq!(container.program.env[0], ("HOSTNAME".to_owned(), "j-w-0".to_owned()));
        assert!(container.program.env.iter().all(|(name, _)| name != "CUDA_VISIBLE_DEVICES"));
        assert_eq!((got.grace_ms, got.restart_policy), (30_000, RestartPolicy::Never));
        assert_eq!(got.pod_ip, Names::new(64).address("ns", "j-w-0").to_string());
    }

    #[test]
    fn refused_with_a_reason() {
        let cases = [
            (pod(&json!({"name": "c", "image": "img"})), "add `command"),
            (pod(&json!({"name": "c", "args": ["x"]})), "has no command"),
            (pod(&json!({"name": "../c", "command": ["x"]})), "cannot be used"),
            (pod(&json!({"name": "c", "command": "x"})), "unreadable pod"),
            (json!({"metadata": {"name": "a/b", "namespace": "n", "uid": "u"}}), "metadata.name"),
            (json!({"metadata": {"name": "a", "namespace": "n"}}), "metadata.uid"),
            (json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {}}), "needs a container"),
            (json!("pod"), "unreadable pod"),
        ];
        for (object, want) in cases {
            match plan(&object) {
                Err(PlanError::Container { message, .. }) => assert!(message.contains(want), "{object}: {message}"),
                other => panic!("{object}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_context_that_cannot_be_honoured_is_warned_of_or_refused() {
        let object = pod(&json!({"name": "c", "command": ["x"], "securityContext": {"readOnlyRootFilesystem": true}}));
        let mut options = Options::new("/data", "/bin/the-binary");
        let (planned, warnings) = plan_with(&options, &mut Gpus::none(), &object);
        assert!(planned.is_ok() && warnings[0].contains("readOnlyRootFilesystem true"), "{warnings:?}");
        options.refuse_unhonoured = true;
        let Err(PlanError::Container { name, message }) = plan_with(&options, &mut Gpus::none(), &object).0 else {
            panic!("it is planned");
        };
        assert_eq!(name, "c");
        assert!(message.contains("readOnlyRootFilesystem true of container \"c\" is not honoured"), "{message}");
    }

    #[test]
    fn gpus_are_handed_out_and_given_back_when_refused() {
        let options = Options::new("/data", "/bin/the-binary");
        let mut gpus = Gpus::unclaimed(3);
        let visible = |plan: &Plan| {
            let find = |(name, value): &(String, String)| (name == "CUDA_VISIBLE_DEVICES").then(|| value.clone());
            plan.main[0].program.env.iter().find_map(find)
        };
        let two = pod(
            &json!({"name": "c", "command": ["x"], "resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": "2"}}}),
        );
        let none = pod(&json!({"name": "c", "command": ["x"]}));
        let bad = pod(&json!({"name": "c", "resources": {"limits": {"amd.com/gpu": 1}}}));
        assert_eq!(visible(&plan_with(&options, &mut gpus, &two).0.unwrap()).unwrap(), "0,1");
        assert_eq!(visible(&plan_with(&options, &mut gpus, &none).0.unwrap()).unwrap(), "");
        assert!(matches!(plan_with(&options, &mut gpus, &two).0, Err(PlanError::Admission { .. })));
        assert!(matches!(plan_with(&options, &mut gpus, &bad).0, Err(PlanError::Container { .. })));
        assert_eq!(gpus.free(), 3);
        let (unlooked, warnings) = plan_with(&options, &mut Gpus::none(), &two);
        assert_eq!(visible(&unlooked.unwrap()), None);
        assert!(warnings[0].contains("2 GPUs"));
    }
}
