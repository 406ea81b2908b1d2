//! Structures that APIs share beside pods: objects that jobs own, objects that specs reference, groups in an order, groups that
//! run once, finalizers. Each flow runs undisturbed, with a lost log after every step, and with an operator that dies at each of its
//! calls.

mod probe;

use apis::{ApiAnswer, ApiCall, Resource};
use cluster::{Cluster, Mode, NodeSpec};
use embedded::backend::EmbeddedCluster;
use embedded::settle::{Hooks, Settled, settle};
use event_log::MemoryLog;
use model::Phase;
use operator::{Operator, Options};
use serde_json::{Value, json};

use crate::probe::{API_VERSION, definition, registry};

/// Fault of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A new operator begins on an empty log after every step.
    Forgets,
    /// The operator dies at a call of this number, before it is made or (`made`) before its answer. The next one has the log or an
    /// empty one.
    Dies {
        at: u32,
        made: bool,
        keeps_log: bool,
    },
}

/// Cluster and operator.
struct World {
    backend: EmbeddedCluster,
    operator: Option<Operator>,
    fault: Fault,
    calls: u32,
}

/// Runs a flow without a fault, losing the log after every step, and with the operator dying at every call.
fn under_faults(flow: impl Fn(&mut World)) {
    let run = |fault| {
        // Shown when the flow fails.
        println!("{fault:?}");
        let mut world = World::new(fault);
        flow(&mut world);
        world.calls
    };
    let calls = run(Fault::None);
    run(Fault::Forgets);
    for at in 1..=calls {
        for (made, keeps_log) in [(false, false), (false, true), (true, false), (true, true)] {
            run(Fault::Dies { at, made, keeps_log });
        }
    }
}

/// Executes calls until the operator dies.
struct Execute<'a> {
    fault: Fault,
    calls: &'a mut u32,
}

impl Hooks<EmbeddedCluster> for Execute<'_> {
    fn execute(&mut self, backend: &mut EmbeddedCluster, call: &ApiCall) -> Option<ApiAnswer> {
        *self.calls += 1;
        let dies = matches!(self.fault, Fault::Dies { at, .. } if at == *self.calls);
        let is_made = !dies || matches!(self.fault, Fault::Dies { made: true, .. });
        let answer = is_made.then(|| backend.cluster.execute(call));
        answer.filter(|_| !dies)
    }
}

impl World {
    fn new(fault: Fault) -> Self {
        let options =
            cluster::Options { mode: Mode::Manual, nodes: vec![NodeSpec::named("n1")], ..cluster::Options::default() };
        let mut cluster = Cluster::new(&options);
        cluster.register(&definition("Pool", "pools", "Cluster")).unwrap();
        let backend = EmbeddedCluster::serving(cluster, &registry()).unwrap();
        let operator = Operator::open(Box::new(MemoryLog::new()), registry(), Options::default()).unwrap();
        Self { backend, operator: Some(operator), fault, calls: 0 }
    }

    fn cluster(&mut self) -> &mut Cluster {
        &mut self.backend.cluster
    }

    /// Runs cluster and operator, and those that follow it, until nothing moves.
    fn settle(&mut self) {
        while self.settle_once() == Settled::Crashed {
            self.begin_again(matches!(self.fault, Fault::Dies { keeps_log: true, .. }));
        }
        if self.fault == Fault::Forgets {
            self.begin_again(false);
            assert_eq!(self.settle_once(), Settled::Idle);
        }
    }

    fn settle_once(&mut self) -> Settled {
        let now = self.backend.cluster.now();
        let mut execute = Execute { fault: self.fault, calls: &mut self.calls };
        let operator = self.operator.as_mut().unwrap();
        settle(&mut self.backend, operator, &registry(), &mut || now, &mut execute).unwrap()
    }

    fn begin_again(&mut self, keeps_log: bool) {
        let log = self.operator.take().unwrap().into_log();
        let log = if keeps_log { log } else { Box::new(MemoryLog::new()) };
        self.operator = Some(Operator::open(log, registry(), Options::default()).unwrap());
        self.backend.watch_again();
    }

    fn create(&mut self, manifest: &Value) {
        self.cluster().apply(manifest).unwrap();
        self.settle();
    }

    /// Applies a probe of groups, each with its number of pods.
    fn apply(&mut self, name: &str, groups: &[(&str, u32)], extra: &Value, template: Option<&str>) {
        let container = json!({"name": "aitj-c", "image": "i", "command": ["true"]});
        let group = |replicas: u32| {
            json!({"replicas": replicas, "restartPolicy": "OnFailure", "restartScope": "Pod",
                "template": {"spec": {"containers": [container]}}})
        };
        let specs: serde_json::Map<String, Value> =
            groups.iter().map(|(name, replicas)| ((*name).to_owned(), group(*replicas))).collect();
        let mut annotations = json!({"probe.example.com/extra": extra.to_string()});
        if let Some(template) = template {
            annotations["probe.example.com/template"] = json!(template);
        }
        let job = json!({"apiVersion": API_VERSION, "kind": "Probe", "spec": {"replicaSpecs": specs},
            "metadata": {"name": name, "namespace": "default", "annotations": annotations}});
        self.create(&job);
    }

