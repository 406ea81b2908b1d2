//! `trainyard test`: scenarios of a directory, and the report for build systems.

use crate::place::{Place, output_of};

const SCENARIO: &str = "
name: runs to its end
cluster: {nodes: [{name: n1}], kubelet: manual}
";

/// A scenario of the repository.
pub(crate) fn scenario(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenarios").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn scenarios_are_held_to_what_they_expect() {
    let place = Place::new();
    let good = scenario("elasticjob/created-then-running.yaml");
    place.write("all/good.yaml", &good);
    place.write("all/deeper/good.yaml", &good);
    place.write("all/notes.txt", "not a scenario");
    let (code, out, err) = output_of(&place.run(&["test", "all", "--junit", "report.xml"]));
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    assert_eq!(out, "ok      all/deeper/good.yaml\nok      all/good.yaml\n2 scenarios: 2 passed, 0 failed\n");
    let report = place.read("report.xml");
    assert!(report.contains("<testsuite name=\"trainyard\" tests=\"2\" failures=\"0\" errors=\"0\""), "{report}");
    assert!(
        report.contains("<testcase classname=\"all/deeper\" name=\"good\" file=\"all/deeper/good.yaml\""),
        "{report}"
    );

    place.write("all/wrong.yaml", &good.replace("phases: [Created, Running]", "phases: [Created, Failed]"));
    let (code, out, _) = output_of(&place.run(&["test", "all", "--quiet", "--junit", "report.xml"]));
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.starts_with("FAILED  all/wrong.yaml\n        ") && out.ends_with("3 scenarios: 2 passed, 1 failed\n"),
        "{out}"
    );
    assert!(place.read("report.xml").contains("<failure message=\""), "{}", place.read("report.xml"));
    place.write("all/broken.yaml", SCENARIO);
    let (code, out, _) = output_of(&place.run(&["test", "all", "--quiet", "--junit", "report.xml"]));
    assert_eq!(code, Some(2), "{out}");
    assert!(out.starts_with("ERROR   ") && out.contains("all/broken.yaml"), "{out}");
    let (code, out, _) = output_of(&place.run(&["test", "all", "--filter", "good", "-q"]));
    assert_eq!((code, &*out), (Some(0), "2 scenarios: 2 passed, 0 failed\n"));
    let report = place.read("report.xml");
    assert!(report.contains("<error message=\""), "{report}");
    let (code, _, err) = output_of(&place.run(&["test", "all", "--filter", "nothing"]));
    assert!(code == Some(2) && err.contains("no scenario there"), "{err}");
}

#[test]
fn the_schema_of_scenarios_is_printed_for_editors() {
    let place = Place::new();
    let (code, out, err) = output_of(&place.run(&["scenario", "schema"]));
    assert_eq!((code, &*err), (Some(0), ""));
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let verbs = schema["$defs"]["Action"]["oneOf"].as_array().unwrap();
    let advance = verbs.iter().find(|verb| verb["properties"].get("advance").is_some()).unwrap();
    assert_eq!((&advance["description"], &advance["required"][0]), (&"Time passes.".into(), &"advance".into()));
}
