//! Holds what differs between the APIs with scenarios: least numbers, and the phases it shows.
//!
//! A test that runs scenarios goes over [`APIS`]. A new API needs an entry here and a folder under `fixtures/scenarios`.

mod aitrainingjob;
mod elasticjob;
mod model;
mod modelversion;
mod mpijob;
mod torchjob;
mod torchrunjob;
mod torchrunqueue;
mod trainingqueue;

use std::collections::BTreeMap;

use ::model::Phase;
use fixtures::Named;
use fixtures::tables::Cell;

/// Scenarios of one API, and the numbers that show that none got lost.
pub(crate) struct Api {
    /// Name of its folder: its kind in lower case.
    pub(crate) name: &'static str,
    /// Least number of scenario files.
    pub(crate) files: usize,
    /// Least number of crashes when every scenario crashes at every point.
    pub(crate) crashes: usize,
    /// Scenarios that run a hundred times: order decided there once.
    pub(crate) repeated: &'static [&'static str],
    /// Phases that its jobs can be in.
    pub(crate) phases: &'static [Phase],
    /// Phases of the matrix, each with kinds of facts that a scenario must show.
    pub(crate) lived_in: &'static [(Phase, &'static [&'static str])],
    /// Returns its table of phases and of what may happen in each.
    pub(crate) happenings: fn() -> Vec<Cell>,
    /// Returns the text of a small scenario that leads a job into a phase.
    pub(crate) enter: fn(Phase) -> String,
    /// Group of the pods of that job.
    pub(crate) group: &'static str,
}

/// Facts that a job lives on.
const VITAL: &[&str] = &["Job", "Spec", "JobGone", "Pod", "PodGone", "ServiceGone", "NodeChanged"];

/// Every API with scenarios.
pub(crate) const APIS: &[Api] = &[
    aitrainingjob::API,
    elasticjob::API,
    self::model::API,
    modelversion::API,
    mpijob::API,
    torchjob::API,
    torchrunjob::API,
    torchrunqueue::API,
    trainingqueue::API,
];

impl Api {
    /// Reads its scenario files.
    pub(crate) fn scenarios(&self) -> Vec<Named> {
        let files = fixtures::scenarios(self.name).expect("the scenario folder can be read");
        assert!(files.len() >= self.files, "only {} scenarios of {}", files.len(), self.name);
        files
    }
}

/// Reads every scenario file of every API.
pub(crate) fn scenarios() -> Vec<Named> {
    APIS.iter().flat_map(Api::scenarios).collect()
}

/// Counts something per API.
pub(crate) type PerApi = BTreeMap<String, usize>;

/// Checks that every API has at least a part of its own number of something.
pub(crate) fn check_least(found: &PerApi, what: &str, least: impl Fn(&Api) -> usize) {
    for api in APIS {
        let count = found.get(api.name).copied().unwrap_or_default();
        assert!(count >= least(api), "{}: only {count} {what}", api.name);
    }
}

/// Binds the settings of snapshots that lie in `folder`.
pub(crate) fn settings(folder: &str) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn every_served_api_has_scenarios() {
    let registry = apis::Registry::all();
    // What a former kind does is tested with its successor's scenarios.
    let present = registry.iter().filter(|api| !api.descriptor().is_former);
    let mut served: Vec<String> = present.map(|api| api.resource().kind.to_lowercase()).collect();
    served.sort();
    let listed: Vec<&str> = APIS.iter().map(|api| api.name).collect();
    assert_eq!(listed, served);
    assert_eq!(listed, fixtures::apis().expect("the scenario folders can be read"));
}
