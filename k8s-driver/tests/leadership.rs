//! Leadership, tokens and following on a real control plane.
//!
//! Two whole operator processes, killed and signalled, are in the binary's tests (`cli/tests/cluster/failover.rs`); here are the parts,
//! each against a real API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use control_plane::{Component, ControlPlane, Identity, Options as PlaneOptions, TEST_TIMEOUT, until};
use k8s_driver::api_server::{self, Connection, connect};
use k8s_driver::election::{Elector, Error, LeaseHold, LeaseOptions, find_leader};
use k8s_driver::remote_log::{self, LocateOptions, Remote, locate};
use k8s_driver::{Handles, JobFilter, LeaseSettings, Metrics, Options, ProcessState, run};
use model::{Position, Term};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const SECOND: Duration = Duration::from_secs(1);

fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| {
        let plane = ControlPlane::start(PlaneOptions { nodes: 4, ..PlaneOptions::default() }).expect("a control plane");
        for api in apis::Registry::all().iter() {
            plane.apply(&api.crd().to_string()).expect("the definition is accepted");
        }
        plane.wait_for_definitions().expect("it is served");
        plane
    })
}

fn kubectl(arguments: &[&str]) -> String {
    plane().run_kubectl(arguments).expect("kubectl does it")
}

fn namespace(test: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{test}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    kubectl(&["create", "namespace", &name]);
    name
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn of(kubeconfig: PathBuf) -> api_server::Options {
    api_server::Options { kubeconfig: Some(kubeconfig), ..api_server::Options::default() }
}

async fn admin() -> Connection {
    connect(&of(plane().kubeconfig().to_owned())).await.unwrap()
}

/// Short enough for a test, long enough for a busy machine.
fn lease(namespace: &str, identity: &str) -> LeaseOptions {
    LeaseOptions {
        duration: 6 * SECOND,
        renew_deadline: 4 * SECOND,
        retry_period: SECOND,
        ..LeaseOptions::new(namespace, identity)
    }
}

/// A candidate in a runtime of its own, so that it can be ended without a last act.
struct Candidate {
    runtime: Option<Runtime>,
    holds: std::sync::mpsc::Receiver<LeaseHold>,
}

impl Candidate {
    fn new(namespace: &str, identity: &str) -> Self {
        let runtime = runtime();
        let (sender, holds) = std::sync::mpsc::channel();
        let options = lease(namespace, identity);
        runtime.spawn(async move {
            let mut elector = Elector::new(admin().await.client, options, Metrics::new());
            loop {
                let hold = elector.acquire().await.unwrap();
                if sender.send(hold.clone()).is_err() {
                    return;
                }
                hold.lost().await;
            }
        });
        Self { runtime: Some(runtime), holds }
    }

    fn leads(&self) -> LeaseHold {
        self.holds.recv_timeout(TEST_TIMEOUT).expect("it leads")
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().unwrap().block_on(future)
    }

    fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

#[test]
fn a_dead_leaders_lease_is_taken_over_with_its_term_and_a_released_one_at_once() {
    let space = namespace("election");
    let first = Candidate::new(&space, "pod-a_1");
    let one = first.leads();
    first.block_on(one.claim(Term(1000))).unwrap();
    let second = Candidate::new(&space, "pod-b_2");
    // Tools that edit the Lease change nothing for its holder.
    for n in 0..8 {
        kubectl(&["--namespace", &space, "label", "--overwrite", "lease", "trainyard", &format!("n={n}")]);
        kubectl(&["--namespace", &space, "annotate", "--overwrite", "lease", "trainyard", "trainyard.dev/term-"]);
        std::thread::sleep(Duration::from_millis(300));
        assert!(one.holds());
    }
    assert!(second.holds.try_recv().is_err());
    let renewed = one.remaining();
    first.kill();
    let died = Instant::now();
    let two = second.leads();
    let took = died.elapsed();
    assert!(two.holds() && two.last_term() == Term(1000), "{:?}", two.last_term());
    // The last renewal was sent `4 s - remaining` before the death; the lease runs out 6 s after it.
    let expiry = (6 * SECOND).saturating_sub((4 * SECOND).saturating_sub(renewed));
    assert!(took + Duration::from_millis(50) >= expiry, "taken over {took:?} after the death, {expiry:?} were left");
    assert!(took < expiry + 2 * SECOND, "taken over {took:?} after the death, {expiry:?} were left");
    eprintln!("taken over {:?} after the lease ran out", took.saturating_sub(expiry));
    let refused = second.block_on(two.claim(Term(1000))).unwrap_err();
    assert!(matches!(refused, Error::TermTaken { last: Term(1000), .. }), "{refused}");
    second.block_on(two.claim(Term(1001))).unwrap();

    let third = Candidate::new(&space, "pod-c_3");
    std::thread::sleep(2 * SECOND);
    let begun = Instant::now();
    second.block_on(two.clone().release()).unwrap();
    // The process that released it may be the first to take it again. Either way it is taken at once.
    let next = until("another process leads", || third.holds.try_recv().or_else(|_| second.holds.try_recv()));
    assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
    assert!(next.holds() && !two.holds() && next.last_term() == Term(1001));
    let events = until("the changes are reported", || {
        let events = kubectl(&["--namespace", &space, "get", "events", "--output=json"]);
        let events: Value = serde_json::from_str(&events).unwrap();
        let reported: Vec<String> =
            events["items"].as_array().unwrap().iter().map(|e| e["message"].to_string()).collect();
        if reported.len() >= 3 { Ok(reported) } else { Err(reported.join("\n")) }
    });
    assert!(events.iter().any(|e| e.contains("pod-a_1 became leader")), "{events:?}");
}

#[test]
fn an_api_server_that_stands_still_ends_the_hold_and_gives_a_new_one() {
    // A control plane of its own: others must not notice.
    let options = PlaneOptions { nodes: 0, kwok: false, scheduler: false, ..PlaneOptions::default() };
    let plane = ControlPlane::start(options).expect("a control plane");
    let kubeconfig = plane.kubeconfig().to_owned();
    let runtime = runtime();
    runtime.block_on(async {
        let client = connect(&of(kubeconfig)).await.unwrap().client;
        let mut elector = Elector::new(client, lease("default", "pod-a_1"), Metrics::new());
        let hold = elector.acquire().await.unwrap();
        hold.claim(Term(7)).await.unwrap();
        plane.pause(Component::ApiServer).unwrap();
        let paused = Instant::now();
        tokio::time::timeout(TEST_TIMEOUT, hold.lost()).await.unwrap();
        assert!(paused.elapsed() < Duration::from_millis(4500), "{:?}", paused.elapsed());
        assert!(!hold.holds());
        tokio::time::sleep(4 * SECOND).await;
        plane.resume(Component::ApiServer).unwrap();
        let resumed = Instant::now();
        let again = tokio::time::timeout(TEST_TIMEOUT, elector.acquire()).await.unwrap().unwrap();
        // It still was the holder, so it does not wait.
        assert!(resumed.elapsed() < 5 * SECOND, "{:?}", resumed.elapsed());
        assert_eq!(again.last_term(), Term(7));
        again.claim(Term(8)).await.unwrap();
    });
}

/// An operator in this process that serves its log.
struct Operator {
    handles: Handles,
    runtime: Option<Runtime>,
}

impl Operator {
    fn new(space: &str, kubeconfig: PathBuf, data: &std::path::Path) -> Self {
        Self::serving(apis::Registry::all(), space, kubeconfig, data)
    }

    fn serving(registry: apis::Registry, space: &str, kubeconfig: PathBuf, data: &std::path::Path) -> Self {
        let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let options = Options {
            connection: of(kubeconfig),
            scope: JobFilter { namespace: Some(space.to_owned()), label_selector: String::new() },
            data_directory: data.to_owned(),
            lease: Some(LeaseSettings {
                namespace: Some(space.to_owned()),
                duration: 6 * SECOND,
                renew_deadline: 4 * SECOND,
                retry_period: SECOND,
                ..LeaseSettings::default()
            }),
            http: k8s_driver::HttpOptions { health: Vec::new(), log: any, ..Default::default() },
            ..Options::default()
        };
        let (handles, runtime) = (Handles { registry, ..Handles::new(None) }, runtime());
        runtime.spawn(run(options, handles.clone()));
        Self { handles, runtime: Some(runtime) }
    }

    fn until_leading(&self) {
        until("it leads", || match self.handles.status.get() {
            ProcessState::Leading { .. } => Ok(()),
            other => Err(other.to_string()),
        });
    }

    /// Up to where this one follows, by its own account; 0 while it does not.
    fn follows(&self) -> u64 {
        let text = self.handles.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix("trainyard_follow_position "));
        line.map_or(0, |position| position.parse().unwrap())
    }

    /// Waits until it follows and has as much as this.
    fn until_following(&self, head: impl Fn() -> u64) {
        until("it follows", || {
            let (at, head) = (self.follows(), head());
            if at > 0 && at >= head { Ok(()) } else { Err(format!("{at} of {head}")) }
        });
    }

    fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_timeout(5 * SECOND);
    }
}

