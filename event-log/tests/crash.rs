//! Killed processes: no acknowledged record is lost, no group is torn. The child prints what was acknowledged.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use event_log::{EventLog as _, Head, Options, SledLog, Verify};
use support::{OnDisk, Place as _, Rng, append_next, check_contents, child, variable};

#[test]
#[ignore = "run by the other test as a child process"]
fn child_appends() {
    let mut log = SledLog::open(variable("LOG_DIR"), Options::default()).unwrap();
    let mut rng = Rng(variable("SEED").parse().unwrap());
    let mut out = std::io::stdout().lock();
    loop {
        let group = [1, 3, 64, 200][rng.index(4)];
        let first = log.head().position.0 + 1;
        append_next(&mut log, group).unwrap();
        writeln!(out, "acknowledged {first} {}", log.head().position).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn fifty_kills_lose_nothing() {
    let (mut place, mut acknowledged, mut most) = (OnDisk::new(), 0, 0);
    for seed in 0..50 {
        if seed % 10 == 0 {
            (place, acknowledged) = (OnDisk::new(), 0);
        }
        let mut process = child(&[("LOG_DIR", place.path().display().to_string()), ("SEED", seed.to_string())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut rng = Rng(seed);
        let mut groups = Vec::new();
        let mut note = |line: String| {
            if let Some(rest) = line.strip_prefix("acknowledged ") {
                let (first, last) = rest.split_once(' ').unwrap();
                groups.push((first.parse::<u64>().unwrap(), last.parse::<u64>().unwrap()));
            }
            groups.len()
        };
        // Killed at some moment in the middle of the appends that follow the first few.
        let wanted = rng.index(12) + 1;
        while note(lines.next().expect("the child ended by itself").unwrap()) < wanted {}
        std::thread::sleep(Duration::from_micros(rng.below(15_000)));
        process.kill().unwrap();
        process.wait().unwrap();
        // What it had printed before it was killed counts; half a line does not.
        for line in lines.map_while(Result::ok) {
            if line.split(' ').count() == 3 {
                note(line);
            }
        }
        acknowledged = groups.last().map_or(acknowledged, |(_, last)| (*last).max(acknowledged));
        let verify = if seed % 2 == 0 { Verify::Full } else { Verify::Tail };
        let log = place.open(verify).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(log.head().position.0 >= acknowledged, "seed {seed}: {} < {acknowledged}", log.head().position);
        check_contents(&*log, Head::default());
        most = acknowledged.max(most);
    }
    assert!(most > 500);
}
