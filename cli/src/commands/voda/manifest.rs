//! A submitted manifest -> the MPIJob that is created: name, environment, labels and limits as Voda writes them.
//!
//! Takes `kubeflow.org/v1` as Voda's users have it, and `v2beta1`. It must not talk to a cluster. Tests: at the end.

use apis::JobApi as _;
use apis::demand::QUEUE;
use apis::mpijob::{self, ACCELERATOR, LAUNCHER, MAX_VARIABLES, WORKER};
use apis::objects::{at, label, list_at, text_at};
use model::json::merge_patch;
use serde_json::{Value, json};

/// Version of Voda's manifests.
const OLD_VERSION: &str = "kubeflow.org/v1";
/// The groups of a job.
const REPLICAS: [&str; 2] = [LAUNCHER, WORKER];
/// The GPUs that Voda schedules.
const GPU: &str = "nvidia.com/gpu";

/// Returns the MPIJob of a manifest in YAML or JSON, without the time in its name. `queue`: of a job that names none.
///
/// # Errors
/// Returns an error that names what cannot be accepted, one field a line.
pub(super) fn job(text: &str, namespace: &str, queue: Option<&str>) -> Result<Value, String> {
    let mut job: Value = serde_saphyr::from_str(text).map_err(|error| format!("not a manifest: {error}"))?;
    check(&job, namespace)?;
    if text_at(&job, &["apiVersion"]) == Some(OLD_VERSION) {
        convert(&mut job);
    }
    let selector = ["spec", "mpiReplicaSpecs", WORKER, "template", "spec", "nodeSelector", ACCELERATOR];
    let Some(accelerator) = text_at(&job, &selector).map(str::to_owned) else {
        return Err(format!("{}: missing; name the type of GPU that the workers need", selector.join(".")));
    };
    let labels = json!({ACCELERATOR: accelerator});
    let template = json!({"template": {"metadata": {"labels": labels}}});
    let own = json!({
        "metadata": {"namespace": namespace, "labels": labels},
        // The MPI operator creates no pods before their time.
        "spec": {"runPolicy": {"suspend": true}, "mpiReplicaSpecs": {LAUNCHER: template, WORKER: template}},
    });
    merge_patch(&mut job, &own);
    if let Some(queue) = queue.filter(|_| label(&job, QUEUE).is_none()) {
        merge_patch(&mut job, &json!({"metadata": {"labels": {QUEUE: queue}}}));
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
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        Ok(_) => Ok(job),
    }
}

/// Returns a job with its full name, which its launcher is told.
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

fn check(job: &Value, namespace: &str) -> Result<(), String> {
    let known = [OLD_VERSION, mpijob::API_VERSION];
    let version = text_at(job, &["apiVersion"]).unwrap_or_default();
    if !known.contains(&version) || text_at(job, &["kind"]) != Some(mpijob::KIND) {
        return Err(format!("apiVersion and kind: must be those of an {} in {}", mpijob::KIND, known.join(" or ")));
    }
    if text_at(job, &["metadata", "name"]).is_none_or(str::is_empty) {
        return Err("metadata.name: missing".to_owned());
    }
    let named = text_at(job, &["metadata", "namespace"]).filter(|named| *named != namespace);
    if let Some(other) = named {
        return Err(format!("metadata.namespace: {other}: jobs of namespace {namespace} are created here"));
    }
    for replica in REPLICAS {
        let path = ["spec", "mpiReplicaSpecs", replica];
        let Some(found) = at(job, &path).filter(|found| found.is_object()) else {
            return Err(format!("{}: missing", path.join(".")));
        };
        let count = list_at(found, &["template", "spec", "containers"]).len();
        if count != 1 {
            return Err(format!(
                "{}.template.spec.containers: must be one container, there are {count}",
                path.join(".")
            ));
        }
    }
    if at(job, &["spec", "mpiReplicaSpecs", WORKER, "replicas"]).and_then(Value::as_u64).is_none() {
        return Err("spec.mpiReplicaSpecs.Worker.replicas: missing".to_owned());
    }
    let launcher = list_at(job, &["spec", "mpiReplicaSpecs", LAUNCHER, "template", "spec", "containers"]);
    let environment = launcher.first().map_or(&[][..], |launcher| list_at(launcher, &["env"]));
    let is_bounded =
        environment.iter().any(|each| text_at(each, &["name"]).is_some_and(|name| MAX_VARIABLES.contains(&name)));
    if !is_bounded {
        return Err(format!("environment of the launcher: {} is missing", MAX_VARIABLES[0]));
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

    fn replaced(from: &str, to: &str) -> Result<Value, String> {
        assert!(MANIFEST.contains(from), "{from}");
        job(&MANIFEST.replacen(from, to, 1), "ns", Some("q"))
    }

    #[test]
    fn a_manifest_of_voda_becomes_a_job_of_the_present_version() {
        let job = named(job(MANIFEST, "ns", Some("q")).unwrap(), "mnist-20260101-120000");
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
                "environment of the launcher: MAX_NUM_PROC is missing",
            ),
            (
                "{name: MAX_NP, value: \"4\"}",
                "{name: MAX_NP, value: \"1\"}",
                "must be at least NUM_PROC and MIN_NUM_PROC",
            ),
            ("value: \"60\"", "value: sixty", "must be a whole number of epochs"),
            (
                "          nodeSelector: {vodascheduler/accelerator: gtx}\n",
                "",
                "nodeSelector.vodascheduler/accelerator: missing",
            ),
            ("apiVersion: kubeflow.org/v1", "apiVersion: [", "not a manifest: "),
        ] {
            let error = replaced(from, to).unwrap_err();
            assert!(error.contains(want), "{to}: {error}");
        }
    }
}
