//! A submitted manifest -> the MPIJob that is created: name, environment, labels and limits as Voda writes them.
//!
//! Takes `kubeflow.org/v1` as Voda's users have it, and `v2beta1`. It must not talk to a cluster. Tests: at the end.

use apis::JobApi as _;
use apis::demand::QUEUE;
use apis::mpijob::{self, ACCELERATOR, LAUNCHER, MAX_VARIABLES, MIN_VARIABLES, WORKER};
use apis::objects::{at, label, list_at, text_at};
use model::FieldError;
use model::json::merge_patch;
use serde_json::{Value, json};

/// Version of Voda's manifests.
const OLD_VERSION: &str = "kubeflow.org/v1";
/// Versions of manifests that are accepted.
const KNOWN_VERSIONS: [&str; 2] = [OLD_VERSION, mpijob::API_VERSION];
/// The groups of a job.
const REPLICAS: [&str; 2] = [LAUNCHER, WORKER];
/// The GPUs that Voda schedules.
const GPU: &str = "nvidia.com/gpu";

/// Reason for refusing a manifest.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    /// It is neither YAML nor JSON.
    #[error("not a manifest: {0}")]
    Unreadable(#[from] Box<serde_saphyr::Error>),
    /// It is of another kind or version.
    #[error("apiVersion and kind: must be those of an {}", mpijob::KIND)]
    OtherObject,
    /// It is of another kind or version than a submitted one may have.
    #[error("apiVersion and kind: must be those of an {} in {}", mpijob::KIND, KNOWN_VERSIONS.join(" or "))]
    OtherVersion,
    /// A field is missing.
    #[error("{0}: missing")]
    Missing(String),
    /// It names another namespace.
    #[error("metadata.namespace: {named}: jobs of namespace {namespace} are created here")]
    Namespace { named: String, namespace: String },
    /// A group has another number of containers.
    #[error("{path}.template.spec.containers: must be one container, there are {count}")]
    Containers { path: String, count: usize },
    /// The launcher lacks a variable.
    #[error("environment of the launcher: {name} is missing (older name: {older}): the {what} workers of the job")]
    Variable { name: &'static str, older: &'static str, what: &'static str },
    /// Nothing says where it may run.
    #[error("the job names neither a queue nor a type of GPU: name the queue with --queue, or with the label {QUEUE}")]
    NoQueue,
    /// Its job has errors: one a line.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Fields(Vec<FieldError>),
}

/// Returns the namespace that a manifest names; `None` where it names none, or cannot be read.
pub(super) fn namespace(text: &str) -> Option<String> {
    let job: Value = serde_saphyr::from_str(text).ok()?;
    text_at(&job, &["metadata", "namespace"]).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns the MPIJob of a manifest in YAML or JSON, without the time in its name. `queue`: of a job that names none. A job that names
/// no type of GPU may run on any node with GPUs; without a queue it would be left alone. Without a `namespace` it keeps its own, or
/// has none.
///
/// # Errors
/// Returns an error that names what cannot be accepted, one field a line.
pub(super) fn job(text: &str, namespace: Option<&str>, queue: Option<&str>) -> Result<Value, ManifestError> {
    let mut job: Value = serde_saphyr::from_str(text).map_err(Box::new)?;
    check(&job, namespace)?;
    if text_at(&job, &["apiVersion"]) == Some(OLD_VERSION) {
        convert(&mut job);
    }
    let selector = ["spec", "mpiReplicaSpecs", WORKER, "template", "spec", "nodeSelector", ACCELERATOR];
    if let Some(accelerator) = text_at(&job, &selector).map(str::to_owned) {
        let labels = json!({"metadata": {"labels": {ACCELERATOR: accelerator}}});
        let template = json!({"template": labels});
        merge_patch(&mut job, &labels);
        merge_patch(&mut job, &json!({"spec": {"mpiReplicaSpecs": {LAUNCHER: template, WORKER: template}}}));
    }
    // The MPI operator creates no pods before their time.
    merge_patch(&mut job, &json!({"spec": {"runPolicy": {"suspend": true}}}));
    if let Some(namespace) = namespace {
        merge_patch(&mut job, &json!({"metadata": {"namespace": namespace}}));
    }
    if let Some(queue) = queue.filter(|_| label(&job, QUEUE).is_none()) {
        merge_patch(&mut job, &json!({"metadata": {"labels": {QUEUE: queue}}}));
    }
    if label(&job, QUEUE).is_none() && label(&job, ACCELERATOR).is_none() {
        return Err(ManifestError::NoQueue);
    }
    if let Some(worker) = container(&mut job, WORKER)
        && at(worker, &["resources", "limits", GPU]).is_none()
    {
        merge_patch(worker, &json!({"resources": {"limits": {GPU: 1}}}));
    }
    for replica in REPLICAS {
        if let Some(template) = job.pointer_mut(&format!("/spec/mpiReplicaSpecs/{replica}/template")) {
            mpijob::tolerate_voda(template);
        }
    }
    let fact = mpijob::MpiJob.spec_fact(&job);
    match fact.spec {
        Err(errors) => Err(ManifestError::Fields(errors)),
        Ok(_) => Ok(job),
    }
}

/// Returns an object of Voda's version as one of the present version, under its own name: for a cluster whose definition changes.
/// `queue`: of a job that names none. A job that has not ended is suspended, until it is its turn. An object of another kind is refused.
pub(super) fn converted(object: &Value, queue: Option<&str>) -> Result<Value, ManifestError> {
    let version = text_at(object, &["apiVersion"]).unwrap_or_default();
    if text_at(object, &["kind"]) != Some(mpijob::KIND) || !KNOWN_VERSIONS.contains(&version) {
        return Err(ManifestError::OtherObject);
    }
    let mut job = object.clone();
    convert(&mut job);
    let conditions = list_at(object, &["status", "conditions"]).iter();
    let is_true = |condition: &&Value| text_at(condition, &["status"]) == Some("True");
    let mut ends = conditions.filter(is_true).filter_map(|condition| text_at(condition, &["type"]));
    if !ends.any(|kind| ["Succeeded", "Failed"].contains(&kind)) {
        merge_patch(&mut job, &json!({"spec": {"runPolicy": {"suspend": true}}}));
    }
    if let Some(queue) = queue.filter(|_| label(&job, QUEUE).is_none()) {
        merge_patch(&mut job, &json!({"metadata": {"labels": {QUEUE: queue}}}));
    }
    Ok(job)
}

/// Returns a job with its full name, which its launcher is given.
pub(super) fn named(mut job: Value, name: &str) -> Value {
    job["metadata"]["name"] = json!(name);
    if let Some(launcher) = container(&mut job, LAUNCHER).and_then(Value::as_object_mut) {
        let environment = launcher.entry("env").or_insert_with(|| json!([]));
        if let Some(list) = environment.as_array_mut() {
            list.retain(|each| text_at(each, &["name"]) != Some("JOB_NAME"));
            list.push(json!({"name": "JOB_NAME", "value": name}));
        }
    }
    job
}

fn check(job: &Value, namespace: Option<&str>) -> Result<(), ManifestError> {
    let version = text_at(job, &["apiVersion"]).unwrap_or_default();
    if !KNOWN_VERSIONS.contains(&version) || text_at(job, &["kind"]) != Some(mpijob::KIND) {
        return Err(ManifestError::OtherVersion);
    }
    if text_at(job, &["metadata", "name"]).is_none_or(str::is_empty) {
        return Err(ManifestError::Missing("metadata.name".to_owned()));
    }
    let named = text_at(job, &["metadata", "namespace"]);
    if let (Some(other), Some(namespace)) = (named, namespace)
        && other != namespace
    {
        return Err(ManifestError::Namespace { named: other.to_owned(), namespace: namespace.to_owned() });
    }
    for replica in REPLICAS {
        let path = ["spec", "mpiReplicaSpecs", replica];
        let Some(found) = at(job, &path).filter(|found| found.is_object()) else {
            return Err(ManifestError::Missing(path.join(".")));
        };
        let count = list_at(found, &["template", "spec", "containers"]).len();
        if count != 1 {
            return Err(ManifestError::Containers { path: path.join("."), count });
        }
    }
    if at(job, &["spec", "mpiReplicaSpecs", WORKER, "replicas"]).and_then(Value::as_u64).is_none() {
        return Err(ManifestError::Missing("spec.mpiReplicaSpecs.Worker.replicas".to_owned()));
    }
    let launcher = list_at(job, &["spec", "mpiReplicaSpecs", LAUNCHER, "template", "spec", "containers"]);
    let environment = launcher.first().map_or(&[][..], |launcher| list_at(launcher, &["env"]));
    for (names, what) in [(MIN_VARIABLES, "least"), (MAX_VARIABLES, "most")] {
        let is_named = |each: &Value| text_at(each, &["name"]).is_some_and(|name| names.contains(&name));
        if !environment.iter().any(is_named) {
            let [name, older] = names;
            return Err(ManifestError::Variable { name, older, what });
        }
    }
    Ok(())
}

/// Makes a job of Voda's version one of the present version.
fn convert(job: &mut Value) {
    job["apiVersion"] = json!(mpijob::API_VERSION);
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.remove("mainContainer");
    for key in ["cleanPodPolicy", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        let Some(value) = spec.remove(key) else { continue };
        let policy = spec.entry("runPolicy").or_insert_with(|| json!({}));
        if let Some(policy) = policy.as_object_mut() {
            policy.entry(key).or_insert(value);
        }
    }
}

fn container<'a>(job: &'a mut Value, replica: &str) -> Option<&'a mut Value> {
    job.pointer_mut(&format!("/spec/mpiReplicaSpecs/{replica}/template/spec/containers/0"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A manifest of Voda's examples, shortened.
    pub(crate) const MANIFEST: &str = r#"
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: mnist}
spec:
  slotsPerWorker: 1
  cleanPodPolicy: Running
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: launcher
              image: img
              env: [{name: NP, value: "2"}, {name: MIN_NP, value: "1"}, {name: MAX_NP, value: "4"}, {name: EPOCHS, value: "60"}]
    Worker:
      replicas: 1
      template:
        spec:
          nodeSelector: {vodascheduler/accelerator: gtx}
          containers: [{name: worker, image: img}]
"#;

    fn replaced(from: &str, to: &str) -> Result<Value, ManifestError> {
        assert!(MANIFEST.contains(from), "{from}");
        job(&MANIFEST.replacen(from, to, 1), Some("ns"), Some("q"))
    }

    #[test]
    fn a_manifest_of_voda_becomes_a_job_of_the_present_version() {
        let job = named(job(MANIFEST, Some("ns"), Some("q")).unwrap(), "mnist-20260101-120000");
        assert_eq!(job["apiVersion"], json!("kubeflow.org/v2beta1"));
        let labels = json!({"vodascheduler/accelerator": "gtx", "trainyard.dev/queue": "q"});
        assert_eq!(job["metadata"], json!({"name": "mnist-20260101-120000", "namespace": "ns", "labels": labels}));
        assert_eq!(job["spec"]["runPolicy"], json!({"cleanPodPolicy": "Running", "suspend": true}));
        assert_eq!(job["spec"].get("cleanPodPolicy"), None);
        let launcher = &job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"];
        assert_eq!(launcher["metadata"]["labels"], json!({"vodascheduler/accelerator": "gtx"}));
        for replica in REPLICAS {
            let tolerations = &job["spec"]["mpiReplicaSpecs"][replica]["template"]["spec"]["tolerations"];
            let voda = json!([{"key": "vodascheduler/hostname", "operator": "Exists", "effect": "NoExecute"}]);
            assert_eq!(*tolerations, voda, "{replica}");
        }
        let names: Vec<&str> = list_at(launcher, &["spec", "containers"])[0]["env"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|each| text_at(each, &["name"]))
            .collect();
        assert_eq!(names, ["NP", "MIN_NP", "MAX_NP", "EPOCHS", "JOB_NAME"]);
        let worker = &job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
        assert_eq!(worker["resources"]["limits"], json!({"nvidia.com/gpu": 1}));
    }

    #[test]
    fn what_the_user_says_stays() {
        let job =
            replaced("metadata: {name: mnist}", "metadata: {name: mnist, labels: {trainyard.dev/queue: own}}").unwrap();
        assert_eq!(job["metadata"]["labels"]["trainyard.dev/queue"], json!("own"));
        let job =
            replaced("[{name: worker, image: img}]", "[{name: w, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]");
        let worker = &job.unwrap()["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
        assert_eq!(worker["resources"]["limits"], json!({"nvidia.com/gpu": 2}));
    }

    #[test]
    fn an_object_is_converted_under_its_own_name() {
        let stored: Value = serde_saphyr::from_str(MANIFEST).unwrap();
        let mut waits = stored.clone();
        waits["metadata"]["resourceVersion"] = json!("7");
        let job = converted(&waits, Some("q")).unwrap();
        assert_eq!((job["apiVersion"].clone(), job["kind"].clone()), (json!("kubeflow.org/v2beta1"), json!("MPIJob")));
        let labels = json!({"trainyard.dev/queue": "q"});
        assert_eq!(job["metadata"], json!({"name": "mnist", "resourceVersion": "7", "labels": labels}));
        assert_eq!(job["spec"]["runPolicy"], json!({"cleanPodPolicy": "Running", "suspend": true}));
        assert_eq!(job["spec"]["mpiReplicaSpecs"], stored["spec"]["mpiReplicaSpecs"]);
        assert_eq!(converted(&job, Some("other")).unwrap(), job, "what is converted stays");
        let mut ended = stored;
        ended["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
        let job = converted(&ended, None).unwrap();
        assert_eq!(job["spec"]["runPolicy"], json!({"cleanPodPolicy": "Running"}));
        assert!(converted(&json!({"apiVersion": "v1", "kind": "Pod"}), None).is_err());
    }

    #[test]
    fn a_job_without_a_type_of_gpu_runs_on_any_node_of_its_queue() {
        let plain = MANIFEST.replacen("          nodeSelector: {vodascheduler/accelerator: gtx}\n", "", 1);
        let made = job(&plain, Some("ns"), Some("q")).unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"trainyard.dev/queue": "q"}));
        let worker = &made["spec"]["mpiReplicaSpecs"]["Worker"]["template"];
        assert_eq!((worker["metadata"].clone(), worker["spec"]["nodeSelector"].clone()), (Value::Null, Value::Null));
        assert!(job(&plain, Some("ns"), None).unwrap_err().to_string().contains("name the queue with --queue"));
        assert!(job(MANIFEST, Some("ns"), None).is_ok(), "the type of GPU leads to the root queue");
    }

    #[test]
    fn a_namespace_that_is_named_nowhere_else_is_that_of_the_manifest() {
        let placed = MANIFEST.replacen("{name: mnist}", "{name: mnist, namespace: voda-scheduler}", 1);
        assert_eq!(namespace(&placed).as_deref(), Some("voda-scheduler"));
        assert_eq!((namespace(MANIFEST), namespace("kind: [")), (None, None));
        assert_eq!(job(&placed, None, Some("q")).unwrap()["metadata"]["namespace"], json!("voda-scheduler"));
        assert_eq!(job(MANIFEST, None, Some("q")).unwrap()["metadata"].get("namespace"), None);
    }

    #[test]
    fn what_voda_could_not_run_is_refused_by_name() {
        for (from, to, want) in [
            ("kind: MPIJob", "kind: Job", "apiVersion and kind: must be"),
            ("{name: mnist}", "{}", "metadata.name: missing"),
            ("{name: mnist}", "{name: mnist, namespace: other}", "metadata.namespace: other: "),
            ("    Worker:", "    Workers:", "spec.mpiReplicaSpecs.Worker: missing"),
            ("    Launcher:", "    Chief:", "spec.mpiReplicaSpecs.Launcher: missing"),
            (
                "      replicas: 1\n      template:\n        spec:\n          nodeSelector",
                "      template:\n        spec:\n          nodeSelector",
                "spec.mpiReplicaSpecs.Worker.replicas: missing",
            ),
            (
                "[{name: worker, image: img}]",
                "[{name: a, image: i}, {name: b, image: i}]",
                "spec.mpiReplicaSpecs.Worker.template.spec.containers: must be one container, there are 2",
            ),
            (
                "{name: MAX_NP, value: \"4\"}",
                "{name: X, value: \"4\"}",
                "environment of the launcher: MAX_NUM_PROC is missing (older name: MAX_NP): the most workers",
            ),
            (
                "{name: MAX_NP, value: \"4\"}",
                "{name: MAX_NP, value: \"1\"}",
                "must be at least NUM_PROC and MIN_NUM_PROC",
            ),
            ("value: \"60\"", "value: sixty", "must be a whole number of epochs"),
            (
                "{name: MIN_NP, value: \"1\"}",
                "{name: X, value: \"4\"}",
                "environment of the launcher: MIN_NUM_PROC is missing (older name: MIN_NP): the least workers",
            ),
            ("apiVersion: kubeflow.org/v1", "apiVersion: [", "not a manifest: "),
        ] {
            let error = replaced(from, to).unwrap_err().to_string();
            assert!(error.contains(want), "{to}: {error}");
        }
    }
}
