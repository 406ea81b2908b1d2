//! `apis/src/kubernetes.json` is what an API server publishes. `KUBERNETES_TYPES=write` writes the file.

use std::fs;
use std::path::Path;

use conformance::types;
use control_plane::{ControlPlane, Options};
use serde_json::Value;

#[test]
fn the_types_that_manifests_are_checked_against_are_those_of_the_api_server() {
    let options = Options { nodes: 0, scheduler: false, kwok: false, ..Options::default() };
    let plane = ControlPlane::start(options).expect("the control plane starts");
    let get = |path: &str| -> Value {
        let output = plane.kubectl(["get", "--raw", path]).output().expect("kubectl runs");
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the server answers with JSON")
    };
    let version = get("/version")["gitVersion"].as_str().unwrap_or_default().trim_start_matches('v').to_owned();
    let minor: Vec<&str> = version.split('.').take(2).collect();
    let documents: Vec<Value> = types::paths().iter().map(|path| get(path)).collect();
    let text = types::text(&minor.join("."), &documents);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apis/src/kubernetes.json");
    if std::env::var_os("KUBERNETES_TYPES").is_some_and(|word| word == "write") {
        fs::write(&path, &text).expect("the file can be written");
    }
    let kept = fs::read_to_string(&path).expect("the file can be read");
    let differs = kept.lines().zip(text.lines()).find(|(kept, text)| kept != text);
    assert!(
        kept == text,
        "apis/src/kubernetes.json is not what this API server publishes; KUBERNETES_TYPES=write writes it. First: {differs:?}"
    );
}