/// The line of the metrics that shows whether an API is served.
fn says_served(operator: &Operator, kind: &str, served: u8) -> Result<(), String> {
    let line = format!("trainyard_api_served{{kind=\"{kind}\"}} {served}");
    let text = operator.handles.metrics.text();
    if text.contains(&line) { Ok(()) } else { Err(format!("{line} in {text}")) }
}

fn job(name: &str) -> String {
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "metadata": {"name": name},
        "spec": {"replicaSpecs": {"trainer": {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {
            "containers": [{"name": "aitj-main", "image": "none"}]}}}}}})
    .to_string()
}

fn apply(space: &str, manifest: &str) {
    let mut manifest: Value = serde_json::from_str(manifest).unwrap();
    manifest["metadata"]["namespace"] = json!(space);
    plane().apply(&manifest.to_string()).unwrap();
}

/// Reads the log as the user of a kubeconfig; gives its lines.
fn read(wish: &LocateOptions) -> Result<String, remote_log::Error> {
    runtime().block_on(async {
        let found = locate(wish).await.unwrap_or_else(|error| panic!("{error}"));
        let mut lines = Remote::new(found.target)?.log(Position(1), false).await?;
        let mut text = Vec::new();
        while let Some(bytes) = lines.next().await? {
            text.extend_from_slice(&bytes);
        }
        Ok(String::from_utf8(text).unwrap())
    })
}

