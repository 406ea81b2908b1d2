//! The audit finds each kind of place that a job's template may not use, and each node that holds more than it has.

use cluster::{Cluster, NodeSpec, Options};
use model::Timestamp;
use serde_json::{Value, json};
use simulator::audit::{Audit, node_refusal};

/// A cluster with the nodes n1 and n2, each with 8 CPUs.
fn world() -> Cluster {
    let nodes =
        ["n1", "n2"].map(|name| NodeSpec::named(name).with("cpu", "8").with("memory", "16Gi").with("pods", "4"));
    let mut cluster = Cluster::new(&Options { nodes: nodes.to_vec(), ..Options::default() });
    for api in apis::Registry::all().iter() {
        cluster.register(&api.crd()).unwrap();
    }
    cluster
}

fn patch(cluster: &mut Cluster, node: &str, patch: &Value) {
    cluster.merge_patch(&apis::Resource::new("v1", "Node"), "", node, patch, false).unwrap();
}

fn template(pod: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    model::json::merge_patch(&mut spec, pod);
    spec
}

/// A job whose mirror shows a share that was granted at a time.
fn job(cluster: &mut Cluster, name: &str, pod: &Value, share: &Value, at: Timestamp) {
    let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"replicaSpecs": {"trainer": {"template": {"spec": template(pod)}}}},
        "status": {"trainyard": {"share": {"trainer": share}, "shareAt": at.0}}});
    cluster.store_unchecked(&job).unwrap();
}

/// A pod of a job's slot, that requires a node.
fn pod(cluster: &mut Cluster, job: &str, slot: u32, node: &str, pod: &Value) {
    let mut spec = template(pod);
    let named = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    spec["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [named]}]}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": format!("{job}-trainer-{slot}"), "namespace": "default",
        "labels": {"TrainingJobReplicaName": "trainer", "TrainingJobReplicaIndex": slot.to_string()},
        "ownerReferences": [{"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": job,
            "uid": format!("uid-{job}"), "controller": true}]},
        "spec": spec});
    cluster.store_unchecked(&pod).unwrap();
}

fn affinity(operator: &str, values: &[&str]) -> Value {
    let expression = json!({"key": "zone", "operator": operator, "values": values});
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
}

#[test]
fn a_place_is_granted_on_a_node_that_takes_the_template() {
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "team", "value": "x", "effect": effect}]}});
    let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
    let zone = json!({"metadata": {"labels": {"zone": "2"}}});
    let untolerated = Some("whose taint team is not tolerated");
    let ruled_out = Some("which its required affinity rules out");
    for (node, template, want) in [
        (json!({}), json!({}), None),
        (json!({"spec": {"unschedulable": true}}), json!({}), Some("which is cordoned")),
        (taint("NoSchedule"), json!({}), untolerated),
        (taint("NoExecute"), json!({}), untolerated),
        (taint("PreferNoSchedule"), json!({}), None),
        (taint("NoSchedule"), tolerates(json!({"key": "team", "value": "x"})), None),
        (taint("NoSchedule"), tolerates(json!({"key": "team", "value": "y"})), untolerated),
        (taint("NoSchedule"), tolerates(json!({"key": "team", "operator": "Exists"})), None),
        (taint("NoSchedule"), tolerates(json!({"operator": "Exists", "effect": "NoExecute"})), untolerated),
        (zone.clone(), json!({"nodeSelector": {"zone": "2"}}), None),
        (zone.clone(), json!({"nodeSelector": {"zone": "1"}}), Some("which lacks the label zone=1")),
        (zone.clone(), affinity("In", &["1", "2"]), None),
        (zone.clone(), affinity("In", &["1"]), ruled_out),
        (zone.clone(), affinity("NotIn", &["2"]), ruled_out),
        (zone.clone(), affinity("Gt", &["1"]), None),
        (zone, affinity("Lt", &["2"]), ruled_out),
        (json!({}), affinity("Exists", &[]), ruled_out),
        (json!({}), affinity("DoesNotExist", &[]), None),
    ] {
        let mut cluster = world();
        patch(&mut cluster, "n1", &node);
        let mut audit = Audit::default();
        assert_eq!(audit.check(&cluster), [""; 0]);
        let now = cluster.now();
        job(&mut cluster, "j", &template, &json!([["n2", 1], ["n1", 1]]), now);
        let found = audit.check(&cluster);
        let of_n1 = found.iter().find(|found| found.contains("node n1"));
        let want = want.map(|want| format!("job j: trainer-1 was granted node n1, {want}"));
        assert_eq!(of_n1, want.as_ref(), "{node} {template}: {found:?}");
    }
}