    fn apply_template(&mut self, name: &str, extra: &Value) {
        let group = json!({"replicas": 0, "template": {"spec": {"containers": [{"name": "aitj-c", "image": "i"}]}}});
        let template = json!({"apiVersion": API_VERSION, "kind": "ProbeTemplate", "spec": {"replicaSpecs": {"none": group}},
            "metadata": {"name": name, "namespace": "default", "annotations": {"probe.example.com/extra": extra.to_string()}}});
        self.create(&template);
    }

    fn run(&mut self, pod: &str) {
        self.cluster().run("default", pod).unwrap();
        self.settle();
    }

    fn exit(&mut self, pod: &str, code: i32) {
        self.cluster().exit("default", pod, code, None).unwrap();
        self.settle();
    }

    fn gone(&mut self, pod: &str) {
        self.cluster().gone("default", pod);
        self.settle();
    }

    fn delete(&mut self, kind: &str, name: &str) {
        let resource = self.cluster().resource_named(kind).unwrap();
        self.cluster().delete_as_user(&resource, "default", name, None).unwrap();
        self.settle();
    }

    fn bind(&mut self, claim: &str) {
        let patch = json!({"status": {"phase": "Bound"}});
        let resource = Resource::new("v1", "PersistentVolumeClaim");
        self.cluster().merge_patch(&resource, "default", claim, &patch, true).unwrap();
        self.settle();
    }

    /// Names of the objects of a kind, in order.
    fn names(&mut self, kind: &str) -> Vec<String> {
        let resource = self.cluster().resource_named(kind).unwrap();
        let objects = self.cluster().objects_of(&resource);
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn get(&mut self, kind: &str, namespace: &str, name: &str) -> Value {
        let resource = self.cluster().resource_named(kind).unwrap();
        (*self.cluster().get(&resource, namespace, name).unwrap()).clone()
    }

    /// Phase and message of a job.
    fn stands(&mut self, kind: &str, name: &str) -> (Phase, String) {
        let state = self.operator.as_ref().unwrap().state();
        let key = state.jobs.keys().find(|key| &*key.kind == kind && &*key.name == name).unwrap().clone();
        let job = state.job(&key).unwrap();
        (job.phase, job.milestones.back().map(|last| last.message.to_string()).unwrap_or_default())
    }

    fn uid(&mut self, pod: &str) -> String {
        self.get("Pod", "default", pod)["metadata"]["uid"].as_str().unwrap().to_owned()
    }
}

#[test]
fn groups_wait_for_the_state_of_others() {
    under_faults(|world| {
        let extra = json!({"groups": {"b": {"after": {"a": "running"}}, "c": {"after": {"b": "scheduled"}}}});
        world.apply("j", &[("a", 2), ("b", 1), ("c", 1)], &extra, None);
        assert_eq!(world.names("Pod"), ["j-a-0", "j-a-1"]);
        world.run("j-a-0");
        assert_eq!(world.names("Pod"), ["j-a-0", "j-a-1"]);
        world.run("j-a-1");
        assert_eq!(world.names("Pod"), ["j-a-0", "j-a-1", "j-b-0"]);
        world.cluster().schedule("default", "j-b-0", "n1").unwrap();
        world.settle();
        assert_eq!(world.names("Pod"), ["j-a-0", "j-a-1", "j-b-0", "j-c-0"]);
        for pod in ["j-b-0", "j-c-0"] {
            world.run(pod);
        }
        assert_eq!(world.stands("Probe", "j").0, Phase::Running);
        // An order is one of creation: who runs is left alone.
        world.exit("j-a-0", 1);
        world.gone("j-a-0");
        assert_eq!(world.names("Pod"), ["j-a-0", "j-a-1", "j-b-0", "j-c-0"]);
    });
}

#[test]
fn pods_wait_until_a_claim_is_there_and_bound() {
    under_faults(|world| {
        let extra = json!({"owned": [{"name": "data", "ready": true}]});
        world.apply("j", &[("a", 1)], &extra, None);
        let wait = "waiting until PersistentVolumeClaim data is ready";
        assert_eq!(world.stands("Probe", "j"), (Phase::Pending, wait.to_owned()));
        assert_eq!((world.names("PersistentVolumeClaim"), world.names("Pod")), (vec!["data".to_owned()], vec![]));
        world.bind("data");
        assert_eq!(world.names("Pod"), ["j-a-0"]);
        world.run("j-a-0");
        assert_eq!(world.stands("Probe", "j").0, Phase::Running);
        // A claim that is deleted under the job is claimed again.
        world.delete("PersistentVolumeClaim", "data");
        assert_eq!(world.names("PersistentVolumeClaim"), ["data"]);
        assert_eq!(world.stands("Probe", "j").0, Phase::Running);
    });
}

#[test]
fn an_object_is_kept_as_long_as_its_spec_says() {
    under_faults(|world| {
        let owned = json!([{"name": "with"}, {"name": "end", "keep": "end"}, {"name": "model", "succeeded": true},
            {"name": "kept", "keep": "retained", "size": "1"}]);
        world.apply("j", &[("a", 1)], &json!({"owned": owned}), None);
        assert_eq!(world.names("PersistentVolumeClaim"), ["end", "kept", "with"]);
        world.run("j-a-0");
        world.exit("j-a-0", 0);
        world.gone("j-a-0");
        assert_eq!(world.stands("Probe", "j").0, Phase::Succeeded);
        assert_eq!(world.names("PersistentVolumeClaim"), ["kept", "model", "with"]);
        world.delete("Probe", "j");
        assert_eq!(world.names("PersistentVolumeClaim"), ["kept"]);
        // A later job takes it over, and says so on it.
        world.apply("k", &[("a", 1)], &json!({"owned": [{"name": "kept", "keep": "retained", "size": "2"}]}), None);
        let kept = world.get("PersistentVolumeClaim", "default", "kept");
        let owner = kept["metadata"]["annotations"]["trainyard.dev/owned-by"].as_str().unwrap().to_owned();
        assert!(owner.starts_with("default/Probe/k/"), "{owner}");
        assert_eq!(world.names("Pod"), ["k-a-0"]);
    });
}

#[test]
fn a_name_that_another_job_holds_is_waited_for() {
    under_faults(|world| {
        let extra = json!({"owned": [{"name": "shared"}]});
        world.apply("j", &[("a", 1)], &extra, None);
        world.apply("k", &[("a", 1)], &extra, None);
        assert_eq!(world.names("Pod"), ["j-a-0"]);
        world.delete("Probe", "j");
        world.gone("j-a-0");
        let later = world.cluster().now().plus_ms(120_000);
        world.cluster().set_now(later);
        world.settle();
        world.settle();
        assert_eq!(world.names("Pod"), ["k-a-0"]);
        let claim = world.get("PersistentVolumeClaim", "default", "shared");
        assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "k");
    });
}

