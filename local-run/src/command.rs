//! A job from the command line: `trainyard run -n 4 -- python train.py`.
//!
//! Owns the manifest that stands for such a command, an ElasticJob, and what is said of a command that cannot be started. It must
//! not start anything. Tests: at the end, and `cli/tests/local/command.rs`.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use terminal::near::did_you_mean;
use terminal::out::Failure;

/// Maximum length of a name that is made of a program's: names of its pods are longer.
const MAX_NAME_LENGTH: usize = 40;

/// Number of bytes of a script that the kernel reads to find its interpreter.
const MAX_SHEBANG_BYTES: u64 = 256;

/// Number of options that the operator puts before the arguments of an ElasticJob's worker: they are for a launcher.
const LAUNCHER_OPTIONS: &str = "4";

/// Makes worker 0 serve the rendezvous: on one machine every worker takes its address for its own.
const TORCHRUN: &str = "case $HOSTNAME in *-0) host=true ;; *) host=false ;; esac; exec torchrun \
                        --rdzv_conf=is_host=$host \"$@\"";

/// Arguments of a job without a manifest.
#[derive(Debug, Args)]
#[command(next_help_heading = "A job without a manifest")]
pub(crate) struct CommandArgs {
    /// Number of workers that run the command.
    #[arg(short = 'n', long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// GPUs of each worker. Without --gpus the run takes as many as the workers need.
    #[arg(long, value_name = "N", requires = "command")]
    gpus_per_worker: Option<u32>,
    /// Number of restarts of the job: a worker that fails restarts all workers. 0, the default, ends the job with the first failure.
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    max_restarts: Option<u32>,
    /// Name of the job. Default: that of the script or program.
    #[arg(long, requires = "command")]
    name: Option<String>,
    /// Image of the workers, for a manifest that goes to a cluster.
    #[arg(long, requires = "command", default_value = "pytorch/pytorch")]
    image: String,
    /// Print the manifest of the job, and start nothing.
    #[arg(long, requires = "command")]
    pub(crate) print_manifest: bool,
    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl CommandArgs {
    /// Returns whether a command was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.command.is_empty()
    }

    /// Number of GPUs that the job needs; 0 where none was asked for.
    pub(crate) fn gpus(&self) -> u32 {
        self.workers().saturating_mul(self.gpus_per_worker.unwrap_or_default())
    }

    /// The question for GPUs, in words.
    pub(crate) fn gpus_words(&self) -> String {
        format!("-n {} --gpus-per-worker {}", self.workers(), self.gpus_per_worker.unwrap_or_default())
    }

    fn workers(&self) -> u32 {
        self.workers.unwrap_or(1)
    }

    /// Returns the job.
    pub(crate) fn manifest(&self) -> Value {
        let name = self.name.clone().unwrap_or_else(|| name_of(&self.command));
        let (workers, restarts) = (self.workers(), self.max_restarts.unwrap_or_default());
        let (program, rest) = self.command.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        // Kubernetes replaces $(NAME) in arguments: here they are meant as they stand.
        let plain = |words: &[String]| words.iter().map(|word| word.replace('$', "$$")).collect::<Vec<_>>();
        let (command, args) = if Path::new(program).file_name().is_some_and(|name| name == "torchrun") {
            (json!(["sh", "-c", TORCHRUN, "torchrun"]), plain(rest))
        } else {
            let script = format!("shift {LAUNCHER_OPTIONS}; exec \"$@\"");
            (json!(["sh", "-c", script, "launcher"]), plain(&self.command))
        };
        let mut container = json!({"name": "elasticjob-worker", "image": self.image, "command": command, "args": args});
        if let Some(gpus) = self.gpus_per_worker.filter(|gpus| *gpus > 0) {
            container["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
        }
        let mut spec = json!({
            "rdzvEndpoint": format!("{name}-worker-0:29400"),
            "replicaSpecs": {"Worker": {
                "replicas": workers,
                "restartPolicy": if restarts == 0 { "Never" } else { "OnFailure" },
                "template": {"spec": {"containers": [container]}},
            }},
        });
        let mut annotations = json!({"elastic.pytorch.org/rdzv-backend": "c10d"});
        if restarts > 0 {
            spec["backoffLimit"] = json!(restarts);
            // One failure mostly ends the others too.
            annotations["trainyard.dev/restart-scope"] = json!("All");
        }
        json!({
            "apiVersion": "elastic.pytorch.org/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": spec,
        })
    }

    /// Returns the manifest as a file holds it.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        let mut manifest = self.manifest();
        if let Some(metadata) = manifest["metadata"].as_object_mut() {
            // `kubectl apply --namespace` names another one.
            metadata.remove("namespace");
        }
        let yaml = serde_saphyr::to_string(&manifest)?;
        let about = "# The first options of each worker are torchrun's: the operator puts them there. The shell leaves them out for\n\
                     # other programs, which find their peers by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n";
        Ok(format!("{about}{}\n", yaml.trim_end()))
    }