fn wish(space: &str, kubeconfig: PathBuf) -> LocateOptions {
    LocateOptions {
        connection: of(kubeconfig),
        namespace: Some(space.to_owned()),
        lease: LeaseOptions::NAME.to_owned(),
        ..LocateOptions::default()
    }
}

/// A user with a client certificate, who may read the Lease, and may have tokens for the log if `reader`.
fn user(space: &str, name: &str, reader: bool) -> PathBuf {
    let name = format!("{space}-{name}");
    let bind = |role: &str| {
        let (role, user) = (format!("--role={role}"), format!("--user={name}"));
        kubectl(&["--namespace", space, "create", "rolebinding", &format!("{name}{role}"), &role, &user]);
    };
    bind("trainyard-election");
    if reader {
        bind("trainyard-log-token");
    }
    plane().kubeconfig_for(Identity::User { name: &name, group: None }).unwrap()
}

/// The same, where the address and what to trust are named and a token comes from a file.
fn own(space: &str, token: &str, dir: &std::path::Path) -> LocateOptions {
    let leader = runtime().block_on(async { find_leader(admin().await.client, space, "trainyard").await.unwrap() });
    let advertised = leader.unwrap().advertised.unwrap();
    let (token_file, authority) = (dir.join("token"), dir.join("authority"));
    std::fs::write(&token_file, token).unwrap();
    std::fs::write(&authority, advertised.certificate.unwrap()).unwrap();
    LocateOptions {
        server: Some(advertised.address),
        token_file: Some(token_file),
        authority: Some(authority),
        ..LocateOptions::default()
    }
}

