//! Folding a log and deciding it again, against a bare read and decode of the same file.

use std::path::Path;
use std::time::Instant;

use engine::{Record, State};
use event_log::jsonl;

use crate::AnyError;
use crate::table::{aimed, median, per_second, row, thousands, topic};

/// Reads a log and shows every record to `visit`; gives their number and the seconds it took.
fn pass(path: &Path, visit: &mut dyn FnMut(Record) -> Result<(), AnyError>) -> Result<(u64, f64), AnyError> {
    let start = Instant::now();
    let mut records = 0;
    for frame in jsonl::open(path)? {
        let frame = frame?;
        visit(Record::decode(frame.position, frame.term, &frame.body)?)?;
        records += 1;
    }
    Ok((records, start.elapsed().as_secs_f64()))
}

/// Measures three ways through the log, interleaved.
pub(crate) fn run(path: &Path, rounds: usize) -> Result<(), AnyError> {
    let (mut bare, mut folded, mut decided) = (Vec::new(), Vec::new(), Vec::new());
    let (mut records, mut facts, mut events, mut jobs) = (0, 0, 0, 0);
    for _ in 0..rounds {
        (facts, events) = (0, 0);
        let (count, seconds) = pass(path, &mut |record| {
            facts += record.facts.len();
            events += record.events.len();
            Ok(())
        })?;
        records = count;
        bare.push(seconds);
        let mut state = State::default();
        folded.push(pass(path, &mut |record| Ok(state.fold(&record)?))?.1);
        jobs = state.jobs.len();
        let mut state = State::default();
        let (_, seconds) = pass(path, &mut |record| {
            if state.redecide(&record)? == record.events {
                Ok(())
            } else {
                Err(format!("record {} decides otherwise", record.position).into())
            }
        })?;
        decided.push(seconds);
    }
    let (bare, folded, decided) = (median(&mut bare), median(&mut folded), median(&mut decided));
    topic(&format!(
        "fold: {} records, {} facts, {} events, {jobs} jobs alive at the end; medians of {rounds} interleaved passes",
        thousands(records),
        thousands(u64::try_from(facts)?),
        thousands(u64::try_from(events)?)
    ));
    row("read and decode, records/s", &per_second(records, bare));
    row("read, decode and fold, records/s", &per_second(records, folded));
    let ratio = folded / bare;
    aimed("time of that against the bare read and decode", &format!("{ratio:.2}"), "<= 1.50", ratio <= 1.5);
    row("read, decode, decide again and compare, records/s", &per_second(records, decided));
    let alone = (decided - bare).max(1e-9);
    #[allow(clippy::cast_precision_loss)] // counts far below 2^52
    let met = records as f64 / alone >= 200_000.0;
    aimed("deciding again alone, records/s", &per_second(records, alone), ">= 200,000", met);
    Ok(())
}
