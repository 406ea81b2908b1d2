//! Tests of the wire: what is written stays the same to the byte, and what is newer is refused by name.

pub(crate) mod values;
pub(crate) mod values2;
pub(crate) mod values3;
pub(crate) mod values4;
pub(crate) mod values5;
pub(crate) mod values6;
pub(crate) mod values7;

use model::{JobKey, Timestamp};

use self::values::Contents;
use super::*;

/// Texts of [`values`], a record of each scope in a line. The build whose types were still their own JSON form wrote them.
/// They never change under this version.
const RECORD: &str = include_str!("tests/record.json");
const CHECKPOINT: &str = include_str!("tests/checkpoint.json");
/// The same for what format 2 adds.
const RECORD_2: &str = include_str!("tests/record2.json");
const CHECKPOINT_2: &str = include_str!("tests/checkpoint2.json");
/// The same for what format 3 adds.
const RECORD_3: &str = include_str!("tests/record3.json");
const CHECKPOINT_3: &str = include_str!("tests/checkpoint3.json");
/// The same for what format 4 adds.
const RECORD_4: &str = include_str!("tests/record4.json");
const CHECKPOINT_4: &str = include_str!("tests/checkpoint4.json");
/// The same for what format 5 adds.
const RECORD_5: &str = include_str!("tests/record5.json");
const CHECKPOINT_5: &str = include_str!("tests/checkpoint5.json");
/// The same for what format 6 adds.
const RECORD_6: &str = include_str!("tests/record6.json");
const CHECKPOINT_6: &str = include_str!("tests/checkpoint6.json");
/// The same for what format 7 adds.
const RECORD_7: &str = include_str!("tests/record7.json");
const CHECKPOINT_7: &str = include_str!("tests/checkpoint7.json");

/// Returns the record of the job among the records of a format: the first line.
fn of_job(records: &str) -> &str {
    records.lines().next().unwrap()
}

#[test]
fn every_fact_and_event_is_written_as_ever_and_read_back() {
    let later = [
        (values2::contents(), RECORD_2),
        (values3::contents(), RECORD_3),
        (values4::contents(), RECORD_4),
        (values5::contents(), RECORD_5),
        (values6::contents(), RECORD_6),
        (values7::contents(), RECORD_7),
    ];
    for (contents, texts) in [(values::contents(), RECORD)].into_iter().chain(later) {
        let records = contents.records();
        assert_eq!(records.len(), texts.lines().count());
        for (record, text) in records.iter().zip(texts.lines()) {
            assert_eq!(String::from_utf8(record.encode().unwrap()).unwrap(), text);
            assert_eq!(Record::decode(record.position, record.term, text.as_bytes()).unwrap(), *record);
        }
    }
    let record = &values::contents().records()[0];
    assert_eq!(of_job(RECORD).parse::<Value>().unwrap()["events"][0], event_value(&record.events()[0]));
}

#[test]
fn every_member_of_a_state_is_written_as_ever_and_read_back() {
    let text = |state: &State| String::from_utf8(state.to_checkpoint().unwrap()).unwrap();
    let later = [
        (values2::state(), CHECKPOINT_2),
        (values3::state(), CHECKPOINT_3),
        (values4::state(), CHECKPOINT_4),
        (values5::state(), CHECKPOINT_5),
        (values6::state(), CHECKPOINT_6),
        (values7::state(), CHECKPOINT_7),
    ];
    for (state, stored) in [(values::state(), CHECKPOINT)].into_iter().chain(later) {
        assert_eq!(text(&state), stored);
        assert_eq!(text(&State::from_checkpoint(stored.as_bytes()).unwrap()), stored);
    }
    let job = CHECKPOINT.parse::<Value>().unwrap()["jobs"][0][1].clone();
    assert_eq!(job_value(values::state().job(&values::key()).as_deref().unwrap()), job);
}

