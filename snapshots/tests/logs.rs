//! Recorded logs: every one reads back, folds, and is decided alike by this build; frozen ones fold as they did when they
//! were frozen.
//!
//! `fixtures/logs` may be recorded again (`fixtures/examples/record_logs/`); `fixtures/legacy` never is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use engine::wire::BEHAVIOUR;
use engine::{Record, State};
use event_log::{Digest, EventLog, Frame, MemoryLog, NewRecord, jsonl};
use explain::Chain;
use model::{Event, Position};
use operator::{Operator, Options};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// A log, read: the state it begins with, and its records.
struct Log {
    name: String,
    begin: State,
    frames: Vec<(Frame, Record)>,
}

fn logs(folder: &Path) -> Vec<Log> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    paths.sort();
    assert!(paths.len() >= 4, "only {} logs in {}", paths.len(), folder.display());
    paths.iter().map(|path| log(path)).collect()
}

fn log(path: &Path) -> Log {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut reader = jsonl::open(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let checkpoint = reader.checkpoint().map(|c| State::from_checkpoint(&c.state));
    let begin = checkpoint.map_or_else(State::default, |state| state.unwrap_or_else(|error| panic!("{name}: {error}")));
    // The reader proves every digest; what is left is that each body is a record.
    let frames = reader.by_ref().map(|frame| {
        let frame = frame.unwrap_or_else(|error| panic!("{name}: {error}"));
        let record = Record::decode(frame.position, frame.term, &frame.body)
            .unwrap_or_else(|error| panic!("{name}: position {}: {error}", frame.position));
        (frame, record)
    });
    let frames = frames.collect();
    Log { name, begin, frames }
}

/// Result of folding a log.
struct Folded {
    state: State,
    /// Consecutive distinct phases of each job, by name and uid.
    phases: BTreeMap<String, Vec<String>>,
    digest: Digest,
}

fn fold(log: &Log) -> Folded {
    let mut state = log.begin.clone();
    let mut phases: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, record) in &log.frames {
        state.replay(record).unwrap_or_else(|error| panic!("{}: {error}", log.name));
        let Some(key) = record.job() else { continue };
        let Some(job) = state.job(key) else { continue };
        let list = phases.entry(format!("{key} ({})", key.uid)).or_default();
        let phase = format!("{:?}", job.phase);
        if list.last() != Some(&phase) {
            list.push(phase);
        }
    }
    Folded { state, phases, digest: log.frames.last().expect("the log has records").0.digest }
}

/// The first record that this build decides otherwise, with what it decides; and the state all records lead to.
fn redecide(log: &Log) -> (State, Option<(&Record, Vec<Event>)>) {
    let mut state = log.begin.clone();
    for (_, record) in &log.frames {
        let decided = state.redecide(record).unwrap_or_else(|error| panic!("{}: {error}", log.name));
        if decided != record.events() {
            return (state, Some((record, decided)));
        }
    }
    (state, None)
}

/// Returns events as snapshots hold them: without their scope.
fn plain(events: &[Event]) -> String {
    let plain = |event: &Event| match event {
        Event::Queue(event) => format!("{event:?}"),
        Event::Job(event) => format!("{event:?}"),
    };
    format!("[{}]", events.iter().map(plain).collect::<Vec<_>>().join(", "))
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("logs");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_log_is_decided_alike() {
    for log in logs(&folder("logs")) {
        let (state, difference) = redecide(&log);
        if let Some((record, decided)) = difference {
            panic!(
                "{}: position {} differs: recorded {:?}, decided {decided:?}",
                log.name,
                record.position,
                record.events()
            );
        }
        // Deciding again leads where folding leads, down to what neither explains nor shows.
        let folded = fold(&log).state;
        let text = |state: &State| String::from_utf8(state.to_checkpoint().unwrap()).unwrap();
        assert_eq!(text(&state), text(&folded), "{}", log.name);
        assert_eq!(text(&State::from_checkpoint(text(&folded).as_bytes()).unwrap()), text(&folded), "{}", log.name);
    }
}

#[test]
fn every_record_is_written_as_it_was_read() {
    for log in logs(&folder("logs")) {
        for (frame, record) in &log.frames {
            assert_eq!(
                String::from_utf8_lossy(&record.encode().unwrap()),
                String::from_utf8_lossy(&frame.body),
                "{}: position {}",
                log.name,
                frame.position
            );
        }
    }
}

#[test]
fn every_log_shows_what_was_reviewed() {
    let mut out = String::new();
    for log in logs(&folder("logs")) {
        assert!(log.frames.len() >= 200, "{}: only {} records", log.name, log.frames.len());
        let folded = fold(&log);
        let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, record) in &log.frames {
            let names = record.fact_names().into_iter().chain(record.event_names());
            names.for_each(|name| *kinds.entry(name).or_default() += 1);
        }
        let kinds: Vec<String> = kinds.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let (first, last) = (log.frames[0].0.position, folded.state.stamp.position);
        let _ = writeln!(out, "{}: positions {first} to {last}, {} terms", log.name, folded.state.terms.len());
        let _ = writeln!(out, "  digest {}", folded.digest);
        let _ = writeln!(out, "  {}", kinds.join(", "));
        for (job, phases) in &folded.phases {
            let _ = writeln!(out, "  {job}: {}", phases.join(", "));
        }
    }
    snapshot("recorded", &out);
}

