//! `trainyard schedule eval`: vectors in, results out, as one JSON object `{"<id>": result}`.
//!
//! The format is that of the conformance vectors of Voda's corrected rules; `expected` members may be absent and are not
//! looked at. Sections: `allocation`, `placement`, `plan`, `tiresias_priority`, `collector`, `names`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use model::Text;
use scheduler::changes::changes;
use scheduler::learning::{Measured, MeasuredProgress, Prior, Report};
use scheduler::placement::{Demand, Node, Packing, Placement, Plan, repack};
use scheduler::policies::las::Queues;
use scheduler::{
    Curve, GpuMicros, GpuType, JobError, JobView, Memory, Micros, PolicyInput, Speed, Speeds, allocate, by_name,
};
use serde_json::{Map, Value, json};
use terminal::out::{self, Failure};

use crate::commands::schedule::vectors::VectorValue;

/// Arguments of `trainyard schedule eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// A JSON file of vectors.
    file: PathBuf,
}

/// Computes one vector; adds the problems of parts that were left out.
type Section = fn(&VectorValue<'_>, &mut Vec<Failure>) -> Result<Value, Failure>;

const SECTIONS: [(&str, Section); 6] = [
    ("allocation", allocation),
    ("placement", placement),
    ("plan", plan),
    ("tiresias_priority", queue_rule),
    ("collector", collector),
    ("names", job_name),
];

/// Prints the results of this build for each vector.
pub(crate) fn run(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file).map_err(|e| Failure::new(format!("{file}: {e}")))?;
    let vectors: Value = serde_json::from_str(&text).map_err(|e| Failure::new(format!("{file}: {e}")))?;
    let mut left_out = Vec::new();
    let results = evaluate(&VectorValue::root(&vectors), &mut left_out);
    let results = results.map_err(|e| Failure::new(format!("{file}: {e}")))?;
    for complaint in &left_out {
        eprintln!("trainyard: {file}: {complaint}");
    }
    out::line(&serde_json::to_string_pretty(&Value::Object(results))?);
    Ok(if left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(out::FOUND) })
}

fn evaluate(file: &VectorValue<'_>, left_out: &mut Vec<Failure>) -> Result<Map<String, Value>, Failure> {
    let mut results = Map::new();
    let mut sections = 0;
    for (name, section) in SECTIONS {
        let Some(vectors) = file.find(name)? else { continue };
        sections += 1;
        for vector in vectors.items()? {
            let id = vector.get("id")?;
            let name = id.text()?;
            let result = section(&vector.clone().called(name), left_out)?;
            if results.insert(name.to_owned(), result).is_some() {
                return Err(id.error("this id is used twice"));
            }
        }
    }
    if sections == 0 {
        let known: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        return Err(file.error(&format!("expected one of the members {}", known.join(", "))));
    }
    Ok(results)
}

/// Decimals of a second in a time, and of a speed.
const MICRO: u32 = 6;
const NANO: u32 = 9;

fn secs(place: &VectorValue<'_>) -> Result<Micros, Failure> {
    place.number(MICRO).map(Micros)
}

/// A job of a vector; what the vector leaves out is as it is at submission (`num` as large as `min`, linear speed, never
/// started). Sizes are checked by the allocation.
fn job(place: &VectorValue<'_>) -> Result<JobView, Failure> {
    let or = |key, default| place.given(key)?.map_or(Ok(default), |value| value.count());
    let min = place.get("min")?.count()?;
    let max = place.get("max")?.count()?;
    let waiting = JobView::waiting(
        place.get("name")?.text()?,
        min,
        or("num", min)?,
        max,
        place.given("submit_sec")?.map_or(Ok(Micros::ZERO), |submit| secs(&submit))?,
    );
    let speeds = match place.given("speedup")? {
        None => Speeds::single(Curve::linear(max.min(MAX_GPUS))),
        Some(table) => {
            let speed = |entry: &VectorValue<'_>| entry.number(NANO).map(Speed);
            Speeds::single(Curve::new(table.items()?.iter().map(speed).collect::<Result<Vec<_>, _>>()?))
        }
    };
    Ok(JobView {
        level: or("priority", 0)?,
        first_start: place.given("first_start_sec")?.map(|first| secs(&first)).transpose()?,
        remaining: place.given("remaining_sec")?.map(|rest| secs(&rest)).transpose()?,
        speeds,
        ..waiting
    })
}

