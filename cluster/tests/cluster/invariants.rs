//! After any step: a consumer of watches knows exactly what is stored, versions only grow, and a saved cluster is the same one.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::Observation;
use cluster::runtime::VirtualPods;
use cluster::{CatchUp, Cluster, ClusterFile, FailRule, FailVerb, Mode, NodeState, WatcherId};
use model::Kind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::*;

/// One thing that happens; numbers choose among a few names.
#[derive(Debug, Clone)]
enum Step {
    CreateJob(u8),
    CreatePod(u8, u8),
    Delete(bool, u8, Option<u32>),
    Status(u8, u8),
    Label(u8, u8),
    Finalizer(u8, bool),
    Run(u8),
    Exit(u8, i32),
    Evict(u8),
    Gone,
    Node(u8, NodeState),
    Hold(Kind),
    Release(Kind, bool),
    Relist(Kind),
    Fail(FailVerb, bool),
    Wait,
    Watch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..4_u8;
    let kind = prop::sample::select(Kind::ALL.to_vec());
    let verb = prop::sample::select(vec![FailVerb::Create, FailVerb::Delete, FailVerb::Patch, FailVerb::List]);
    let state =
        prop::sample::select(vec![NodeState::Ready, NodeState::NotReady, NodeState::Unknown, NodeState::Removed]);
    let step = prop_oneof![
        2 => name.clone().prop_map(Step::CreateJob),
        4 => (name.clone(), name.clone()).prop_map(|(a, b)| Step::CreatePod(a, b)),
        3 => (any::<bool>(), name.clone(), prop::option::of(0..40_u32)).prop_map(|(a, b, c)| Step::Delete(a, b, c)),
        2 => (name.clone(), 0..3_u8).prop_map(|(a, b)| Step::Status(a, b)),
        2 => (name.clone(), 0..3_u8).prop_map(|(a, b)| Step::Label(a, b)),
        1 => (name.clone(), any::<bool>()).prop_map(|(a, b)| Step::Finalizer(a, b)),
        3 => name.clone().prop_map(Step::Run),
        2 => (name.clone(), 0..2_i32).prop_map(|(a, b)| Step::Exit(a, b)),
        1 => name.prop_map(Step::Evict),
        2 => Just(Step::Gone),
        1 => (1..4_u8, state).prop_map(|(a, b)| Step::Node(a, b)),
        1 => kind.clone().prop_map(Step::Hold),
        1 => (kind.clone(), any::<bool>()).prop_map(|(a, b)| Step::Release(a, b)),
        1 => kind.prop_map(Step::Relist),
        1 => (verb, any::<bool>()).prop_map(|(a, b)| Step::Fail(a, b)),
        1 => Just(Step::Wait),
        3 => Just(Step::Watch),
    ];
    prop::collection::vec(step, 1..60)
}

/// Objects a consumer knows, by kind and uid, with their newest version.
#[derive(Default)]
struct View {
    objects: BTreeMap<(Kind, String), Arc<Value>>,
    newest: BTreeMap<Kind, u64>,
    /// True if some changes were coalesced, so that deleted objects may be unknown to the consumer.
    coalesced: bool,
}

fn kind_of(object: &Value) -> Kind {
    match object["kind"].as_str().unwrap() {
        "Pod" => Kind::Pod,
        "Service" => Kind::Service,
        "Node" => Kind::Node,
        _ => Kind::Job,
    }
}

impl View {
    fn take(&mut self, cluster: &mut Cluster, id: WatcherId) {
        for observation in cluster.watch(id) {
            match observation {
                Observation::Listed { kind, rv, items, .. } => {
                    self.objects.retain(|(k, _), _| *k != kind);
                    self.objects.extend(items.into_iter().map(|o| ((kind, meta(&o, "uid").to_owned()), o)));
                    let newest = self.newest.entry(kind).or_default();
                    assert!(rv.0 >= *newest, "a view never goes back");
                    *newest = rv.0;
                }
                Observation::Applied(object) => {
                    self.grows(&object);
                    self.objects.insert((kind_of(&object), meta(&object, "uid").to_owned()), object);
                }
                Observation::Deleted(object) => {
                    self.grows(&object);
                    let known = self.objects.remove(&(kind_of(&object), meta(&object, "uid").to_owned()));
                    assert!(known.is_some() || self.coalesced, "only what is known is deleted");
                }
            }
        }
    }

    fn grows(&mut self, object: &Value) {
        let newest = self.newest.entry(kind_of(object)).or_default();
        assert!(rv(object) > *newest, "changes come in order");
        *newest = rv(object);
    }
}

fn job(n: u8) -> String {
    format!("j{n}")
}

