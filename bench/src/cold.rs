//! A cold start on a long log: from the start of the process to the first pod of a job that waits.
//!
//! The log is one of the embedded cluster (`simulator/examples/bench log`). Versions of objects in it count that cluster's
//! writes, and an operator refuses a log that is ahead of its cluster. So each object's versions are counted again, from two
//! on: their order, and all else in the log, is as it was. Of its jobs and nodes none is here; the operator finds that out
//! in its first turn, as it would after a long time away.
//!
//! An operator caches its state beside the log every 100,000 records. Measured is the worst case, when it is about to do so
//! again; and, once, a start without any such state, which folds all of the log.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use engine::{Body, Record, State};
use event_log::disk::{Options, SledLog};
use event_log::{Checkpoint, EventLog as _, NewRecord, jsonl};
use k8s_driver::CACHE_AFTER;
use model::{ClusterFact, JobFact, JobKey, ResourceVersion, Text, Uid};
use serde_json::json;

use crate::api;
use crate::operator::{Operator, Start};
use crate::table::{AnyError, Row, figure, heading, mb, median};
use crate::test_bed::TestBed;
use crate::watcher::{Group, last};
use crate::work;

const SPACE: &str = "cold";
/// Time limit of the first pod.
const POD_TIMEOUT: Duration = Duration::from_secs(60);
/// Records made durable at once.
const TOGETHER: usize = 4096;
/// Minimum number of records for which a time is aimed at.
pub(crate) const FULL_RECORDS: u64 = 1_000_000;

/// Makes a log of `records` records.
pub(crate) fn make(maker: &Path, records: u64) -> Result<tempfile::NamedTempFile, AnyError> {
    let file = tempfile::NamedTempFile::new()?;
    println!();
    let status = Command::new(maker).args(["log", "--records", &records.to_string(), "--to"]).arg(file.path()).status();
    let status = status.map_err(|error| format!("log-maker: {}: {error}", maker.display()))?;
    if status.success() { Ok(file) } else { Err(format!("log-maker: {} ended with {status}", maker.display()).into()) }
}

/// Starts cold on that log, `rounds` times, and on an empty one.
pub(crate) fn run(test_bed: &TestBed, export: &Path, rounds: u32) -> Result<(), AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(SPACE))?;
    let data = tempfile::tempdir()?;
    let log = data.path().join("log");
    let (records, state) = import(export, &log)?;
    let (whole, _) = start(test_bed, Some((data.path(), records)), "cold-whole")?;
    let (mut long, mut empty, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        empty.push(start(test_bed, None, &format!("cold-empty-{round}"))?.0);
        if let Some(state) = &state {
            SledLog::open(&log, Options::default())?.cache_state(state.clone())?;
        }
        let (seconds, held) = start(test_bed, Some((data.path(), records)), &format!("cold-{round}"))?;
        long.push(seconds);
        memory.push(held);
    }
    heading(&format!(
        "cold start, from the start of the process to the first pod of a job that waits; the median of {rounds}"
    ));
    Row::new("on an empty log, seconds").operator(format!("{:.2}", median(empty))).print();
    let seconds = median(long);
    let row = Row::new(format!("on a log of {records} records, seconds")).operator(format!("{seconds:.2}"));
    row.aim_where(records >= FULL_RECORDS, "< 2", seconds < 2.0).print();
    Row::new("  resident memory then, MB").operator(mb(median(memory))).print();
    let behind = records - state.map_or(0, |state| state.position.0);
    Row::new("  records after the state kept beside it").operator(behind.to_string()).print();
    Row::new("without a state beside it, once, seconds").operator(format!("{whole:.2}")).print();
    Ok(())
}

/// One start; gives the seconds and the memory.
fn start(test_bed: &TestBed, data: Option<(&Path, u64)>, name: &str) -> Result<(f64, f64), AnyError> {
    let group = Group::Namespace(SPACE.to_owned());
    test_bed.watcher.follow(group.clone());
    let manifest = work::job(SPACE, name, 1, false, &json!({}));
    test_bed.runtime.block_on(test_bed.admin.create_all(&api::jobs(SPACE), &[manifest]))?;
    test_bed.until_rest()?;
    let records = data.map_or(0, |(_, records)| records);
    let start = Start {
        data: data.map(|(path, _)| path.to_owned()),
        // A lease that another left behind would be waited for.
        alone: true,
        // Otherwise a log of this length would not stand: it is compacted much earlier.
        arguments: vec!["--compact-after=0".to_owned()],
    };
    let started = Instant::now();
    let mut operator = Operator::start(test_bed, name, &start)?;
    if let Err(error) = test_bed.watcher.until_running(&group, 1, POD_TIMEOUT) {
        // Its own words say more.
        operator.until_says("leading")?;
        return Err(error);
    }
    let (created, _) = last(&test_bed.watcher.leave(&group), started);
    let position = operator.metrics("trainyard_log_head_position")?.get("").copied().unwrap_or_default();
    if position <= figure(records) {
        return Err(
            format!("the operator did not continue with the log: it is at {position} of {records} records").into()
        );
    }
    let held = figure(operator.usage()?.rss_bytes);
    operator.stop()?;
    test_bed.clear(SPACE)?;
    Ok((created, held))
}

