//! Output of every command that reads a log, word for word, on a story in virtual time: the same on every machine.

use crate::place::{Place, output_of};

/// A story of two jobs: one fails, one succeeds after a restart.
fn story() -> Place {
    let place = Place::new();
    let job = |name: &str, kind: &str, policy: &str| {
        let container = "{name: main, image: i, command: [train]}";
        format!(
            "apiVersion: elasticdeeplearning.ai/v1\nkind: AITrainingJob\nmetadata: {{name: {name}}}\nspec:\n  \
             replicaSpecs:\n    {kind}:\n      replicas: 2\n      restartPolicy: {policy}\n      restartLimit: 3\n      template:\n        \
             spec:\n          containers: [{container}]\n"
        )
    };
    place.write(
        "jobs.yaml",
        &format!("{}---\n{}", job("eval", "worker", "Never"), job("train", "trainer", "OnFailure")),
    );
    let words = [
        "simulate",
        "jobs.yaml",
        "--fault=exit=train-trainer-1:137@20s",
        "--fault=exit=eval-worker-0:3@30s",
        "--duration=90s",
        "--nodes=2",
        "--log=story.jsonl",
        "--quiet",
    ];
    let (code, out, err) = output_of(&place.run(&words));
    assert_eq!(code, Some(1), "{out}{err}");
    place
}

#[test]
fn every_command_that_reads_a_log_prints_what_it_always_did() {
    let place = story();
    let mut reported = String::new();
    for words in [
        &["ps"][..],
        &["ps", "-o", "wide"],
        &["ps", "-o", "name"],
        &["ps", "-o", "json"],
        &["get", "train"],
        &["get", "train", "-o", "yaml"],
        &["get", "eval", "-o", "wide"],
        &["wait", "train", "--for=ended"],
        &["wait", "train", "--for=succeeded"],
        &["explain", "train"],
        &["explain", "train", "--at", "9"],
        &["explain", "tran"],
        &["history", "train", "--decisions"],
        &["queue"],
        &["diff", "7", "8"],
        &["logs", "train"],
    ] {
        let (code, out, err) = output_of(&place.run(&[words, &["--log", "story.jsonl"]].concat()));
        let code = code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        reported.extend([
            "$ trainyard ",
            &*words.join(" "),
            " --log story.jsonl\n",
            &*out,
            &*err,
            "[",
            &*code,
            "]\n\n",
        ]);
    }
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("commands_on_a_log", reported);
    });
}
