//! The filters of `kube_model` beside those of the real kube-scheduler: 100 random pods against 100 random nodes, 10,000 pairs.
//!
//! kube-scheduler asks an extender about the nodes that pass its filters. The extender of this test notes them and takes none, so that each
//! pod is judged against every node and none is ever bound. What no filter of `kube_model` reads is not generated: host ports, volumes,
//! affinity to other pods. `FILTER_SEED` is another seed than 1.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use conformance::server::Server;
use control_plane::{ControlPlane, Options};
use kube_model::{Traits, node, refuses, requirements};
use serde_json::{Value, json};

const NODES: usize = 100;
const PODS: usize = 100;
const NODE_PATH: &str = "/api/v1/nodes";
const POD_PATH: &str = "/api/v1/namespaces/default/pods";
/// Time after which a verdict that has not come counts as missing.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Names of the nodes that passed the filters, by pod.
type Verdicts = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// A random sequence (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    /// True once in `of` times.
    fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn some_of<T: Clone>(&mut self, all: &[T], most: usize) -> Vec<T> {
        let number = self.below(most + 1);
        (0..number).map(|_| self.of(all)).collect()
    }
}

/// Labels that nodes have and pods ask for, each with its values.
const LABELS: [(&str, &[&str]); 4] = [
    ("gpu", &["a100", "h100"]),
    ("example.com/zone", &["a", "b", "c"]),
    ("slots", &["0", "4", "8", "08", "many"]),
    ("disk", &[""]),
];
const TAINTS: [(&str, &str, &str); 6] = [
    ("dedicated", "train", "NoSchedule"),
    ("dedicated", "serve", "NoSchedule"),
    ("dedicated", "", "NoExecute"),
    ("example.com/broken", "", "NoSchedule"),
    ("nvidia.com/gpu", "present", "NoExecute"),
    ("noisy", "yes", "PreferNoSchedule"),
];

fn taint((key, value, effect): (&str, &str, &str)) -> Value {
    json!({"key": key, "value": value, "effect": effect})
}

fn random_node(random: &mut Random, index: usize) -> Value {
    let mut labels = json!({});
    for (key, values) in LABELS {
        if !random.once_in(3) {
            labels[key] = json!(random.of(values));
        }
    }
    let (mut taints, mut keys) = (Vec::new(), BTreeSet::new());
    for one in random.some_of(&TAINTS, 2) {
        if keys.insert((one.0, one.2)) {
            taints.push(taint(one));
        }
    }
    let mut amounts = json!({
        "cpu": random.of(&["2", "7500m", "64"]), "memory": random.of(&["4Gi", "100Gi", "1T"]),
        "ephemeral-storage": random.of(&["1Gi", "500G"]), "pods": random.of(&["1", "3", "110"])});
    for resource in ["nvidia.com/gpu", "example.com/nic"] {
        if random.once_in(2) {
            amounts[resource] = json!(random.of(&["0", "4", "8"]));
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index}"), "labels": labels},
        "spec": {"taints": taints, "unschedulable": random.once_in(8)},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn requests(random: &mut Random) -> Value {
    let mut requests = json!({});
    for (resource, amounts) in [
        ("cpu", ["0", "100m", "1", "1500m"]),
        ("memory", ["0", "64Mi", "2Gi", "50G"]),
        ("ephemeral-storage", ["0", "1", "1Gi", "20Gi"]),
        ("nvidia.com/gpu", ["0", "1", "2", "8"]),
        ("example.com/nic", ["0", "1", "1", "4"]),
    ] {
        if random.once_in(3) {
            requests[resource] = json!(random.of(&amounts));
        }
    }
    requests
}

fn container(random: &mut Random, name: &str) -> Value {
    let requests = requests(random);
    let mut limits = json!({});
    for resource in ["nvidia.com/gpu", "example.com/nic"] {
        if let Some(amount) = requests.get(resource) {
            limits[resource] = amount.clone();
        }
    }
    json!({"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}})
}

fn expression(random: &mut Random) -> Value {
    let (key, values) = random.of(&LABELS);
    match random.of(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]) {
        operator @ ("In" | "NotIn") => {
            let mut some = random.some_of(values, 2);
            some.push(values[0]);
            json!({"key": key, "operator": operator, "values": some})
        }
        operator @ ("Gt" | "Lt") => {
            json!({"key": "slots", "operator": operator, "values": [random.of(&["0", "3", "8"])]})
        }
        operator => json!({"key": key, "operator": operator}),
    }
}

fn term(random: &mut Random) -> Value {
    let mut term = json!({});
    if !random.once_in(5) {
        let number = 1 + random.below(2);
        term["matchExpressions"] = (0..number).map(|_| expression(random)).collect();
    }
    if random.once_in(5) {
        let operator = random.of(&["In", "NotIn"]);
        term["matchFields"] =
            json!([{"key": "metadata.name", "operator": operator, "values": [format!("n{}", random.below(NODES))]}]);
    }
    term
}

fn toleration(random: &mut Random) -> Value {
    let (key, value, effect) = random.of(&TAINTS);
    let mut toleration = match random.below(4) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"key": key, "operator": "Exists"}),
        2 => json!({"key": key, "value": value}),
        _ => json!({"key": key, "operator": "Equal", "value": value}),
    };
    if random.once_in(2) {
        toleration["effect"] = json!(effect);
    }
    if random.once_in(10) {
        toleration = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    }
    toleration
}

