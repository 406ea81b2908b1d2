//! Jobs that ended in an earlier run of the same data directory.

use crate::place::{Place, job, output_of};

const SCRIPT: &str = "echo run >> runs";

fn runs(place: &Place) -> usize {
    place.read("runs").lines().count()
}

#[test]
fn a_changed_job_runs_again_and_an_unchanged_one_says_so() {
    let place = Place::new();
    place.write("job.yaml", &job("j", SCRIPT));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    assert_eq!(runs(&place), 1);

    // The same text in other words is no change.
    let value: serde_json::Value = serde_saphyr::from_str(&place.read("job.yaml")).unwrap();
    place.write("same.json", &serde_json::to_string_pretty(&value).unwrap());
    for file in ["job.yaml", "same.json"] {
        let (code, out, err) = output_of(&place.run(&["run", file]));
        assert_eq!(code, Some(0), "{err}");
        assert!(
            err.contains("AITrainingJob default/j has ended (Succeed) and is unchanged: not run again. --rerun"),
            "{err}"
        );
        assert!(out.starts_with("AITrainingJob default/j Succeed, 0 restarts, "), "{out}");
        assert_eq!(runs(&place), 1);
    }
    let (code, out, _) = output_of(&place.run(&["run", "--rerun", "job.yaml"]));
    assert_eq!((code, runs(&place)), (Some(0), 2), "{out}");

    // Its new outcome counts, and it alone is shown.
    place.write("job.yaml", &job("j", &format!("{SCRIPT}; exit 3")));
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!((code, runs(&place)), (Some(1), 3), "{out}");
    assert!(err.contains("has changed since it ended (Succeed): run again"), "{err}");
    assert_eq!(out.matches("AITrainingJob default/j ").count(), 1, "{out}");
    assert!(!out.contains("Succeed"), "{out}");

    // A failed one is not run again either, and its outcome stands.
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!((code, runs(&place)), (Some(1), 3), "{out}");
    assert!(err.contains("is unchanged"), "{err}");

    // A manifest that is refused costs nothing.
    let bad = job("j", SCRIPT).replace("replicas: 1", "replicas: -1");
    place.write("bad.yaml", &bad);
    assert_ne!(output_of(&place.run(&["run", "bad.yaml"])).0, Some(0));
    let (_, _, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert!(err.contains("is unchanged"), "{err}");
    assert_eq!(runs(&place), 3);
}

#[test]
fn a_changed_config_map_or_secret_counts_as_a_change() {
    let place = Place::new();
    let using = job("j", "cat $TRAINYARD_VOLUME_C/word >> runs; echo \"$WORD\" >> runs").replace(
        "containers: [{name: main, ",
        "volumes: [{name: c, configMap: {name: c}}]\n          containers: [{name: main, env: [{name: WORD, valueFrom: \
         {secretKeyRef: {name: s, key: word}}}], volumeMounts: [{name: c, mountPath: /c}], ",
    );
    let map =
        |word: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{word: \"{word}\\n\"}}\n");
    let secret =
        |word: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{word: {word}}}\n");
    let write = |map_word: &str, secret_word: &str| {
        place.write("all.yaml", &format!("{}---\n{}---\n{using}", map(map_word), secret(secret_word)));
        let (code, out, err) = output_of(&place.run(&["run", "all.yaml"]));
        assert_eq!(code, Some(0), "{out}{err}");
        place.read("runs")
    };
    place.write("job.yaml", &using);
    assert_eq!(write("a", "x"), "a\nx\n");
    assert_eq!(write("a", "x"), "a\nx\n");
    assert_eq!(write("b", "x"), "a\nx\nb\nx\n");
    assert_eq!(write("b", "y"), "a\nx\nb\nx\nb\ny\n");
    // Changed by a file of its own, it is changed for the job as well.
    place.write("map.yaml", &format!("{}---\n{}", map("c"), job("other", "true")));
    assert_eq!(output_of(&place.run(&["run", "map.yaml"])).0, Some(0));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    assert_eq!(place.read("runs"), "a\nx\nb\nx\nb\ny\nc\ny\n");
}

#[test]
fn a_new_attempt_keeps_volume_claims() {
    let place = Place::new();
    let using = |word: &str| {
        job("j", &format!("echo {word} >> $TRAINYARD_VOLUME_C/steps; cat $TRAINYARD_VOLUME_C/steps > seen")).replace(
            "containers: [{name: main, ",
            "volumes: [{name: c, persistentVolumeClaim: {claimName: c}}]\n          containers: [{name: main, \
             volumeMounts: [{name: c, mountPath: /c}], ",
        )
    };
    place.write("job.yaml", &using("one"));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    place.write("job.yaml", &using("two"));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    assert_eq!(place.read("seen"), "one\ntwo\n");
}