#[test]
fn the_api_server_decides_who_reads_the_log_and_a_standby_follows() {
    let space = namespace("log");
    let data = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let account = operator_account(&space);
    let leader = Operator::new(&space, plane().kubeconfig().to_owned(), data.0.path());
    leader.until_leading();
    apply(&space, &job("one"));
    let (reader, stranger) = (user(&space, "reader", true), user(&space, "stranger", false));
    let text = until("the log reports the job", || {
        let text = read(&wish(&space, reader.clone())).unwrap();
        if text.contains(r#""name":"one""#) { Ok(text) } else { Err(text) }
    });
    let lines = event_log::jsonl::Reader::new(text.as_bytes(), "the answer").unwrap();
    assert!(lines.map(Result::unwrap).count() > 1, "a chain that verifies");
    // Who may not have a token, or not read the Lease, gets that answer from the API server.
    let not_found = |kubeconfig| {
        let found = runtime().block_on(async { locate(&wish(&space, kubeconfig)).await.map(|_| ()) });
        k8s_driver::api_server::error_chain(&found.unwrap_err())
    };
    let refused = not_found(stranger);
    assert!(refused.contains(&format!("no token of service account {space}/trainyard-log-reader")), "{refused}");
    assert!(refused.contains(&format!("User \"{space}-stranger\" cannot create resource")), "{refused}");
    let eve = not_found(plane().kubeconfig_for(Identity::User { name: "eve", group: None }).unwrap());
    assert!(eve.contains("Lease") && eve.contains("cannot be read"), "{eve}");
    // Tokens of their own, sent where they say: nonsense, one without access, and one with.
    let (file, dir) = (
        |arguments: &[&str]| kubectl(&[&["--namespace", &space, "create", "token"], arguments].concat()),
        data.0.path(),
    );
    let nonsense = read(&own(&space, "nonsense", dir)).unwrap_err();
    assert!(matches!(nonsense, remote_log::Error::Unauthorized { .. }), "{nonsense}");
    let refused = read(&own(&space, &file(&["default"]), dir)).unwrap_err();
    let user = format!("system:serviceaccount:{space}:default");
    assert!(matches!(&refused, remote_log::Error::Forbidden { user: who, .. } if *who == user), "{refused}");
    assert!(read(&own(&space, &file(&["trainyard-log-reader"]), dir)).unwrap().starts_with(&text));
    // One that was issued for another server is good for nothing here: a server that was sent one cannot use it.
    let stolen = file(&["trainyard-log-reader", "--audience=https://trainyard.dev/log/of-another-server"]);
    let stolen = read(&own(&space, &stolen, dir)).unwrap_err();
    assert!(matches!(stolen, remote_log::Error::Unauthorized { .. }), "{stolen}");

    // A standby under a service account with exactly what it needs.
    let standby = Operator::new(&space, account, data.1.path());
    let head = |space: &str| {
        let text = read(&wish(space, reader.clone())).unwrap();
        event_log::jsonl::Reader::new(text.as_bytes(), "x").unwrap().map(|f| f.unwrap().position.0).last().unwrap()
    };
    standby.until_following(|| head(&space));
    apply(&space, &job("two"));
    standby.until_following(|| head(&space).max(4));
    let found =
        runtime().block_on(async { find_leader(admin().await.client, &space, "trainyard").await.unwrap().unwrap() });
    // The leader dies; the standby takes over with the leader's history.
    leader.kill();
    standby.until_leading();
    let after = until("the new leader serves", || read(&wish(&space, reader.clone())));
    assert!(after.starts_with(&text), "the history continues where it was");
    let now =
        runtime().block_on(async { find_leader(admin().await.client, &space, "trainyard").await.unwrap().unwrap() });
    assert!(now.term > found.term && now.identity != found.identity, "{found:?} {now:?}");
    standby.kill();
}

/// A service account with the rights of `deploy/base`, in this namespace.
fn operator_account(space: &str) -> PathBuf {
    for file in ["service-account.yaml", "roles.yaml", "rbac.yaml"] {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/base").join(file);
        let text = std::fs::read_to_string(file).unwrap();
        // Roles of the cluster have one name; what is bound belongs to this test's account.
        plane().apply(&text.replace("trainyard-system", space)).unwrap();
    }
    plane().kubeconfig_for(Identity::ServiceAccount { namespace: space, name: "trainyard" }).unwrap()
}

/// A role that may do everything with pods, services, events, nodes, leases, what jobs own, and the resources of these groups.
fn role(name: &str, groups: &[&str]) -> String {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [
        {"apiGroups": [""], "resources": ["pods", "services", "events", "nodes"], "verbs": ["*"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]},
    ]})
    .to_string()
}