#[test]
fn what_runs_once_is_not_run_again() {
    under_faults(|world| {
        let extra = |run: &str| {
            json!({"groups": {"sync": {"once": true, "run": run}, "w": {"after": {"sync": "succeeded"}}},
                "owned": [{"name": "data", "size": "1", "follows": "sync"}]})
        };
        let label = |world: &mut World| {
            let claim = world.get("PersistentVolumeClaim", "default", "data");
            claim["metadata"]["labels"]["run"].as_str().unwrap_or_default().to_owned()
        };
        world.apply("j", &[("sync", 1), ("w", 1)], &extra("1"), None);
        assert_eq!(world.stands("Probe", "j").0, Phase::Preparing);
        assert_eq!((world.names("Pod"), label(world)), (vec!["j-sync-0".to_owned()], String::new()));
        world.run("j-sync-0");
        world.exit("j-sync-0", 0);
        assert_eq!(label(world), "1");
        world.gone("j-sync-0");
        assert_eq!(world.names("Pod"), ["j-w-0"]);
        world.run("j-w-0");
        assert_eq!(world.stands("Probe", "j").0, Phase::Running);
        let uid = world.uid("j-w-0");
        // The next run leaves the others alone.
        world.apply("j", &[("sync", 1), ("w", 1)], &extra("2"), None);
        assert_eq!(world.names("Pod"), ["j-sync-0", "j-w-0"]);
        world.run("j-sync-0");
        world.exit("j-sync-0", 0);
        world.gone("j-sync-0");
        assert_eq!((world.names("Pod"), label(world)), (vec!["j-w-0".to_owned()], "2".to_owned()));
        assert_eq!((world.uid("j-w-0"), world.stands("Probe", "j").0), (uid, Phase::Running));
        world.exit("j-w-0", 0);
        world.gone("j-w-0");
        assert_eq!(world.stands("Probe", "j").0, Phase::Succeeded);
    });
}