/// Maximum number of GPUs in a linear table of speeds.
const MAX_GPUS: u32 = 100_000;

/// An invalid job gets nothing and is reported; the others are not affected.
fn allocation(vector: &VectorValue<'_>, left_out: &mut Vec<Failure>) -> Result<Value, Failure> {
    let algorithm = vector.get("algorithm")?;
    let policy = by_name(algorithm.text()?).map_err(|error| algorithm.error(&error.to_string()))?;
    let gpus = vector.get("total_gpus")?.count()?;
    let places = vector.get("jobs")?.items()?;
    let jobs = places.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    let input = PolicyInput { now: Micros::ZERO, capacity: &[(GpuType(0), gpus)], jobs: &jobs };
    let allocation = allocate(&*policy, input, &mut Memory::default())?;
    for refusal in &allocation.refused {
        let error = places.get(refusal.place).map(|place| place.error(&refusal.error.to_string()));
        if refusal.error == JobError::Duplicate {
            // Results are by name: there is no place for that of the second.
            return Err(error.unwrap_or_else(|| Failure::new(refusal.to_string())));
        }
        left_out.extend(error);
    }
    let shares = jobs.iter().zip(&allocation.grants).map(|(job, grant)| (job.id.to_string(), json!(grant.gpus)));
    Ok(Value::Object(shares.collect()))
}

/// Counts by name, such as slots by node or workers by job.
fn counts(place: &VectorValue<'_>) -> Result<BTreeMap<Text, u32>, Failure> {
    place.members()?.into_iter().map(|(name, count)| Ok((Text::from(name), count.count()?))).collect()
}

/// Names in an array, or the names of an object's members.
fn names(place: &VectorValue<'_>) -> Result<Vec<Text>, Failure> {
    if place.is_array() {
        return place.items()?.iter().map(|item| item.text().map(Text::from)).collect();
    }
    Ok(place.members()?.into_iter().map(|(name, _)| Text::from(name)).collect())
}

fn placement(vector: &VectorValue<'_>, _: &mut Vec<Failure>) -> Result<Value, Failure> {
    let mut slots = counts(&vector.get("nodes")?)?;
    let mut before = Placement::new();
    let mut results = Vec::new();
    for step in vector.get("steps")?.items()? {
        if let Some(remove) = step.find("remove")? {
            for name in names(&remove)? {
                slots.remove(&name).ok_or_else(|| remove.error(&format!("there is no node {name}")))?;
            }
        }
        if let Some(add) = step.find("add")? {
            slots.extend(counts(&add)?);
        }
        let nodes: Vec<Node> = slots.iter().map(|(name, &slots)| Node::new(name.clone(), slots)).collect();
        let request = counts(&step.get("request")?)?;
        let demands: Vec<Demand> = request.iter().map(|(job, &workers)| Demand::new(job.clone(), workers)).collect();
        let plan = repack(&nodes, &demands, &before, Packing::Pack)?;
        results.push(placed(&plan, &nodes));
        before = plan.placement;
    }
    Ok(Value::Array(results))
}

fn placed(plan: &Plan, nodes: &[Node]) -> Value {
    json!({
        "nodes": plan.by_node(nodes),
        "overlap_score": plan.overlap,
        "binding_unique": plan.unique,
        "cross_node_jobs": plan.cross_node(),
        "migrated_workers": plan.migrated.iter().map(|(job, i)| format!("{job}-worker-{i}")).collect::<Vec<_>>(),
        "restarted_launchers": plan.restarted.iter().map(|job| format!("{job}-launcher")).collect::<Vec<_>>(),
        "unplaced": plan.unplaced,
        "worker_nodes": plan.placement,
    })
}

fn plan(vector: &VectorValue<'_>, _: &mut Vec<Failure>) -> Result<Value, Failure> {
    let running: BTreeSet<Text> = names(&vector.get("running")?)?.into_iter().collect();
    let changes = changes(&counts(&vector.get("old")?)?, &counts(&vector.get("new")?)?, &running);
    Ok(changes.map_or(
        Value::Null,
        |c| json!({"halt": c.halt, "scale_in": c.scale_in, "start": c.start, "scale_out": c.scale_out}),
    ))
}

