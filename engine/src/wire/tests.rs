//! Tests of the wire: what is written stays the same to the byte, and what is newer is refused by name.

mod values;

use model::JobKey;

use super::*;

/// Texts of [`values`], written by the build whose types were still their own JSON form. They never change under this version.
const RECORD: &str = include_str!("tests/record.json");
const CHECKPOINT: &str = include_str!("tests/checkpoint.json");

#[test]
fn every_fact_and_event_is_written_as_ever_and_read_back() {
    let record = values::record();
    assert_eq!(String::from_utf8(record.encode().unwrap()).unwrap(), RECORD);
    assert_eq!(Record::decode(record.position, record.term, RECORD.as_bytes()).unwrap(), record);
    assert_eq!(RECORD.parse::<Value>().unwrap()["events"][0], event_value(&record.events[0]));
}

#[test]
fn every_member_of_a_state_is_written_as_ever_and_read_back() {
    let text = |state: &State| String::from_utf8(state.to_checkpoint().unwrap()).unwrap();
    assert_eq!(text(&values::state()), CHECKPOINT);
    assert_eq!(text(&State::from_checkpoint(CHECKPOINT.as_bytes()).unwrap()), CHECKPOINT);
    let job = CHECKPOINT.parse::<Value>().unwrap()["jobs"][0][1].clone();
    assert_eq!(job_value(values::state().job(&values::key()).as_deref().unwrap()), job);
}

#[test]
fn a_mirror_survives_its_object() {
    for fact in values::record().facts {
        let Fact::Adopted(adopted) = fact else { continue };
        assert_eq!(mirror_from_value(&mirror_value(&adopted.mirror)), Some(adopted.mirror));
    }
    for odd in [Value::Null, serde_json::json!({"term": 1, "position": 2, "phase": "Unheard"})] {
        assert_eq!(mirror_from_value(&odd), None);
    }
}

/// Reads a body and says why not.
type Read<'a> = &'a dyn Fn(&[u8]) -> Result<(), WireError>;

/// Replaces words of both texts, one after the other: whatever the word is, the body is a newer build's.
#[test]
fn every_word_that_is_replaced_is_named() {
    let record = |body: &[u8]| Record::decode(Position(7), Term(3), body).map(drop);
    let checkpoint = |body: &[u8]| State::from_checkpoint(body).map(drop);
    let reads: [(&str, Read<'_>); 2] = [(RECORD, &record), (CHECKPOINT, &checkpoint)];
    let words =
        ["NodeFailed", "Terminated", "OnNodeFail", "Rank0", "Marked", "restart", "PodUid", "Refused", "Replica"];
    for (text, read) in reads {
        for word in words {
            let newer = text.replacen(&format!("\"{word}\""), "\"Unheard\"", 1);
            if word == "restart" && newer.contains("\"Unheard\":\"Always\"") {
                continue;
            }
            let error = read(newer.as_bytes()).unwrap_err();
            assert!(matches!(&error, WireError::TooNew(Newer::Word(word)) if word == "Unheard"), "{word}: {error}");
        }
    }
}

fn record() -> Record {
    Record {
        position: Position(7),
        term: Term(3),
        scope: Scope::Job(JobKey {
            namespace: "default".into(),
            name: "j".into(),
            kind: "AITrainingJob".into(),
            uid: "u1".into(),
        }),
        at: Timestamp(1000),
        behaviour: 1,
        facts: vec![Fact::Due, Fact::PodGone { uid: "p1".into(), rv: None }],
        causes: vec![Position(6)],
        events: vec![Event::RestartCleared],
    }
}

#[test]
fn a_record_survives_its_body() {
    let body = record().encode().unwrap();
    assert_eq!(Record::decode(Position(7), Term(3), &body).unwrap(), record());
    // What stands in old logs must not change: a change of this text is a new format.
    let text = r#"{"at":1000,"job":{"namespace":"default","name":"j","kind":"AITrainingJob","uid":"u1"},"facts":["Due",{"PodGone":{"uid":"p1"}}],"causes":[6],"events":["RestartCleared"]}"#;
    assert_eq!(String::from_utf8(body).unwrap(), text);
    let now = Record { behaviour: BEHAVIOUR, ..record() };
    assert_eq!(Record::decode(Position(7), Term(3), &now.encode().unwrap()).unwrap(), now);
}

#[test]
fn members_added_later_are_passed_over_and_what_a_newer_build_wrote_is_refused_by_name() {
    let added = br#"{"at":5,"colour":"blue","facts":["Due"]}"#;
    assert_eq!(Record::decode(Position(1), Term(1), added).unwrap().facts, vec![Fact::Due]);
    let word = |word: &str| Newer::Word(word.to_owned());
    let job = r#""job":{"namespace":"default","name":"j","kind":"AITrainingJob","uid":"u1"}"#;
    let in_job = |members: &str| format!(r#"{{"at":5,{job},{members}}}"#);
    for (newer, want) in [
        (r#"{"v":2,"at":5}"#.to_owned(), Newer::Format(2)),
        (r#"{"v":2,"what":[{"Unheard":1}]}"#.to_owned(), Newer::Format(2)),
        (format!(r#"{{"at":5,"behaviour":{},"facts":["Due"]}}"#, BEHAVIOUR + 1), Newer::Behaviour(BEHAVIOUR + 1)),
        (r#"{"behaviour":4000000000,"what":1}"#.to_owned(), Newer::Behaviour(4_000_000_000)),
        (in_job(r#""facts":["Unheard"]"#), word("Unheard")),
        (in_job(r#""facts":[{"Unheard":{"a":[1]}}]"#), word("Unheard")),
        (in_job(r#""events":[{"PhaseChanged":{"to":"Suspended"}}]"#), word("Suspended")),
        (in_job(r#""facts":[{"Answered":{"object":"Status","outcome":"Odd"}}]"#), word("Odd")),
    ] {
        match Record::decode(Position(1), Term(1), newer.as_bytes()) {
            Err(error @ WireError::TooNew(_)) => assert_eq!(
                error.to_string(),
                format!("written by a newer build of Trainyard ({want}); use that build or newer")
            ),
            other => panic!("{newer}: {other:?}"),
        }
    }
    for bad in [&b""[..], b"{", b"{}", br#"{"at":-1}"#, br#"{"at":5,"facts":[{"Due":1}]}"#] {
        let error = Record::decode(Position(1), Term(1), bad).unwrap_err();
        assert!(matches!(error, WireError::Malformed(_)), "{error}");
    }
}

#[test]
fn a_checkpoint_of_a_newer_build_is_refused() {
    let body = State::default().to_checkpoint().unwrap();
    assert!(State::from_checkpoint(&body).is_ok());
    let body = String::from_utf8(body).unwrap();
    let newer = body.replacen("\"v\":1", "\"v\":9", 1);
    assert!(matches!(State::from_checkpoint(newer.as_bytes()), Err(WireError::TooNew(Newer::Format(9)))));
    let newer = body.replacen(&format!("\"behaviour\":{BEHAVIOUR}"), "\"behaviour\":9", 1);
    assert!(matches!(State::from_checkpoint(newer.as_bytes()), Err(WireError::TooNew(Newer::Behaviour(9)))));
    // The first build wrote none.
    let first = body.replacen(&format!("\"behaviour\":{BEHAVIOUR},"), "", 1);
    assert!(State::from_checkpoint(first.as_bytes()).is_ok());
}
