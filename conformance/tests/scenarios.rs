//! Every scenario that a real API server can express, on both grounds. All APIs are served at once.
//! `CONFORMANCE=name,api` runs these scenarios, and all of these APIs, only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use cluster::FailVerb;
use cluster::NodeSpec;
use conformance::compare::differences;
use conformance::real::{Real, Refusals};
use conformance::server::Server;
use control_plane::{Component, ControlPlane, Options};
use k8s_driver::api_server::{self, connect};
use simulator::scenario::{Action, Scenario};

/// Scenarios that run side by side: they mostly wait for the server.
const SIDE_BY_SIDE: usize = 6;

/// Why a scenario cannot be run on a real API server, if it cannot.
fn inexpressible(action: &Action) -> Option<&'static str> {
    match action {
        Action::StoreUnchecked(_) => Some("plants objects past the server's checks"),
        Action::Fail(fail) if fail.verb == FailVerb::List => Some("makes lists fail"),
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
    let nodes = scenario.nodes.iter().map(|node| {
        let spec = NodeSpec::named(&node.name);
        if node.gpus > 0 { spec.with("nvidia.com/gpu", &node.gpus.to_string()) } else { spec }
    });
    let nodes: Vec<NodeSpec> = nodes.collect();
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

/// Returns the definitions of other products that a scenario applies.
fn definitions(file: &fixtures::Named) -> impl Iterator<Item = &serde_json::Value> {
    let manifests = file.scenario.iter().flat_map(|scenario| &scenario.manifests);
    manifests.filter(|manifest| manifest["kind"] == "CustomResourceDefinition")
}

/// Returns why a scenario is about the embedded cluster alone.
fn of_embedded_cluster(file: &fixtures::Named) -> Option<&'static str> {
    if definitions(file).next().is_some() {
        return Some("definitions of other products would be there for all scenarios");
    }
    lacks_namespaces(file)
}

/// Returns why a scenario cannot stand beside others on one API server.
fn lacks_namespaces(file: &fixtures::Named) -> Option<&'static str> {
    let scenario = file.scenario.as_ref().ok()?;
    if scenario.manifests.iter().any(|manifest| manifest["kind"] == "TrainingQueue") {
        return Some("queues have no namespace, and would be there for all scenarios");
    }
    if scenario.manifests.iter().any(|manifest| manifest["kind"] == "ResourceFlavor") {
        return Some("flavors have no namespace, and would be there for all scenarios");
    }
    let has_model = |manifest: &serde_json::Value| {
        manifest["kind"] == "ModelVersion" || manifest.pointer("/spec/modelVersion").is_some()
    };
    if scenario.manifests.iter().any(has_model) {
        return Some("volumes have no namespace, and a controller would bind them to their claims");
    }
    (file.name == "size-of-the-claim-is-edited").then_some("the storage class would have to let claims grow")
}

/// Outcome of scenarios on a real API server.
#[derive(Default)]
struct Ran {
    /// Number of scenarios that ran, by API.
    by_api: BTreeMap<String, usize>,
    left_out: Vec<String>,
    wrong: Vec<String>,
}

