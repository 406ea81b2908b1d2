//! Every scenario with an operator that may have few calls under way, and with one that tells of progress seldom: everything
//! that is owed is done in the end, and how things stand then does not depend on it.

use simulator::Conditions;
use simulator::sweep::{differences, final_state};

#[test]
fn little_room_changes_nothing() {
    let files = fixtures::scenarios("aitrainingjob").expect("the scenario folder can be read");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for file in &files {
        let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
        let Ok(wanted) = simulator::run(scenario) else { continue };
        let rooms: &[usize] = if file.name == "many-pods" { &[64] } else { &[1, 3] };
        for max_in_flight in rooms {
            compared += 1;
            match simulator::run_under(scenario, Conditions { max_in_flight: *max_in_flight, ..Conditions::default() })
            {
                Err(error) => wrong.push(format!("{} with room for {max_in_flight}: {error}", file.name)),
                Ok(found) => {
                    let differences = differences(&final_state(&wanted), &final_state(&found));
                    if !differences.is_empty() {
                        wrong.push(format!("{} with room for {max_in_flight}: {}", file.name, differences.join("; ")));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 300, "only {compared} runs were compared");
}

#[test]
fn seldom_writes_change_nothing_but_their_number() {
    let files = fixtures::scenarios("aitrainingjob").expect("the scenario folder can be read");
    let writes = |outcome: &simulator::Outcome| {
        let done = outcome.steps.iter().flat_map(|step| &step.commands);
        done.filter(|done| done.call.verb == apis::Verb::ApplyStatus).count()
    };
    let mut wrong = Vec::new();
    let (mut compared, mut every, mut paced) = (0, 0, 0);
    for file in &files {
        let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
        let Ok(wanted) = simulator::run(scenario) else { continue };
        compared += 1;
        match simulator::run_under(scenario, Conditions { status_pace_ms: 20, ..Conditions::default() }) {
            Err(error) => wrong.push(format!("{}: {error}", file.name)),
            Ok(found) => {
                every += writes(&wanted);
                paced += writes(&found);
                let differences = differences(&final_state(&wanted), &final_state(&found));
                if !differences.is_empty() {
                    wrong.push(format!("{}: {}", file.name, differences.join("; ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 200, "only {compared} runs were compared");
    assert!(paced < every, "{paced} writes where {every} are made without a pace");
}
