//! `trainyard run` in a data directory that another run has open: the jobs are handed to it and followed to their end.
//!
//! Owns the asking and the following; the run's side is in `submissions`. It must not start pods. Tests: `cli/tests/local/submit.rs`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use engine::{Job, State};
use local::VisibleGpus;
use model::{JobKey, Phase, Timestamp};
use serde_json::Value;
use terminal::out::{self, Failure};

use crate::args::{RESTART_LIMIT, RunArgs};
use crate::data_dir::{Holder, holder};
use crate::gpus;
use crate::output_files::JobOutput;
use crate::records::{self, LogSource};
use crate::requests::{self, Request, Submission, Submitted};
use crate::run::attach_command;
use crate::turns::StopCause;
use crate::view::{self, DirOption, Progress};
use crate::{detached, signals};

/// Interval between two looks at the jobs.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Hands the manifests to the run that has the data directory open, and follows their jobs to the end. Returns `None` where no run
/// has it open, or that run ends at this moment.
pub(crate) fn to_active_run(args: &RunArgs, manifests: &[Value]) -> Result<Option<ExitCode>, Failure> {
    let Some(holder) = holder(&args.data_dir) else { return Ok(None) };
    refuse_own_options(args, &holder)?;
    let submission = Submission {
        manifests: manifests.to_vec(),
        rerun: args.rerun || args.command.is_given(),
        numbered: args.command.is_given(),
        gpus: gpus::needed(args.gpus, &args.command, &VisibleGpus::of_environment())?,
        workdir: std::path::absolute(args.workdir.clone().unwrap_or_else(|| PathBuf::from(".")))?,
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    };
    // Signals that come while the run is asked stop the jobs afterwards.
    let (stop, stopped) = mpsc::channel();
    signals::on_stop(move |signal| stop.send(signal).is_ok())?;
    let began = local::now();
    let output = args.shows_output(manifests).then(|| JobOutput::new(&args.data_dir));
    let asked = requests::ask(&args.data_dir, &Request::Submit(submission));
    // Nothing was started.
    let Some(answer) = asked.map_err(|failure| Failure::new(failure.to_string()))? else { return Ok(None) };
    for line in answer.message.lines() {
        out::error_line(line);
    }
    let names: Vec<String> = answer.jobs.iter().map(|submitted| submitted.job.written()).collect();
    if args.background {
        detached::handed_over(&names);
        return Ok(Some(ExitCode::SUCCESS));
    }
    if args.detach {
        out::lines(&names);
        out::error_line(&format!(
            "the run of process {} has them. Follow it: {}",
            holder.pid,
            attach_command(&args.data_dir)
        ));
        return Ok(Some(ExitCode::SUCCESS));
    }
    if !args.quiet {
        out::error_line(&format!("the run of process {} runs {}", holder.pid, names.join(", ")));
    }
    let mut progress = Progress::new(began, args.audience());
    progress.only(answer.jobs.iter().map(|submitted| submitted.uid.clone()));
    progress.show_ranks(answer.jobs.len() == 1);
    let follower = Follower {
        args,
        jobs: answer.jobs,
        progress,
        output,
        stopped,
        deadline: args.timeout.map(|ms| began.plus_ms(ms)),
        cause: None,
    };
    follower.follow().map(Some)
}

/// Refuses options that only a run of its own can have.
fn refuse_own_options(args: &RunArgs, holder: &Holder) -> Result<(), Failure> {
    let given = [
        ("--again", args.again),
        ("--nodes", args.nodes.is_some()),
        ("--watch", args.watch),
        ("--fault", !args.faults.is_empty()),
        ("--flag", !args.flags.is_empty()),
        ("--restart-limit", args.restart_limit != RESTART_LIMIT),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    Err(Failure::new(format!(
        "{option}: the run of process {} ({}) has {} open and would take the jobs, but not this option: end it with `trainyard \
         stop{}`, or use another --data-dir",
        holder.pid,
        holder.command,
        args.data_dir.display(),
        DirOption { data_dir: &args.data_dir }.text()
    )))
}

/// Jobs that another process runs, and how they are followed.
struct Follower<'a> {
    args: &'a RunArgs,
    jobs: Vec<Submitted>,
    progress: Progress,
    output: Option<JobOutput>,
    stopped: Receiver<i32>,
    deadline: Option<Timestamp>,
    /// Why the jobs are stopped, once they are.
    cause: Option<StopCause>,
}