fn queue_rule(vector: &VectorValue<'_>, _: &mut Vec<Failure>) -> Result<Value, Failure> {
    let status = vector.get("status")?;
    let running = match status.text()? {
        "Running" => true,
        "Waiting" => false,
        _ => return Err(status.error("expected Running or Waiting")),
    };
    let level = vector.get("priority")?.count()?;
    let attained = GpuMicros(vector.get("last_gpu_sec")?.number(MICRO)?);
    let ran = secs(&vector.get("last_running_sec")?)?;
    let waited = secs(&vector.get("last_waiting_sec")?)?;
    let to = Queues::voda().step(level, running, attained, ran, waited);
    Ok(json!({"priority": to, "changed": to != level}))
}

/// Returns the values learnt from the rows, in the shape of the document that the original collector writes.
fn collector(vector: &VectorValue<'_>, _: &mut Vec<Failure>) -> Result<Value, Failure> {
    let document = vector.get("document")?;
    let total = document.get("total_epochs")?.count()?;
    let sizes: Vec<u32> = (document.get("epoch_time_sec")?.members()?.into_iter())
        .map(|(key, place)| key.parse().map_err(|_| place.error(&format!("size {key:?} is not a whole number"))))
        .collect::<Result<_, _>>()?;
    let mut progress = MeasuredProgress { total: Some(total.into()), ..MeasuredProgress::default() };
    let mut category = Measured::default();
    let (mut running, mut service, mut span, mut last) = (Micros::ZERO, 0_u64, None, None);
    for row in vector.get("csv_rows")?.items()? {
        let gpus = row.get("workers")?.count()?;
        let took = secs(&row.get("epoch_time_sec")?)?;
        let start = secs(&row.get("start_offset_sec")?)?;
        progress.record(Report { gpu_type: GpuType(0), gpus, units: 1, took }, &mut category);
        running = running.plus(took);
        service = service.saturating_add(GpuMicros::of(gpus, took).0);
        span = Some((span.map_or(start, |(first, _)| first), start.plus(took)));
        last = Some(row.get("epoch")?.count()?);
    }
    let Some((last, (first, end))) = last.zip(span) else { return Ok(Value::Null) };
    progress.done = u64::from(last) + 1; // epochs count from 0 over the job's life
    let most = sizes.iter().copied().max().unwrap_or(1);
    let (estimate, remaining) = progress.estimate(Prior::default().speeds(&[GpuType(0)], most), &category);
    let speed = |gpus: u32| estimate.speeds.home().map_or(Speed::ZERO, |(_, curve)| curve.at(gpus));
    let unit = estimate.time_per_unit.map_or(0.0, |unit| seconds(unit.0));
    let time = |gpus: u32| match category.time_per_unit(GpuType(0), gpus) {
        Some(measured) => seconds(measured.0),
        None if speed(gpus) > Speed::ZERO => unit / billionths(speed(gpus).0),
        None => 0.0,
    };
    let table = |of: &dyn Fn(u32) -> f64| -> BTreeMap<String, f64> {
        sizes.iter().map(|&gpus| (gpus.to_string(), of(gpus))).collect()
    };
    let times = |gpus: u32| billionths(speed(gpus).0);
    Ok(json!({
        "current_epoch": last,
        "remainning_epochs": progress.left(),
        "estimated_remainning_time_sec": remaining.map(|r| seconds(r.0)),
        "running_time_sec": seconds(running.0),
        "waiting_time_sec": seconds(end.since(first).since(running).0),
        "elasped_time_sec": seconds(end.since(first).0),
        "gpu_time_sec": seconds(service),
        "epoch_time_sec": table(&time),
        "speedup": table(&times),
        "efficiency": table(&|gpus| if gpus == 0 { 0.0 } else { times(gpus) / f64::from(gpus) }),
    }))
}

#[allow(clippy::cast_precision_loss)] // only for printing
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[allow(clippy::cast_precision_loss)] // only for printing
fn billionths(n: u64) -> f64 {
    n as f64 / 1e9
}

