//! Standard output that is full, closed, or stands still.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::process::Stdio;

use crate::place::{Place, ended, job, output_of, signal, until};

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A pipe that nothing reads any more.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_reading_command_fails_when_its_output_is_lost() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "true"));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    for words in [
        &["crd"][..],
        &["explain", "j"],
        &["history", "j"],
        &["log", "show"],
        &["log", "verify"],
        &["log", "export"],
        &["simulate", "job.yaml"],
    ] {
        let (code, _, err) = output_of(&place.trainyard(words).stdout(full()).output().unwrap());
        assert_eq!(code, Some(2), "{words:?}: {err}");
        assert!(err.contains("standard output: No space left on device"), "{words:?}: {err}");
        let (code, _, err) = output_of(&place.trainyard(words).stdout(closed()).output().unwrap());
        assert_eq!((code, &*err), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn a_run_goes_on_without_a_reader() {
    for (name, stdout) in [("closed", closed()), ("full", full().into())] {
        let place = Place::new();
        place.write("job.yaml", &job("j", "echo begun; sleep 1; echo done > done"));
        let output = place.trainyard(&["run", "--logs", "job.yaml"]).stdout(stdout).output().unwrap();
        let (code, _, err) = output_of(&output);
        assert_eq!(code, Some(0), "{name}: {err}");
        assert_eq!(place.read("done"), "done\n", "{name}: the pod was not ended");
        assert_eq!(err.matches("the run continues without it").count(), 1, "{name}: {err}");
        assert!(err.contains("trainyard-data/logs"), "{name}: {err}");
        let (_, out, _) = output_of(&place.run(&["explain", "j"]));
        assert!(out.contains("is Succeed"), "{name}: {out}");
    }
}

#[test]
fn a_run_whose_output_is_not_read_decides_and_ends() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "yes 0123456789012345678901234567890123456789 | head -n 1000000"));
    let mut run =
        place.trainyard(&["run", "--logs", "job.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job's end", || output_of(&place.run(&["explain", "j"])).1.contains("is Succeed"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    assert!(peak.parse::<u64>().unwrap() < 200_000, "41 MB of output took {peak} kB");
    assert!(run.try_wait().unwrap().is_none(), "its outcome waits for the reader");
    // The reader comes late, and gets what was kept, the number of lines that were not, and the outcome.
    let mut out = Vec::new();
    run.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    assert_eq!(ended(&mut run), Some(0));
    let out = String::from_utf8(out).unwrap();
    let shown = out.lines().filter(|line| line.ends_with("| 0123456789012345678901234567890123456789")).count();
    let dropped: usize =
        out.lines().filter_map(|line| line.strip_prefix("... ")?.split(' ').next()?.parse::<usize>().ok()).sum();
    assert!(dropped > 0, "{shown} lines shown");
    assert_eq!(shown + dropped, 1_000_000);
    assert!(out.contains("Succeed"));
}

#[test]
fn signals_are_heard_while_output_is_not_read() {
    let place = Place::new();
    let script =
        "trap 'echo asked > asked; exit 0' TERM; yes | head -n 1000000; echo up > up; while :; do sleep 0.1; done";
    place.write("job.yaml", &job("j", script));
    let mut run =
        place.trainyard(&["run", "--logs", "job.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the output", || place.path("up").exists());
    signal(&run, "INT");
    assert_eq!(ended(&mut run), Some(130));
    assert_eq!(place.read("asked"), "asked\n", "the pod had its grace period");
    let mut err = String::new();
    run.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(err.contains("lines were not printed"), "{err}");
}