fn random_pod(random: &mut Random, name: &str) -> Value {
    let containers: Vec<Value> = (0..=random.below(2)).map(|i| container(random, &format!("c{i}"))).collect();
    let mut spec = json!({"containers": containers, "terminationGracePeriodSeconds": 0});
    let mut inits: Vec<Value> = (0..random.below(3)).map(|i| container(random, &format!("i{i}"))).collect();
    for init in &mut inits {
        if random.once_in(2) {
            init["restartPolicy"] = json!("Always");
        }
    }
    spec["initContainers"] = json!(inits);
    if random.once_in(3) {
        let (key, values) = random.of(&LABELS);
        spec["nodeSelector"] = json!({key: random.of(values)});
    }
    if random.once_in(2) {
        let number = 1 + random.below(2);
        let terms: Vec<Value> = (0..number).map(|_| term(random)).collect();
        spec["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    }
    spec["tolerations"] = (0..random.below(4)).map(|_| toleration(random)).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// Answers requests of kube-scheduler: notes which nodes passed for a pod, and takes none of them.
fn serve_extender(listener: TcpListener, verdicts: Verdicts) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let verdicts = Arc::clone(&verdicts);
            thread::spawn(move || answer(stream, &verdicts));
        }
    });
}

fn answer(stream: TcpStream, verdicts: &Verdicts) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let Some((name, value)) = line.split_once(':') else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let asked: Value = serde_json::from_slice(&body).expect("JSON");
    let pod = asked["Pod"]["metadata"]["name"].as_str().expect("a pod").to_owned();
    let nodes =
        asked["NodeNames"].as_array().expect("names of nodes").iter().filter_map(Value::as_str).map(str::to_owned);
    verdicts.lock().unwrap().entry(pod).or_default().extend(nodes);
    let answer = json!({"NodeNames": []}).to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ";
    let _ = write!(reader.get_mut(), "{head}{}\r\n\r\n{answer}", answer.len());
}

/// Returns what `kube_model` says: the nodes that take a pod beside those that run there.
fn expected(nodes: &[Value], running: &BTreeMap<String, Vec<Value>>, pod: &Value) -> BTreeSet<String> {
    let wanted = requirements(&pod["spec"]);
    let takes = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (labels, taints, all) = (node::labels(object), node::taints(object), node::allocatable(object));
        let traits =
            Traits { name, labels: &labels, taints: &taints, unschedulable: object["spec"]["unschedulable"] == true };
        let there: Vec<_> =
            running.get(name).into_iter().flatten().map(|pod| requirements(&pod["spec"]).requests).collect();
        let has_room = wanted.requests.iter().all(|(resource, amount)| {
            let used: u64 = there.iter().filter_map(|requests| requests.get(resource)).sum();
            used + amount <= all.get(resource).copied().unwrap_or_default()
        });
        has_room && refuses(traits, &wanted, None).is_none()
    };
    nodes.iter().filter(takes).map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until kube-scheduler has judged a pod. One that no node takes is not shown to the extender: its condition says so.