/// Makes a log directory of an export, its versions counted again; returns the number of records, and the state that an operator
/// would keep beside them.
fn import(export: &Path, to: &Path) -> Result<(u64, Option<Checkpoint>), AnyError> {
    let mut log = SledLog::open(to, Options::default())?;
    let mut versions = Versions::default();
    let mut group = Vec::with_capacity(TOGETHER);
    let mut state = State::default();
    // The last two that would be kept: the last of them may be where the log ends.
    let (mut before, mut last) = (None, None);
    for frame in jsonl::open(export)? {
        let frame = frame?;
        let mut record = Record::decode(frame.position, frame.term, &frame.body)?;
        versions.renumber(&mut record);
        group.push((frame.term, record.encode()?));
        let due = frame.position.0.is_multiple_of(CACHE_AFTER);
        if group.len() == TOGETHER || due {
            append(&mut log, &mut group)?;
        }
        state.replay(&record)?;
        if due {
            let head = log.head();
            let (position, digest) = (head.position, head.digest);
            before = last.replace(Checkpoint { position, digest, term: frame.term, state: state.to_checkpoint()? });
        }
    }
    append(&mut log, &mut group)?;
    let records = log.head().position.0;
    Ok((records, last.filter(|state| state.position.0 < records).or(before)))
}

fn append(log: &mut SledLog, group: &mut Vec<(model::Term, Vec<u8>)>) -> Result<(), AnyError> {
    let records: Vec<NewRecord<'_>> = group.iter().map(|(term, body)| NewRecord { term: *term, body }).collect();
    if !records.is_empty() {
        log.append(&records)?;
    }
    group.clear();
    Ok(())
}

/// Something that has versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Object {
    Job(JobKey),
    Uid(Uid),
    Node(Text),
}

/// The versions of each object: the newest, and its new number.
#[derive(Debug, Default)]
struct Versions(HashMap<Object, (ResourceVersion, u64)>);

impl Versions {
    fn renumber(&mut self, record: &mut Record) {
        match &mut record.body {
            Body::Cluster { facts } => facts.iter_mut().for_each(|fact| self.renumber_cluster(fact)),
            Body::Queues { .. } => {}
            Body::Job { key, facts, .. } => facts.iter_mut().for_each(|fact| self.renumber_job(key, fact)),
        }
    }

    fn renumber_cluster(&mut self, fact: &mut ClusterFact) {
        match fact {
            // No object is older than a view of it that is still to come.
            ClusterFact::Relisted { rv, .. } => *rv = ResourceVersion(1),
            ClusterFact::Node(node) => self.number(Object::Node(node.name.clone()), &mut node.rv),
            _ => {}
        }
    }

    fn renumber_job(&mut self, key: &JobKey, fact: &mut JobFact) {
        match fact {
            JobFact::Object(object) => self.number(Object::Job(key.clone()), &mut object.rv),
            JobFact::Published { rv, .. } => self.number(Object::Job(key.clone()), rv),
            JobFact::Pod(pod) => self.number(Object::Uid(pod.uid.clone()), &mut pod.rv),
            JobFact::Service(service) => self.number(Object::Uid(service.uid.clone()), &mut service.rv),
            JobFact::Gone => self.forget(&Object::Job(key.clone())),
            JobFact::PodGone { uid, .. } | JobFact::ServiceGone { uid } => self.forget(&Object::Uid(uid.clone())),
            _ => {}
        }
    }

    fn number(&mut self, object: Object, rv: &mut ResourceVersion) {
        let (newest, number) = self.0.entry(object).or_insert((*rv, 2));
        if *rv > *newest {
            (*newest, *number) = (*rv, *number + 1);
        }
        *rv = ResourceVersion(*number);
    }

    fn forget(&mut self, object: &Object) {
        self.0.remove(object);
    }
}
