//! `trainyard run --watch`: the files are applied again when they change.

use std::process::Stdio;

use crate::place::{Place, ended, job, signal, until};

#[test]
fn a_running_job_is_scaled_by_its_changed_file() {
    let place = Place::new();
    // The pods end once there are three.
    let script = "touch $HOSTNAME; while [ ! -e j-trainer-2 ]; do sleep 0.05; done; sleep 1";
    place.write("job.yaml", &job("j", script));
    let mut run = place.trainyard(&["run", "--watch", "job.yaml"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the first pod", || place.path("j-trainer-0").exists());

    // What is wrong is said, and changes nothing.
    place.write("job.yaml", &job("j", script).replace("replicas: 1", "replicas: many"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    place.write("job.yaml", &job("j", script).replace("replicas: 1", "replicas: 3"));
    assert_eq!(ended(&mut run), Some(0));
    let output = run.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(err.contains("the changed files are not applied: 1 error in the manifests"), "{out}\n{err}");
    assert!(err.contains("job.yaml:7:17: spec.replicaSpecs.trainer.replicas: "), "{err}");
    assert!(err.contains("the manifest files have changed: they are applied again"), "{err}");
    assert!(err.contains("pod j-trainer-2 Running"), "{err}");
}

#[test]
fn without_it_changed_files_are_left_alone() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "touch up; sleep 600"));
    let mut run = place.trainyard(&["run", "job.yaml"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the pod", || place.path("up").exists());
    place.write("job.yaml", &job("j", "touch up; sleep 600").replace("replicas: 1", "replicas: 2"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(!place.path("trainyard-data/logs/default/j-trainer-1").exists());
    signal(&run, "INT");
    ended(&mut run);
}
