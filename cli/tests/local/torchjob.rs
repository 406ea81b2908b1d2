//! Jobs of `TorchJob` run on this machine, where there is no Volcano, and perhaps no `ping`.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::place::{Place, output_of};

/// A job of a master and a worker that run a shell script.
fn job(annotations: &str, script: &str) -> String {
    let command = serde_json::json!(["sh", "-c", script]);
    let task = format!(
        "{{template: {{spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: torch, image: none, command: {command}}}]}}}}}}"
    );
    format!(
        "apiVersion: train.distributed.io/v1alpha1\nkind: TorchJob\nmetadata:\n  name: j\n  annotations: {{{annotations}}}\n\
         spec:\n  torchTaskSpecs:\n    Master: {task}\n    Worker: {task}\n"
    )
}

#[test]
fn pod_groups_that_this_machine_does_not_serve_are_no_trouble() {
    let place = Place::new();
    place.write("job.yaml", &job("", "exit 0"));
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0), "{out}\n{err}");
    assert!(!err.contains("PodGroup j-master: refused") && !err.contains("only another spec"), "{err}");
}

#[test]
fn workers_of_an_elastic_job_start_where_there_is_no_ping() {
    let place = Place::new();
    place.write(
        "job.yaml",
        &job("distributed.io/enable-elastic-training: 'true'", "echo $RANK of $WORLD_SIZE > rank-$RANK"),
    );
    let programs = place.path("programs");
    std::fs::create_dir(&programs).unwrap();
    for program in ["sh", "sleep"] {
        let found =
            ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(program)).into_iter().find(|path| path.exists());
        symlink(found.unwrap(), programs.join(program)).unwrap();
    }
    let mut command = place.trainyard(&["run", "job.yaml", "--timeout=60s"]);
    let (code, out, err) = output_of(&command.env("PATH", &programs).output().unwrap());
    assert_eq!(code, Some(0), "{out}\n{err}");
    assert_eq!([place.read("rank-0"), place.read("rank-1")], ["0 of 2\n", "1 of 2\n"]);
}
