//! Schema walk: every sort of finding, with its path and what was probably meant.

use serde_json::{Value, json};

use super::check;
use crate::kubernetes::POD_TEMPLATE;

fn texts(schema: &Value, value: &Value) -> Vec<String> {
    check(schema, value, "t").iter().map(|finding| finding.field.to_string()).collect()
}

fn template(spec: &Value) -> Value {
    let mut template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}});
    if let (Some(old), Some(new)) = (template["spec"].as_object_mut(), spec.as_object()) {
        old.extend(new.clone());
    }
    template
}

#[test]
fn pod_templates_are_checked_to_the_last_field() {
    let container = |fields: Value| {
        let mut container = json!({"name": "c"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        template(&json!({"containers": [container]}))
    };
    let at = "t.spec.containers[0]";
    let rows: Vec<(Value, Vec<String>)> = vec![
        (template(&json!({})), vec![]),
        (
            container(json!({"command": "python train.py"})),
            vec![format!(
                "{at}.command: must be a list, not text (\"python train.py\"); did you mean [\"python\", \"train.py\"]?"
            )],
        ),
        (
            container(json!({"command": "cd /x && ./run"})),
            vec![format!(
                "{at}.command: must be a list, not text (\"cd /x && ./run\"); did you mean [\"sh\", \"-c\", \"cd /x && ./run\"]?"
            )],
        ),
        (
            container(json!({"comand": ["x"], "Image": "i", "gpus": 1})),
            vec![
                format!("{at}.Image: unknown field in Kubernetes 1.36 (\"i\"); did you mean image?"),
                format!("{at}.comand: unknown field in Kubernetes 1.36 ([\"x\"]); did you mean command?"),
                format!("{at}.gpus: unknown field in Kubernetes 1.36 (1)"),
            ],
        ),
        (
            container(json!({"env": [{"name": "A", "value": 1}, {"name": "B", "value": true}, {"value": "x"}, null]})),
            vec![
                format!("{at}.env[0].value: must be text, not a number (1); did you mean \"1\"?"),
                format!("{at}.env[1].value: must be text, not a truth value (true); did you mean \"true\"?"),
                format!("{at}.env[2].name: this field is required (missing)"),
                format!("{at}.env[3]: must be an object, not null (null)"),
            ],
        ),
        (
            container(json!({"env": {"A": "b", "C": 1}})),
            vec![format!(
                "{at}.env: must be a list, not an object ({{\"A\":\"b\",\"C\":1}}); did you mean \
                 [{{\"name\":\"A\",\"value\":\"b\"}},{{\"name\":\"C\",\"value\":\"1\"}}]?"
            )],
        ),
        (
            container(json!({"resources": {"limits": {"cpu": 1.0, "memory": "16GB", "nvidia.com/gpu": true}}})),
            vec![
                format!(
                    "{at}.resources.limits.memory: must be a quantity: a number, then m, k, M, G, T, P, E or Ki, Mi, Gi, \
                     Ti, Pi, Ei or nothing (\"16GB\"); did you mean 16G?"
                ),
                format!("{at}.resources.limits.nvidia.com/gpu: must be text or a number, not a truth value (true)"),
            ],
        ),
        (
            container(json!({"imagePullPolicy": "always", "tty": "yes", "ports": [{"containerPort": "80"}]})),
            vec![
                format!(
                    "{at}.imagePullPolicy: must be one of Always, IfNotPresent, Never (\"always\"); did you mean Always?"
                ),
                format!("{at}.ports[0].containerPort: must be a whole number, not text (\"80\"); did you mean 80?"),
                format!("{at}.tty: must be true or false, not text (\"yes\"); did you mean true?"),
            ],
        ),
        (
            container(json!({"imagePullPolicy": "", "args": null, "livenessProbe": {"httpGet": {"port": "web"}}})),
            vec![],
        ),
        (
            template(
                &json!({"containers": {"name": "c"}, "nodeSelector": {"zone": 1}, "volumes": [{"name": "v", "emptydir": {}}]}),
            ),
            vec![
                "t.spec.containers: must be a list, not an object ({\"name\":\"c\"}); did you mean [{\"name\":\"c\"}]?"
                    .into(),
                "t.spec.nodeSelector.zone: must be text, not a number (1); did you mean \"1\"?".into(),
                "t.spec.volumes[0].emptydir: unknown field in Kubernetes 1.36 ({}); did you mean emptyDir?".into(),
            ],
        ),
    ];
    let schema = json!({"$ref": POD_TEMPLATE});
    for (value, want) in rows {
        assert_eq!(texts(&schema, &value), want, "{value}");
    }
}

#[test]
fn numbers_have_bounds_and_open_objects_keep_everything() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "free": {"type": "object"},
        "any": {},
        "kept": {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true},
    }});
    assert_eq!(texts(&schema, &json!({"n": 9, "free": {"x": 1}, "any": [1], "kept": {"a": "b", "c": 1}})), [""; 0]);
    let found = |n: Value| texts(&schema, &json!({"n": n}));
    assert_eq!(found(json!(-1)), ["t.n: must be at least 0 (-1)"]);
    assert_eq!(found(json!(u64::MAX)), ["t.n: must be at most 9 (18446744073709551615)"]);
    assert_eq!(found(json!(1.5)), ["t.n: must be a whole number, not a number (1.5)"]);
    assert_eq!(
        texts(&schema, &json!({"kept": {"a": 1}})),
        ["t.kept.a: must be text, not a number (1); did you mean \"1\"?"]
    );
}

#[test]
fn deep_and_wide_values_come_to_an_end() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}});
    let wide = json!({"a": vec!["x"; 5000]});
    assert_eq!(check(&schema, &wide, "t").len(), super::MAX_FINDINGS);
    let mut deep = json!("x");
    for _ in 0..500 {
        deep = json!({"json": deep});
    }
    // `JSONSchemaProps` refers to itself in no definition kept here: an open object is not walked at all.
    assert_eq!(texts(&json!({"type": "object"}), &deep), [""; 0]);
}
