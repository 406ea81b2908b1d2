//! `trainyard logs`: which file is meant, and following it.

use std::process::Stdio;

use crate::place::{Place, ended, job, output_of, until};

fn logs(place: &Place, words: &[&str]) -> String {
    let (code, out, err) = output_of(&place.run(&[&["logs"], words].concat()));
    assert_eq!(code, Some(0), "{words:?}: {err}");
    out
}

#[test]
fn the_pod_that_failed_is_shown_or_the_one_asked_for() {
    let place = Place::new();
    let script = "echo from $HOSTNAME; test $HOSTNAME != j-trainer-1 || { echo wrong; exit 3; }; sleep 1";
    place.write("job.yaml", &job("j", script).replace("replicas: 1", "replicas: 3"));
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(1));
    let (_, out, err) = output_of(&place.run(&["logs"]));
    assert_eq!(out, "from j-trainer-1\nwrong\n");
    assert_eq!(err, "trainyard: rank 1, which failed first, of 0 to 2; --rank N shows another, --all shows all\n");
    assert_eq!(logs(&place, &["j", "--rank", "2"]), "from j-trainer-2\n");
    assert_eq!(logs(&place, &["--pod", "j-trainer-0"]), "from j-trainer-0\n");
    let all = "j-trainer-0 | from j-trainer-0\nj-trainer-1 | from j-trainer-1\nj-trainer-1 | wrong\nj-trainer-2 | from j-trainer-2\n";
    assert_eq!(logs(&place, &["--all"]), all);
    assert_eq!(logs(&place, &["--rank=1", "--tail=1"]), "wrong\n");
    assert_eq!(logs(&place, &["--all", "--follow", "--tail=1"]).lines().count(), 3, "it has ended");
    for (words, says) in [
        (&["--rank", "3"][..], "--rank 3: j has the ranks 0 to 2"),
        (&["--pod", "j-trainer-9"], "--pod j-trainer-9: j has no such pod: did you mean j-trainer-0?"),
        (&["--log", "trainyard-data/log"], "kubectl logs POD"),
    ] {
        let (code, out, err) = output_of(&place.run(&[&["logs"], words].concat()));
        assert_eq!((code, &*out), (Some(2), ""), "{words:?}");
        assert!(err.contains(says), "{words:?}: {err}");
    }
    let (code, _, err) = output_of(&place.run(&["logs", "--rank=1", "--previous"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("j: no run before the last one"), "{err}");
}

#[test]
fn processes_of_torchrun_have_their_ranks() {
    let place = Place::new();
    let script =
        "for n in 0 1; do for step in 1 2; do echo \"[default$n]:$HOSTNAME step $step\"; done; done; echo plain";
    place.write("job.yaml", &job("j", script).replace("replicas: 1", "replicas: 2"));
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(0));
    assert_eq!(logs(&place, &["--rank", "1"]), "j-trainer-0 step 1\nj-trainer-0 step 2\n");
    assert_eq!(logs(&place, &["--rank", "2", "--tail", "1"]), "j-trainer-1 step 2\n");
    assert_eq!(logs(&place, &["--rank", "2", "-f", "--tail", "1"]), "j-trainer-1 step 2\n");
    assert_eq!(logs(&place, &["--pod", "j-trainer-1"]).lines().count(), 5, "a pod is shown as a whole");
    let (code, _, err) = output_of(&place.run(&["logs", "--rank", "4"]));
    assert_eq!((code, &*err), (Some(2), "trainyard: --rank 4: j has the ranks 0 to 3, 2 in each of 2 pods\n"));
}

#[test]
fn the_run_before_is_kept() {
    let place = Place::new();
    let script = "echo try $TRAININGJOB_REPLICA_RESTARTCOUNT; exit 1";
    let limited = job("j", script).replace("restartPolicy: Never", "restartPolicy: OnFailure\n      restartLimit: 1");
    place.write("job.yaml", &limited);
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(1));
    assert_eq!((logs(&place, &[]), logs(&place, &["--previous"])), ("try 1\n".to_owned(), "try 0\n".to_owned()));
    // Of an attempt that ran once, the one before is of the attempt before.
    place.write("job.yaml", &job("j", "echo again"));
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(0));
    assert_eq!((logs(&place, &[]), logs(&place, &["--previous"])), ("again\n".to_owned(), "try 1\n".to_owned()));
}

#[test]
fn output_is_followed_across_a_restart_to_the_end() {
    let place = Place::new();
    let script = "echo begun; until test -e go; do sleep 0.05; done; rm go; test -e second || { touch second; exit 1; }; printf end";
    let limited = job("j", script).replace("restartPolicy: Never", "restartPolicy: OnFailure\n      restartLimit: 1");
    place.write("job.yaml", &limited);
    let mut run = place.trainyard(&["run", "-q", "job.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    until("the pod's log", || output_of(&place.run(&["logs"])).1.contains("begun"));
    let follow = place.trainyard(&["logs", "-f"]).stdout(std::fs::File::create(place.path("out")).unwrap()).spawn();
    let mut follow = follow.unwrap();
    until("what was there", || place.read("out") == "begun\n");
    place.write("go", "");
    until("the second run", || place.read("out") == "begun\nbegun\n");
    place.write("go", "");
    assert_eq!(ended(&mut run), Some(0));
    assert_eq!(ended(&mut follow), Some(0));
    assert_eq!(place.read("out"), "begun\nbegun\nend\n");
}
