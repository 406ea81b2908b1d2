//! Folding a log and deciding it again, against a bare read and decode of the same file.
//!
//! The three are interleaved in batches of one pass, so that other load of the machine affects all of them alike.

use std::path::Path;
use std::time::Instant;

use engine::{Record, State};
use event_log::jsonl;

use crate::AnyError;
use crate::table::{aimed, per_second, row, thousands, topic};

const BATCH: usize = 2000;
const AIM_RATIO: f64 = 1.5;
const AIM_PER_SECOND: f64 = 200_000.0;

/// Seconds spent on each way through the log so far.
#[derive(Debug, Default)]
struct Spent {
    read: f64,
    fold: f64,
    decide: f64,
}

/// Measures.
pub(crate) fn run(path: &Path) -> Result<(), AnyError> {
    let mut reader = jsonl::open(path)?;
    let (mut folded, mut decided) = (State::default(), State::default());
    let mut spent = Spent::default();
    let (mut records, mut facts, mut events) = (0_usize, 0_usize, 0_usize);
    loop {
        let start = Instant::now();
        let mut batch = Vec::with_capacity(BATCH);
        for frame in reader.by_ref().take(BATCH) {
            let frame = frame?;
            batch.push(Record::decode(frame.position, frame.term, &frame.body)?);
        }
        spent.read += start.elapsed().as_secs_f64();
        if batch.is_empty() {
            break;
        }
        let start = Instant::now();
        for record in &batch {
            folded.replay(record)?;
        }
        spent.fold += start.elapsed().as_secs_f64();
        let start = Instant::now();
        for record in &batch {
            if decided.redecide(record)? != record.events() {
                return Err(format!("record {} decides otherwise", record.position).into());
            }
        }
        spent.decide += start.elapsed().as_secs_f64();
        records += batch.len();
        facts += batch.iter().map(|record| record.fact_names().len()).sum::<usize>();
        events += batch.iter().map(|record| record.event_names().len()).sum::<usize>();
        // A bare read has to let go of what it read, too.
        let start = Instant::now();
        drop(batch);
        spent.read += start.elapsed().as_secs_f64();
    }
    if folded.to_checkpoint()? != decided.to_checkpoint()? {
        return Err("folding and deciding again lead to different states".into());
    }
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let records = count(records);
    topic(&format!(
        "fold: {} records, {} facts, {} events, {} jobs alive at the end; one pass, interleaved",
        thousands(records),
        thousands(count(facts)),
        thousands(count(events)),
        folded.jobs.len()
    ));
    let Spent { read, fold, decide } = spent;
    row("read and decode, records/s", &per_second(records, read));
    row("read, decode and fold, records/s", &per_second(records, read + fold));
    let ratio = (read + fold) / read.max(1e-9);
    aimed("time of that against the bare read and decode", &format!("{ratio:.2}"), "<= 1.50", ratio <= AIM_RATIO);
    #[allow(clippy::cast_precision_loss)] // counts far below 2^52
    let rate = records as f64 / decide.max(1e-9);
    aimed("decide again and compare, records/s", &per_second(records, decide), ">= 200,000", rate >= AIM_PER_SECOND);
    row("read, decode, decide again and compare, records/s", &per_second(records, read + decide));
    Ok(())
}
