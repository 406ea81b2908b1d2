//! The Helm chart installs what the manifests of `deploy/` install: rendered by helm and compared with `kubectl kustomize`, and
//! installed on a real API server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use control_plane::{Binaries, Options, until};
use serde_json::{Value, json};

use crate::common::Cluster;

const NAMESPACE: &str = "trainyard-system";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

fn program(name: &str) -> Command {
    Binaries::ensure().unwrap_or_else(|error| panic!("{error}")).command(name)
}

/// Runs a command, which must succeed, and returns what it prints.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Calls helm for the chart; each word of `values` is a `--set`.
fn helm(verb: &[&str], values: &[&str]) -> Command {
    let mut command = program("helm");
    command.args(verb).arg(deploy("chart"));
    command.args(values.iter().flat_map(|value| ["--set", value]));
    command
}

fn template(values: &[&str]) -> String {
    printed(&mut helm(&["template", "trainyard", "--namespace", NAMESPACE], values))
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

fn objects(text: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|document| !document.is_null()) {
        let word = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = [word("/kind"), word("/metadata/namespace"), word("/metadata/name")];
        assert!(objects.insert(name.clone(), object).is_none(), "{name:?} is there twice");
    }
    objects
}

/// The objects of a chart without what Helm adds to each.
fn without_helm(text: &str) -> Objects {
    let mut objects = objects(text);
    for (name, object) in &mut objects {
        let metadata = object["metadata"].as_object_mut().unwrap();
        let labels = metadata["labels"].as_object_mut().unwrap();
        for label in ["instance", "version", "managed-by"] {
            assert!(labels.remove(&format!("app.kubernetes.io/{label}")).is_some(), "{name:?} lacks {label}");
        }
        assert!(labels.remove("helm.sh/chart").is_some(), "{name:?}");
        if name[0] == "CustomResourceDefinition" {
            let kept = metadata.remove("annotations");
            assert_eq!(kept, Some(json!({"helm.sh/resource-policy": "keep"})), "{name:?}");
        }
    }
    objects
}

/// The objects of a kustomization; a release has its namespace from Helm.
fn kustomized(directory: &Path) -> Objects {
    let mut kubectl = program("kubectl");
    let mut objects =
        objects(&printed(kubectl.args(["kustomize", "--load-restrictor=LoadRestrictionsNone"]).arg(directory)));
    objects.retain(|name, _| name[0] != "Namespace");
    objects
}

fn assert_same(chart: &Objects, manifests: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(chart), names(manifests));
    for (name, object) in chart {
        let (chart, manifest) = (format!("{object:#}"), format!("{:#}", manifests[name]));
        assert_eq!(chart, manifest, "{name:?}");
    }
}

