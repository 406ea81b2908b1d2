//! The manifests of all scenarios as `trainyard validate` sees them: those that are meant to be right have no findings.

use std::fmt::Write as _;

use apis::{Registry, Resource, Severity, kubernetes, manifest};

use crate::per_api::APIS;

#[test]
fn only_scenarios_about_mistakes_have_findings() {
    let registry = Registry::all();
    for api in APIS {
        let mut found = String::new();
        let mut right = 0;
        for file in api.scenarios() {
            let scenario = file.scenario.unwrap_or_else(|error| panic!("{error}"));
            for object in &scenario.manifests {
                let mut findings = manifest::findings(&registry, object);
                // What is done with an object of this kind is no mistake in it.
                findings.retain(|finding| finding.severity != Severity::Remark || finding.field.path != "kind");
                right += usize::from(findings.is_empty());
                for finding in findings {
                    let _ = writeln!(found, "{}: {:?}: {}", file.name, finding.severity, finding.field);
                }
            }
        }
        assert!(right > api.files * 4 / 5, "{}: only {right} manifests are right", api.name);
        let settings = crate::per_api::settings(&format!("manifests/{}", api.name));
        settings.bind(|| insta::assert_snapshot!("findings_in_scenarios", found));
    }
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
