//! Every scenario with a small in-flight limit, and with throttled status writes: the backlog is empty in the end, and the
//! final state does not depend on either.

use simulator::Conditions;
use simulator::sweep::{differences, final_state};

use crate::per_api::{self, PerApi};

#[test]
fn a_small_in_flight_limit_changes_nothing() {
    let mut wrong = Vec::new();
    let mut compared = PerApi::new();
    for file in per_api::scenarios() {
        let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
        let Ok(wanted) = simulator::run(scenario) else { continue };
        let limits: &[usize] = if file.name == "many-pods" { &[64] } else { &[1, 3] };
        for max_in_flight in limits {
            *compared.entry(file.api.clone()).or_default() += 1;
            let place = format!("{}/{} with {max_in_flight} calls in flight", file.api, file.name);
            match simulator::run_under(scenario, Conditions { max_in_flight: *max_in_flight, ..Conditions::default() })
            {
                Err(error) => wrong.push(format!("{place}: {error}")),
                Ok(found) => {
                    let differences = differences(&final_state(&wanted), &final_state(&found));
                    if !differences.is_empty() {
                        wrong.push(format!("{place}: {}", differences.join("; ")));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared:?} differ:\n{}", wrong.len(), wrong.join("\n"));
    // Some scenarios cannot be run to their end; the others run twice.
    per_api::check_least(&compared, "runs were compared", |api| api.files * 3 / 2);
}

#[test]
fn throttled_status_writes_change_only_their_number() {
    let writes = |outcome: &simulator::ScenarioOutcome| {
        let done = outcome.steps.iter().flat_map(|step| &step.commands);
        done.filter(|done| done.call.verb == apis::Verb::ApplyStatus).count()
    };
    let mut wrong = Vec::new();
    let mut compared = PerApi::new();
    let (mut every, mut paced) = (0, 0);
    for file in per_api::scenarios() {
        let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
        let Ok(wanted) = simulator::run(scenario) else { continue };
        *compared.entry(file.api.clone()).or_default() += 1;
        match simulator::run_under(scenario, Conditions { status_interval_ms: 20, ..Conditions::default() }) {
            Err(error) => wrong.push(format!("{}/{}: {error}", file.api, file.name)),
            Ok(found) => {
                every += writes(&wanted);
                paced += writes(&found);
                let differences = differences(&final_state(&wanted), &final_state(&found));
                if !differences.is_empty() {
                    wrong.push(format!("{}/{}: {}", file.api, file.name, differences.join("; ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared:?} differ:\n{}", wrong.len(), wrong.join("\n"));
    per_api::check_least(&compared, "runs were compared", |api| api.files * 4 / 5);
    assert!(paced < every, "{paced} writes where {every} are made without a pace");
}