#[test]
fn a_suspended_job_is_prepared_and_goes_on_from_there() {
    under_faults(|world| {
        let extra = |suspended: bool| {
            json!({"suspended": suspended, "owned": [{"name": "data"}],
                "groups": {"sync": {"once": true, "run": "1"}, "w": {"after": {"sync": "succeeded"}}}})
        };
        world.apply("j", &[("sync", 1), ("w", 1)], &extra(true), None);
        assert_eq!(world.stands("Probe", "j").0, Phase::Suspended);
        assert_eq!(
            (world.names("PersistentVolumeClaim"), world.names("Pod")),
            (vec!["data".to_owned()], vec!["j-sync-0".to_owned()])
        );
        world.run("j-sync-0");
        world.exit("j-sync-0", 0);
        world.gone("j-sync-0");
        assert!(world.names("Pod").is_empty());
        world.apply("j", &[("sync", 1), ("w", 1)], &extra(false), None);
        world.run("j-w-0");
        world.apply("j", &[("sync", 1), ("w", 1)], &extra(true), None);
        world.gone("j-w-0");
        assert!(world.names("Pod").is_empty());
        world.apply("j", &[("sync", 1), ("w", 1)], &extra(false), None);
        assert_eq!(world.names("Pod"), ["j-w-0"]);
    });
}

#[test]
fn a_job_waits_for_what_its_spec_is_made_of() {
    under_faults(|world| {
        world.apply("j", &[("a", 1)], &json!({}), Some("t"));
        let wait = "waiting for ProbeTemplate t: not found";
        assert_eq!(world.stands("Probe", "j"), (Phase::Pending, wait.to_owned()));
        assert!(world.names("Pod").is_empty());
        world.apply_template("t", &json!({}));
        assert_eq!(world.names("Pod"), ["j-a-0"]);
        world.run("j-a-0");
        // Without it the job keeps the previous spec.
        world.delete("ProbeTemplate", "t");
        assert_eq!((world.names("Pod"), world.stands("Probe", "j").0), (vec!["j-a-0".to_owned()], Phase::Running));
    });
}

#[test]
fn what_has_no_owner_goes_before_its_job_and_not_while_the_job_is_needed() {
    under_faults(|world| {
        world.apply_template(
            "t",
            &json!({"finalizer": true, "owned": [{"kind": "Pool", "name": "p", "keep": "finalized"}]}),
        );
        assert_eq!(world.names("Pool"), ["p"]);
        let finalizers = world.get("ProbeTemplate", "default", "t")["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(["probe.example.com/protection"]));
        world.apply("j", &[("a", 1)], &json!({}), Some("t"));
        world.run("j-a-0");
        world.delete("ProbeTemplate", "t");
        assert_eq!((world.names("ProbeTemplate"), world.names("Pool")), (vec!["t".to_owned()], vec!["p".to_owned()]));
        let words = "deleted, but 1 job that has not ended still needs it";
        assert_eq!(world.stands("ProbeTemplate", "t"), (Phase::Terminating, words.to_owned()));
        world.exit("j-a-0", 0);
        world.gone("j-a-0");
        assert_eq!(world.stands("Probe", "j").0, Phase::Succeeded);
        assert!(world.names("ProbeTemplate").is_empty() && world.names("Pool").is_empty());
    });
}

#[test]
fn an_edit_of_what_pods_are_made_of_waits_until_there_are_none() {
    under_faults(|world| {
        let command = |world: &mut World, pod: &str| {
            let pod = world.get("Pod", "default", pod);
            pod["spec"]["containers"][0]["env"][0]["value"].as_str().unwrap().to_owned()
        };
        let edit = |world: &mut World, value: &str, suspended: bool, replicas: u32| {
            let container = json!({"name": "aitj-c", "image": "i", "env": [{"name": "WHICH", "value": value}]});
            let group = json!({"replicas": replicas, "template": {"spec": {"containers": [container]}}});
            let extra = json!({"numbers": true, "suspended": suspended}).to_string();
            world.create(&json!({"apiVersion": API_VERSION, "kind": "Probe", "spec": {"replicaSpecs": {"a": group}},
                "metadata": {"name": "j", "namespace": "default", "annotations": {"probe.example.com/extra": extra}}}));
        };
        edit(world, "first", false, 1);
        world.run("j-a-0");
        if matches!(world.fault, Fault::Forgets | Fault::Dies { keeps_log: false, .. }) {
            // What objects are rendered from stands in the log alone.
            return;
        }
        edit(world, "second", false, 2);
        assert_eq!(
            (world.names("Pod"), command(world, "j-a-1")),
            (vec!["j-a-0".to_owned(), "j-a-1".to_owned()], "first".to_owned())
        );
        edit(world, "second", true, 2);
        for pod in ["j-a-0", "j-a-1"] {
            world.gone(pod);
        }
        edit(world, "second", false, 2);
        assert_eq!(["j-a-0", "j-a-1"].map(|pod| command(world, pod)), ["second", "second"]);
    });
}
