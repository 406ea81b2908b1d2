//! The conformance vectors of placement, and what holds of every plan.

use std::collections::BTreeMap;

use model::Text;
use proptest::prelude::*;
use scheduler::placement::{Demand, Node, Packing, Placement, Plan, Prices, repack, settle};
use serde_json::{Value, json};

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors/voda.json")).unwrap()
}

fn counts(value: &Value) -> BTreeMap<String, u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn shown(plan: &Plan, nodes: &[Node]) -> Value {
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

#[test]
fn placement_vectors() {
    let vectors = vectors();
    let all = vectors["placement"].as_array().unwrap();
    let mut wrong = Vec::new();
    for vector in all {
        let mut slots = counts(&vector["nodes"]);
        let mut placement = Placement::new();
        for (n, step) in vector["steps"].as_array().unwrap().iter().enumerate() {
            slots.extend(step.get("add").map(counts).unwrap_or_default());
            if let Some(remove) = step.get("remove") {
                slots.retain(|node, _| !remove.as_array().unwrap().contains(&json!(node)));
            }
            let nodes: Vec<Node> = slots.iter().map(|(name, &slots)| Node::new(name.as_str(), slots)).collect();
            let demands: Vec<Demand> =
                counts(&step["request"]).iter().map(|(job, &workers)| Demand::new(job.as_str(), workers)).collect();
            let plan = repack(&nodes, &demands, &placement, Packing::Pack).unwrap();
            let expected = &step["expected"];
            let got = shown(&plan, &nodes);
            if got != *expected {
                wrong.push(format!("{} step {n}:\n  got      {got}\n  expected {expected}", vector["id"]));
            }
            placement = plan.placement;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.len() >= 24);
}

/// Slots are respected, workers are placed as far as there is room, kept workers are counted right.
fn check(plan: &Plan, nodes: &[Node], demands: &[Demand], before: &Placement) {
    let by_node = plan.by_node(nodes);
    assert_eq!(by_node.len(), nodes.len(), "workers on unknown nodes");
    for node in nodes {
        assert!(by_node[&node.name].values().sum::<u32>() <= node.slots, "{} is overfull", node.name);
    }
    let slots: u32 = nodes.iter().map(|n| n.slots).sum();
    let wanted: u32 = demands.iter().map(|d| d.workers).sum();
    let unplaced: u32 = plan.unplaced.values().sum();
    assert_eq!(unplaced, wanted.saturating_sub(slots), "room is left although a job is unplaced");
    let mut stay = 0;
    for demand in demands {
        let now = plan.placement.get(&demand.job).map_or(&[][..], Vec::as_slice);
        let left = plan.unplaced.get(&demand.job).copied().unwrap_or_default();
        assert_eq!(u32::try_from(now.len()).unwrap() + left, demand.workers, "{}", demand.job);
        let old = before.get(&demand.job).map_or(&[][..], Vec::as_slice);
        for (i, (was, is)) in old.iter().zip(now).enumerate() {
            let moved = plan.migrated.contains(&(demand.job.clone(), u32::try_from(i).unwrap()));
            assert_eq!(moved, was != is, "{} {i}", demand.job);
            stay += u64::from(was == is);
        }
    }
    assert!(stay == plan.overlap || (stay < plan.overlap && unplaced > 0), "{stay} stay, overlap {}", plan.overlap);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_plan_is_sound(
        slots in prop::collection::vec(prop::sample::select(vec![2_u32, 4, 4, 8]), 1..7),
        steps in prop::collection::vec(prop::collection::btree_map("[a-f]", 0_u32..9, 0..6), 1..4),
        lose in any::<prop::sample::Index>(),
        spread in any::<bool>(),
        way in 0_u8..3,
    ) {
        let mut nodes: Vec<Node> = slots.iter().zip(0..).map(|(&slots, n)| Node {
            rack: format!("r{}", n / 2).into(),
            ..Node::new(format!("n{n}"), slots)
        }).collect();
        let packing = if spread { Packing::Spread } else { Packing::Pack };
        let mut placement = Placement::new();
        for (n, step) in steps.iter().enumerate() {
            if n == 2 && nodes.len() > 1 {
                nodes.remove(lose.index(nodes.len()));
            }
            let demands: Vec<Demand> = step.iter().map(|(job, &workers)| Demand::new(job.as_str(), workers)).collect();
            let plan = match way {
                0 => repack(&nodes, &demands, &placement, packing),
                1 => settle(&nodes, &demands, &placement, packing, &Prices::default()),
                _ => settle(&nodes, &demands, &placement, packing, &Prices { migration: Prices::NEVER, ..Prices::default() }),
            }.unwrap();
            check(&plan, &nodes, &demands, &placement);
            if way == 2 {
                let lost = |(job, i): &(Text, u32)| {
                    let was = &placement[job][usize::try_from(*i).unwrap()];
                    nodes.iter().all(|node| node.name != *was)
                };
                prop_assert!(plan.migrated.iter().all(lost), "only workers of lost nodes move");
            }
            placement = plan.placement;
        }
    }
}

#[test]
fn doubles_are_errors() {
    let twice = [Node::new("n1", 4), Node::new("n1", 2)];
    let error = repack(&twice, &[], &Placement::new(), Packing::Pack).unwrap_err();
    assert_eq!(error.to_string(), "node n1 is listed twice");
    let jobs = [Demand::new("a", 1), Demand::new("a", 2)];
    let error = repack(&twice[..1], &jobs, &Placement::new(), Packing::Pack).unwrap_err();
    assert_eq!(error.to_string(), "job a is listed twice");
}
