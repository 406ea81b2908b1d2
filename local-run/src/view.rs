//! The screen of a run: a line for each change, a table that is updated on a terminal, what became of each job at the end.
//!
//! Owns what is printed and when, once each; `step` is one such line, `closing` the end. It decides nothing. Tests:
//! `cli/tests/local/terminal.rs`, `closing.rs`, `events.rs`.

mod audience;
mod closing;
mod outcomes;
mod pod_line;
mod screen;
mod step;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use apis::Registry;
use embedded::Session;
use engine::State;
use model::{JobKey, Phase, Timestamp};
use terminal::out::{self, Stream};

use self::pod_line::PodLine;
use self::screen::Screen;
use self::step::Step;
use self::table::Row;
use crate::jobs;

pub use self::audience::{Audience, Form};
pub use self::closing::DirOption;
pub(crate) use self::closing::{blocks, deleted, failures};
pub use self::outcomes::outcomes;
pub use self::screen::tame;

/// Maximum number of lines of the table, however high the terminal is.
const MAX_LINES: usize = 22;

/// Waiting reason of a container that cannot be made from what there is.
const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// Follows what stands in the way of a job that cannot continue by itself.
const WHAT_TO_DO: &str = "end the run with Ctrl-C, change the manifest, run it again";

/// Attributes of a terminal: bold, and the first of six colours.
const BOLD: u8 = 1;
const FIRST_COLOUR: u8 = 31;

/// Columns by which a line that is broken is indented: those of the time before each line.
const TIME_WIDTH: usize = 10;

/// Progress on the screen.
pub struct Progress {
    screen: Screen,
    audience: Audience,
    registry: Registry,
    /// Uids of the jobs to show; absent: all.
    only: Option<BTreeSet<String>>,
    /// Uids of jobs that are not shown.
    except: BTreeSet<String>,
    start: Timestamp,
    phases: BTreeMap<JobKey, (Phase, model::Text)>,
    /// Pods by uid.
    pods: BTreeMap<String, PodLine>,
    /// Rejections of the API that were printed already.
    refusals: BTreeMap<JobKey, Vec<String>>,
    /// Jobs whose default limit of restarts was printed.
    limited: BTreeSet<JobKey>,
    /// Label of the output of each pod; `None` where output is labelled with the pod's name.
    ranks: Option<BTreeMap<String, String>>,
    /// The question that stands below the table.
    question: Option<&'static str>,
    /// The table as it stands on the screen, line by line.
    shown: Vec<String>,
}

impl Progress {
    /// Progress from `start` on: a table where the output is a terminal that can replace text, plain lines elsewhere.
    pub fn new(start: Timestamp, audience: Audience) -> Self {
        Self {
            screen: Screen::of(audience.stream),
            audience,
            registry: Registry::all(),
            only: None,
            except: BTreeSet::new(),
            start,
            phases: BTreeMap::new(),
            pods: BTreeMap::new(),
            refusals: BTreeMap::new(),
            limited: BTreeSet::new(),
            ranks: None,
            question: None,
            shown: Vec::new(),
        }
    }

    /// Shows some jobs only, by uid.
    pub(crate) fn only(&mut self, uids: impl IntoIterator<Item = String>) {
        self.only.get_or_insert_default().extend(uids);
    }

    /// Leaves out some jobs, by uid.
    pub(crate) fn except(&mut self, uids: impl IntoIterator<Item = String>) {
        self.except.extend(uids);
    }

    /// Shows the rank before each line of output, instead of the pod: the output is that of one job.
    pub(crate) fn show_ranks(&mut self, shows: bool) {
        self.ranks = shows.then(BTreeMap::new);
    }

    /// Leaves out the pods that have ended by now: they are of earlier runs.
    pub(crate) fn begin(&mut self, state: &State) {
        let mut pods = self.pods_of(state);
        pods.retain(|_, pod| pod.has_ended);
        self.pods = pods;
    }

    /// Returns the form of progress.
    pub(crate) fn form(&self) -> Form {
        self.audience.form
    }

