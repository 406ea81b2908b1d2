//! Export and import: what goes out comes back the same, and a changed file is refused by line.

mod support;

use std::io::Write as _;

use event_log::jsonl::{self, Digests, Fault};
use event_log::{Checkpoint, EventLog, Frame, MemoryLog, NewRecord, SledLog};
use model::{Position, Term};
use support::{OnDisk, Place as _, append_next, body, checkpoint_at, fill, frames};

fn log(records: u64) -> MemoryLog {
    let mut log = MemoryLog::new();
    fill(&mut log, records);
    log
}

fn exported(log: &dyn EventLog, digests: Digests) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(jsonl::export(log, &mut out, digests).unwrap(), log.head());
    out
}

fn reader(bytes: &[u8]) -> Result<jsonl::Reader<&[u8]>, jsonl::Error> {
    jsonl::Reader::new(bytes, "x.jsonl")
}

fn read(bytes: &[u8]) -> Result<Vec<Frame>, jsonl::Error> {
    reader(bytes)?.collect()
}

/// The line and the fault of an error.
fn fault(result: Result<Vec<Frame>, jsonl::Error>) -> (u64, Fault) {
    match result {
        Err(jsonl::Error::Line { file, line, reason }) => {
            assert_eq!(file.to_str(), Some("x.jsonl"));
            (line, reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_goes_out_comes_back() {
    let source = log(130);
    let all = frames(&source, 1);
    for digests in [Digests::Every, Digests::Last] {
        let text = exported(&source, digests);
        assert_eq!(std::str::from_utf8(&text).unwrap().lines().count(), 130);
        assert_eq!(read(&text).unwrap(), all);
        let place = OnDisk::new();
        let mut target = place.reopen();
        assert_eq!(jsonl::import(reader(&text).unwrap(), &mut *target).unwrap(), source.head());
        assert_eq!(frames(&*target, 1), all);
        assert_eq!(exported(&*target, Digests::Every), exported(&source, Digests::Every));
    }
    assert_eq!(read(b"").unwrap(), []);
    assert!(exported(&MemoryLog::new(), Digests::Every).is_empty());
}

#[test]
fn a_line_is_as_documented() {
    let mut log = MemoryLog::new();
    let body = br#"{"b": [1 ,2],"a":"\u00e9 ' \\ "}"#;
    log.append(&[NewRecord { term: Term(3), body }]).unwrap();
    let digest = log.head().digest;
    let line = String::from_utf8(exported(&log, Digests::Every)).unwrap();
    let record = std::str::from_utf8(body).unwrap();
    assert_eq!(line, format!("{{\"position\":1,\"term\":3,\"digest\":\"{digest}\",\"record\":{record}}}\n"));
    assert_eq!(read(line.as_bytes()).unwrap()[0].body, body, "verbatim, white space included");
    assert_eq!(read(line.trim_end().as_bytes()).unwrap().len(), 1, "the last line end may be missing");
}

#[test]
fn checkpoints_travel_along() {
    for state in [b"{\"jobs\":[]}".to_vec(), vec![0, 159, 10, 255], Vec::new()] {
        let mut source = log(60);
        let checkpoint = checkpoint_at(&source, 40, state);
        source.compact(&checkpoint).unwrap();
        let text = exported(&source, Digests::Every);
        assert_eq!(reader(&text).unwrap().checkpoint(), Some(&checkpoint));
        let mut target = MemoryLog::new();
        jsonl::import(reader(&text).unwrap(), &mut target).unwrap();
        assert_eq!((target.head(), target.first()), (source.head(), Position(41)));
        assert_eq!(target.checkpoint().unwrap(), Some(checkpoint.clone()));
        // A changed state, position or digest does not match the seal.
        let line = String::from_utf8(text.split_inclusive(|b| *b == b'\n').next().unwrap().to_vec()).unwrap();
        let digest = checkpoint.digest.to_string();
        let flipped = if digest.starts_with('0') { "1" } else { "0" };
        for bad in [
            line.replace("\"position\":40", "\"position\":41"),
            line.replace(&digest, &format!("{flipped}{}", &digest[1..])),
        ] {
            assert_ne!(bad, line);
            assert_eq!(fault(reader(bad.as_bytes()).and_then(Iterator::collect)), (1, Fault::Seal));
        }
        // Only the checkpoint: a log without records.
        let mut target = MemoryLog::new();
        jsonl::import(reader(line.as_bytes()).unwrap(), &mut target).unwrap();
        assert_eq!(target.head().position, Position(40));
    }
}

#[test]
fn changed_files_are_refused_by_line() {
    let text = String::from_utf8(exported(&log(20), Digests::Every)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let with = |n: usize, line: &str| {
        let mut lines = lines.clone();
        lines[n] = line;
        lines.join("\n")
    };
    let changed = lines[4].replace("\"n\":5", "\"n\":6");
    assert_eq!(fault(read(with(4, &changed).as_bytes())), (5, Fault::Digest { at: Position(5) }));
    let without = [&lines[..7], &lines[8..]].concat().join("\n");
    assert_eq!(fault(read(without.as_bytes())), (8, Fault::Gap { expected: Position(8), found: Position(9) }));
    assert_eq!(
        fault(read(with(3, lines[4]).as_bytes())),
        (4, Fault::Gap { expected: Position(4), found: Position(5) })
    );
    let term = lines[9].replace("\"term\":1,", "\"term\":0,");
    assert_eq!(fault(read(with(9, &term).as_bytes())), (10, Fault::TermBackwards { last: Term(1), found: Term(0) }));
    assert_eq!(fault(read(&text.as_bytes()[..text.len() - 100])).1, Fault::CutShort);
    assert!(matches!(fault(read(with(0, "[]").as_bytes())), (1, Fault::Unreadable(_))));
    assert!(matches!(fault(read(with(6, "{\"position\":7}").as_bytes())), (7, Fault::Unreadable(_))));
    assert!(matches!(fault(read(with(6, "\u{fffd}").as_bytes())), (7, Fault::Unreadable(_))));
    assert!(matches!(fault(read(b"{\"checkpoint\":{}}")), (1, Fault::Unreadable(_))));
    let message = read(with(4, &changed).as_bytes()).unwrap_err().to_string();
    assert_eq!(message, "x.jsonl:5: digest mismatch at position 5: this line or one before it was changed");
    // Empty lines do no harm; lines are still counted.
    let spaced = text.replace('\n', "\n\n");
    assert_eq!(read(spaced.as_bytes()).unwrap().len(), 20);
}

#[test]
fn every_changed_byte_is_noticed() {
    let mut source = MemoryLog::new();
    append_next(&mut source, 2).unwrap();
    let all = frames(&source, 1);
    for digests in [Digests::Every, Digests::Last] {
        let text = exported(&source, digests);
        for at in 0..text.len() {
            let mut bad = text.clone();
            bad[at] ^= 1 << (at % 7);
            // A digest reads the same in upper case; anything else that reads the same is no change.
            assert!(read(&bad).map_or(true, |got| got == all), "byte {at}");
        }
    }
    // With the last digest only, a missing end is noticed as well.
    let text = exported(&source, Digests::Last);
    let first_line = text.split_inclusive(|b| *b == b'\n').next().unwrap();
    assert_eq!(fault(read(first_line)).1, Fault::NoDigest);
}

#[test]
fn import_needs_an_empty_log_and_keeps_what_was_good() {
    let text = exported(&log(600), Digests::Every);
    let mut target = log(1);
    let refused = jsonl::import(reader(&text).unwrap(), &mut target);
    assert!(matches!(refused, Err(jsonl::Error::NotEmpty { head: Position(1) })));
    let cut = &text[..text.len() - 10];
    let mut target = MemoryLog::new();
    assert!(matches!(jsonl::import(reader(cut).unwrap(), &mut target), Err(jsonl::Error::Line { line: 600, .. })));
    assert_eq!(target.head().position, Position(599));
}

#[test]
fn bodies_that_are_no_lines_are_refused() {
    for body in [&b"not json"[..], b" {}", b"{} ", b"{\n}", b"\xff", b""] {
        let mut log = MemoryLog::new();
        log.append(&[NewRecord { term: Term(1), body: b"{}" }, NewRecord { term: Term(1), body }]).unwrap();
        let refused = jsonl::export(&log, std::io::sink(), Digests::Every);
        assert!(matches!(refused, Err(jsonl::Error::NotJson { at: Position(2) })), "{body:?}");
    }
}

/// A log like one of an eight-pod job: adoption, pods coming up, a restart, success.
fn job_log() -> MemoryLog {
    let mut log = MemoryLog::new();
    let mut append = |n: u64, facts: String, events: &str| {
        let job = r#"{"kind":"TrainingJob","namespace":"research","name":"resnet-50","uid":"5b0d8a7e-6c0e-4f7b-9b1e-2f4d1c9e8a01"}"#;
        let body = format!(
            r#"{{"at":{},"behaviour":1,"causes":[{n}],"events":[{events}],"facts":[{facts}],"scope":{{"Job":{job}}}}}"#,
            1_767_225_599_000 + n * 137
        );
        log.append(&[NewRecord { term: Term(1_767_225_590), body: body.as_bytes() }]).unwrap();
    };
    let mut n = 0;
    for incarnation in 0..2 {
        for phase in ["Pending", "Scheduled", "Creating", "Running", "Succeeded"] {
            for pod in 0..8 {
                n += 1;
                let mut rng = support::Rng(incarnation * 8 + pod);
                let uid = format!(
                    "{:08x}-{:04x}-4{:03x}-9{:03x}-{:012x}",
                    rng.below(1 << 32),
                    rng.below(1 << 16),
                    rng.below(4096),
                    rng.below(4096),
                    rng.below(1 << 48)
                );
                let fact = format!(
                    r#"{{"Pod":{{"group":"worker","incarnation":{incarnation},"index":{pod},"name":"resnet-50-worker-{pod}","node":"gpu-node-{}","phase":"{phase}","rv":{},"uid":"{uid}"}}}}"#,
                    pod / 2,
                    48_000 + n * 3
                );
                append(n, fact, if pod == 7 { r#"{"PhaseChanged":{"to":"Running"}}"# } else { "" });
            }
        }
    }
    log
}

#[test]
fn a_job_travels_in_four_kilobytes() {
    let log = job_log();
    let plain = exported(&log, Digests::Every).len();
    assert!(plain > 30 << 10, "{plain}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.jsonl.gz");
    jsonl::export_gz(&log, std::fs::File::create(&path).unwrap()).unwrap();
    let packed = std::fs::metadata(&path).unwrap().len();
    assert!(packed < 4 << 10, "{packed} bytes of {plain}");
    assert_eq!(jsonl::load(&path).unwrap().head(), log.head());
    // Compressed files are recognised by their contents, and damage in them is an error like any other.
    let bytes = std::fs::read(&path).unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        if let Ok(read) = jsonl::load(&path) {
            assert_eq!(read.head(), log.head(), "byte {at}");
        }
        std::fs::write(&path, &bytes[..at]).unwrap();
        assert!(at == 0 || jsonl::load(&path).is_err(), "cut at {at}");
    }
    assert!(matches!(jsonl::load(dir.path().join("none")), Err(jsonl::Error::Io { action: "open", .. })));
}

#[test]
fn lines_that_follow_a_known_head_are_verified_against_it() {
    let source = log(20);
    let all = frames(&source, 1);
    let text = exported(&source, Digests::Every);
    let after: Vec<u8> = text.split_inclusive(|b| *b == b'\n').skip(12).collect::<Vec<_>>().concat();
    let resume = |at: usize| jsonl::Reader::resume(&after[..], "x.jsonl", all[at].head(), all[at].term);
    let mut reader = resume(11);
    assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap(), all[12..]);
    assert_eq!((reader.head(), reader.term()), (source.head(), all[19].term));
    assert!(matches!(fault(resume(10).collect()), (1, Fault::Gap { .. })));
    // A log of the same length with another record in it.
    let mut other = all[11].head();
    other.digest = all[3].digest;
    let diverged = jsonl::Reader::resume(&after[..], "x.jsonl", other, all[11].term).collect();
    assert_eq!(fault(diverged), (1, Fault::Digest { at: Position(13) }));
}

#[test]
fn records_and_checkpoints_are_written_line_by_line() {
    let mut source = log(9);
    let checkpoint = checkpoint_at(&source, 4, br#"{"a":1}"#.to_vec());
    source.compact(&checkpoint).unwrap();
    let mut text = jsonl::checkpoint_line(checkpoint).concat();
    for frame in frames(&source, 5) {
        jsonl::write_frame(&frame, &mut text).unwrap();
    }
    assert_eq!(text, exported(&source, Digests::Every));
}

#[test]
fn a_salvaged_log_is_exported() {
    let place = OnDisk::new();
    {
        let mut log = place.reopen();
        fill(&mut *log, 51);
        // Blocks that are not packed: where one is damaged, its records before that are good.
        append_next(&mut *log, 11).unwrap();
        fill(&mut *log, 100);
    }
    let db = support::live_epoch(&place.path()).join("db");
    // Spoil the body of one record, wherever sled keeps it.
    let mut bytes = std::fs::read(&db).unwrap();
    let needle = body(61);
    let mut spoilt = 0;
    for at in 0..bytes.len() - needle.len() {
        if bytes[at..].starts_with(&needle) {
            bytes[at + 3] ^= 1;
            spoilt += 1;
        }
    }
    assert!(spoilt > 0);
    std::fs::File::create(&db).unwrap().write_all(&bytes).unwrap();
    assert!(SledLog::open_copy(place.path()).is_err());
    let report = event_log::verify(place.path()).unwrap();
    assert_eq!(
        report.first_bad.map(|(at, reason)| (at, reason.to_string())),
        Some((Position(61), "checksum mismatch".to_owned()))
    );
    let saved = event_log::salvage(place.path()).unwrap();
    assert_eq!(read(&exported(&saved, Digests::Every)).unwrap(), frames(&log(100), 1)[..60]);
    let _: Option<Checkpoint> = saved.checkpoint().unwrap();
}

/// A small file must not become gigabytes of memory or disk.
#[test]
fn a_compressed_file_that_expands_without_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.gz");
    let pack = |piece: &[u8], times: usize| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..times).for_each(|_| packed.write_all(piece).unwrap());
        std::fs::write(&path, packed.finish().unwrap()).unwrap();
    };
    // One line without an end.
    pack(&vec![b'x'; 1 << 20], 20);
    let error = jsonl::load(&path).unwrap_err();
    assert!(error.to_string().ends_with("x.jsonl.gz:1: longer than any record"), "{error}");
    // Lines that hold nothing, and would be skipped for ever.
    let mut blank = vec![b' '; 1 << 16];
    blank.push(b'\n');
    pack(&blank, 160 << 4);
    let error = jsonl::load(&path).unwrap_err();
    let jsonl::Error::Io { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().contains("more than 200 times its compressed size"), "{source}");
}