#[test]
fn the_chart_is_clean_and_of_this_version() {
    let output = helm(&["lint", "--strict"], &[]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let chart = std::fs::read_to_string(deploy("chart/Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    for member in ["version", "appVersion"] {
        assert_eq!(chart[member], env!("CARGO_PKG_VERSION"), "{member}");
    }
}

#[test]
fn the_chart_installs_what_the_base_installs() {
    let base = kustomized(&deploy("base"));
    assert!(base.len() >= 25, "{}", base.len());
    assert_same(&without_helm(&template(&[])), &base);
}

#[test]
fn values_stand_for_the_overlay() {
    let overlay = kustomized(&deploy("overlays/namespaced"));
    assert_same(&without_helm(&template(&["jobNamespace=training"])), &overlay);
}

#[test]
fn values_stand_for_the_components() {
    let directory = tempfile::tempdir().unwrap();
    let absolute = |path| deploy(path).canonicalize().unwrap().display().to_string();
    // Kustomize takes no absolute paths.
    let up = "../".repeat(directory.path().canonicalize().unwrap().components().count());
    let relative = |path| format!("{up}{}", absolute(path).trim_start_matches('/'));
    let components = ["components/monitoring", "components/network-policy"].map(relative);
    let kustomization = json!({"resources": [relative("base")], "components": components});
    std::fs::write(directory.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let parts = ["serviceMonitor", "rules", "dashboard"].map(|part| format!("monitoring.{part}.create=true"));
    let mut values: Vec<&str> = parts.iter().map(String::as_str).collect();
    values.push("networkPolicy.create=true");
    assert_same(&without_helm(&template(&values)), &kustomized(directory.path()));
}

/// Each value, where it arrives.
#[test]
fn values_reach_the_operator() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let image = format!("image.digest={digest}");
    let text = template(&[
        "image.repository=registry/trainyard",
        &image,
        "image.pullPolicy=Always",
        "image.pullSecrets[0].name=pull",
        "replicas=1",
        "flags.log-format=text",
        "flags.compact-after=1000000",
        "flags.dry-run=true",
        "flags.gpu-faults={Xid,GpuLost}",
        "env[0].name=RUST_BACKTRACE",
        "resources.limits.memory=1Gi",
        "storage.size=20Gi",
        "storage.className=fast",
        "nodeSelector.zone=a",
        "tolerations[0].operator=Exists",
        "affinity.nodeAffinity.x=y",
        "priorityClassName=high",
        "podAnnotations.a=b",
        "podLabels.app\\.kubernetes\\.io/name=taken",
        "podLabels.team=a",
        "serviceAccount.annotations.role=r",
        "crds.exclude={torchjobs,models,jobqueues}",
        "crds.keep=false",
        "rbac.clusterName=second",
        "rbac.aggregate=false",
        "disruptionBudget.create=false",
    ]);
    let objects = objects(&text);
    let find = |kind: &str, name: &str| {
        let found = objects.iter().find(|(key, _)| key[0] == kind && key[2] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}: {:?}", objects.keys())).1
    };
    let set = &find("StatefulSet", "trainyard")["spec"];
    assert_eq!(set["replicas"], 1);
    let pod = &set["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], json!(format!("registry/trainyard@{digest}")));
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
    let args = ["compact-after=1000000", "dry-run=true", "gpu-faults=Xid,GpuLost", "log-format=text"];
    let mut wanted = vec!["operator".to_owned(), "--data-directory=/var/lib/trainyard".to_owned()];
    wanted.extend(args.map(|arg| format!("--{arg}")));
    assert_eq!(container["args"], json!(wanted));
    let env = container["env"].as_array().unwrap();
    assert_eq!(env.last().unwrap(), &json!({"name": "RUST_BACKTRACE"}));
    assert!(env.iter().any(|variable| variable["name"] == "POD_IP"), "{env:?}");
    assert_eq!(container["resources"]["limits"], json!({"memory": "1Gi"}));
    let claim = &set["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["resources"]["requests"]["storage"], "20Gi");
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(pod["nodeSelector"], json!({"zone": "a"}));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pod["affinity"], json!({"nodeAffinity": {"x": "y"}}));
    assert_eq!(pod["priorityClassName"], "high");
    let metadata = &set["template"]["metadata"];
    assert_eq!(metadata["annotations"], json!({"a": "b"}));
    // A label that selectors look for stays.
    assert_eq!(
        (&metadata["labels"]["team"], &metadata["labels"]["app.kubernetes.io/name"]),
        (&json!("a"), &json!("trainyard"))
    );
    assert_eq!(find("ServiceAccount", "trainyard")["metadata"]["annotations"], json!({"role": "r"}));
    let names = |kind: &str| objects.keys().filter(|key| key[0] == kind).map(|key| key[2].as_str()).collect::<Vec<_>>();
    let definitions = names("CustomResourceDefinition");
    assert!(definitions.iter().any(|name| name.starts_with("elasticjobs.")), "{definitions:?}");
    assert!(
        !definitions.iter().any(|name| name.starts_with("torchjobs.") || name.starts_with("models.")),
        "{definitions:?}"
    );
    let kept = &find("CustomResourceDefinition", definitions[0])["metadata"]["annotations"];
    assert!(kept.is_null(), "{kept}");
    assert_eq!(names("ClusterRole"), ["second-cluster", "second-jobs", "second-log-reader"]);
    assert_eq!(names("ClusterRoleBinding"), names("ClusterRole"));
    assert_eq!(find("ClusterRoleBinding", "second-jobs")["roleRef"]["name"], "second-jobs");
    assert_eq!(names("PodDisruptionBudget"), [""; 0]);
}

/// A misspelt or wrong value is refused by its path.
#[test]
fn bad_values_are_refused_by_name() {
    for (value, path, word) in [
        ("replica=3", "", "replica"),
        ("replicas=many", "/replicas", "integer"),
        ("image.digest=latest", "/image/digest", "sha256"),
        ("flags.data-directory=/x", "", "data-directory"),
        ("monitoring.rules.enabled=true", "/monitoring/rules", "enabled"),
        ("jobNamespace=a b", "/jobNamespace", "a b"),
    ] {
        let output = helm(&["template", "trainyard"], &[value]).output().unwrap();
        let says = said(&output);
        assert!(!output.status.success() && says.contains(path) && says.contains(word), "{value}: {says}");
    }
}

/// Installs, upgrades and uninstalls on a real API server.
#[test]
fn a_release_is_installed_upgraded_and_removed() {
    let options = Options { nodes: 2, ..Options::default() };
    let cluster =
        Cluster { plane: control_plane::ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}")) };
    let release = |verb: &[&str], values: &[&str]| {
        let mut command = cluster.plane.helm(verb);
        command.args(["--namespace", NAMESPACE]).args(values.iter().flat_map(|value| ["--set", value]));
        printed(&mut command)
    };
    let chart = deploy("chart").display().to_string();
    // What the API server makes of each object, before any of them is there.
    let rendered = template(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rendered.yaml");
    std::fs::write(&path, &rendered).unwrap();
    cluster.kubectl(&["create", "namespace", NAMESPACE]);
    let applied = ["apply", "--server-side", "--validate=strict", "--dry-run=server", "-f"];
    let says = cluster.kubectl(&[&applied[..], &[&path.to_string_lossy()]].concat());
    assert_eq!(
        says.lines().filter(|line| line.contains("(server dry run)")).count(),
        objects(&rendered).len(),
        "{says}"
    );

    let notes = release(&["install", "trainyard", &chart], &[]);
    assert!(notes.contains("The operator of release trainyard runs in the namespace trainyard-system."), "{notes}");
    until("the jobs are served", || cluster.try_kubectl(&["get", "aitj,elasticjobs", "--all-namespaces"]));
    let get = |words: &[&str]| cluster.get(NAMESPACE, words);
    assert_eq!(get(&["statefulset", "trainyard"])["spec"]["replicas"], 2);

    release(&["upgrade", "trainyard", &chart], &["replicas=1", "flags.node-grace-period=30s"]);
    let set = get(&["statefulset", "trainyard"]);
    assert_eq!(set["spec"]["replicas"], 1);
    let args = set["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&json!("--node-grace-period=30s")), "{args:?}");
    let may =
        ["auth", "can-i", "patch", "aitrainingjobs/status", "--as=system:serviceaccount:trainyard-system:trainyard"];
    assert_eq!(cluster.kubectl(&may).trim(), "yes");

    release(&["uninstall", "trainyard"], &[]);
    assert!(cluster.try_kubectl(&["get", "statefulset", "trainyard", "-n", NAMESPACE]).is_err());
    // The definitions stay, and with them the jobs.
    cluster.kubectl(&["get", "crd", "aitrainingjobs.elasticdeeplearning.ai"]);
}
