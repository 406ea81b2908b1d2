//! The job that `submit` creates: of its flags, or of manifest files.
//!
//! Owns which member a flag is. What is wrong with a job is said by `apis`. Tests: at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use apis::api::ReferenceApi as _;
use apis::torchrunjob::{API_VERSION, KIND, TorchrunJob, uploads};
use apis::{Referenced, Resource, jobqueue};
use inputs::manifests;
use model::{SpecFact, Text};
use serde_json::{Map, Value, json};
use terminal::out::Failure;
use terminal::shell::quoted;

use super::job::{queue, text};
use super::submit::SubmitArgs;

/// Kind of the queues.
const QUEUE_KIND: &str = apis::torchrunqueue::KIND;
/// Longest name that is made of a directory's.
const MAX_MADE: usize = 40;

/// What is submitted.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) job: Value,
    /// Queues that stand in the same files.
    pub(super) queues: Vec<Value>,
}

/// Reads the flags, or the files they name.
pub(super) fn submission(args: &SubmitArgs, namespace: &str) -> Result<Submission, Failure> {
    let mut submission =
        if args.files.is_empty() { Submission { job: of_flags(args)?, queues: Vec::new() } } else { of_files(args)? };
    for object in submission.queues.iter_mut().chain([&mut submission.job]) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let job = vec![submission.job.clone()];
    manifests::checked(job, if args.files.is_empty() { "submit" } else { KIND })?;
    Ok(submission)
}

fn of_files(args: &SubmitArgs) -> Result<Submission, Failure> {
    let (mut jobs, mut queues) = (Vec::new(), Vec::new());
    for mut object in manifests::load(&args.files, false)? {
        match &*Resource::of(&object).kind {
            KIND => jobs.push(object),
            QUEUE_KIND => queues.push(object),
            jobqueue::KIND => {
                object["kind"] = json!(QUEUE_KIND);
                queues.push(object);
            }
            other => {
                return Err(Failure::new(format!(
                    "{other} {}: only {KIND} and {QUEUE_KIND} are submitted; apply it with kubectl",
                    text(&object, "/metadata/name")
                )));
            }
        }
    }
    let count = jobs.len();
    match (jobs.pop(), count) {
        (Some(job), 1) => Ok(Submission { job, queues }),
        _ => Err(Failure::new(format!("the files hold {count} {KIND}s: one is submitted at a time"))),
    }
}

fn of_flags(args: &SubmitArgs) -> Result<Value, Failure> {
    if args.command.is_empty() {
        return Err(Failure::new(
            "a command is needed, or a manifest: kubectl torchrun submit --queue QUEUE python train.py",
        ));
    }
    if let Some(word) = dry_run_among(&args.command) {
        return Err(Failure::new(format!(
            "{word} after the command would be an argument of the program: write it before the command. An argument of the program \
             may stand in one word with it: 'python train.py {word}'"
        )));
    }
    let Some(queue) = &args.queue else {
        return Err(Failure::new("--queue is needed: the TorchrunQueue that the job runs in"));
    };
    let name = args.name.clone().map_or_else(|| made_name(&args.upload.workdir), Ok)?;
    let mut spec = Map::new();
    for (key, value) in [
        ("queue", json!(queue)),
        ("jobName", json!(name)),
        ("jobID", json!(random_id()?)),
        ("command", json!(command(&args.command))),
        ("setupCommand", json!(args.setup)),
        ("numGPUs", json!(args.gpus)),
        ("numNodes", json!(args.num_nodes)),
        ("reliability", args.restarts.map_or_else(|| json!({}), |restarts| json!({"maxRestarts": restarts}))),
        ("env", json!(env(&args.env)?)),
        ("suspend", json!(args.suspended.then_some(true))),
    ] {
        let is_absent = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !is_absent {
            spec.insert(key.to_owned(), value);
        }
    }
    Ok(json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}))
}

/// Returns kubectl's option among the words of a command.
fn dry_run_among(words: &[String]) -> Option<String> {
    const MODES: [&str; 3] = ["client", "server", "none"];
    let mode = |text: &str| MODES.contains(&text);
    words.iter().enumerate().find_map(|(n, word)| {
        let (option, value) =
            word.split_once('=').map_or((word.as_str(), None), |(option, value)| (option, Some(value)));
        let next = words.get(n.saturating_add(1)).map(String::as_str);
        let value = value.or(next).filter(|value| option == "--dry-run" && mode(value))?;
        Some(if word.contains('=') { word.clone() } else { format!("{word} {value}") })
    })
}

