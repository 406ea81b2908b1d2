//! What stands in `deploy/` fits what this build does: definitions, flags, metrics, rights.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use apis::{Registry, Verb};
use model::Text;
use serde_json::{Value, json};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy")
}

fn text(path: &str) -> String {
    fs::read_to_string(deploy().join(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

fn trainyard(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_trainyard")).args(args).output().unwrap();
    assert!(output.status.success(), "trainyard {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The YAML files below a directory, as they stand; the templates of the chart are not YAML yet.
fn yaml_files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("chart") {
            found.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(crate) fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_definitions_are_those_of_this_build() {
    let registry = Registry::all();
    let own = || registry.iter().filter(|api| !api.is_external());
    for api in own() {
        let (kind, plural) = (api.resource().kind, api.descriptor().plural);
        is_printed(&["crd", &kind], &format!("base/crds/{plural}.yaml"));
    }
    let all: Vec<String> = own().map(|api| text(&format!("base/crds/{}.yaml", api.descriptor().plural))).collect();
    assert_eq!(trainyard(&["crd"]), all.concat());
}

#[test]
fn the_roles_are_those_of_this_build() {
    is_printed(&["rbac"], "base/roles.yaml");
}

/// A file of `deploy/` is what a command prints.
fn is_printed(command: &[&str], path: &str) {
    let words = command.join(" ");
    assert!(
        trainyard(command) == fs::read_to_string(deploy().join(path)).unwrap_or_default(),
        "deploy/{path} is not what `trainyard {words}` prints: write it again with\n  cargo run -q -- {words} > deploy/{path}"
    );
}

#[test]
fn every_file_is_yaml_and_every_resource_is_named_by_its_kustomization() {
    let mut kustomizations = 0;
    let registry = Registry::all();
    let optional =
        registry.iter().filter(|api| api.is_optional()).map(|api| format!("{}.yaml", api.descriptor().plural));
    let optional: BTreeSet<String> = optional.collect();
    for path in yaml_files(&deploy()) {
        let documents = documents(&path);
        assert!(!documents.is_empty(), "{}: empty", path.display());
        if path.file_name().is_some_and(|name| name == "kustomization.yaml") {
            kustomizations += 1;
            let folder = path.parent().unwrap();
            let named: BTreeSet<&str> =
                documents[0]["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            for resource in &named {
                assert!(folder.join(resource).exists(), "{}: {resource} is not there", path.display());
            }
            let here = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            for name in here.filter_map(|name| name.into_string().ok()) {
                let is_resource =
                    Path::new(&name).extension().is_some_and(|e| e == "yaml") && name != "kustomization.yaml";
                let is_named = named.contains(name.as_str()) || optional.contains(&name);
                assert!(!is_resource || is_named, "{}: {name} is left out", path.display());
            }
        } else {
            for document in &documents {
                assert!(document["kind"].is_string() && document["apiVersion"].is_string(), "{}", path.display());
            }
        }
    }
    assert!(kustomizations >= 4, "{kustomizations}");
}

#[test]
fn the_operator_takes_the_flags_it_is_given() {
    let help = trainyard(&["operator", "--help"]);
    let known: BTreeSet<&str> =
        help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|word| word.starts_with("--")).collect();
    let set = documents(&deploy().join("base/stateful-set.yaml"));
    let container = &set[0]["spec"]["template"]["spec"]["containers"][0];
    let mut flags: Vec<String> = Vec::new();
    for arg in container["args"].as_array().unwrap().iter().filter_map(Value::as_str) {
        flags.extend(arg.starts_with("--").then(|| arg.split('=').next().unwrap_or_default().to_owned()));
    }
    let overlay = text("overlays/namespaced/kustomization.yaml");
    let added = overlay.split_whitespace().filter(|word| word.starts_with("--"));
    flags.extend(added.map(|word| word.split('=').next().unwrap_or_default().to_owned()));
    assert!(flags.len() >= 3, "{flags:?}");
    for flag in &flags {
        assert!(known.contains(flag.as_str()), "`trainyard operator` knows no {flag}");
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap();
        let known = !name.starts_with("TRAINYARD_") || help.contains(name);
        assert!(known, "`trainyard operator` reads no {name}");
    }
}

/// Names of our metrics in a text, without the suffixes that the text format adds.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| word.starts_with("trainyard_") || word.starts_with("process_"));
    let bare = |word: &str| {
        let ending = ["_total", "_bucket", "_count", "_sum"].into_iter().find_map(|ending| word.strip_suffix(ending));
        ending.unwrap_or(word).to_owned()
    };
    ours.map(bare).collect()
}

#[test]
fn rules_and_dashboard_speak_of_metrics_that_exist() {
    let metrics = k8s_driver::Metrics::new();
    // Families without a member are not listed.
    metrics.transition(&Text::from("AITrainingJob"), "Running");
    metrics.call_done(Verb::Create, &Text::from("Pod"), 201, Duration::ZERO);
    metrics.queue_depth("news", 0);
    metrics.queue_waited("calls", Duration::ZERO);
    let metrics = metrics.text();
    let known: BTreeSet<String> =
        metrics.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())).collect();
    for file in ["rules.yaml", "dashboard.json"] {
        let used = metrics_in(&text(&format!("components/monitoring/{file}")));
        assert!(used.len() >= 5, "{file}: {used:?}");
        let unknown: Vec<&String> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} speaks of {unknown:?}; there are {known:?}");
    }
    serde_json::from_str::<Value>(&text("components/monitoring/dashboard.json")).unwrap();
}

/// The rules of every role of the operator's own account: what it may do is what its calls need, and nothing by wildcard.
#[test]
fn rights_are_spelt_out() {
    let roles: Vec<Value> =
        ["roles", "rbac"].iter().flat_map(|name| documents(&deploy().join(format!("base/{name}.yaml")))).collect();
    let mut rules = 0;
    for role in roles.iter().filter(|role| !role["rules"].is_null()) {
        for rule in role["rules"].as_array().unwrap() {
            rules += 1;
            for member in ["apiGroups", "resources", "verbs"] {
                let words = rule[member].as_array().into_iter().flatten();
                assert!(words.into_iter().all(|word| word != "*"), "{}: {rule}", role["metadata"]["name"]);
            }
            let secrets = rule["resources"].as_array().into_iter().flatten().any(|resource| resource == "secrets");
            assert!(!secrets, "{}: nothing needs secrets", role["metadata"]["name"]);
        }
    }
    assert!(rules >= 10, "{rules}");
    // `roles.yaml` is written from the table of resources; what has no namespace stands in `rbac.yaml`.
    for row in Registry::all().resources().iter().filter(|row| !row.namespaced) {
        let granted = roles.iter().filter(|role| role["metadata"]["name"] == "trainyard-cluster");
        let mut granted = granted.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
        let verbs = &row.rights[0].verbs;
        let is_granted = granted.any(|rule| rule["resources"] == json!([row.plural]) && rule["verbs"] == json!(verbs));
        assert!(is_granted, "trainyard-cluster does not give {verbs:?} on {}", row.plural);
    }
}

/// The role `edit` writes jobs, and no API for which the operator creates objects outside of the namespace.
#[test]
fn edit_writes_jobs_alone() {
    let roles = documents(&deploy().join("base/roles.yaml"));
    let role = |name: &str| {
        roles.iter().find(|role| role["metadata"]["name"] == name).unwrap_or_else(|| panic!("no role {name}"))
    };
    let written = |name: &str| -> Vec<&str> {
        let rules = role(name)["rules"].as_array().into_iter().flatten();
        let is_read = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
        let rules = rules.filter(|rule| rule["verbs"].as_array().is_some_and(|verbs| !verbs.iter().all(is_read)));
        let resources = rules.filter_map(|rule| rule["resources"].as_array()).flatten();
        resources.filter_map(Value::as_str).collect()
    };
    let jobs = ["aitrainingjobs", "elasticjobs", "elasticjobs/scale", "mpijobs", "torchjobs", "torchrunjobs"];
    assert_eq!(written("trainyard-jobs-edit"), jobs);
    assert_eq!(written("trainyard-jobs-admin"), ["jobqueues", "models", "modelversions", "torchrunqueues"]);
    assert_eq!(written("trainyard-jobs-platform-admin"), ["trainingqueues"]);
    let label = |name: &str, to: &str| {
        role(name)["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{to}")] == "true"
    };
    assert!(label("trainyard-jobs-edit", "edit") && label("trainyard-jobs-admin", "admin"));
    let first = &role("trainyard-jobs-platform-admin")["rules"][0];
    assert_eq!(
        first["resources"],
        json!(["trainingqueues", "trainingqueues/status"]),
        "kubectl apply reads them first"
    );
    assert_eq!(first["verbs"], json!(["get", "list", "watch"]));
    assert!(!label("trainyard-jobs-admin", "edit") && !label("trainyard-jobs-platform-admin", "admin"));
}

