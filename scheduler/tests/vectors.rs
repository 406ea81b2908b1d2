//! The conformance vectors of Voda's corrected rules: allocations, the queue rule. The file stands beside this test.

use model::Text;
use scheduler::policies::las::Queues;
use scheduler::{Curve, GpuMicros, GpuType, JobView, Memory, Micros, PolicyInput, Speed, Speeds, allocate, by_name};
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors/voda.json")).unwrap()
}

/// A decimal in the file, exact to `places` decimals.
fn fixed(value: &Value, places: u32) -> u64 {
    let scaled = value.as_f64().unwrap() * 10_f64.powi(places.try_into().unwrap());
    scaled.round().to_string().parse().unwrap()
}

fn job(value: &Value) -> JobView {
    let count = |key: &str| u32::try_from(value[key].as_u64().unwrap()).unwrap();
    let secs = |key: &str| Micros(fixed(&value[key], 6));
    let curve = Curve::new(value["speedup"].as_array().unwrap().iter().map(|s| Speed(fixed(s, 9))));
    let submitted = secs("submit_sec");
    JobView {
        level: count("priority"),
        first_start: (!value["first_start_sec"].is_null()).then(|| secs("first_start_sec")),
        remaining: Some(secs("remaining_sec")),
        speeds: Speeds::single(curve),
        ..JobView::waiting(
            Text::from(value["name"].as_str().unwrap()),
            count("min"),
            count("num"),
            count("max"),
            submitted,
        )
    }
}

#[test]
fn allocations() {
    let vectors = vectors();
    let all = vectors["allocation"].as_array().unwrap();
    let mut wrong = Vec::new();
    for vector in all {
        let jobs: Vec<JobView> = vector["jobs"].as_array().unwrap().iter().map(job).collect();
        let policy = by_name(vector["algorithm"].as_str().unwrap()).unwrap();
        let gpus = u32::try_from(vector["total_gpus"].as_u64().unwrap()).unwrap();
        let input = PolicyInput { now: Micros::from_secs(100_000), capacity: &[(GpuType(0), gpus)], jobs: &jobs };
        let got = allocate(&*policy, input, &mut Memory::default()).unwrap();
        assert_eq!(got.refused, [], "{}", vector["id"]);
        for (job, grant) in jobs.iter().zip(&got.grants) {
            if vector["expected"][&*job.id] != grant.gpus {
                wrong.push(format!("{} {}: {} for {}", vector["id"], job.id, grant.gpus, vector["expected"][&*job.id]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.len() >= 95, "vectors are missing: {}", all.len());
}

#[test]
fn queue_rule() {
    let vectors = vectors();
    for vector in vectors["tiresias_priority"].as_array().unwrap() {
        let secs = |key: &str| fixed(&vector[key], 6);
        let level = u32::try_from(vector["priority"].as_u64().unwrap()).unwrap();
        let got = Queues::voda().step(
            level,
            vector["status"] == "Running",
            GpuMicros(secs("last_gpu_sec")),
            Micros(secs("last_running_sec")),
            Micros(secs("last_waiting_sec")),
        );
        assert_eq!(vector["expected"]["priority"], got, "{}", vector["id"]);
        assert_eq!(vector["expected"]["changed"], got != level, "{}", vector["id"]);
    }
}