    /// Refuses a program, or a Python script, that is not there.
    pub(crate) fn check(&self, workdir: Option<&Path>) -> Result<(), Failure> {
        let Some((program, rest)) = self.command.split_first() else { return Ok(()) };
        let here = workdir.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let path = std::env::var("PATH").unwrap_or_default();
        if program.is_empty() {
            return Err(Failure::new("the first word of the command is empty. Nothing was started"));
        } else if program.contains('/') {
            missing_file(program, &here)?;
            check_executable(program, &here.join(program))?;
        } else if program != "trainyard" && !local::has_program(program, &path) {
            let near = local::nearest_program(program, &path);
            let near = match near {
                Some(near) => format!(": did you mean {near}?"),
                None if program.contains('=') => format!(": variables are set by `env {program} ...`."),
                None => ".".to_owned(),
            };
            return Err(Failure::new(format!("{program}: no such program in PATH{near} Nothing was started")));
        }
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        // `python -u train.py`: the script is the first word that is no option. A shell's options may be a script themselves.
        let script = match &*name {
            "sh" | "bash" | "dash" | "zsh" => rest.first().filter(|word| has_ending(word, "sh")),
            name if name.starts_with("python") => {
                rest.iter().find(|word| !word.starts_with('-')).filter(|word| has_ending(word, "py"))
            }
            _ => None,
        };
        match script {
            Some(script) => missing_file(script, &here),
            None => Ok(()),
        }
    }
}

/// Returns true for the name of a program, or of a script of one, where a manifest is expected.
pub(crate) fn is_program(file: &Path) -> bool {
    let name = file.to_string_lossy();
    let is_in_path = || local::has_program(&name, &std::env::var("PATH").unwrap_or_default());
    ["py", "sh"].iter().any(|ending| has_ending(&name, ending)) || !name.contains('/') && !file.exists() && is_in_path()
}

/// Refuses a file that cannot be executed: a directory, one without the permission, a script whose interpreter is not there.
fn check_executable(program: &str, path: &Path) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::new(format!("{program}: {why}. Nothing was started")));
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if metadata.is_dir() {
        return refused("is a directory");
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return refused("is not executable; `chmod +x` makes it so");
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SHEBANG_BYTES).read_to_end(&mut start));
    let line = String::from_utf8_lossy(&start);
    let line = line.split('\n').next().and_then(|line| line.strip_prefix("#!")).filter(|_| read.is_ok());
    match line.and_then(|line| line.trim_start_matches([' ', '\t']).split([' ', '\t']).next()) {
        Some(interpreter) if !interpreter.is_empty() && !Path::new(interpreter).exists() => {
            refused(&format!("its interpreter {interpreter:?} does not exist"))
        }
        _ => Ok(()),
    }
}

/// Refuses a file that is not there.
fn missing_file(file: &str, here: &Path) -> Result<(), Failure> {
    let path = here.join(file);
    if path.exists() {
        return Ok(());
    }
    let entries = path.parent().and_then(|dir| dir.read_dir().ok()).into_iter().flatten().flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let near = did_you_mean(&name, names.iter().map(String::as_str));
    let near = if near.is_empty() { ".".to_owned() } else { near };
    let dir = std::path::absolute(here.join(file)).ok().and_then(|path| path.parent().map(Path::to_owned));
    let dir = dir.map(|dir| format!(" in {}", dir.display())).unwrap_or_default();
    Err(Failure::new(format!("{file}: no such file{dir}{near} Nothing was started")))
}

fn has_ending(word: &str, ending: &str) -> bool {
    Path::new(word).extension().is_some_and(|found| found == ending)
}

/// Returns a name made of that of a command's script or program.
fn name_of(command: &[String]) -> String {
    let module = command.windows(2).find(|pair| pair[0] == "-m").map(|pair| pair[1].rsplit('.').next().unwrap_or(""));
    let script = || command.iter().skip(1).find(|word| has_ending(word, "py") || has_ending(word, "sh"));
    let chosen = module.or_else(|| script().map(String::as_str)).or_else(|| command.first().map(String::as_str));
    let stem = Path::new(chosen.unwrap_or_default()).file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain = plain.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let short: String = plain.chars().take(MAX_NAME_LENGTH).collect();
    let short = short.trim_end_matches('-');
    if short.is_empty() { "job".to_owned() } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_after_its_script() {
        for (command, want) in [
            ("python train.py --lr 1", "train"),
            ("python3 -u src/My_Train.v2.py", "my-train-v2"),
            ("python -m package.tasks.fit --x", "fit"),
            ("./run.sh", "run"),
            ("bash scripts/a.sh", "a"),
            ("sleep 5", "sleep"),
            ("/usr/bin/123", "job"),
            ("2nd.py", "nd"),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of(&words), want, "{command}");
        }
    }
}
