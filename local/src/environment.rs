//! The environment of a container: what its pod says, with every reference resolved.
//!
//! It comes on top of the runner's own environment, which stands for that of an image. Tests: at the end.

use std::collections::BTreeMap;

use serde_json::Value;
use settings::Quantity;

use crate::expand::expand;
use crate::names::Names;
use crate::objects::{NotFound, ObjectKind, Objects};
use crate::pod::{Container, EnvSource, EnvVar, KeyRef, Pod, ResourceFieldRef};

/// Reason for which the environment of a container cannot be built, as a kubelet words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// An object that is not optional is missing.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A key that is not optional is missing.
    #[error("couldn't find key {key} in {} \"{name}\"", kind.word())]
    NoKey { kind: ObjectKind, name: String, key: String },
    /// A variable cannot have this name.
    #[error("env: {0:?} is not a name of an environment variable")]
    Name(String),
    /// The source of a variable's value is not known here.
    #[error("env {0}: this kind of valueFrom is not supported on this machine")]
    Source(String),
    /// A field that no container can refer to.
    #[error("fieldRef: {0} is not a field that a container can refer to")]
    Field(String),
    /// A reference names a container that the pod does not have.
    #[error("resourceFieldRef: the pod has no container {0:?}")]
    NoContainer(String),
    /// A reference names neither a limit nor a request.
    #[error("resourceFieldRef: {0:?} is not limits.* or requests.*")]
    Resource(String),
    /// An amount cannot be read.
    #[error("{resource}: {value} is not a quantity")]
    Quantity { resource: String, value: Value },
    /// An amount cannot be divided by this.
    #[error("resourceFieldRef: a divisor cannot be {0:?}")]
    Divisor(Option<Value>),
}

/// Variables that references are resolved against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReferenceContext<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a Objects,
    pub(crate) pod_ip: &'a str,
    pub(crate) host_ip: &'a str,
}

/// The variables of a container, in order, each name once. `given` are this runtime's own, which the pod's win over.
pub(crate) fn of_container(
    scope: ReferenceContext<'_>,
    container: &Container,
    given: &[(String, String)],
    names: &mut Names,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let namespace = &scope.pod.metadata.namespace;
    let mut built = Built::default();
    for (name, value) in given {
        built.set(name, value.clone(), false);
    }
    for from in &container.env_from {
        let refs = [(ObjectKind::ConfigMap, &from.config_map_ref), (ObjectKind::Secret, &from.secret_ref)];
        for (source, reference) in refs.into_iter().filter_map(|(source, found)| Some((source, found.as_ref()?))) {
            match scope.objects.get(source, namespace, &reference.name) {
                Some(data) => {
                    for (key, value) in data {
                        let name = format!("{}{key}", from.prefix);
                        if is_variable_name(&name) {
                            let text = String::from_utf8_lossy(value).into_owned();
                            built.set(&name, text, source == ObjectKind::ConfigMap);
                        }
                    }
                }
                None if reference.optional => {}
                None => {
                    return Err(NotFound { kind: source, name: reference.name.clone() }.into());
                }
            }
        }
    }
    for variable in &container.env {
        if !is_variable_name(&variable.name) {
            return Err(EnvironmentError::Name(variable.name.clone()));
        }
        if let Some((value, replace_names)) = value_of(scope, container, variable, &built)? {
            built.set(&variable.name, value, replace_names);
        }
    }
    let mut out = Vec::with_capacity(built.order.len());
    for name in built.order {
        if let Some((value, replace_names)) = built.values.remove(&name) {
            let value = if replace_names { names.rewrite_env(namespace, &name, &value) } else { value };
            out.push((name, value));
        }
    }
    Ok(out)
}

/// Variables in the order of their first mention; the flag says whether DNS names in the value are to be replaced.
#[derive(Debug, Default)]
struct Built {
    order: Vec<String>,
    values: BTreeMap<String, (String, bool)>,
}

