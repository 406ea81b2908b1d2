//! The vectors `collector`: what the original made of these reports, and what must come out instead.

use model::Text;
use scheduler::changes::changes;
use scheduler::learning::{Measured, MeasuredProgress, Prior, Report};
use scheduler::{GpuType, Micros};
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors/voda.json")).unwrap()
}

/// Seconds on one GPU that are left, and speeds on 1 to 4 GPUs in thousandths.
fn learnt(vector: &Value) -> (u64, Vec<u64>) {
    let mut progress =
        MeasuredProgress { total: vector["document"]["total_epochs"].as_u64(), ..MeasuredProgress::default() };
    let mut category = Measured::default();
    for row in vector["csv_rows"].as_array().unwrap() {
        let secs = row["epoch_time_sec"].as_f64().unwrap(); // whole seconds in these vectors: "100" has no point
        let gpus = u32::try_from(row["workers"].as_u64().unwrap()).unwrap();
        let took = Micros::from_secs(format!("{secs}").parse().unwrap());
        progress.record(Report { gpu_type: GpuType(0), gpus, units: 1, took }, &mut category);
    }
    let (estimate, remaining) = progress.estimate(Prior::default().speeds(&[GpuType(0)], 4), &category);
    let curve = &estimate.speeds.home().unwrap().1;
    let milli = |gpus| (curve.at(gpus).0 + 500_000) / 1_000_000;
    ((remaining.unwrap().0 + 500_000) / 1_000_000, (1..=4).map(milli).collect())
}

#[test]
fn collector_vectors() {
    let vectors = vectors();
    let all = vectors["collector"].as_array().unwrap();
    let by_id = |id: &str| learnt(all.iter().find(|v| v["id"] == id).unwrap());
    // The first finished epoch counts: nine more of 100 s.
    assert_eq!(by_id("COL-01"), (900, vec![1000, 2000, 3000, 4000]));
    // Mean of 100 and 110; sizes that were not measured follow the prior instead of "1 s".
    assert_eq!(by_id("COL-02"), (8 * 105, vec![1000, 2000, 3000, 4000]));
    // Never ran on one worker: 60 s on two are 120 s on one.
    assert_eq!(by_id("COL-03"), (8 * 120, vec![1000, 2000, 3000, 4000]));
    // Measured 100, 50 and 30 s on 1, 2 and 4; three lies between.
    assert_eq!(by_id("COL-04"), (700, vec![1000, 2000, 2750, 3333]));
    assert_eq!(all.len(), 4);
}

#[test]
fn plan_vectors() {
    let vectors = vectors();
    for vector in vectors["plan"].as_array().unwrap() {
        let map = |key: &str| serde_json::from_value(vector[key].clone()).unwrap();
        let running: std::collections::BTreeSet<Text> = serde_json::from_value(vector["running"].clone()).unwrap();
        let got = match changes(&map("old"), &map("new"), &running) {
            Ok(c) => {
                serde_json::json!({"halt": c.halt, "scale_in": c.scale_in, "start": c.start, "scale_out": c.scale_out})
            }
            Err(_) => Value::Null,
        };
        assert_eq!(got, vector["expected"], "{}", vector["id"]);
    }
}