#[test]
fn a_failed_job_is_explained_as_reviewed() {
    let mut out = String::new();
    for (file, namespace, name) in [("node-loss", "research", "sweep"), ("preemption", "batch", "low-2")] {
        let log = log(&folder("logs").join(format!("{file}.jsonl")));
        let (mut state, mut chain) = (log.begin, Chain::default());
        let mut key = None;
        for (_, record) in &log.frames {
            if explain::concerns(record, namespace, name) {
                chain.take(record);
                if let Some(job) = record.job() {
                    key = Some(job.clone());
                }
            }
            state.replay(record).unwrap();
        }
        let key = key.expect("the log holds the job");
        let job = state.job(&key).expect("the job is still there");
        assert!(job.phase.is_terminal() && job.phase != model::Phase::Succeeded, "{key} has not failed");
        let _ = writeln!(out, "{file}: {key} is {:?}", job.phase);
        for line in chain.lines() {
            let mark = if line.decided { "=>" } else { "  " };
            let _ = writeln!(out, "  #{:<4} {} {mark} {}", line.position.0, line.at.to_rfc3339(), line.text);
        }
        assert_eq!(explain::waits_for(&state, &key), Vec::<String>::new());
    }
    snapshot("explained", &out);
}

/// Members of `recorded` that `now` does not have, or has otherwise. Members that came later are no difference.
fn lost(path: &str, recorded: &Value, now: &Value, out: &mut Vec<String>) {
    match (recorded, now) {
        (Value::Object(recorded), Value::Object(now)) => {
            for (key, value) in recorded {
                lost(&format!("{path}.{key}"), value, now.get(key).unwrap_or(&Value::Null), out);
            }
        }
        _ if recorded == now => {}
        _ => out.push(format!("{path}: was {recorded}, is {now}")),
    }
}

#[test]
fn frozen_logs_fold_to_what_they_always_did() {
    let mut out = String::new();
    for version in ["v1"] {
        for log in logs(&folder("legacy").join(version)) {
            let path = folder("legacy").join(version).join(format!("{}.expect.json", log.name));
            let expected: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let folded = fold(&log);
            let now = serde_json::json!({
                "position": folded.state.stamp.position, "digest": folded.digest.to_string(),
                "phases": folded.phases, "state": explain::summary(&folded.state),
            });
            let mut differences = Vec::new();
            lost("", &expected, &now, &mut differences);
            assert!(differences.is_empty(), "{version}/{}:\n{}", log.name, differences.join("\n"));
            // Rules may change under a new behaviour number; which records that concerns is reviewed.
            match redecide(&log).1 {
                None => {
                    let _ = writeln!(out, "{version}/{}: decided alike", log.name);
                }
                Some((record, decided)) => {
                    assert!(
                        record.behaviour < BEHAVIOUR,
                        "{version}/{}: position {} is decided otherwise under the same behaviour number: {decided:?}",
                        log.name,
                        record.position
                    );
                    let _ = writeln!(
                        out,
                        "{version}/{}: position {} of behaviour {} would be decided otherwise: {} instead of {}",
                        log.name,
                        record.position,
                        record.behaviour,
                        plain(&decided),
                        plain(&record.events())
                    );
                }
            }
        }
    }
    snapshot("frozen", &out);
}

/// A log of these bodies.
fn memory(bodies: &[(model::Term, Vec<u8>)]) -> MemoryLog {
    let mut log = MemoryLog::default();
    let group: Vec<NewRecord<'_>> = bodies.iter().map(|(term, body)| NewRecord { term: *term, body }).collect();
    log.append(&group).unwrap();
    log
}

#[test]
fn what_a_newer_build_wrote_is_neither_opened_nor_followed() {
    let mut bodies: Vec<(model::Term, Vec<u8>)> = log(&folder("logs").join("normal-run.jsonl"))
        .frames
        .into_iter()
        .take(20)
        .map(|(frame, _)| (frame.term, frame.body))
        .collect();
    let open = |log: MemoryLog| Operator::open(Box::new(log), apis::Registry::all(), Options::default());
    let edited = |body: &[u8], from: &str, to: &str| {
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1).into_bytes()
    };
    let (term, last) = bodies.pop().unwrap();
    let of_last = Record::decode(Position(20), term, &last).unwrap().behaviour;
    let (known, newest) = (format!("\"behaviour\":{of_last}"), format!("\"behaviour\":{}", BEHAVIOUR + 1));
    for (newer, why) in [
        (edited(&last, &known, &newest), format!("behaviour {}", BEHAVIOUR + 1)),
        (edited(&last, "\"facts\":[", "\"facts\":[\"Unheard\","), "`Unheard`".to_owned()),
    ] {
        let mut with = bodies.clone();
        with.push((term, newer));
        let leader = memory(&with);
        let says = |error: operator::Error| {
            let text = error.to_string();
            let wanted = ["record 20: written by a newer build of Trainyard", &*why, "use that build or newer"];
            assert!(wanted.iter().all(|part| text.contains(part)), "{text}");
        };
        says(open(memory(&with)).err().expect("the log is newer"));
        // A standby takes nothing of it over, and continues with what it can read.
        let frames: Vec<Frame> = leader.read(Position(1)).unwrap().map(Result::unwrap).collect();
        let mut standby = open(MemoryLog::default()).unwrap();
        says(standby.follow(&frames).unwrap_err());
        assert_eq!(standby.log().head().position, Position(0));
        standby.follow(&frames[..19]).unwrap();
        assert_eq!((standby.log().head().position, standby.state().stamp.position), (Position(19), Position(19)));
        says(standby.follow(&frames[19..]).unwrap_err());
        assert_eq!(standby.log().head().position, Position(19));
    }
}