#[test]
fn an_api_whose_list_is_refused_does_not_hold_up_the_others() {
    let registry = fixtures::copied::second();
    for api in registry.iter() {
        plane().apply(&api.crd().to_string()).unwrap();
    }
    plane().wait_for_definitions().unwrap();
    let space = namespace("refused");
    let first = "elasticdeeplearning.ai";
    plane().apply(&role(&space, &[first])).unwrap();
    kubectl(&["create", "clusterrolebinding", &space, "--clusterrole", &space, "--user", &space]);
    let kubeconfig = plane().kubeconfig_for(Identity::User { name: &space, group: None }).unwrap();
    apply(&space, &job("one"));
    let mut other: Value = serde_json::from_str(&job("two")).unwrap();
    other["apiVersion"] = json!("second.example.com/v1");
    other["kind"] = json!("SecondJob");
    apply(&space, &other.to_string());

    let data = tempfile::tempdir().unwrap();
    let operator = Operator::serving(registry, &space, kubeconfig, data.path());
    operator.until_leading();
    let phase = |resource: &str| {
        kubectl(&["--namespace", &space, "get", resource, "--output", "jsonpath={.items[*].status.phase}"])
    };
    let pods = || kubectl(&["--namespace", &space, "get", "pods", "--output", "jsonpath={.items[*].metadata.uid}"]);
    let running = |resource: &str| {
        until("its job runs", || if phase(resource) == "Running" { Ok(()) } else { Err(phase(resource)) });
    };
    running("aitrainingjobs");
    let before = pods();
    let gaps = operator.handles.status.gaps().expect("the other API is left out");
    let path = format!("/apis/second.example.com/v1/namespaces/{space}/secondjobs: list: ");
    for part in ["SecondJob jobs are not served", &path, "cannot list resource", "ClusterRole"] {
        assert!(gaps.contains(part), "{gaps}");
    }
    assert_eq!(phase("secondjobs"), "");
    let served = |kind: &str, served: u8| says_served(&operator, kind, served).unwrap();
    served("AITrainingJob", 1);
    served("SecondJob", 0);

    // The rule is added: the API is served without a restart, and the other's pods continue.
    plane().apply(&role(&space, &[first, "second.example.com"])).unwrap();
    running("secondjobs");
    assert_eq!(operator.handles.status.gaps(), None);
    served("SecondJob", 1);
    let after = pods();
    assert!(before.split(' ').all(|pod| after.contains(pod)), "{before} and {after}");
    assert_eq!((before.split(' ').count(), after.split(' ').count()), (2, 4));
    operator.kill();
}

#[test]
fn an_api_is_served_while_its_definition_is_installed() {
    // A control plane of its own: definitions come and go.
    let options = PlaneOptions { nodes: 0, kwok: false, scheduler: false, ..PlaneOptions::default() };
    let plane = ControlPlane::start(options).expect("a control plane");
    let registry = fixtures::copied::second();
    let define = |kind: &str| {
        let api = registry.iter().find(|api| *api.resource().kind == *kind).unwrap();
        plane.apply(&api.crd().to_string()).unwrap();
        plane.wait_for_definitions().unwrap();
    };
    let create = |object: &Value| until("it is created", || plane.apply(&object.to_string()));
    let pods = |job: &str| {
        let output = "jsonpath={range .items[*]}{.metadata.ownerReferences[0].name} {.metadata.uid}{\"\\n\"}{end}";
        let all = plane.run_kubectl(["get", "pods", "--output", output]).unwrap();
        all.lines().filter(|line| line.starts_with(&format!("{job} "))).map(str::to_owned).collect::<Vec<_>>()
    };
    let until_pods =
        |job: &str| until("it has pods", || if pods(job).len() == 2 { Ok(()) } else { Err(pods(job).join("\n")) });

    define("AITrainingJob");
    let data = tempfile::tempdir().unwrap();
    let operator = Operator::serving(registry.clone(), "default", plane.kubeconfig().to_owned(), data.path());
    operator.until_leading();
    let term = operator.handles.status.get().to_string();
    let served = || operator.handles.status.served_apis().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(served(), ["AITrainingJob"]);
    let missing = operator.handles.status.missing();
    assert_eq!(missing.paths, ["/apis/second.example.com/v1/namespaces/default/secondjobs"]);
    assert!(!missing.all, "one of two APIs is enough to be ready");
    says_served(&operator, "AITrainingJob", 1).unwrap();
    says_served(&operator, "SecondJob", 0).unwrap();
    create(&serde_json::from_str(&job("one")).unwrap());
    until_pods("one");
    let before = pods("one");

    // Installed later, it is served in the same term.
    define("SecondJob");
    let mut other: Value = serde_json::from_str(&job("two")).unwrap();
    other["apiVersion"] = json!("second.example.com/v1");
    other["kind"] = json!("SecondJob");
    create(&other);
    until_pods("two");
    assert_eq!(served(), ["AITrainingJob", "SecondJob"]);
    says_served(&operator, "SecondJob", 1).unwrap();

    // Its definition is removed, and with it its jobs. The other API's jobs do not notice.
    plane.run_kubectl(["delete", "crd", "secondjobs.second.example.com", "--timeout=60s"]).unwrap();
    until("it is not served any more", || says_served(&operator, "SecondJob", 0));
    assert_eq!(served(), ["AITrainingJob"]);
    assert_eq!((pods("one"), operator.handles.status.get().to_string()), (before, term));
    operator.kill();
}