impl Follower<'_> {
    fn follow(mut self) -> Result<ExitCode, Failure> {
        let source = LogSource::Path(self.args.data_dir.join("log"));
        let state = loop {
            // Asked first: what the run recorded last is then there.
            let is_live = holder(&self.args.data_dir).is_some();
            let state = records::latest(&source)?;
            self.progress.follow(&state, local::now());
            let is_over = self.jobs.iter().all(|submitted| is_over(&state, submitted));
            self.show_output(&state, is_over || !is_live)?;
            if is_over {
                break state;
            }
            if !is_live {
                self.progress.finish();
                let option = DirOption { data_dir: &self.args.data_dir }.text();
                return Err(Failure::missing(format!(
                    "the run that had the jobs has ended before them: `trainyard ps -a{option}` shows where they are, and the next \
                     `trainyard run` there continues them"
                )));
            }
            self.wait()?;
        };
        self.progress.finish();
        self.closing(&state, &source)
    }

    /// Waits until it is time to look again, and takes in signals and the time limit.
    fn wait(&mut self) -> Result<(), Failure> {
        match self.stopped.recv_timeout(POLL_INTERVAL) {
            Ok(signal) => self.stop(StopCause::Signal(signal)),
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(POLL_INTERVAL);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => {
                let has_passed = self.deadline.is_some_and(|deadline| local::now() >= deadline);
                if has_passed && self.cause.is_none() { self.stop(StopCause::Timeout) } else { Ok(()) }
            }
        }
    }

    /// Ends the jobs as stopped; at the second stop they are not waited for.
    fn stop(&mut self, cause: StopCause) -> Result<(), Failure> {
        if self.cause.is_some() {
            self.progress.finish();
            std::process::exit(i32::from(cause.code()));
        }
        self.cause = Some(cause);
        let why = if cause == StopCause::Timeout { "the time limit has passed: " } else { "" };
        self.progress.say(&format!("{why}stopping the jobs; Ctrl-C does not wait for their end"));
        let why = if cause == StopCause::Timeout { "--timeout has passed" } else { "" };
        let state = records::latest(&LogSource::Path(self.args.data_dir.join("log")))?;
        for submitted in self.jobs.iter().filter(|submitted| !is_over(&state, submitted)) {
            let request = Request::StopJob { job: submitted.job.clone(), why: why.to_owned() };
            requests::ask(&self.args.data_dir, &request)?;
        }
        Ok(())
    }

    fn show_output(&mut self, state: &State, last: bool) -> Result<(), Failure> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let mut lines = Vec::new();
        for (key, job) in self.jobs.iter().filter_map(|submitted| found(state, submitted)) {
            output.step(&key, &job, last, &mut |pod, text| {
                lines.extend(text.lines().map(|line| (pod.to_owned(), line.to_owned())));
            })?;
        }
        if !lines.is_empty() {
            self.progress.pod_lines(state, &lines);
        }
        Ok(())
    }

    /// Prints what became of the jobs, as at the end of a run.
    fn closing(&self, state: &State, source: &LogSource) -> Result<ExitCode, Failure> {
        let place = DirOption { data_dir: &self.args.data_dir };
        let is_deleted = |submitted: &&Submitted| {
            found(state, submitted).is_none_or(|(_, job)| job.object.is_gone() && !job.phase.is_terminal())
        };
        let deleted: Vec<String> = self
            .jobs
            .iter()
            .filter(is_deleted)
            .map(|Submitted { job, .. }| format!("{} {}/{}", job.kind, job.namespace, job.name))
            .collect();
        if !deleted.is_empty() {
            view::deleted(&deleted, &place, self.progress.form());
        }
        let mine = |key: &JobKey| {
            let one = self.jobs.iter().find(|submitted| *submitted.uid == *key.uid.0);
            one.is_some_and(|one| !is_deleted(&one))
        };
        let failures = || {
            let LogSource::Path(path) = source else { return Ok(std::collections::BTreeMap::new()) };
            view::failures(&records::open_dir(path)?)
        };
        let succeeded = view::blocks(state, &failures, &self.progress, &mine, &place)?;
        Ok(ExitCode::from(match self.cause {
            Some(cause) => cause.code(),
            None if succeeded && deleted.is_empty() => 0,
            None => out::FOUND,
        }))
    }
}

/// Returns a job, once the run's log knows it.
fn found(state: &State, submitted: &Submitted) -> Option<(JobKey, Job)> {
    let (key, _) = state.jobs.summaries().find(|(key, _)| *key.uid.0 == *submitted.uid)?;
    Some((key.clone(), state.job(key)?.into_owned()))
}

/// Returns true if a job has ended, its pods are gone as far as they are to be, or it cannot begin.
fn is_over(state: &State, submitted: &Submitted) -> bool {
    found(state, submitted).is_some_and(|(_, job)| {
        let cannot_begin = job.phase == Phase::New && job.invalid().is_some();
        job.object.is_gone() || (job.phase.is_terminal() || cannot_begin) && job.deleting_pods.is_empty()
    })
}