impl Ran {
    fn print(&self, start: Instant) {
        println!(
            "{:?} scenarios on a real API server in {:.0} s; left out:",
            self.by_api,
            start.elapsed().as_secs_f64()
        );
        for name in &self.left_out {
            println!("  {name}");
        }
        let Self { by_api, wrong, .. } = self;
        assert!(wrong.is_empty(), "{} of {by_api:?} scenarios differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Returns true for a scenario that the caller asked for, by its name or its API.
fn is_chosen(file: &fixtures::Named) -> bool {
    let wanted = std::env::var("CONFORMANCE").unwrap_or_default();
    wanted.is_empty() || wanted.split(',').any(|w| w == file.name || w == file.api)
}

/// Runs scenarios side by side on a control plane that serves every API, and these definitions besides.
fn run_all(
    extra: &[serde_json::Value],
    files: &[&fixtures::Named],
    left_out: impl Fn(&fixtures::Named) -> Option<&'static str> + Sync,
) -> Ran {
    let arguments = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
    let options = Options {
        scheduler: false,
        kwok: false,
        arguments: [
            // Nodes and pods are the scenarios': no controller may evaluate them here. Deletion and ownership are the server's.
            (
                Component::ControllerManager,
                arguments(&[
                    "--controllers=-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller",
                ]),
            ),
            (Component::ApiServer, arguments(&["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"])),
        ]
        .into(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("the control plane: {error}"));
    for api in apis::Registry::all().iter() {
        plane.apply(&api.crd().to_string()).unwrap_or_else(|error| panic!("the definition: {error}"));
    }
    for definition in extra {
        plane.apply(&definition.to_string()).unwrap_or_else(|error| panic!("the definition: {error}"));
    }
    plane
        .run_kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
        .unwrap_or_else(|error| panic!("the definition: {error}"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let kubeconfig = Some(PathBuf::from(plane.kubeconfig()));
    let options = api_server::Options { kubeconfig, ..api_server::Options::default() };
    let server = || {
        let connection = runtime.block_on(connect(&options)).unwrap_or_else(|error| panic!("the client: {error}"));
        Server { client: connection.client, runtime: runtime.handle().clone() }
    };

    let next = AtomicUsize::new(0);
    let all: Mutex<Ran> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                // An API server limits the streams of one connection, and a scenario keeps a watch open for each source.
                let server = server();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(number) else { return };
                    let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
                    let of_steps = || scenario.steps.iter().find_map(|step| inexpressible(&step.action));
                    if let Some(why) = left_out(file).or_else(of_steps) {
                        let name = format!("{}/{}: {why}", file.api, file.name);
                        all.lock().expect("no thread panicked").left_out.push(name);
                        continue;
                    }
                    *all.lock().expect("no thread panicked").by_api.entry(file.api.clone()).or_default() += 1;
                    let differences = run(&server, number, scenario).unwrap_or_else(|error| vec![error]);
                    if !differences.is_empty() {
                        let differences: Vec<String> = differences.into_iter().take(10).collect();
                        all.lock().expect("no thread panicked").wrong.push(format!(
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
    let mut all = all.into_inner().expect("no panic");
    all.wrong.sort();
    all
}

#[test]
fn both_grounds_lead_to_the_same() {
    let start = Instant::now();
    let files = fixtures::all_scenarios().expect("the scenario folders can be read");
    let files: Vec<_> = files.iter().filter(|file| is_chosen(file)).collect();
    let ran = run_all(&[], &files, of_embedded_cluster);
    ran.print(start);
    let is_whole = std::env::var("CONFORMANCE").unwrap_or_default().is_empty();
    for api in fixtures::apis().expect("the scenario folders can be read") {
        let all = fixtures::scenarios(&api).expect("the scenario folder can be read");
        let count = all.iter().filter(|file| of_embedded_cluster(file).is_none()).count();
        let ran = ran.by_api.get(&*api).copied().unwrap_or_default();
        assert!(count == 0 || ran * 5 > count * 3 || !is_whole, "only {ran} of {count} scenarios of {api} ran");
    }
}

/// Scenarios of jobs that Kueue admits, on a control plane that serves its types. The scenarios play its part.
#[test]
fn both_grounds_lead_to_the_same_beside_kueue() {
    let start = Instant::now();
    let files = fixtures::all_scenarios().expect("the scenario folders can be read");
    let is_kueues = |definition: &serde_json::Value| definition["spec"]["group"] == "kueue.x-k8s.io";
    let files: Vec<_> =
        files.iter().filter(|file| definitions(file).next().is_some() && definitions(file).all(is_kueues)).collect();
    let extra: BTreeMap<String, serde_json::Value> =
        files.iter().flat_map(|file| definitions(file)).map(|found| (found.to_string(), found.clone())).collect();
    let extra: Vec<serde_json::Value> = extra.into_values().collect();
    let files: Vec<_> = files.into_iter().filter(|file| is_chosen(file)).collect();
    let ran = run_all(&extra, &files, lacks_namespaces);
    ran.print(start);
    let count: usize = ran.by_api.values().sum();
    assert!(count * 5 > files.len() * 3, "only {count} of {} scenarios ran", files.len());
}