impl Built {
    fn set(&mut self, name: &str, value: String, replace_names: bool) {
        if self.values.insert(name.to_owned(), (value, replace_names)).is_none() {
            self.order.push(name.to_owned());
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        self.values.get(name).map(|(value, _)| value.clone())
    }
}

/// `None` for an optional reference to something that does not exist.
fn value_of(
    scope: ReferenceContext<'_>,
    container: &Container,
    variable: &EnvVar,
    earlier: &Built,
) -> Result<Option<(String, bool)>, EnvironmentError> {
    let Some(source) = &variable.value_from else {
        return Ok(Some((expand(&variable.value, |name| earlier.get(name)), true)));
    };
    match source {
        EnvSource { field_ref: Some(field), .. } => Ok(Some((field_of(scope, &field.field_path)?, false))),
        EnvSource { resource_field_ref: Some(field), .. } => Ok(Some((resource_of(scope, container, field)?, false))),
        EnvSource { config_map_key_ref: Some(key), .. } => key_of(scope, ObjectKind::ConfigMap, key),
        EnvSource { secret_key_ref: Some(key), .. } => key_of(scope, ObjectKind::Secret, key),
        EnvSource { .. } => Err(EnvironmentError::Source(variable.name.clone())),
    }
}

fn key_of(
    scope: ReferenceContext<'_>,
    source: ObjectKind,
    key: &KeyRef,
) -> Result<Option<(String, bool)>, EnvironmentError> {
    let data = scope.objects.get(source, &scope.pod.metadata.namespace, &key.name);
    match (data, data.and_then(|data| data.get(&key.key))) {
        (_, Some(value)) => Ok(Some((String::from_utf8_lossy(value).into_owned(), source == ObjectKind::ConfigMap))),
        _ if key.optional => Ok(None),
        (None, None) => Err(NotFound { kind: source, name: key.name.clone() }.into()),
        (Some(_), None) => Err(EnvironmentError::NoKey { kind: source, name: key.name.clone(), key: key.key.clone() }),
    }
}

fn field_of(scope: ReferenceContext<'_>, path: &str) -> Result<String, EnvironmentError> {
    let metadata = &scope.pod.metadata;
    let subscript = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
    let text = match path {
        "metadata.name" => &metadata.name,
        "metadata.namespace" => &metadata.namespace,
        "metadata.uid" => &metadata.uid,
        "spec.nodeName" => &scope.pod.spec.node_name,
        "spec.serviceAccountName" => &scope.pod.spec.service_account_name,
        "status.podIP" | "status.podIPs" => return Ok(scope.pod_ip.to_owned()),
        "status.hostIP" | "status.hostIPs" => return Ok(scope.host_ip.to_owned()),
        _ => {
            let map = if let Some(key) = subscript("metadata.labels['") {
                metadata.labels.get(&key)
            } else if let Some(key) = subscript("metadata.annotations['") {
                metadata.annotations.get(&key)
            } else {
                return Err(EnvironmentError::Field(path.to_owned()));
            };
            return Ok(map.cloned().unwrap_or_default());
        }
    };
    Ok(text.clone())
}

fn resource_of(
    scope: ReferenceContext<'_>,
    own: &Container,
    field: &ResourceFieldRef,
) -> Result<String, EnvironmentError> {
    let spec = &scope.pod.spec;
    let container = if field.container_name.is_empty() {
        own
    } else {
        let mut all = spec.containers.iter().chain(&spec.init_containers);
        all.find(|container| container.name == field.container_name)
            .ok_or_else(|| EnvironmentError::NoContainer(field.container_name.clone()))?
    };
    let unknown = || EnvironmentError::Resource(field.resource.clone());
    let (side, resource) = field.resource.split_once('.').ok_or_else(unknown)?;
    let resources = &container.resources;
    let found = match side {
        "limits" => resources.limits.get(resource),
        "requests" => resources.requests.get(resource).or_else(|| resources.limits.get(resource)),
        _ => return Err(unknown()),
    };
    let unreadable = |value: &Value| EnvironmentError::Quantity { resource: resource.to_owned(), value: value.clone() };
    let read = |value: &Value| Quantity::read(value).ok_or_else(|| unreadable(value));
    let quantity = match found {
        Some(value) => read(value)?,
        // Without a limit a container may use all there is.
        None if side == "limits" => machine_has(resource),
        None => Quantity::whole(0),
    };
    let divisor = match &field.divisor {
        Some(value) => read(value)?,
        None => Quantity::whole(1),
    };
    // Kubernetes reads a divisor of 0 as none given.
    let divisor = if divisor == Quantity::whole(0) { Quantity::whole(1) } else { divisor };
    quantity
        .in_units_of(divisor)
        .map(|units| units.to_string())
        .ok_or_else(|| EnvironmentError::Divisor(field.divisor.clone()))
}

fn machine_has(resource: &str) -> Quantity {
    match resource {
        "cpu" => Quantity::whole(std::thread::available_parallelism().map_or(1, |count| count.get() as u64)),
        "memory" => {
            let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let kib =
                text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
            Quantity::whole(kib.unwrap_or(0_u64) * 1024)
        }
        _ => Quantity::whole(0),
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn environment(container: &Value) -> Result<Vec<String>, String> {
        let pod = json!({
            "metadata": {"name": "j-w-0", "namespace": "ns", "uid": "u1", "labels": {"a/b": "c"}, "annotations": {"x": "y z"}},
            "spec": {"nodeName": "here", "containers": [container, {"name": "other", "resources": {"limits": {"cpu": "3"}}}]},
        });
        let pod: Pod = serde_json::from_value(pod).map_err(|error| error.to_string())?;
        let mut objects = Objects::default();
        objects.put(&json!({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}, "data": {"k": "v", "host": "j-w-1.ns", "A": "map"}}));
        objects.put(&json!({"kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "stringData": {"p": "j-w-1.ns", "bad=name": "x"}}));
        let mut names = Names::new(64);
        names.add_owner("ns", "j");
        let peer = names.address("ns", "j-w-1").to_string();
        let scope = ReferenceContext { pod: &pod, objects: &objects, pod_ip: "127.9.9.9", host_ip: "127.0.0.1" };
        let given = [("GIVEN".to_owned(), "g".to_owned())];
        let all = of_container(scope, &pod.spec.containers[0], &given, &mut names);
        let all = all.map_err(|error| error.to_string())?;
        Ok(all.into_iter().skip(1).map(|(name, value)| format!("{name}={value}").replace(&peer, "PEER")).collect())
    }

    #[test]
    fn table() {
        let field = |path: &str| json!({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]});
        let resource = |side: &str, divisor: Value| {
            json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": side, "divisor": divisor}}}],
                "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": 0.5}}})
        };
        for (container, want) in [
            (json!({}), vec![]),
            (json!({"env": null}), vec![]),
            (
                json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)"}, {"name": "C"}]}),
                vec!["A=1", "B=1-$(C)", "C="],
            ),
            (json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}), vec!["A=12"]),
            (json!({"env": [{"name": "A", "value": "$(GIVEN)$(HOME)"}]}), vec!["A=g$(HOME)"]),
            (
                json!({"env": [{"name": "P", "value": "j-w-1.ns:1"}, {"name": "Q", "value": "$(P)"}]}),
                vec!["P=PEER:1", "Q=PEER:1"],
            ),
            (field("metadata.name"), vec!["X=j-w-0"]),
            (field("metadata.namespace"), vec!["X=ns"]),
            (field("metadata.uid"), vec!["X=u1"]),
            (field("metadata.labels['a/b']"), vec!["X=c"]),
            (field("metadata.labels['none']"), vec!["X="]),
            (field("metadata.annotations['x']"), vec!["X=y z"]),
            (field("spec.nodeName"), vec!["X=here"]),
            (field("status.podIP"), vec!["X=127.9.9.9"]),
            (field("status.hostIP"), vec!["X=127.0.0.1"]),
            (resource("limits.cpu", Value::Null), vec!["X=2"]),
            (resource("limits.cpu", json!("1m")), vec!["X=1500"]),
            (resource("requests.cpu", json!("1m")), vec!["X=500"]),
            (resource("requests.memory", json!("1Mi")), vec!["X=1024"]),
            (resource("limits.memory", json!("0")), vec!["X=1073741824"]),
            (
                json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "other"}}}]}),
                vec!["X=3"],
            ),
            (
                json!({"envFrom": [{"configMapRef": {"name": "m"}, "prefix": "P_"}, {"secretRef": {"name": "s"}}]}),
                vec!["P_A=map", "P_host=PEER", "P_k=v", "p=j-w-1.ns"],
            ),
            (
                json!({"envFrom": [{"configMapRef": {"name": "m"}}], "env": [{"name": "A", "value": "$(A)!"}]}),
                vec!["A=map!", "host=PEER", "k=v"],
            ),
            (json!({"envFrom": [{"configMapRef": {"name": "none", "optional": true}}]}), vec![]),
            (json!({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}), vec!["X=v"]),
            (
                json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}}]}),
                vec!["X=j-w-1.ns"],
            ),
            (
                json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": true}}}]}),
                vec![],
            ),
        ] {
            assert_eq!(environment(&container).unwrap(), want, "{container}");
        }
    }

    #[test]
    fn refused() {
        for (container, want) in [
            (json!({"env": [{"name": "", "value": "1"}]}), "not a name"),
            (json!({"env": [{"name": "A=B", "value": "1"}]}), "not a name"),
            (json!({"env": [{"name": "A", "value": 1}]}), "invalid type"),
            (json!({"env": [{"name": "X", "valueFrom": {}}]}), "not supported on this machine"),
            (json!({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]}), "spec.foo"),
            (
                json!({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "zz", "key": "k"}}}]}),
                "configmap \"zz\" not found",
            ),
            (
                json!({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "zz"}}}]}),
                "couldn't find key zz in configmap \"m\"",
            ),
            (json!({"envFrom": [{"secretRef": {"name": "zz"}}]}), "secret \"zz\" not found"),
            (json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "cpu"}}}]}), "limits.*"),
            (
                json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "-1"}}}]}),
                "divisor",
            ),
            (
                json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "zz"}}}]}),
                "no container",
            ),
        ] {
            let error = environment(&container).unwrap_err();
            assert!(error.contains(want), "{container}: {error}");
        }
    }

    #[test]
    fn a_limit_not_set_is_the_machine() {
        let got = environment(
            &json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}}]}),
        );
        assert!(got.unwrap()[0].strip_prefix("X=").unwrap().parse::<u64>().unwrap() > 1 << 20);
    }
}