    /// Passes the jobs' changes since the last call over: nothing of them is printed.
    pub fn skip(&mut self, session: &mut Session) {
        self.take_steps(session);
    }

    /// Takes the jobs' changes since the last call. Returns those that are to be printed.
    pub(crate) fn take_steps(&mut self, session: &mut Session) -> Vec<Step> {
        let steps = session.take_steps();
        steps.iter().filter_map(|step| self.step(&step.job, step.phase, &step.message)).collect()
    }

    /// Records the phase of a job. Returns the step to print.
    fn step(&mut self, key: &JobKey, phase: Phase, message: &model::Text) -> Option<Step> {
        // A job that was deleted is New again. How it ended stands.
        if phase == Phase::New || !self.is_wanted(key) {
            return None;
        }
        // While a job waits, a change of its reason is reported as well.
        let waits =
            matches!(phase, Phase::Pending | Phase::Creating | Phase::Preparing | Phase::Queued | Phase::Restarting);
        let shown = (phase, if waits { message.clone() } else { model::Text::from("") });
        let is_known = self.phases.insert(key.clone(), shown.clone()) == Some(shown);
        (!is_known).then(|| Step::phase(key, explain::phase_word(&self.registry, key, phase), message))
    }

    fn is_wanted(&self, key: &JobKey) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&*key.uid.0)) && !self.except.contains(&*key.uid.0)
    }

    /// Returns the jobs that exist and are to be shown.
    fn jobs(&self, state: &State) -> Vec<(JobKey, Phase)> {
        let mut jobs = embedded::jobs_of(state, &self.registry);
        jobs.retain(|(key, _)| self.is_wanted(key));
        jobs
    }

    /// Prints the changes since the last call.
    pub fn update(&mut self, session: &mut Session, now: Timestamp) {
        let steps = self.take_steps(session);
        self.show(session.operator.state(), steps, now);
    }

    /// Prints the changes since the last call, of jobs that another process runs.
    pub(crate) fn follow(&mut self, state: &State, now: Timestamp) {
        let mut steps = Vec::new();
        for (key, phase) in self.jobs(state) {
            let job = state.job(&key);
            let message = job.and_then(|job| job.milestones.back().map(|last| last.message.clone()));
            steps.extend(self.step(&key, phase, &message.unwrap_or_default()));
        }
        self.show(state, steps, now);
    }

    fn show(&mut self, state: &State, mut steps: Vec<Step>, now: Timestamp) {
        let pods = self.pods_of(state);
        for (uid, PodLine { name, words, .. }) in &pods {
            let old = self.pods.get(uid).map(|pod| &pod.words);
            if old != Some(words) {
                steps.push(Step::pod(name, words));
                if words.contains(CONFIG_ERROR) && !old.is_some_and(|old| old.contains(CONFIG_ERROR)) {
                    steps.push(Step::advice(&format!("the pod cannot start with this spec: {WHAT_TO_DO}")));
                }
            }
        }
        self.pods = pods;
        let jobs = self.jobs(state);
        for (key, phase) in &jobs {
            let refusals = state.job(key).map(|job| explain::refusals(&job)).unwrap_or_default();
            if !refusals.is_empty() && self.refusals.get(key) != Some(&refusals) {
                steps.push(Step::job(key, &refusals.join("; ")));
                steps.push(Step::advice(&format!("only another spec changes that: {WHAT_TO_DO}")));
            }
            let limit = if self.runs_here(key, *phase) { jobs::default_limit(state, key) } else { None };
            if let Some(words) = limit.filter(|_| self.limited.insert(key.clone())) {
                steps.push(Step::job(key, &words));
            }
            self.refusals.insert(key.clone(), refusals);
        }
        let shows = self.audience.form == Form::Text && self.screen.is_live();
        let mut table = if shows { self.table(state, &jobs, now) } else { Vec::new() };
        table.extend(self.question.filter(|_| shows || self.screen.is_live()).map(|question| self.asked(question)));
        if !steps.is_empty() || table != self.shown {
            self.print_steps(&steps, now, table);
        }
    }

    /// A job that ended in an earlier run is not shown; one that ended since the last update still is.
    fn runs_here(&self, key: &JobKey, phase: Phase) -> bool {
        !phase.is_terminal() || self.phases.contains_key(key)
    }

    /// Returns the pods of the jobs that are shown, by uid.
    fn pods_of(&self, state: &State) -> BTreeMap<String, PodLine> {
        let mut pods = BTreeMap::new();
        // Pods of a job that was deleted are still being stopped.
        let shown = |key: &JobKey, gone: bool| self.is_wanted(key) && (!gone || self.phases.contains_key(key));
        let jobs = state.jobs.summaries().filter(|(key, job)| job.known && shown(key, job.gone));
        for (key, job) in jobs.filter_map(|(key, _)| Some((key, state.job(key)?))) {
            for pod in job.pods.values() {
                pods.insert(pod.fact.uid.0.to_string(), PodLine::of(key, &pod.fact));
            }
        }
        pods
    }

    /// Prints a line above the table.
    pub(crate) fn say(&mut self, line: &str) {
        match self.audience.form {
            Form::Json => out::line(&Step::message(line).to_json(local::now()).to_string()),
            Form::Text | Form::Quiet => self.replace(&self.screen.fitted(&format!("{line}\n"), 2), self.shown.clone()),
        }
    }

    /// Prints lines of pods' output, each with its pod or rank, above the table.
    pub(crate) fn pod_lines(&mut self, state: &State, lines: &[(String, String)]) {
        if self.audience.form == Form::Json {
            let now = local::now();
            let all = lines.iter().map(|(pod, line)| Step::output(pod, line).to_json(now).to_string());
            return out::lines(&all.collect::<Vec<_>>());
        }
        let mut text = String::new();
        for (pod, line) in lines {
            let label = self.label(state, pod);
            let colour = FIRST_COLOUR + pod.bytes().fold(0u8, u8::wrapping_add) % 6;
            let _ = writeln!(text, "{} | {}", self.screen.paint(colour, &label), self.screen.line_of_program(line));
        }
        self.print_output(&text);
    }

    /// Returns the label of a pod's output: its rank, or its name.
    fn label(&mut self, state: &State, pod: &str) -> String {
        match self.ranks.as_ref().map(|ranks| ranks.get(pod)) {
            None => return pod.to_owned(),
            Some(Some(label)) => return label.clone(),
            Some(None) => {}
        }
        let jobs = self.jobs(state);
        let places = jobs.iter().filter_map(|(key, _)| Some(jobs::ranks(key, state.job(key)?.as_ref())));
        let places = places.flatten().filter(|place| !place.once);
        let ranks = self.ranks.get_or_insert_default();
        ranks.extend(places.map(|place| (place.name, format!("rank {}", place.rank))));
        ranks.entry(pod.to_owned()).or_insert_with(|| pod.to_owned()).clone()
    }

    /// Reports that output of pods is missing, where the output is.
    pub(crate) fn gap(&mut self, line: &str) {
        match self.audience.form {
            Form::Json => self.say(line),
            Form::Text | Form::Quiet => self.print_output(&format!("{line}\n")),
        }
    }

    fn print_output(&mut self, text: &str) {
        match self.audience.stream {
            Stream::Out => self.replace(text, self.shown.clone()),
            // What pods wrote is a result: it goes where results go.
            Stream::Error => out::print(text),
        }
    }

    /// Prints steps, and puts a table below them.
    fn print_steps(&mut self, steps: &[Step], now: Timestamp, table: Vec<String>) {
        let age = self.age(now);
        let lines: String = steps.iter().map(|step| step.line(&age)).collect();
        match self.audience.form {
            Form::Text => self.replace(&self.screen.fitted(&lines, TIME_WIDTH), table),
            Form::Quiet => {}
            Form::Json => {
                out::lines(&steps.iter().map(|step| step.to_json(now).to_string()).collect::<Vec<_>>());
            }
        }
    }

    /// Prints everything in plain lines from now on: the outputs are no terminal any more.
    pub(crate) fn leave_screen(&mut self) {
        self.shown = Vec::new();
        self.screen = Screen::of(self.audience.stream);
    }

    /// Shows a question below everything until it is answered, or takes it away.
    pub(crate) fn ask(&mut self, question: Option<&'static str>) {
        if self.screen.is_live() {
            let mut table = self.shown.clone();
            table.truncate(table.len().saturating_sub(usize::from(self.question.is_some())));
            table.extend(question.map(|question| self.asked(question)));
            self.question = question;
            self.replace("", table);
        } else if let Some(question) = question {
            self.say(question);
        }
    }

    /// Returns a question as a line of the table.
    fn asked(&self, question: &str) -> String {
        self.screen.paint(BOLD, &console::truncate_str(question, self.screen.size().1, "…"))
    }

    /// Leaves the screen as it is: what comes next is printed below.
    pub fn finish(&mut self) {
        self.replace("", Vec::new());
    }

    /// Puts lines where the table was, and a table below them.
    fn replace(&mut self, lines: &str, table: Vec<String>) {
        let text = format!("{}{lines}{}", self.wiping(), Self::joined(&table));
        self.shown = table;
        if !text.is_empty() {
            self.audience.stream.print(&text);
        }
    }

    /// Returns the escape sequence that moves the cursor to the beginning of the table and clears all below. Its lines wrap when the screen gets narrower.
    fn wiping(&self) -> String {
        if self.shown.is_empty() {
            return String::new();
        }
        let (rows, columns) = self.screen.size();
        format!("\x1b[{}A\x1b[J", screen::rows_of(&self.shown, columns).min(rows))
    }

    fn joined(table: &[String]) -> String {
        table.iter().fold(String::new(), |text, line| text + &out::shown(line) + "\n")
    }

    /// Returns the jobs that ended and were deleted since, with the phases that they ended in.
    pub(crate) fn deleted<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (&'a JobKey, Phase)> {
        let is_known = |key: &JobKey| state.job(key).is_some_and(|job| job.object.is_known());
        let ended = self.phases.iter().filter(move |(key, (phase, _))| phase.is_terminal() && !is_known(key));
        ended.map(|(key, (phase, _))| (key, *phase))
    }

    fn age(&self, now: Timestamp) -> String {
        let ms = now.since_ms(self.start);
        format!("{:>3}:{:02}.{:01}", ms / 60_000, ms / 1000 % 60, ms / 100 % 10)
    }

    fn table(&self, state: &State, jobs: &[(JobKey, Phase)], now: Timestamp) -> Vec<String> {
        // Names alone if all namespaces are the same.
        let mut namespaces = jobs.iter().map(|(key, _)| &key.namespace);
        let first = namespaces.next();
        let one_namespace = namespaces.all(|namespace| Some(namespace) == first);
        let rows: Vec<Row> = jobs
            .iter()
            .filter(|(key, phase)| self.runs_here(key, *phase))
            .filter_map(|(key, phase)| {
                let job = state.job(key)?;
                let (mut active, mut ended, mut waiting) = (0u32, 0u32, 0u32);
                for group in job.groups.values() {
                    active += group.counters.active;
                    ended += group.counters.succeeded + group.counters.failed;
                    waiting += group.counters.pending + group.counters.scheduled;
                }
                let since = job.started_at.map_or(0, |start| job.ended_at.unwrap_or(now).since_ms(start));
                Some(Row {
                    ended: phase.is_terminal(),
                    cells: [
                        if one_namespace { key.name.to_string() } else { key.to_string() },
                        explain::phase_word(&self.registry, key, *phase).to_owned(),
                        active.to_string(),
                        waiting.to_string(),
                        ended.to_string(),
                        explain::retries(&job).to_string(),
                        table::clock_of(since),
                    ],
                })
            })
            .collect();
        let (height, width) = self.screen.size();
        // One row is the cursor's, and one shows that there is something above.
        let mut table = table::render(&rows, width, height.saturating_sub(2).min(MAX_LINES));
        if let Some(header) = table.first_mut() {
            *header = self.screen.paint(BOLD, header);
        }
        table
    }
}
