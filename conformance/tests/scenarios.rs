//! Every scenario that a real API server can express, on both grounds. All APIs are served at once.
//! `CONFORMANCE=name,api` runs these scenarios, and all of these APIs, only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use cluster::FailVerb;
use cluster::NodeSpec;
use conformance::compare::differences;
use conformance::real::{Real, Refusals};
use conformance::server::Server;
use control_plane::{Component, ControlPlane, Options};
use simulator::scenario::{Action, Scenario};

/// Scenarios that run side by side: they mostly wait for the server.
const SIDE_BY_SIDE: usize = 6;

/// Why a scenario cannot be run on a real API server, if it cannot.
fn inexpressible(action: &Action) -> Option<&'static str> {
    match action {
        Action::StoreUnchecked(_) => Some("plants objects past the server's checks"),
        Action::Fail(fail) if fail.verb == FailVerb::List => Some("makes lists fail"),
        Action::Log(_) => Some("reads a log, and the nodes of the control plane serve none"),
        Action::Together(actions) => actions.iter().find_map(inexpressible),
        _ => None,
    }
}

fn namespaces(scenario: &Scenario) -> BTreeSet<String> {
    let of = |manifest: &serde_json::Value| {
        manifest.pointer("/metadata/namespace").and_then(|n| n.as_str()).unwrap_or("default").to_owned()
    };
    let mut all: BTreeSet<String> = scenario.manifests.iter().map(of).collect();
    if all.is_empty() {
        all.insert("default".to_owned());
    }
    all
}

fn run(server: &Server, number: usize, scenario: &Scenario) -> Result<Vec<String>, String> {
    let nodes: Vec<NodeSpec> = scenario.nodes.iter().map(NodeSpec::from).collect();
    let refusals = Refusals::default();
    let real = Real::new(server.clone(), &format!("s{number}"), &namespaces(scenario), &nodes, refusals.clone());
    let real = real.map_err(|error| format!("the ground: {error}"))?;
    let embedded = simulator::run(scenario);
    let real = simulator::run_on(real, scenario);
    let mut differences = match (embedded, real) {
        (Ok(embedded), Ok(real)) => differences(&embedded, &real),
        (Err(simulator::runner::Error::Step { step: a, .. }), Err(simulator::runner::Error::Step { step: b, .. }))
            if a == b =>
        {
            Vec::new()
        }
        (Ok(_), Err(error)) => vec![format!("on the real server only: {error}")],
        (Err(error), Ok(_)) => vec![format!("on the embedded cluster only: {error}")],
        (Err(embedded), Err(real)) => vec![format!("{embedded}; on the real server {real}")],
    };
    if !differences.is_empty() {
        let refused = refusals.lock().expect("no thread panicked");
        differences.extend(refused.iter().rev().take(4).map(|refusal| format!("refused: {refusal}")));
    }
    Ok(differences)
}

/// Returns why a scenario is about the embedded cluster alone.
fn of_embedded_cluster(file: &fixtures::Named) -> Option<&'static str> {
    let scenario = file.scenario.as_ref().ok()?;
    let is_definition = |manifest: &serde_json::Value| manifest["kind"] == "CustomResourceDefinition";
    if scenario.manifests.iter().any(is_definition) {
        return Some("definitions of other products would be there for all scenarios");
    }
    if scenario.manifests.iter().any(|manifest| manifest["kind"] == "TrainingQueue") {
        return Some("queues have no namespace, and would be there for all scenarios");
    }
    if scenario.manifests.iter().any(|manifest| manifest["kind"] == "Namespace") {
        return Some("namespaces are the ground's; tests of the driver label them");
    }
    if scenario.manifests.iter().any(|manifest| manifest["globalDefault"] == true) {
        return Some("pods of all scenarios would be of the default class");
    }
    match &*file.name {
        "size-of-the-claim-is-edited" => Some("the storage class would have to let claims grow"),
        "model-of-a-job" | "model-version-outlives-its-job" => Some("names hold the uid of a job"),
        "state-is-forged-before-the-log-is-lost" => Some("an annotation holds the uid of a job"),
        _ => None,
    }
}

