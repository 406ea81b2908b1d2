//! Jobs that were deleted: what `ps` and `explain` show of them.

use crate::place::{Place, job, output_of};

fn read(place: &Place, words: &[&str]) -> String {
    let (code, out, err) = output_of(&place.run(words));
    assert_eq!(code, Some(0), "{words:?}: {out}{err}");
    out
}

#[test]
fn a_deleted_job_is_explained_and_listed_as_deleted() {
    let place = Place::new();
    place.write("jobs.yaml", &format!("{}---\n{}", job("bad", "echo no data >&2; exit 3"), job("good", "true")));
    assert_eq!(place.run(&["run", "-q", "jobs.yaml"]).status.code(), Some(1));
    assert_eq!(read(&place, &["delete", "bad"]), "AITrainingJob bad is deleted\n");
    assert_eq!(read(&place, &["ps", "-o", "name"]), "good\n");
    assert_eq!(read(&place, &["ps", "-a", "-o", "name"]), "good\nbad\n");
    let list = read(&place, &["ps", "-a"]);
    let line = list.lines().find(|line| line.starts_with("bad ")).unwrap_or_else(|| panic!("{list}"));
    assert!(line.contains("Deleted") && line.contains("it was Failed: "), "{line}");
    let words = read(&place, &["explain", "bad"]);
    assert!(words.starts_with("AITrainingJob default/bad is Deleted since "), "{words}");
    assert!(words.contains("\nit was Failed: ") && words.contains("code 3"), "{words}");
    assert!(!words.contains("it waits for"), "{words}");
    let object: serde_json::Value = serde_json::from_str(&read(&place, &["explain", "bad", "-o", "json"])).unwrap();
    assert_eq!(object["phase"], "Deleted");
    assert!(object["chain"].as_array().is_some_and(|chain| chain.len() > 2), "{object}");
    // Before it was deleted it was there.
    let end = object["chain"].as_array().and_then(|chain| chain.last()).and_then(|line| line["position"].as_u64());
    let before = (end.unwrap() - 1).to_string();
    let words = read(&place, &["explain", "bad", "--at", &before]);
    assert!(words.starts_with("AITrainingJob default/bad is Failed since "), "{words}");
    // A job of the same name is another one.
    place.write("again.yaml", &job("bad", "true"));
    assert_eq!(place.run(&["run", "-q", "again.yaml"]).status.code(), Some(0));
    assert!(read(&place, &["explain", "bad"]).starts_with("AITrainingJob default/bad is Succeed since "));
    let list = read(&place, &["ps", "-a"]);
    let phases: Vec<&str> = list.lines().filter(|line| line.starts_with("bad ")).collect();
    assert!(phases.len() == 2 && phases[0].contains("Succeed") && phases[1].contains("Deleted"), "{list}");
}