/// Readers of the log get tokens of one account; that account may read the log and nothing else, and no other may.
#[test]
fn the_log_is_read_by_an_account_of_its_own() {
    let rbac = documents(&deploy().join("base/rbac.yaml"));
    let accounts = documents(&deploy().join("base/service-account.yaml"));
    let reader = k8s_driver::remote_log::READER;
    assert!(accounts.iter().any(|account| account["metadata"]["name"] == reader), "{accounts:?}");
    let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
    let bound: Vec<&Value> =
        rbac.iter().filter(|d| d["subjects"][0]["name"] == reader).map(|d| &d["roleRef"]["name"]).collect();
    let roles = rbac.iter().filter(|role| bound.contains(&&role["metadata"]["name"]) && !role["rules"].is_null());
    let granted: Vec<Value> = roles.flat_map(rules).collect();
    assert_eq!(granted, [json!({"nonResourceURLs": ["/log"], "verbs": ["get"]})]);
    let opening = rbac.iter().filter(|role| rules(role).iter().any(|rule| !rule["nonResourceURLs"].is_null()));
    assert_eq!(opening.count(), 1, "one role opens the log");
    let token = |role: &&Value| rules(role).iter().any(|rule| rule["resources"][0] == "serviceaccounts/token");
    let role = rbac.iter().find(token).expect("a role for its tokens");
    let rule = rules(role).into_iter().find(|rule| rule["resources"][0] == "serviceaccounts/token").unwrap();
    assert_eq!((&rule["resourceNames"][0], &rule["verbs"]), (&json!(reader), &json!(["create"])));
}