/// The full name of a submitted job: its name and the time of submission on a clock of 24 hours.
fn job_name(vector: &VectorValue<'_>, _: &mut Vec<Failure>) -> Result<Value, Failure> {
    let submit = vector.get("submit")?;
    let digits: String = submit.text()?.chars().filter(char::is_ascii_digit).collect();
    let valid = format!("{}Z", submit.text()?);
    match (digits.split_at_checked(8), model::Timestamp::parse_rfc3339(&valid)) {
        (Some((date, time)), Some(_)) if time.len() == 6 => {
            Ok(json!(format!("{}-{date}-{time}", vector.get("metadata_name")?.text()?)))
        }
        _ => Err(submit.error("expected a time such as 2022-10-19T16:56:48")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(text: &str) -> Result<Value, String> {
        let value = serde_json::from_str(text).unwrap();
        let mut left_out = Vec::new();
        let results =
            evaluate(&VectorValue::root(&value), &mut left_out).map(Value::Object).map_err(|e| e.to_string())?;
        match left_out.first() {
            None => Ok(results),
            Some(complaint) => Err(format!("{results}; {complaint}")),
        }
    }

    #[test]
    fn the_vectors_come_out_as_expected() {
        let vectors: Value =
            serde_json::from_str(include_str!("../../../../scheduler/tests/vectors/voda.json")).unwrap();
        let results = evaluate(&VectorValue::root(&vectors), &mut Vec::new()).unwrap();
        let mut checked = 0;
        for (section, _) in SECTIONS {
            for vector in vectors[section].as_array().unwrap() {
                let result = &results[vector["id"].as_str().unwrap()];
                if section == "placement" {
                    let steps = vector["steps"].as_array().unwrap().iter().map(|step| step["expected"].clone());
                    assert_eq!(*result, Value::Array(steps.collect()), "{}", vector["id"]);
                } else if let Some(expected) = vector.get("expected") {
                    assert_eq!(result, expected, "{}", vector["id"]);
                }
                checked += 1;
            }
        }
        assert_eq!(checked, results.len());
        assert_eq!(results["NAME-02"], "mnist-20221019-165648");
        assert_eq!(results["COL-03"]["estimated_remainning_time_sec"], 960.0);
    }

    #[test]
    fn errors_name_place_field_and_value() {
        let job = r#"{"name":"A","min":1,"num":1,"max":4,"priority":0,"submit_sec":0,"first_start_sec":null,
            "remaining_sec":100,"speedup":[0,1]}"#;
        let with = |from: &str, to: &str| {
            let job = job.replace(from, to);
            let text = format!(r#"{{"allocation":[{{"id":"X-1","algorithm":"FIFO","total_gpus":4,"jobs":[{job}]}}]}}"#);
            evaluated(&text)
        };
        assert_eq!(with("", "").unwrap(), json!({"X-1": {"A": 1}}));
        let at = "allocation[0] (X-1).jobs[0]";
        for (from, to, want) in [
            ("\"min\":1", "\"min\":-1", ".min: expected a whole number from 0 to 4294967295, got -1"),
            ("\"remaining_sec\":100", "\"remaining_sec\":\"NaN\"", ".remaining_sec: expected a number, got \"NaN\""),
            ("[0,1]", "[0,-1]", ".speedup[1]: expected a number from 0 that is not too large, got -1"),
            ("\"name\":\"A\",", "", ".name: missing"),
        ] {
            assert_eq!(with(from, to).unwrap_err(), format!("{at}{want}"));
        }
        let error = with("\"max\":4", "\"max\":0").unwrap_err();
        let complaint = format!("{at}: sizes must be ordered min <= num <= max, got min 1, num 1, max 0, got {{");
        assert!(error.starts_with(&format!(r#"{{"X-1":{{"A":0}}}}; {complaint}"#)), "{error}");
        // What is left out is as at submission.
        for gone in
            ["\"num\":1,", "\"priority\":0,", "\"first_start_sec\":null,", ",\"speedup\":[0,1]", "\"submit_sec\":0,"]
        {
            let text: String = job.split_whitespace().collect();
            assert!(text.contains(gone), "{gone}");
            let text = text.replace(gone, "");
            let text =
                format!(r#"{{"allocation":[{{"id":"X-1","algorithm":"AFS-L","total_gpus":1,"jobs":[{text}]}}]}}"#);
            assert_eq!(evaluated(&text).unwrap(), json!({"X-1": {"A": 1}}), "{gone}");
        }
        assert_eq!(evaluated("[]").unwrap_err(), "the file: expected an object, got []");
        assert!(evaluated("{}").unwrap_err().contains("expected one of the members allocation, placement"));
        let plan = r#"{"id":"P","old":{},"new":{},"running":[]}"#;
        let error = evaluated(&format!(r#"{{"plan":[{plan},{plan}]}}"#)).unwrap_err();
        assert_eq!(error, "plan[1].id: this id is used twice, got \"P\"");
    }
}
