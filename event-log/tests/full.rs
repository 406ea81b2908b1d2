//! A full disk: a typed error, poison, and everything acknowledged is there afterwards.

mod support;

use std::io::Write as _;
use std::process::Command;

use event_log::{Error, EventLog as _, Head, Options, SledLog, Verify};
use model::Position;
use support::{OnDisk, Place as _, append_next, body, check_contents, checkpoint_at, child, variable};

#[test]
#[ignore = "run by the other tests as a child process"]
fn child_appends() {
    let mut log = SledLog::open(variable("LOG_DIR"), Options::default()).unwrap();
    let mut out = std::io::stdout().lock();
    loop {
        match append_next(&mut log, 20) {
            Ok(head) => writeln!(out, "acknowledged {}", head.position).unwrap(),
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }), "{error:?}");
                assert!(matches!(append_next(&mut log, 1), Err(Error::Poisoned)));
                writeln!(out, "full").unwrap();
                // sled may refuse to read as well from now on, but what it gives is right.
                let frames = log.read(Position(1)).into_iter().flatten().map_while(Result::ok);
                for (frame, n) in frames.zip(1..) {
                    assert!(frame.position == Position(n) && frame.body == body(n));
                }
                return;
            }
        }
        if variable("COMPACT") == "true" && log.head().position.0.is_multiple_of(200) {
            // Letters at random, which do not pack.
            let state = (7_u64..).step_by(50).flat_map(body).take(2 << 20).collect();
            let checkpoint = checkpoint_at(&log, 1, state);
            let error = log.compact(&checkpoint).unwrap_err();
            assert!(matches!(error, Error::Full { .. }), "{error:?}");
            append_next(&mut log, 1).unwrap();
            writeln!(out, "acknowledged {}", log.head().position).unwrap();
            writeln!(out, "full").unwrap();
            return;
        }
    }
}

/// Runs the child with a limit on file sizes, which fails writes the way a full disk does; gives what was acknowledged.
fn run_limited(place: &OnDisk, blocks: u32, compact: bool) -> u64 {
    let inner = child(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
    shell.arg(inner.get_program()).args(inner.get_args());
    shell.env("LOG_DIR", place.path()).env("COMPACT", compact.to_string());
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.lines().any(|line| line.ends_with("full")), "{text}\n{errors}");
    let mut acknowledged = text.lines().filter_map(|line| line.split_once("acknowledged ")?.1.parse().ok());
    acknowledged.next_back().unwrap_or_default()
}

#[test]
fn a_full_disk_is_said_and_survived() {
    for blocks in [2_500, 4_000, 7_001] {
        let place = OnDisk::new();
        let acknowledged = run_limited(&place, blocks, false);
        assert!(acknowledged > 0);
        for verify in [Verify::Full, Verify::Tail] {
            let mut log = place.open(verify).unwrap();
            assert!(log.head().position.0 >= acknowledged);
            append_next(&mut *log, 10).unwrap();
            check_contents(&*log, Head::default());
        }
    }
}

#[test]
fn a_compaction_that_does_not_fit_leaves_the_log_in_use() {
    let place = OnDisk::new();
    let acknowledged = run_limited(&place, 4_000, true);
    let log = place.reopen();
    assert!(log.head().position.0 >= acknowledged && acknowledged >= 201);
    check_contents(&*log, Head::default());
}
