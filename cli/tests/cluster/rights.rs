//! The operator's account on an API server that writes an audit log, with the admission plugin
//! `OwnerReferencesPermissionEnforcement`: nothing that it does is refused, and the shipped roles give it nothing that it does not use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use apis::Registry;
use control_plane::{Component, Definition, Options, until};
use serde_json::{Value, json};

use crate::common::Cluster;
use crate::deploy::documents;
use crate::operator::Operator;

const ACCOUNT: &str = "system:serviceaccount:trainyard-system:trainyard";

/// Rights that no call of this test needs, each with what does.
const OTHERS: [(&str, &str, &str); 4] = [
    ("serviceaccounts/token", "create", "a standby that reads the leader's log: `failover.rs`"),
    ("tokenreviews", "create", "a reader of the log: `failover.rs`"),
    ("subjectaccessreviews", "create", "a reader of the log: `failover.rs`"),
    ("leases", "watch", "a standby: `failover.rs`"),
];

/// A resource with its subresource, and a verb.
type Right = (String, String);

/// The rights that rules bound to the operator's account give.
fn given() -> BTreeSet<Right> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base");
    let all = [documents(&base.join("roles.yaml")), documents(&base.join("rbac.yaml"))].concat();
    let is_account = |subject: &Value| subject["kind"] == "ServiceAccount" && subject["name"] == "trainyard";
    let bound = |role: &Value| {
        all.iter().any(|binding| {
            let subjects = binding["subjects"].as_array();
            binding["roleRef"]["name"] == role["metadata"]["name"]
                && subjects.is_some_and(|all| all.iter().any(is_account))
        })
    };
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in all.iter().filter(|role| bound(role)).filter_map(|role| role["rules"].as_array()).flatten() {
        for resource in texts(rule, "resources") {
            rights.extend(texts(rule, "verbs").into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    rights
}

/// Rights that calls of scenarios need: `snapshots/tests/rights.rs` compares those.
fn of_scenarios() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for row in Registry::all().resources() {
        for right in &row.rights {
            let resource = if right.subresource.is_empty() {
                row.plural.to_owned()
            } else {
                format!("{}/{}", row.plural, right.subresource)
            };
            let calls = right.verbs.iter().filter(|verb| !matches!(**verb, "list" | "watch"));
            rights.extend(calls.map(|verb| (resource.clone(), (*verb).to_owned())));
        }
    }
    rights
}

/// Defines every type that a cluster may lack: those of other projects with any fields.
fn define_others(cluster: &Cluster) {
    let registry = Registry::all();
    for row in registry.resources().iter().filter(|row| row.optional) {
        if let Some(api) = registry.get(&row.resource) {
            cluster.apply(&api.crd().to_string());
        } else {
            let (api_version, kind) = (&*row.resource.api_version, &*row.resource.kind);
            let definition = Definition { api_version, kind, plural: row.plural, namespaced: row.namespaced };
            cluster.plane.define(definition).unwrap();
        }
    }
    cluster.plane.wait_for_definitions().unwrap();
}

const MANIFESTS: &str = r#"
apiVersion: trainyard.dev/v1alpha1
kind: TrainingQueue
metadata: {name: gpus}
spec: {quota: {nvidia.com/gpu: {nominal: 8}}, namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: research, annotations: {trainyard.dev/namespace-selector: "{}"}}
spec: {resources: {cpu: {quota: -1, limit: -1}, gpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: a, namespace: default, labels: {trainyard.dev/queue: gpus}}
spec:
  replicaSpecs:
    trainer:
      replicas: 1
      template:
        metadata: {annotations: {trainyard.dev/kwok-run-for: 1s}}
        spec: {containers: [{name: aitj-main, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: train.distributed.io/v1alpha1
kind: TorchJob
metadata: {name: t, namespace: default}
spec:
  modelVersion: {spec: {modelName: m, imageRepo: r.io/m, storage: {nfs: {server: 10.0.0.1, path: /m, mountPath: /m}}}}
  torchTaskSpecs:
    Master:
      template:
        metadata: {annotations: {trainyard.dev/kwok-run-for: 1s}}
        spec: {schedulerName: default-scheduler, containers: [{name: torch, image: none}]}
---
apiVersion: torchrun.ai/v1alpha1
kind: TorchrunQueue
metadata: {name: q, namespace: default}
spec:
  queue: {name: dev, parentQueue: research}
  image: none
  scheduling: {scheduler: default-scheduler}
---
apiVersion: torchrun.ai/v1alpha1
kind: TorchrunJob
metadata: {name: r, namespace: default}
spec: {queue: q, numNodes: 1, command: python train.py}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: p, namespace: default, labels: {trainyard.dev/queue: gpus}}
spec:
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi, image: none}]}}}
    Worker: {replicas: 1, template: {spec: {containers: [{name: mpi, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
---
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: k, namespace: default, labels: {kueue.x-k8s.io/queue-name: user}}
spec: {replicaSpecs: {trainer: {replicas: 1, template: {spec: {containers: [{name: aitj-main, image: none}]}}}}}
"#;

/// Calls of the operator's account in an audit log: those that were refused for want of a right, and the rights that were used.
fn audited(log: &Path) -> (BTreeSet<String>, BTreeSet<Right>) {
    let (mut refused, mut used) = (BTreeSet::new(), BTreeSet::new());
    for line in std::fs::read_to_string(log).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["user"]["username"], ACCOUNT);
        let of = &event["objectRef"];
        let part = of["subresource"].as_str().map(|part| format!("/{part}")).unwrap_or_default();
        let right = (
            format!("{}{part}", of["resource"].as_str().unwrap_or_default()),
            event["verb"].as_str().unwrap().to_owned(),
        );
        if event["responseStatus"]["code"] == 403 {
            refused.insert(format!("{right:?}: {}", event["responseStatus"]["message"]));
        }
        used.insert(right);
    }
    (refused, used)
}

#[test]
fn the_account_is_refused_nothing_and_has_no_right_that_it_does_not_use() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let rules = json!([{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}]);
    let policy =
        json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules});
    std::fs::write(at("policy.json"), policy.to_string()).unwrap();
    let arguments = vec![
        format!("--audit-policy-file={}", at("policy.json").display()),
        format!("--audit-log-path={}", at("audit.log").display()),
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned(),
    ];
    let arguments = BTreeMap::from([(Component::ApiServer, arguments)]);
    let cluster = Cluster::start(Options { nodes: 2, arguments, ..Options::default() });
    define_others(&cluster);
    until("the default account", || cluster.try_kubectl(&["get", "serviceaccount", "default"]));

    let lease = "--leader-elect-resource-namespace=trainyard-system";
    let operator = Operator::start_with(&cluster, &at("data"), &[lease]);

    cluster.apply(MANIFESTS);
    let exists = |object: &str| {
        until(&format!("{object} exists"), || cluster.try_kubectl(&["get", object, "--namespace=default"]));
    };
    let says = |object: &str, path: &str, word: &str| {
        until(&format!("{object} says {word}"), || {
            let all = ["get", object, "--namespace=default", &format!("--output=jsonpath={path}")];
            let said = cluster.try_kubectl(&all)?;
            if said.contains(word) { Ok(()) } else { Err(said) }
        });
    };
    says("aitrainingjob/a", "{.status.phase}", "Succeed");
    says("torchjob/t", "{.status.conditions}", "\"Succeeded\"");
    let version = format!(
        "modelversion/{}",
        cluster.get("default", &["torchjob", "t"])["status"]["modelVersionName"].as_str().unwrap()
    );
    says(&version, "{.metadata.ownerReferences[*].kind}", "Model");
    says(&version, "{.status.imageBuildPhase}", "ImageBuilding");
    says("torchrunqueue/q", "{.status.conditions[?(@.type=='QueueReady')].status}", "True");
    says("mpijob/p", "{.metadata.annotations}", "trainyard.dev/state");
    exists("pod/r-sync-0");
    says("workloads.kueue.x-k8s.io", "{.items[*].kind}", "Workload");
    let all = ["aitrainingjobs", "torchjobs", "torchrunjobs", "mpijobs", "torchrunqueues", "modelversions", "models"];
    for kind in all {
        cluster.kubectl(&["delete", kind, "--all", "--namespace=default", "--timeout=120s"]);
    }
    cluster.kubectl(&["delete", "trainingqueues", "--all", "--timeout=120s"]);
    drop(operator);

    let (refused, used) = audited(&at("audit.log"));
    assert!(refused.is_empty(), "{refused:#?}");
    let is_other = |(resource, verb): &&Right| OTHERS.iter().any(|(of, word, _)| of == resource && word == verb);
    // The plugin asks for these of an owner; no call needs them.
    let is_of_plugin = |(resource, _): &&Right| resource.ends_with("/finalizers");
    let known = of_scenarios();
    let given = given();
    assert!(given.len() > 100, "{given:?}");
    let unused: Vec<&Right> = given
        .difference(&used)
        .filter(|right| !known.contains(*right))
        .filter(|right| !is_other(right) && !is_of_plugin(right))
        .collect();
    assert!(unused.is_empty(), "rights without a call: {unused:#?}");
}