#[test]
fn both_grounds_lead_to_the_same() {
    let start = Instant::now();
    let arguments = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
    let options = Options {
        scheduler: false,
        kwok: false,
        arguments: [
            // Nodes, pods, bound claims and the use of quotas are the scenarios': no controller may evaluate them here. Deletion and ownership are the
            // server's.
            (
                Component::ControllerManager,
                arguments(&[
                    "--controllers=-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller,-resourcequota-controller,-persistentvolume-binder-controller",
                ]),
            ),
            (Component::ApiServer, arguments(&["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,ResourceQuota"])),
        ]
        .into(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("the control plane: {error}"));
    for api in apis::Registry::all().iter() {
        plane.apply(&api.crd().to_string()).unwrap_or_else(|error| panic!("the definition: {error}"));
    }
    plane.wait_for_definitions().unwrap_or_else(|error| panic!("the definition: {error}"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let connect =
        || Server::connect(plane.kubeconfig(), &runtime).unwrap_or_else(|error| panic!("the client: {error}"));

    let wanted = std::env::var("CONFORMANCE").unwrap_or_default();
    let chosen =
        |file: &fixtures::Named| wanted.is_empty() || wanted.split(',').any(|w| w == file.name || w == file.api);
    let files = fixtures::all_scenarios().expect("the scenario folders can be read");
    let files: Vec<_> = files.iter().filter(|file| chosen(file)).collect();
    assert!(!files.is_empty(), "CONFORMANCE={wanted}: no scenario and no API has such a name");
    let next = AtomicUsize::new(0);
    let ran: Mutex<BTreeMap<&str, usize>> = Mutex::default();
    let left_out: Mutex<BTreeMap<&str, Vec<String>>> = Mutex::default();
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                // An API server limits the streams of one connection, and a scenario keeps a watch open for each source.
                let server = connect();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(number) else { return };
                    let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
                    let of_steps = || scenario.steps.iter().find_map(|step| inexpressible(&step.action));
                    if let Some(why) = of_embedded_cluster(file).or_else(of_steps) {
                        let name = format!("{}/{}", file.api, file.name);
                        left_out.lock().expect("no thread panicked").entry(why).or_default().push(name);
                        continue;
                    }
                    *ran.lock().expect("no thread panicked").entry(&file.api).or_default() += 1;
                    let differences = run(&server, number, scenario).unwrap_or_else(|error| vec![error]);
                    if !differences.is_empty() {
                        let differences: Vec<String> = differences.into_iter().take(10).collect();
                        wrong.lock().expect("no thread panicked").push(format!(
                            "{}/{}:\n    {}",
                            file.api,
                            file.name,
                            differences.join("\n    ")
                        ));
                    }
                }
            });
        }
    });
    let ran = ran.into_inner().expect("no panic");
    let (left_out, mut wrong) = (left_out.into_inner().expect("no panic"), wrong.into_inner().expect("no panic"));
    wrong.sort();
    println!("{ran:?} scenarios on a real API server in {:.0} s; left out:", start.elapsed().as_secs_f64());
    for (why, names) in &left_out {
        println!("  {} ({why}): {}", names.len(), names.join(", "));
    }
    assert!(wrong.is_empty(), "{} of {ran:?} scenarios differ:\n{}", wrong.len(), wrong.join("\n"));
    for api in fixtures::apis().expect("the scenario folders can be read") {
        let all = fixtures::scenarios(&api).expect("the scenario folder can be read");
        let count = all.iter().filter(|file| of_embedded_cluster(file).is_none()).count();
        let ran = ran.get(&*api).copied().unwrap_or_default();
        assert!(
            count == 0 || ran * 5 > count * 3 || !wanted.is_empty(),
            "only {ran} of {count} scenarios of {api} ran"
        );
    }
}
