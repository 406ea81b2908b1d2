//! Jobs of `ElasticJob` run on this machine: restarts in place, arguments of the launcher, outcomes in words of conditions.

use crate::place::{Place, output_of};

/// A job of some workers that run a shell script; the launcher's arguments come after it.
fn job(policy: &str, replicas: u32, script: &str, more: &str) -> String {
    let command = serde_json::json!(["sh", "-c", script, "launcher"]);
    format!(
        "apiVersion: elastic.pytorch.org/v1alpha1\nkind: ElasticJob\nmetadata:\n  name: j\n  annotations: \
         {{elastic.pytorch.org/rdzv-backend: c10d}}\nspec:\n  rdzvEndpoint: j-worker-0:29400\n  minReplicas: 1\n  \
         maxReplicas: 4\n{more}  replicaSpecs:\n    Worker:\n      replicas: {replicas}\n      restartPolicy: {policy}\n      \
         template:\n        spec:\n          terminationGracePeriodSeconds: 1\n          \
         containers: [{{name: elasticjob-worker, image: none, command: {command}, args: [main.py]}}]\n"
    )
}

#[test]
fn a_container_is_restarted_in_its_pod_and_counted() {
    let place = Place::new();
    let script = "echo \"$@\" > $HOSTNAME.args; test -e $HOSTNAME || { touch $HOSTNAME; exit 7; }";
    place.write("job.yaml", &job("OnFailure", 2, script, ""));
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0), "{out}\n{err}");
    assert!(
        out.starts_with("ElasticJob default/j Succeeded, 0 restarts, 2 restarts of containers in place, "),
        "{out}"
    );
    // Pods of one machine find worker 0 by its address.
    let args = place.read("j-worker-1.args");
    let words: Vec<&str> = args.split_whitespace().collect();
    let endpoint = words[1].strip_prefix("--rdzv_endpoint=127.").unwrap_or_else(|| panic!("{args}"));
    assert!(endpoint.ends_with(":29400"), "{args}");
    assert_eq!(
        [words[0], words[2], words[3], words[4]],
        ["--rdzv_backend=c10d", "--rdzv_id=j", "--nnodes=1:4", "main.py"]
    );
    // The first run's output stands in a file of its own.
    let logs = place.path("trainyard-data/logs/default/j-worker-0");
    assert_eq!(crate::place::names(&logs).len(), 2, "{:?}", crate::place::names(&logs));
}

#[test]
fn one_worker_is_replaced_while_the_other_goes_on() {
    let place = Place::new();
    let script = "echo $HOSTNAME >> started; while [ $(wc -l < started) -lt 3 ]; do sleep 0.05; done";
    place.write("job.yaml", &job("ExitCode", 2, script, ""));
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml", "--fault=exit=j-worker-1:137"]));
    assert_eq!(code, Some(0), "{out}\n{err}");
    let mut started: Vec<String> = place.read("started").lines().map(str::to_owned).collect();
    started.sort();
    assert_eq!(started, ["j-worker-0", "j-worker-1", "j-worker-1"], "{out}");
    assert!(out.starts_with("ElasticJob default/j Succeeded, 1 restart, "), "{out}");
}

#[test]
fn what_a_condition_api_cannot_do_is_refused_and_why_a_job_failed_is_said() {
    let place = Place::new();
    place.write("job.yaml", &job("ExitCode", 1, "echo no such module; exit 3", ""));
    let (code, _, err) = output_of(&place.run(&["run", "job.yaml", "--fault=preempt=j"]));
    assert!(code == Some(2) && err.contains("ElasticJob has no preemption"), "{code:?} {err}");
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(1), "{out}\n{err}");
    assert!(out.contains("\nElasticJob default/j Failed, 0 restarts, "), "{out}");
    assert!(out.contains("because pod j-worker-0, container elasticjob-worker exited with code 3"), "{out}");
    assert!(out.contains("| no such module"), "{out}");
}

#[test]
fn the_outcome_of_a_job_that_is_deleted_at_its_end_counts() {
    for (script, word, exit) in [("exit 3", "Failed", 1), ("exit 0", "Succeeded", 0)] {
        let place = Place::new();
        place.write("job.yaml", &job("ExitCode", 1, script, "  ttlSecondsAfterFinished: 0\n"));
        for command in ["run", "simulate"] {
            let fault = "--fault=exit=j-worker-0:3@1s";
            let words: &[&str] = if command == "simulate" && exit == 1 { &[fault] } else { &[] };
            let (code, out, err) = output_of(&place.run(&[&[command, "job.yaml"], words].concat()));
            assert_eq!(code, Some(exit), "{command}: {out}\n{err}");
            let end = if command == "run" {
                format!("ElasticJob default/j {word}; it was deleted when its time to live had passed\n")
            } else {
                format!("\nElasticJob default/j\n  {word}; the job was deleted")
            };
            assert!(out.contains(&end), "{command}: {out}");
        }
    }
}