#[test]
fn a_place_is_judged_at_the_time_of_its_grant() {
    let mut cluster = world();
    let mut audit = Audit::default();
    assert_eq!(audit.check(&cluster), [""; 0]);
    let open = cluster.now();
    cluster.set_now(open.plus_ms(1000));
    patch(&mut cluster, "n1", &json!({"spec": {"unschedulable": true}}));
    assert_eq!(audit.check(&cluster), [""; 0]);
    let closed = open.plus_ms(2000);
    cluster.set_now(closed);
    job(&mut cluster, "early", &json!({}), &json!([["n1", 1]]), open);
    assert_eq!(audit.check(&cluster), [""; 0], "granted before the cordon, written after it");
    pod(&mut cluster, "early", 0, "n1", &json!({}));
    assert_eq!(audit.check(&cluster), [""; 0], "its place was granted");
    job(&mut cluster, "late", &json!({}), &json!([["n1", 1]]), closed);
    assert_eq!(audit.check(&cluster), ["job late: trainer-0 was granted node n1, which is cordoned"]);
    assert_eq!(audit.check(&cluster), [""; 0], "a place is judged once");
    job(&mut cluster, "gone", &json!({}), &json!([["n9", 1]]), closed);
    assert_eq!(audit.check(&cluster), ["job gone: trainer-0 was granted node n9, which is not there"]);
}

#[test]
fn a_pod_is_judged_by_its_own_spec() {
    let mut cluster = world();
    patch(&mut cluster, "n1", &json!({"metadata": {"labels": {"zone": "1"}}}));
    let mut audit = Audit::default();
    assert_eq!(audit.check(&cluster), [""; 0]);
    let now = cluster.now();
    job(&mut cluster, "j", &json!({}), &json!([["n1", 1]]), now);
    pod(&mut cluster, "j", 0, "n1", &json!({"nodeSelector": {"zone": "2"}}));
    assert_eq!(audit.check(&cluster), ["pod j-trainer-0: placed on node n1, which lacks the label zone=2"]);
}

#[test]
fn places_stay_within_what_a_node_has() {
    let container =
        |amounts: &Value| json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": amounts}}]});
    for (amounts, n, want) in [
        (json!({"cpu": "3"}), 2, None),
        (json!({"cpu": "3"}), 3, Some(("cpu: 9000m", "8000m"))),
        (json!({"memory": "6Gi"}), 3, Some(("memory: 19327352832000m", "17179869184000m"))),
        (json!({}), 4, None),
        (json!({}), 5, Some(("pods: 5000m", "4000m"))),
    ] {
        let template = container(&amounts);
        let mut cluster = world();
        let mut audit = Audit::default();
        let now = cluster.now();
        job(&mut cluster, "j", &template, &json!([["n1", n]]), now);
        let slots = (0..n).map(|slot| format!("uid-j trainer {slot}")).collect::<Vec<_>>().join(", ");
        let want =
            want.map(|(placed, allocatable)| format!("node n1, {placed} placed ({slots}), {allocatable} allocatable"));
        let found = audit.check(&cluster);
        assert_eq!(found.first(), want.as_ref(), "places {n} {amounts}: {found:?}");
        pod(&mut cluster, "j", 0, "n1", &template);
        assert_eq!(audit.check(&cluster), [""; 0], "a node is judged when a place is granted there");
    }
}

#[test]
fn pods_that_lost_their_place_count_while_they_are_there() {
    let three = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]});
    let mut bound = three.clone();
    bound["nodeName"] = json!("n1");
    // Bound while its place was there, or when the place was gone already.
    for (first, want) in [
        (
            &bound,
            vec![
                "node n1, cpu: 9000m placed (uid-new trainer 0, uid-old trainer 0, uid-old trainer 1), 8000m allocatable",
            ],
        ),
        (&three, vec![]),
    ] {
        let mut cluster = world();
        let mut audit = Audit::default();
        let now = cluster.now();
        job(&mut cluster, "old", &three, &json!([["n1", 2]]), now);
        pod(&mut cluster, "old", 0, "n1", &bound);
        pod(&mut cluster, "old", 1, "n1", first);
        assert_eq!(audit.check(&cluster), [""; 0]);
        job(&mut cluster, "old", &three, &json!([]), now);
        pod(&mut cluster, "old", 1, "n1", &bound);
        assert_eq!(audit.check(&cluster), [""; 0]);
        job(&mut cluster, "new", &three, &json!([["n1", 1]]), now);
        assert_eq!(audit.check(&cluster), want);
    }
    let mut cluster = world();
    let mut audit = Audit::of_ignored_capacity();
    let now = cluster.now();
    job(&mut cluster, "j", &three, &json!([["n1", 3]]), now);
    assert_eq!(audit.check(&cluster), [""; 0], "without a capacity gate places come before room");
}

#[test]
fn a_node_that_is_too_small_refuses_a_pod() {
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}});
    let pod = |cpu: &str| json!({"containers": [{"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}]});
    assert_eq!(node_refusal(&node, &pod("2")), None);
    assert_eq!(node_refusal(&node, &pod("2001m")).as_deref(), Some("which has too little cpu"));
}
