//! The manifests of all scenarios as `trainyard validate` sees them: those that are meant to be right have no findings.

use std::fmt::Write as _;

use apis::{Registry, Resource, kubernetes, manifest};

#[test]
fn only_scenarios_about_mistakes_have_findings() {
    let registry = Registry::all();
    let mut found = String::new();
    let mut right = 0;
    for file in fixtures::scenarios("aitrainingjob").expect("the scenario folder can be read") {
        let scenario = file.scenario.unwrap_or_else(|error| panic!("{error}"));
        for object in &scenario.manifests {
            let findings = manifest::findings(&registry, object);
            right += usize::from(findings.is_empty());
            for finding in findings {
                let _ = writeln!(found, "{}: {:?}: {}", file.name, finding.severity, finding.field);
            }
        }
    }
    assert!(right > 200, "only {right} manifests are right");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("manifests");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("findings_in_scenarios", found));
}

#[test]
fn every_kind_that_is_checked_can_be_applied() {
    let cluster = cluster::Cluster::new(&cluster::Options::default());
    let kinds: Vec<Resource> = kubernetes::kinds().collect();
    assert!(kinds.len() > 10);
    for kind in kinds {
        assert_eq!(cluster.resource_named(&kind.kind).as_ref(), Some(&kind));
    }
}
