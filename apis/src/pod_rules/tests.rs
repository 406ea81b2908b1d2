//! Every rule against its smallest faulty template, and templates at the limits against all rules.

use std::collections::BTreeSet;

use super::*;

fn examples(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn refused() -> Vec<Value> {
    examples(include_str!("../../../fixtures/pod_templates/refused.json"))
}

fn accepted() -> Vec<Value> {
    examples(include_str!("../../../fixtures/pod_templates/accepted.json"))
}

fn findings(template: &Value) -> Vec<Finding> {
    let mut findings = Findings::default();
    crate::template::check_at(template, "t", AS_WRITTEN, &mut findings);
    findings.into_list()
}

#[test]
fn each_example_has_the_one_fault_of_its_rule() {
    for example in refused() {
        let found = findings(&example["template"]);
        assert_eq!(found.len(), 1, "{example}: {found:?}");
        assert_eq!(found[0].field.path, format!("t.{}", example["field"].as_str().unwrap()));
        let severity = if example["accepted"] == true { Severity::Mistake } else { Severity::Error };
        assert_eq!(found[0].severity, severity, "{}", found[0].field);
        // Without the rule, nothing is found.
        let name = example["rule"].as_str().unwrap().to_owned();
        if let Some(rule) = rules().find(|rule| rule.name == name) {
            let mut findings = Findings::default();
            let mut faults = Faults { findings: &mut findings, base: "t", completes: AS_WRITTEN, rule: rule.name };
            for at in rule.at {
                place::visit(&example["template"], at, &mut |place| judge(rule.judge, place, &mut faults));
            }
            assert_eq!(findings.into_list(), found, "{name}");
        }
    }
}

#[test]
fn every_rule_has_one_name_and_an_example() {
    let names: Vec<&str> = rules().map(|rule| rule.name).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len());
    let examples = refused();
    let shown: BTreeSet<&str> = examples.iter().map(|example| example["rule"].as_str().unwrap()).collect();
    // An example of annotations that are too large would be larger than all others; wrong types are no rule of the table.
    let expected = unique.iter().copied().filter(|name| *name != "annotations-size").chain(["type"]);
    assert_eq!(shown, expected.collect());
    assert!(names.len() > 100, "{}", names.len());
}

#[test]
fn templates_at_the_limits_have_no_fault() {
    for example in accepted() {
        let found = findings(&example["template"]);
        assert!(found.is_empty(), "{}: {found:?}", example["name"]);
    }
}

#[test]
fn annotations_are_bounded_together() {
    for (length, faults) in [(256 * 1024 - 1, 0), (256 * 1024, 1)] {
        let annotations = serde_json::json!({"a": "b".repeat(length)});
        let template = serde_json::json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        });
        assert_eq!(findings(&template).len(), faults);
    }
}

#[test]
fn words_that_a_newer_server_may_know_are_no_errors() {
    let template =
        |policy: &str| serde_json::json!({"spec": {"dnsPolicy": policy, "containers": [{"name": "a", "image": "i"}]}});
    for (policy, severity, text) in [
        ("clusterFirst", Severity::Error, "did you mean ClusterFirst?"),
        ("ClusterLast", Severity::Mistake, "must be one of ClusterFirst, "),
    ] {
        let found = findings(&template(policy));
        assert_eq!((found.len(), found[0].severity), (1, severity), "{found:?}");
        assert!(found[0].field.to_string().contains(text), "{}", found[0].field);
    }
}

#[test]
fn a_completed_place_is_not_judged() {
    let template = serde_json::json!({"spec": {"containers": [{"name": "main"}, {"name": "other"}]}});
    let mut found = Findings::default();
    let completes: Completes = |rule, place| rule == "image-missing" && place.container_name() == Some("main");
    check(&template, "t", completes, &mut found);
    let paths: Vec<String> = found.into_list().into_iter().map(|finding| finding.field.path).collect();
    assert_eq!(paths, ["t.spec.containers[1].image"]);
}