#[test]
fn a_record_has_the_oldest_format_that_can_hold_it() {
    let version = |record: &Record| {
        let body = record.encode().unwrap();
        String::from_utf8(body).unwrap().parse::<Value>().unwrap().get("v").map_or(1, |v| v.as_u64().unwrap())
    };
    let old = || values::contents().facts;
    assert!(values::contents().records().iter().all(|record| version(record) == 1));
    for (format, contents) in [
        (2, values2::contents()),
        (3, values3::contents()),
        (4, values4::contents()),
        (5, values5::contents()),
        (6, values6::contents()),
        (7, values7::contents()),
    ] {
        let Contents { facts, events, cluster, queues } = contents;
        let job = |facts, events| Body::Job { key: values::key(), facts, events };
        let bodies = facts.into_iter().map(|fact| job(vec![fact], vec![]));
        let bodies = bodies.chain(events.into_iter().map(|event| job(old(), vec![event])));
        let bodies = bodies.chain(cluster.into_iter().map(|fact| Body::Cluster { facts: vec![fact] }));
        let bodies = bodies.chain(queues.0.into_iter().map(|fact| Body::Queues { facts: vec![fact], events: vec![] }));
        let events = queues.1.into_iter().map(|event| Body::Queues { facts: vec![], events: vec![event] });
        for record in bodies.chain(events).map(values::record) {
            assert_eq!(version(&record), format, "{:?}", record.body);
        }
    }
    // A state remembers what it was folded from.
    let mut state = State::default();
    state.apply_job_fact(&values::key(), &values2::facts()[0]);
    assert!(String::from_utf8(state.to_checkpoint().unwrap()).unwrap().starts_with("{\"v\":2,"));
    state = State::from_checkpoint(&state.to_checkpoint().unwrap()).unwrap();
    assert!(String::from_utf8(state.to_checkpoint().unwrap()).unwrap().starts_with("{\"v\":2,"));
}

#[test]
fn a_mirror_survives_its_object() {
    let later = values2::facts().into_iter().chain(values3::facts()).chain(values4::facts());
    let later = later.chain(values5::facts()).chain(values6::facts());
    for fact in values::contents().facts.into_iter().chain(later) {
        let JobFact::Adopted(adopted) = fact else { continue };
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
    let reads: [(&str, Read<'_>); 2] = [(of_job(RECORD), &record), (CHECKPOINT, &checkpoint)];
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
        at: Timestamp(1000),
        behaviour: 1,
        causes: vec![Position(6)],
        body: Body::Job {
            key: JobKey {
                namespace: "default".into(),
                name: "j".into(),
                kind: "AITrainingJob".into(),
                uid: "u1".into(),
            },
            facts: vec![JobFact::Due, JobFact::PodGone { uid: "p1".into(), rv: None }],
            events: vec![JobEvent::RestartCleared],
        },
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
    let word = |word: &str| Newer::Word(word.to_owned());
    let job = r#""job":{"namespace":"default","name":"j","kind":"AITrainingJob","uid":"u1"}"#;
    let in_job = |members: &str| format!(r#"{{"at":5,{job},{members}}}"#);
    let added = in_job(r#""colour":"blue","facts":["Due"]"#);
    assert_eq!(Record::decode(Position(1), Term(1), added.as_bytes()).unwrap().job_facts(), [JobFact::Due]);
    for (newer, want) in [
        (r#"{"v":8,"at":5}"#.to_owned(), Newer::Format(8)),
        (r#"{"v":8,"what":[{"Unheard":1}]}"#.to_owned(), Newer::Format(8)),
        (format!(r#"{{"at":5,"behaviour":{},"facts":["Due"]}}"#, BEHAVIOUR + 1), Newer::Behaviour(BEHAVIOUR + 1)),
        (r#"{"behaviour":4000000000,"what":1}"#.to_owned(), Newer::Behaviour(4_000_000_000)),
        (in_job(r#""facts":["Unheard"]"#), word("Unheard")),
        (in_job(r#""facts":[{"Unheard":{"a":[1]}}]"#), word("Unheard")),
        (in_job(r#""events":[{"PhaseChanged":{"to":"Paused"}}]"#), word("Paused")),
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
fn a_fact_or_an_event_of_another_scope_is_refused_by_name() {
    let job = r#""job":{"namespace":"default","name":"j","kind":"AITrainingJob","uid":"u1"}"#;
    for (members, want) in [
        (format!(r#"{job},"facts":[{{"NodeGone":{{"name":"n"}}}}]"#), "fact NodeGone does not belong in a job record"),
        (
            format!(r#"{job},"facts":["Due",{{"QueuesAsked":{{}}}}]"#),
            "fact QueuesAsked does not belong in a job record",
        ),
        (r#""facts":["JobGone"]"#.to_owned(), "fact JobGone does not belong in a cluster record"),
        (r#""queues":true,"facts":["Due"]"#.to_owned(), "fact Due does not belong in a queues record"),
        // The scope may stand behind the facts.
        (format!(r#""facts":[{{"TermBegan":{{"term":1}}}}],{job}"#), "fact TermBegan does not belong in a job record"),
        (r#""events":["Fenced"]"#.to_owned(), "event Fenced in a record of another subject"),
        (r#""queues":true,"events":["Fenced"]"#.to_owned(), "event Fenced in a record of another subject"),
        (format!(r#"{job},"events":[{{"Shared":{{"changes":[]}}}}]"#), "event Shared in a record of another subject"),
    ] {
        let error = Record::decode(Position(1), Term(1), format!(r#"{{"at":5,{members}}}"#).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), want, "{members}");
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
