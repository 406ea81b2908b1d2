//! What a pod refers to by name and needs before it can start. Pure. Tests: at the end.

use std::collections::BTreeSet;

use serde_json::Value;

/// A kind of object that pods refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReferencedKind {
    ConfigMap,
    Secret,
}

impl ReferencedKind {
    /// The kind's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// The resource's name in URLs.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }
}

/// An object of the pod's namespace.
pub(crate) type Reference = (ReferencedKind, String);

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().into_iter().flatten()
}

fn named(kind: ReferencedKind, name: &Value) -> Option<Reference> {
    Some((kind, name.as_str().filter(|name| !name.is_empty())?.to_owned()))
}

/// The objects a pod's volumes show: containers see their changes.
pub(crate) fn in_volumes(pod: &Value) -> impl Iterator<Item = Reference> + use<'_> {
    items(&pod["spec"], "volumes").flat_map(|volume| {
        let map = named(ReferencedKind::ConfigMap, &volume["configMap"]["name"]);
        map.into_iter().chain(named(ReferencedKind::Secret, &volume["secret"]["secretName"]))
    })
}

/// The objects a pod refers to in its environment and volumes.
pub(crate) fn of(pod: &Value) -> BTreeSet<Reference> {
    let mut found: BTreeSet<Reference> = in_volumes(pod).collect();
    let mut add = |kind: ReferencedKind, name: &Value| found.extend(named(kind, name));
    let spec = &pod["spec"];
    for container in items(spec, "initContainers").chain(items(spec, "containers")) {
        for from in items(container, "envFrom") {
            add(ReferencedKind::ConfigMap, &from["configMapRef"]["name"]);
            add(ReferencedKind::Secret, &from["secretRef"]["name"]);
        }
        for variable in items(container, "env") {
            add(ReferencedKind::ConfigMap, &variable["valueFrom"]["configMapKeyRef"]["name"]);
            add(ReferencedKind::Secret, &variable["valueFrom"]["secretKeyRef"]["name"]);
        }
    }
    found
}

/// A pod without the volume that an API server adds to every pod to give it a token: nothing is mounted here, so that its
/// absence is no news.
pub(crate) fn without_token_volume(mut pod: Value) -> Value {
    let is_token = |value: &Value| value["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    let Some(spec) = pod.get_mut("spec") else { return pod };
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| !is_token(volume) || volume["projected"].is_null());
    }
    for field in ["initContainers", "containers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
                mounts.retain(|mount| !is_token(mount));
            }
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_to_refer() {
        let pod = json!({"spec": {
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "m1"}}, {"secretRef": {"name": "s1"}}]}],
            "containers": [{"env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m2", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
                {"name": "C", "value": "x"},
                {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ]}],
            "volumes": [{"name": "v", "configMap": {"name": "m3"}}, {"name": "w", "secret": {"secretName": "s2"}},
                {"name": "e", "emptyDir": {}}],
        }});
        let (map, secret) = (ReferencedKind::ConfigMap, ReferencedKind::Secret);
        let want = [(map, "m1"), (map, "m2"), (map, "m3"), (secret, "s1"), (secret, "s2")];
        assert_eq!(of(&pod), want.map(|(kind, name)| (kind, name.to_owned())).into());
        assert!(of(&json!({"spec": {"containers": [{"name": "c"}]}})).is_empty());
        assert!(of(&json!({})).is_empty());
    }

    #[test]
    fn the_token_goes_and_everything_else_stays() {
        let pod = json!({"spec": {
            "containers": [{"name": "c", "volumeMounts": [{"name": "kube-api-access-x2z"}, {"name": "data"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "kube-api-access-x2z", "projected": {}}],
        }});
        let want = json!({"spec": {
            "containers": [{"name": "c", "volumeMounts": [{"name": "data"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }});
        assert_eq!(without_token_volume(pod), want);
        let bare = json!({"spec": {"containers": [{"name": "c"}]}});
        assert_eq!(without_token_volume(bare.clone())["spec"]["containers"][0]["name"], "c");
        assert_eq!(of(&without_token_volume(bare)), BTreeSet::new());
    }
}
