//! `MPIJob`s that the genuine MPI operator runs and Trainyard schedules, with processes as pods: the losses are those of runs that nothing
//! disturbs.
//!
//! Two elastic jobs share four GPUs, and one grows when the other has ended. A third of a higher priority halts it by the policy of the queue,
//! ends, and it continues from its checkpoint. Trainyard's operator is killed twice in between and started again with its log, and a third
//! time without it. Owns the jobs, what is done to them and what is checked; the processes are `mpi_plane`'s and `plane`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::mpi_plane::{self, Change, Watch};
use super::plane::{Operator, Plane, require};
use crate::run::{Problem, Scratch, built, io, output, text};

const NODES: u32 = 2;
const GPUS_PER_NODE: u32 = 2;
const GPUS: u32 = NODES * GPUS_PER_NODE;
/// Time limit of what the test waits for.
const LIMIT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The operator's log, and the one that was taken away from it.
const LOGS: [&str; 2] = ["operator", "operator-lost"];
const QUEUE: &str = "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingQueue
metadata: {name: voda}
spec:
  quota: {nvidia.com/gpu: {nominal: 4}}
  policy: ElasticFIFO
  preemption: {withinQueue: LowerPriority, minRunSeconds: 5}
";

/// A job: its fewest and most workers, its priority, and the steps that it makes.
struct Job {
    name: &'static str,
    workers: (u32, u32),
    priority: u32,
    steps: u32,
}

const FIRST: Job = Job { name: "first", workers: (1, 4), priority: 0, steps: 300 };
const SECOND: Job = Job { name: "second", workers: (1, 4), priority: 0, steps: 700 };
const THIRD: Job = Job { name: "third", workers: (4, 4), priority: 5, steps: 100 };
const JOBS: [Job; 3] = [FIRST, SECOND, THIRD];

impl Job {
    fn arguments(&self) -> Vec<String> {
        // Every job trains on examples of its own.
        vec![format!("--seed={}", self.name.len()), format!("--steps={}", self.steps)]
    }

    /// The manifest, as it would be with Horovod but for the programs.
    fn manifest(&self, checkpoints: &str) -> String {
        let Self { name, workers: (min, max), priority, .. } = self;
        let arguments = self.arguments().join(", ");
        format!(
            r#"
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: {name}, labels: {{trainyard.dev/queue: voda, trainyard.dev/priority: "{priority}"}}}}
spec:
  slotsPerWorker: 1
  runPolicy: {{cleanPodPolicy: Running, suspend: true}}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          terminationGracePeriodSeconds: 2
          containers:
            - name: launcher
              image: python:3
              command: [python3, deploy/samples/mpi_elastic.py, launcher, --hosts=/etc/mpi/discover_hosts.sh]
              args: [{arguments}, --step-ms=100, --checkpoint=/checkpoints/{name}.json]
              env:
                - {{name: MIN_NUM_PROC, value: "{min}"}}
                - {{name: NUM_PROC, value: "{min}"}}
                - {{name: MAX_NUM_PROC, value: "{max}"}}
              volumeMounts: [{{name: checkpoints, mountPath: /checkpoints}}]
          volumes: [{{name: checkpoints, hostPath: {{path: {checkpoints}, type: DirectoryOrCreate}}}}]
    Worker:
      replicas: {max}
      template:
        spec:
          terminationGracePeriodSeconds: 2
          containers:
            - name: worker
              image: python:3
              command: [python3, deploy/samples/mpi_elastic.py, worker]
              env: [{{name: POD_IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}]
              resources: {{limits: {{nvidia.com/gpu: 1}}}}
"#
        )
    }
}

/// Runs the jobs.
pub(super) fn run() -> Result<(), Problem> {
    println!("\n== MPIJobs share GPUs, grow, and are halted; the MPI operator runs them");
    let mut undisturbed = BTreeMap::new();
    for job in &JOBS {
        let words: Vec<String> = std::iter::once("alone".to_owned()).chain(job.arguments()).collect();
        let output = mpi_plane::stand_in(&words)?;
        let losses: Losses = output.lines().filter_map(loss).collect();
        println!("  {} undisturbed: {} steps, the last is {:?}", job.name, losses.len(), losses.last());
        undisturbed.insert(job.name, losses);
    }
    let scratch = Scratch::new("mpijob")?;
    let plane = Plane::start(None, (NODES, GPUS_PER_NODE), &["TrainingQueue"])?;
    let _mpi_operator = mpi_plane::start_mpi_operator(&plane, &scratch)?;
    let address = mpi_plane::free_address()?;
    let mut operator = plane.operator(&scratch, &address)?;
    let test = Test { plane: &plane, scratch: &scratch, watch: Watch::start()?, address };
    test.apply("queue", QUEUE)?;
    test.share()?;
    test.grow()?;
    test.preempt(&mut operator)?;
    test.go_on(&mut operator)?;
    operator.kill()?;
    test.check(&undisturbed)
}