fn pod_name(n: u8) -> String {
    format!("p{n}")
}

fn perform(cluster: &mut Cluster, step: &Step) {
    // Refusals are part of life here: what matters is what is true afterwards.
    match step {
        Step::CreateJob(n) => drop(create(cluster, &train_manifest(&job(*n)))),
        Step::CreatePod(n, of) => {
            let owner = get(cluster, "Train", &job(*of)).map(|o| meta(&o, "uid").to_owned());
            let owner = owner.unwrap_or_else(|| "train-999999".to_owned());
            drop(create(cluster, &pod_manifest(&pod_name(*n), &[("Train", &job(*of), &owner)])));
        }
        Step::Delete(true, n, _) => drop(delete(cluster, "Train", &job(*n), None)),
        Step::Delete(false, n, grace) => drop(delete(cluster, "Pod", &pod_name(*n), *grace)),
        Step::Status(n, value) => drop(status(cluster, &job(*n), None, json!({"count": value}))),
        Step::Label(n, value) => {
            drop(patch(cluster, "Pod", &pod_name(*n), json!({"metadata": {"labels": {"l": value.to_string()}}})));
        }
        Step::Finalizer(n, set) => {
            let finalizers = if *set { json!(["example.dev/keep"]) } else { Value::Null };
            drop(patch(cluster, "Pod", &pod_name(*n), json!({"metadata": {"finalizers": finalizers}})));
        }
        Step::Run(n) => drop(cluster.run("default", &pod_name(*n))),
        Step::Exit(n, code) => drop(cluster.exit("default", &pod_name(*n), *code, None)),
        Step::Evict(n) => drop(cluster.evict("default", &pod_name(*n))),
        Step::Gone => cluster.gone_all(),
        Step::Node(n, state) => drop(cluster.node(&format!("n{n}"), *state)),
        Step::Hold(kind) => cluster.hold(*kind),
        Step::Release(kind, in_order) => {
            cluster.release(*kind, if *in_order { CatchUp::InOrder } else { CatchUp::Coalesced });
        }
        Step::Relist(kind) => cluster.relist(*kind),
        Step::Fail(verb, applied) => {
            drop(cluster.fail(FailRule {
                verb: *verb,
                kind: Some("Pod".into()),
                times: 2,
                code: 500,
                applied: *applied,
            }));
        }
        Step::Wait => cluster.set_now(cluster.now().plus_ms(10_000)),
        Step::Watch => {}
    }
}

/// Dependents of owners that are no more are gone or going, and every reference that is left leads somewhere.
fn collected(cluster: &Cluster) {
    for pod in cluster.objects_of(&pods()) {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let alive =
            get(cluster, "Train", owner["name"].as_str().unwrap()).is_some_and(|o| meta(&o, "uid") == owner["uid"]);
        assert!(alive || !meta(&pod, "deletionTimestamp").is_empty(), "{pod}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn watches_show_what_is_stored(steps in steps()) {
        let mut cluster = cluster();
        let id = cluster.subscribe();
        let coalesced = steps.iter().any(|step| matches!(step, Step::Release(_, false)));
        let mut view = View { coalesced, ..View::default() };
        for step in &steps {
            let before = (cluster.revision(), cluster.objects());
            perform(&mut cluster, step);
            let (moved, changed) = (cluster.revision() != before.0, cluster.objects() != before.1);
            // A pod without an owner comes and goes in one step.
            prop_assert!(moved == changed || moved && matches!(step, Step::CreatePod(..)), "{:?}", step);
            collected(&cluster);
            if matches!(step, Step::Watch) {
                view.take(&mut cluster, id);
            }
        }
        cluster.heal();
        for kind in Kind::ALL {
            cluster.release(kind, CatchUp::InOrder);
        }
        view.take(&mut cluster, id);
        while let Some(at) = cluster.next_wake() {
            cluster.set_now(at);
            view.take(&mut cluster, id);
        }
        let stored: BTreeMap<_, _> = cluster
            .objects()
            .into_iter()
            .filter(|o| o["kind"] != "Namespace")
            .map(|o| ((kind_of(&o), meta(&o, "uid").to_owned()), o))
            .collect();
        prop_assert_eq!(&view.objects, &stored);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster.json");
        ClusterFile::new(&path).save(&mut cluster).unwrap();
        let mut back = Cluster::load(&path, Mode::Manual, Box::new(VirtualPods)).unwrap();
        prop_assert_eq!(back.objects(), cluster.objects());
        for step in &steps {
            perform(&mut cluster, step);
            perform(&mut back, step);
        }
        prop_assert_eq!(back.objects(), cluster.objects(), "both continue alike");
    }
}
