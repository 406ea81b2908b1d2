//! The JSON Schema of scenario files accepts every scenario here, and refuses what the reader refuses.

use boon::{Compiler, Schemas};
use serde_json::{Value, json};

use crate::per_api;

/// Returns the errors of values held to the schema, each in one text; empty for a valid one.
fn errors(values: &[Value]) -> Vec<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("scenario.json", simulator::scenario::schema()).expect("the schema can be read");
    let schema = compiler.compile("scenario.json", &mut schemas).expect("the schema is one");
    let error = |value| schemas.validate(value, schema).err().map(|error| format!("{error:#}")).unwrap_or_default();
    values.iter().map(error).collect()
}

#[test]
fn every_scenario_here_is_valid() {
    let files = per_api::scenarios();
    let read = |file: &fixtures::Named| {
        let text = std::fs::read_to_string(&file.path).expect("a scenario can be read");
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options::<Value>(&text, options).expect("a scenario is YAML")
    };
    let values: Vec<Value> = files.iter().map(read).collect();
    let wrong: Vec<String> = (files.iter().zip(errors(&values)))
        .filter(|(_, error)| !error.is_empty())
        .map(|(file, error)| format!("{}/{}: {error}", file.api, file.name))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn what_the_reader_refuses_is_invalid() {
    for (scenario, member) in [
        (json!({}), "steps"),
        (json!({"steps": [], "node": []}), "node"),
        (json!({"steps": [{"aply": "all"}]}), "aply"),
        (json!({"steps": [{"exit": {"pod": "p"}}]}), "code"),
        (json!({"steps": [{"exit": {"pod": "p", "code": "one"}}]}), "code"),
        (json!({"steps": [{"crash": {"before": "lunch"}}]}), "before"),
        (json!({"steps": [{"advance": 5}]}), "advance"),
        (json!({"steps": [], "with": ["a-friend"]}), "with"),
        (json!({"steps": [], "expect": {"final": {"stat": "Running"}}}), "stat"),
    ] {
        let text = scenario.to_string();
        assert!(simulator::scenario::parse(&text, "").is_err(), "the reader takes {text}");
        let errors = errors(&[scenario]);
        assert!(errors[0].contains(member), "{text}: {}", errors[0]);
    }
}