struct Test<'a> {
    plane: &'a Plane,
    scratch: &'a Scratch,
    watch: Watch,
    /// Of the operator's figures.
    address: String,
}

impl Test<'_> {
    /// The first job takes all GPUs, and gives some to the second.
    fn share(&self) -> Result<(), Problem> {
        self.submit(&FIRST)?;
        self.trains(&FIRST, GPUS, 0.0)?;
        let generation = self.generation(FIRST.name);
        let submitted = mpi_plane::now();
        self.submit(&SECOND)?;
        let sizes = self.until("both jobs train, on all GPUs", || {
            let logs = self.plane.logs("default")?;
            let last = |job| sizes(&logs, job).pop();
            let both = last(FIRST.name).zip(last(SECOND.name));
            Ok(both.filter(|(first, second)| first.workers + second.workers == GPUS))
        })?;
        let (first, second) = sizes;
        println!(
            "  first shrank to {} workers, and second trains with {}, {:.2} s after it was created",
            first.workers,
            second.workers,
            second.at - submitted
        );
        require("first shrank by one change of its spec", self.generation(FIRST.name) == generation + 1)
    }

    /// The first job ends, and the second takes what it had.
    fn grow(&self) -> Result<(), Problem> {
        let (calls, generation) = (self.calls()?, self.generation(SECOND.name));
        let ended = self.until("the first job is done", || self.ended(FIRST.name))?;
        let grown = self.trains(&SECOND, GPUS, ended)?;
        let reported = self.changes(FIRST.name).into_iter().find(|change| change.succeeded);
        let resized = self.changes(SECOND.name).into_iter().find(|change| change.at > ended && change.size == GPUS);
        let logs = self.plane.logs("default")?;
        let serving = said_by(&logs, "second-worker-").filter(|line| line.ends_with(": serving")).filter_map(time);
        let serving = serving.reduce(f64::max).unwrap_or(f64::NAN);
        let after = |at: Option<Change>| at.map_or(f64::NAN, |change| change.at - ended);
        println!("  after the last step of first, in seconds: {:.2} reported by the MPI operator,", after(reported));
        println!(
            "  {:.2} second asked to grow, {:.2} its new workers run, {:.2} it trains with {GPUS}; calls:",
            after(resized),
            serving - ended,
            grown - ended
        );
        require("second grew by one change of its spec", self.generation(SECOND.name) == generation + 1)?;
        for (labels, count) in self.calls()? {
            let earlier = calls.iter().find(|(other, _)| *other == labels).map_or(0, |(_, count)| *count);
            if count > earlier {
                println!("    {} {labels}", count - earlier);
            }
        }
        Ok(())
    }

    /// A job that needs all GPUs comes while the operator is dead. It halts the second one, and the operator dies in the middle of that.
    fn preempt(&self, operator: &mut Operator) -> Result<(), Problem> {
        println!("  the operator is killed, and a job of a higher priority is created");
        operator.kill()?;
        self.submit(&THIRD)?;
        self.trains_on(&SECOND)?;
        *operator = self.plane.operator(self.scratch, &self.address)?;
        let halted = self.until("the second job is halted", || {
            let last = self.changes(SECOND.name).pop();
            Ok(last.filter(|change| change.size == 0).map(|change| change.at))
        })?;
        operator.kill()?;
        println!("  the operator is killed, {:.2} s after it halted second", mpi_plane::now() - halted);
        sleep(Duration::from_secs(2));
        *operator = self.plane.operator(self.scratch, &self.address)?;
        let trains = self.trains(&THIRD, GPUS, halted)?;
        println!("  third trains with {GPUS} workers, {:.2} s after second was halted", trains - halted);
        Ok(())
    }

    /// The third job ends, and the second one continues from its checkpoint. Then the operator dies and loses its log.
    fn go_on(&self, operator: &mut Operator) -> Result<(), Problem> {
        let ended = self.until("the third job is done", || self.ended(THIRD.name))?;
        let again = self.trains(&SECOND, GPUS, ended)?;
        println!("  third ended; second trains again with {GPUS} workers {:.2} s later", again - ended);
        println!("  the operator is killed, and its log is taken away");
        operator.kill()?;
        let [own, lost] = LOGS.map(|name| self.scratch.join(name));
        fs::rename(&own, &lost).map_err(io(own.display()))?;
        let generation = self.generation(SECOND.name);
        *operator = self.plane.operator(self.scratch, &self.address)?;
        self.until("the second job is done", || self.ended(SECOND.name))?;
        for job in &JOBS {
            let name = format!("mpijob/{}", job.name);
            self.plane.kubectl(&["wait", &name, "--for=condition=Succeeded", "--timeout=60s"])?;
        }
        self.until("Trainyard says so too", || {
            let last = self.changes(SECOND.name).pop();
            Ok(last.filter(|change| change.phase == "Completed"))
        })?;
        println!("{}", self.plane.kubectl(&["get", "mpijobs"])?.trim_end());
        let failed = self.plane.kubectl(&["get", "jobs", "-o", "jsonpath={.items[*].status.failed}"])?;
        require("no halt counts as a failure of a launcher", failed.trim().is_empty())?;
        require("second was left as it was when the log was lost", self.generation(SECOND.name) == generation)
    }

    /// Every loss, the sizes of the jobs and what was written to them.
    fn check(&self, undisturbed: &BTreeMap<&str, Losses>) -> Result<(), Problem> {
        let logs = self.plane.logs("default")?;
        for job in &JOBS {
            let name = job.name;
            let own: Losses = of_launcher(&logs, name).filter_map(loss).collect();
            // A step that was made again after a halt has the same loss again.
            let wanted = undisturbed.get(name).cloned().unwrap_or_default();
            let differing: Vec<_> = own.symmetric_difference(&wanted).take(3).collect();
            require(&format!("the losses of {name} as undisturbed: {differing:?}"), differing.is_empty())?;
            let from: Vec<&str> = of_launcher(&logs, name)
                .filter_map(|line| line.strip_prefix("launcher: going on after step "))
                .collect();
            let sizes: Vec<String> =
                sizes(&logs, name).iter().map(|size| format!("{} from step {}", size.workers, size.step)).collect();
            let (steps, sizes) = (wanted.len(), sizes.join(", "));
            println!(
                "  {name}: {steps} steps, every loss is as undisturbed; workers: {sizes}; began after steps {from:?}"
            );
        }
        require("no more workers than GPUs", self.print_changes() <= GPUS)?;
        for log in LOGS {
            let replayed = output(Command::new(built("trainyard")).arg("replay").arg(self.scratch.join(log)))?;
            let said = text(&replayed);
            require(&format!("each record is decided again as it was: {said}"), replayed.status.success())?;
            println!("  log: {}", said.trim_end().lines().last().unwrap_or_default());
        }
        Ok(())
    }

    /// Prints what was decided of the jobs, and returns the most workers that were decided at a time.
    fn print_changes(&self) -> u32 {
        let changes = self.watch.changes();
        let (mut decided, mut written) = (BTreeMap::new(), BTreeMap::new());
        let (mut most, start) = (0, changes.first().map_or(0.0, |change| change.at));
        for change in &changes {
            let has_ended = matches!(change.phase.as_str(), "Completed" | "Failed");
            let size = if has_ended { 0 } else { change.size };
            let is_news = decided.insert(&*change.job, size) != Some(size);
            if written.insert(&*change.job, change.generation) != Some(change.generation) || is_news {
                let Change { job, phase, generation, nodes, .. } = change;
                let at = change.at - start;
                println!("  {at:7.2} s  {decided:?}  {job} is {phase}, change {generation} of its spec: {nodes}");
            }
            most = most.max(decided.values().sum());
        }
        most
    }

    fn submit(&self, job: &Job) -> Result<(), Problem> {
        self.apply(job.name, &job.manifest(&self.scratch.join("checkpoints").to_string_lossy()))
    }

    fn apply(&self, name: &str, manifest: &str) -> Result<(), Problem> {
        let path = self.scratch.join(&format!("{name}.yaml"));
        fs::write(&path, manifest).map_err(io(path.display()))?;
        self.plane.kubectl(&["apply", "-f", &path.to_string_lossy()]).map(drop)
    }

    fn calls(&self) -> Result<Vec<(String, u64)>, Problem> {
        mpi_plane::calls(&self.address)
    }

    fn changes(&self, job: &str) -> Vec<Change> {
        self.watch.changes().into_iter().filter(|change| change.job == job).collect()
    }

    fn generation(&self, job: &str) -> u32 {
        self.changes(job).last().map_or(0, |change| change.generation)
    }

    /// Waits until a job trains with so many workers, and returns since when it does: not before `since`.
    fn trains(&self, job: &Job, workers: u32, since: f64) -> Result<f64, Problem> {
        self.until(&format!("{} trains with {workers} workers", job.name), || {
            let last = sizes(&self.plane.logs("default")?, job.name).pop();
            Ok(last.filter(|size| size.workers == workers && size.at >= since).map(|size| size.at))
        })
    }

    /// Waits until a job makes more steps.
    fn trains_on(&self, job: &Job) -> Result<(), Problem> {
        let steps = || Ok(of_launcher(&self.plane.logs("default")?, job.name).filter_map(loss).count());
        let before = steps()?;
        self.until(&format!("{} trains on", job.name), || Ok((steps()? > before + 10).then_some(())))
    }

    /// When a job has made its last step.
    fn ended(&self, job: &str) -> Result<Option<f64>, Problem> {
        let logs = self.plane.logs("default")?;
        Ok(of_launcher(&logs, job).find(|line| line.contains(": done after ")).and_then(time))
    }

    fn until<T>(&self, what: &str, found: impl Fn() -> Result<Option<T>, Problem>) -> Result<T, Problem> {
        let started = Instant::now();
        loop {
            if let Some(found) = found()? {
                return Ok(found);
            }
            if started.elapsed() > LIMIT {
                let seconds = started.elapsed().as_secs();
                self.print_changes();
                let (jobs, logs) =
                    (self.plane.kubectl(&["get", "mpijobs,pods", "-o", "wide"])?, self.plane.logs("default")?);
                return Err(Problem::failed(format!("waited {seconds} s until {what}, in vain:\n{jobs}\n{logs}")));
            }
            sleep(POLL_INTERVAL);
        }
    }
}

