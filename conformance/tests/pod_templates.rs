//! What `apis` refuses in a pod template, beside what a real API server refuses: pods of every example, created by dry run.

use conformance::server::Server;
use control_plane::{ControlPlane, Options};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
/// Answers to an object that is wrong: unreadable, forbidden by admission (a class or account that is not there), invalid.
const REFUSED: [u16; 3] = [400, 403, 422];

fn examples(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("the examples are JSON")
}

fn pod(template: &Value) -> Value {
    let mut metadata = template.get("metadata").cloned().unwrap_or_else(|| json!({}));
    metadata["name"] = json!("example");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// Returns the code and the message of the answer to a pod of a template.
fn answer(server: &Server, template: &Value) -> (u16, String) {
    match server.create(PODS, &pod(template)) {
        Ok(_) => (201, String::new()),
        Err(error) => (error.code, error.message),
    }
}

#[test]
fn the_api_server_refuses_what_apis_refuses_and_nothing_else() {
    // Without kube-controller-manager no pod needs an account.
    let options = Options { nodes: 0, scheduler: false, kwok: false, controller_manager: false, ..Options::default() };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("the control plane: {error}"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::connect(plane.kubeconfig(), &runtime).unwrap_or_else(|error| panic!("the client: {error}"));

    let mut wrong = Vec::new();
    for example in examples(include_str!("../../fixtures/pod_templates/refused.json")) {
        let (rule, field) =
            (example["rule"].as_str().unwrap_or_default(), example["field"].as_str().unwrap_or_default());
        let (code, message) = answer(&server, &example["template"]);
        // The server names the same field, or the object or list that holds it.
        let last = field.rsplit('.').next().unwrap_or_default().trim_end_matches([']', '0', '1', '[']);
        let is_named = example["server"].as_str().unwrap_or(last);
        if example["accepted"] == true {
            if code != 201 {
                wrong.push(format!("{rule}: not accepted: {code} {message}"));
            }
        } else if !REFUSED.contains(&code) || !message.contains(is_named) {
            wrong.push(format!("{rule}: {code} {message}"));
        }
    }
    for example in examples(include_str!("../../fixtures/pod_templates/accepted.json")) {
        let (code, message) = answer(&server, &example["template"]);
        if code != 201 {
            wrong.push(format!("{}: {code} {message}", example["name"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