fn judged(server: &Server, verdicts: &Verdicts, name: &str) -> BTreeSet<String> {
    let start = Instant::now();
    loop {
        if let Some(nodes) = verdicts.lock().unwrap().get(name) {
            return nodes.clone();
        }
        let pod = server.get(&format!("{POD_PATH}/{name}")).expect("the pod");
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|condition| condition["reason"] == "Unschedulable") {
            // The extender hears of a pod before its condition is written.
            return verdicts.lock().unwrap().get(name).cloned().unwrap_or_default();
        }
        assert!(start.elapsed() < TIMEOUT, "{name} was not judged: {pod:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

#[test]
fn nodes_take_the_pods_that_kube_scheduler_lets_them_take() {
    let seed = std::env::var("FILTER_SEED").map_or(1, |seed| seed.parse().expect("FILTER_SEED is a number"));
    println!("FILTER_SEED={seed}");
    let mut random = Random(seed);
    let (listener, address) = listen();
    let verdicts = Verdicts::default();
    serve_extender(listener, Arc::clone(&verdicts));
    // Without kube-controller-manager nothing taints the nodes, and pods need no account.
    let options = Options {
        nodes: 0,
        kwok: false,
        controller_manager: false,
        scheduler_extender: Some(address),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("the control plane: {error}"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::connect(plane.kubeconfig(), &runtime).unwrap_or_else(|error| panic!("the client: {error}"));

    let nodes: Vec<Value> = (0..NODES).map(|index| random_node(&mut random, index)).collect();
    let mut running: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in &nodes {
        let name = object["metadata"]["name"].as_str().unwrap();
        server.create(NODE_PATH, object).unwrap_or_else(|error| panic!("{name}: {}", error.message));
        // Admission marks new nodes as not ready.
        let own = json!({"spec": {"taints": object["spec"]["taints"]}});
        server.patch(&format!("{NODE_PATH}/{name}"), &own).unwrap_or_else(|error| panic!("{name}: {}", error.message));
        for index in 0..random.below(3) {
            let mut pod = random_pod(&mut random, &format!("r-{name}-{index}"));
            pod["spec"]["nodeName"] = json!(name);
            server.create(POD_PATH, &pod).unwrap_or_else(|error| panic!("{pod:#}: {}", error.message));
            running.entry(name.to_owned()).or_default().push(pod);
        }
    }
    let (mut wrong, mut taken) = (Vec::new(), 0);
    for index in 0..PODS {
        let name = format!("p{index}");
        let pod = random_pod(&mut random, &name);
        server.create(POD_PATH, &pod).unwrap_or_else(|error| panic!("{pod:#}: {}", error.message));
        let (is, ours) = (judged(&server, &verdicts, &name), expected(&nodes, &running, &pod));
        server.delete(&format!("{POD_PATH}/{name}"), &json!({"gracePeriodSeconds": 0})).expect("the pod is deleted");
        taken += is.len();
        for node in is.symmetric_difference(&ours) {
            let object = nodes.iter().find(|object| object["metadata"]["name"] == node.as_str()).unwrap();
            let verdict = if is.contains(node) { "takes" } else { "does not take" };
            wrong.push(format!("kube-scheduler {verdict} {pod:#}\non {object:#}\nbeside {:#?}", running.get(node)));
        }
    }
    let pairs = NODES * PODS;
    println!("{pairs} pairs, {taken} of them fit");
    assert!((pairs / 50..pairs).contains(&taken), "the pairs show nothing: {taken} of {pairs} fit");
    assert!(wrong.is_empty(), "{} of {pairs} pairs differ, FILTER_SEED={seed}; the first: {}", wrong.len(), wrong[0]);
}