/// Steps and their losses, as printed: they are the same to the bit.
type Losses = BTreeSet<(u32, String)>;

/// A number of workers, and since when they train.
#[derive(Debug)]
struct Size {
    at: f64,
    step: u32,
    workers: u32,
}

/// What the launchers of a job printed.
fn of_launcher<'a>(logs: &'a str, job: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    said_by(logs, &format!("{job}-launcher-"))
}

/// What pods printed whose names begin so.
fn said_by<'a>(logs: &'a str, pods: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let pods = pods.to_owned();
    let lines = logs.lines().filter_map(|line| line.split_once(" | "));
    lines.filter(move |(pod, _)| pod.starts_with(&pods)).map(|(_, said)| said)
}

/// `step 3 of 100: loss 0.5, 2 workers`
fn loss(line: &str) -> Option<(u32, String)> {
    let (step, rest) = line.strip_prefix("step ")?.split_once(" of ")?;
    let (loss, _) = rest.split_once(": loss ")?.1.split_once(", ")?;
    Some((step.parse().ok()?, loss.to_owned()))
}

/// `at 12.345: 2 workers from step 3`, in the order of time.
fn sizes(logs: &str, job: &str) -> Vec<Size> {
    let mut sizes: Vec<Size> = of_launcher(logs, job)
        .filter_map(|line| {
            let (workers, step) = line.split_once(": ")?.1.split_once(" workers from step ")?;
            Some(Size { at: time(line)?, step: step.parse().ok()?, workers: workers.parse().ok()? })
        })
        .collect();
    sizes.sort_by(|one, other| one.at.total_cmp(&other.at));
    sizes
}

/// `at 12.345: ...`
fn time(line: &str) -> Option<f64> {
    line.strip_prefix("at ")?.split_once(':')?.0.parse().ok()
}