/// One word is a command line, as in the manifest; several are a program and its arguments.
fn command(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => quoted(words),
    }
}

fn env(pairs: &[String]) -> Result<Vec<Value>, Failure> {
    let read = |pair: &String| match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(json!({"name": name, "value": value})),
        _ => Err(Failure::new(format!("--env {pair}: write NAME=VALUE"))),
    };
    pairs.iter().map(read).collect()
}

/// A name of the directory's and four digits that distinguish it from other submissions.
fn made_name(directory: &Path) -> Result<String, Failure> {
    let directory =
        fs::canonicalize(directory).map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
    let base = directory.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain: String = base.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(MAX_MADE).collect();
    let plain = plain.trim_matches(|c: char| c == '-' || c.is_ascii_digit());
    let plain = if plain.is_empty() { "job" } else { plain };
    Ok(format!("{plain}-{}", random_id()?.get(..4).unwrap_or_default()))
}

fn random_id() -> Result<String, Failure> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Returns whether two jobs ask for the same: the run's id is of each submission.
pub(super) fn asks_for_the_same(one: &Value, other: &Value) -> bool {
    let spec = |job: &Value| {
        let mut spec = job["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("jobID");
            spec.remove("suspend");
        }
        spec
    };
    spec(one) == spec(other)
}

/// Generation of a job's workspace, and whether it is uploaded, given the queue that the job names.
///
/// # Errors
/// Returns an error if the job cannot use the queue.
pub(super) fn workspace(job: &Value, found: Option<&Value>) -> Result<Option<(String, bool)>, Failure> {
    let Some(found) = found else { return Ok(None) };
    let needed: Referenced =
        BTreeMap::from([((Text::from(QUEUE_KIND), Text::from(queue(job))), Arc::new(found.clone()))]);
    let fact: SpecFact = TorchrunJob.spec_fact_with(job, &needed);
    let problems: Vec<String> = match &fact.spec {
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
        Ok(_) => Vec::new(),
    };
    let missing = fact.missing.iter().find_map(|missing| missing.problem.as_ref());
    if let Some(problem) = missing {
        return Err(Failure::missing(format!("{QUEUE_KIND} {} cannot be used: {problem}", queue(job))));
    }
    if !problems.is_empty() {
        return Err(Failure::new(problems.join("\ntrainyard: ")));
    }
    Ok(uploads(job, &fact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_command_line_that_a_shell_takes_as_they_were() {
        let line = |words: &[&str]| command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&["python train.py --lr 1e-3"]), "python train.py --lr 1e-3");
        assert_eq!(line(&["python", "a b.py", "it's", "", "--x=1"]), r"python 'a b.py' 'it'\''s' '' --x=1");
    }

    #[test]
    fn an_option_of_kubectl_is_no_argument_of_the_program() {
        let found = |words: &[&str]| dry_run_among(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(found(&["python", "t.py", "--dry-run=client"]).as_deref(), Some("--dry-run=client"));
        assert_eq!(found(&["python", "t.py", "--dry-run", "server", "x"]).as_deref(), Some("--dry-run server"));
        assert_eq!(found(&["python", "t.py", "--dry-run"]), None, "a word that programs have as well");
        assert_eq!(found(&["python t.py --dry-run=client"]), None, "one word is a command line");
        assert_eq!(found(&["python", "t.py", "--dry-run=2", "client"]), None);
    }

    #[test]
    fn a_name_is_made_of_the_directory() {
        let place = tempfile::tempdir().unwrap();
        for (directory, want) in [("My_Model.v2", "my-model-v"), ("---", "job"), ("2024", "job")] {
            let path = place.path().join(directory);
            fs::create_dir(&path).unwrap();
            let name = made_name(&path).unwrap();
            let (base, digits) = name.rsplit_once('-').unwrap();
            assert_eq!((base, digits.len()), (want, 4), "{name}");
        }
        assert!(made_name(&place.path().join("none")).unwrap_err().to_string().contains("none: "));
        assert_eq!(env(&["A=b=c".to_owned()]).unwrap(), [json!({"name": "A", "value": "b=c"})]);
        assert_eq!(env(&["=b".to_owned()]).unwrap_err().to_string(), "--env =b: write NAME=VALUE");
    }

    #[test]
    fn a_repeated_submission_asks_for_the_same() {
        let job = |id: &str, nodes: u32| json!({"spec": {"jobID": id, "numNodes": nodes, "queue": "q"}});
        assert!(asks_for_the_same(&job("a", 1), &job("b", 1)) && !asks_for_the_same(&job("a", 1), &job("a", 2)));
    }
}
