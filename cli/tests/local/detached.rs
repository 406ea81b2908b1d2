//! Runs without a terminal, and the question of Ctrl-C on one, as `script` makes terminals of 80 columns.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use crate::place::{Place, ended, job, output_of, until};

const SCRIPT: &str = "echo up > up; until test -e go; do sleep 0.05; done; test ! -e wrong || exit 3";

#[test]
fn a_run_in_the_background_is_followed_to_its_end() {
    for (wrong, code) in [(false, 0), (true, 1)] {
        let place = Place::new();
        if wrong {
            place.write("wrong", "");
        }
        place.write("job.yaml", &job("j", SCRIPT));
        let (started, out, err) = output_of(&place.run(&["run", "-d", "job.yaml"]));
        assert_eq!((started, &*out), (Some(0), "j\n"), "{err}");
        assert_eq!(err, "running in the background. Follow it: trainyard attach\n");
        until("the pod", || place.path("up").exists());
        let mut attached =
            place.trainyard(&["attach"]).stdout(std::fs::File::create(place.path("out")).unwrap()).spawn();
        until("the job runs", || place.read("out").contains("default/j  Running: every pod is running"));
        place.write("go", "");
        assert_eq!(ended(attached.as_mut().unwrap()), Some(code), "the exit code of the run");
        assert!(place.read("out").contains("\nAITrainingJob default/j "), "{}", place.read("out"));
        // Afterwards the same can be read again.
        assert_eq!(output_of(&place.run(&["attach"])).0, Some(code));
    }
}

#[test]
fn a_run_that_does_not_start_in_the_background_says_why() {
    let place = Place::new();
    place.write("bad.yaml", &job("j", "true").replace("replicas: 1", "replicas: some"));
    let (code, out, err) = output_of(&place.run(&["run", "-d", "bad.yaml"]));
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("1 error in the manifests"), "{err}");
    place.write("job.yaml", &job("j", "sleep 300"));
    assert_eq!(output_of(&place.run(&["run", "-d", "job.yaml"])).0, Some(0));
    let (code, out, err) = output_of(&place.run(&["run", "-d", "--again", "job.yaml"]));
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("--again: the run of process") && err.contains("end it with `trainyard stop`"), "{err}");
    assert_eq!(output_of(&place.run(&["stop"])).0, Some(0));
    let (code, _, err) = output_of(&Place::new().run(&["attach"]));
    assert!(code == Some(1) && err.contains("no run was started there in the background: trainyard run -d"), "{err}");
}

/// Starts a run on a terminal of 24 rows and 80 columns; what stands on it goes to a file.
fn on_a_terminal(place: &Place) -> Child {
    place.write("job.yaml", &job("j", SCRIPT));
    let program = env!("CARGO_BIN_EXE_trainyard");
    // The shell gets every Ctrl-C as well. Without a trap some of them end by it, others wait for the program.
    let inside = format!("trap : INT; stty rows 24 cols 80; {program} run job.yaml; echo exit $?");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &inside, "/dev/null"]).current_dir(place.dir.path());
    script.env("TERM", "xterm").env("SHELL", "/bin/sh");
    script.stdin(Stdio::piped()).stdout(std::fs::File::create(place.path("screen")).unwrap());
    let child = script.spawn().unwrap();
    until("the pod", || place.path("up").exists());
    until("the table", || place.read("screen").contains("Running "));
    child
}

fn presses(child: &mut Child, keys: &str) {
    child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
}

#[test]
fn a_run_on_a_terminal_fits_it() {
    let place = Place::new();
    let mut run = on_a_terminal(&place);
    place.write("go", "");
    until("the end", || place.read("screen").contains("exit 0"));
    ended(&mut run);
    let screen = place.read("screen");
    let lines = screen.lines().map(|line| console::strip_ansi_codes(line.trim_end_matches('\r')).into_owned());
    assert!(lines.into_iter().all(|line| console::measure_text_width(&line) <= 80), "{screen}");
    assert!(screen.contains("AITrainingJob default/j Succeed, 0 restarts, "), "{screen}");
}

#[test]
fn ctrl_c_asks_whether_to_stop() {
    let asked = "Stop the jobs [s], keep them in background [k], or continue [any other key]?";
    for (answer, says, code) in [("s", "stopping the jobs; ", 130), ("\x03", "stopping the jobs; ", 130)] {
        let place = Place::new();
        let mut run = on_a_terminal(&place);
        presses(&mut run, "\x03");
        until("the question", || place.read("screen").contains(asked));
        presses(&mut run, answer);
        until("the end", || place.read("screen").contains(&format!("exit {code}")));
        assert!(place.read("screen").contains(says), "{}", place.read("screen"));
        ended(&mut run);
    }
    // Any other key changes nothing, nor do keys without a question, and none is shown.
    let place = Place::new();
    let mut run = on_a_terminal(&place);
    presses(&mut run, "wsk\n\x03");
    until("the question", || place.read("screen").contains(asked));
    presses(&mut run, "yes");
    until("it continues", || place.read("screen").contains("the jobs continue"));
    let screen = place.read("screen");
    assert!(!screen.contains("wsk") && !screen.contains("yes"), "{screen}");
    place.write("go", "");
    until("the end", || place.read("screen").contains("exit 0"));
    ended(&mut run);
}

#[test]
fn a_run_goes_on_without_its_terminal_when_it_is_kept() {
    let place = Place::new();
    let mut run = on_a_terminal(&place);
    presses(&mut run, "\x03");
    until("the question", || place.read("screen").contains("in background [k]"));
    presses(&mut run, "k");
    until("the prompt is back", || place.read("screen").contains("exit 0"));
    assert!(place.read("screen").contains("Follow it: trainyard attach; end it: trainyard stop"));
    // The terminal closes.
    drop(run.stdin.take());
    ended(&mut run);
    assert!(output_of(&place.run(&["ps"])).1.contains("Running"));
    place.write("go", "");
    let (code, out, err) = output_of(&place.run(&["attach"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("AITrainingJob default/j Succeed"), "{out}");
}

#[test]
fn a_terminal_that_closes_stops_its_run() {
    let place = Place::new();
    let mut run = on_a_terminal(&place);
    run.kill().unwrap();
    run.wait().unwrap();
    until("the run ends", || output_of(&place.run(&["stop"])).2.contains("no run is active there"));
}
