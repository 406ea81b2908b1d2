//! `trainyard top` on a terminal of 24 rows and 80 columns.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::place::{Place, ended, job, output_of, until};

#[test]
fn the_jobs_fill_the_terminal_until_a_key_ends_it() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo from the pod; exit 3"));
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(1));
    let inside = format!("stty rows 24 cols 80; {} top; echo exit $?", env!("CARGO_BIN_EXE_trainyard"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &inside, "/dev/null"]).current_dir(place.dir.path());
    script.env("TERM", "xterm").stdin(Stdio::piped()).stdout(std::fs::File::create(place.path("screen")).unwrap());
    let mut script = script.spawn().unwrap();
    until("the jobs", || place.read("screen").contains("REASON") && place.read("screen").contains("Failed"));
    // Pods, history, output.
    script.stdin.as_mut().unwrap().write_all(b"\t\t").unwrap();
    until("the output", || place.read("screen").contains("from the pod"));
    script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    until("the end", || place.read("screen").contains("exit 0"));
    assert!(place.read("screen").contains("\u{1b}[?1049l"), "the screen before is back");
    drop(script.stdin.take());
    ended(&mut script);
}

#[test]
fn it_says_what_it_needs() {
    let place = Place::new();
    let (code, out, err) = output_of(&place.run(&["top"]));
    assert_eq!((code, &*out), (Some(2), ""));
    assert_eq!(err, "trainyard: top needs a terminal; `trainyard ps` prints the jobs once\n");
}
