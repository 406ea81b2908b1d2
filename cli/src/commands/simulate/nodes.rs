//! Nodes of a simulation: as many as are asked for, with the labels and resources that pods of the manifests need.
//!
//! Owns what a requirement on a node comes to as labels of a made-up node. It must not know APIs: what pods need is read of the pods
//! that each API renders. Tests: at the end, and `cli/tests/local/simulate.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{Registry, Resource};
use cluster::NodeSpec;
use kube_model::node::UNLIMITED;
use model::{JobKey, LabelOperator, LabelRequirement, LabelSelector, PodRequirements, SpecFact, Text, Uid};
use serde_json::Value;

/// Label that every node has: its name.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The GPUs that `--gpus` counts.
const GPU: &str = "nvidia.com/gpu";

/// Nodes that the command line asks for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// Number of nodes.
    pub(super) nodes: u32,
    /// GPUs of each node.
    pub(super) gpus: u32,
    /// Labels of each node; none: those that the manifests select.
    pub(super) labels: &'a [(String, String)],
}

/// Reason for refusing a label of a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum LabelError {
    /// It has no value.
    #[error("{0}: write KEY=VALUE")]
    NoValue(String),
    /// Kubernetes does not allow it.
    #[error("{0}: a node cannot have this label")]
    Invalid(String),
}

/// Reads `KEY=VALUE` of a label.
pub(super) fn label(text: &str) -> Result<(String, String), LabelError> {
    let (key, value) = text.split_once('=').ok_or_else(|| LabelError::NoValue(text.to_owned()))?;
    if !apis::names::is_label_key(key) || !apis::names::is_label_value(value) {
        return Err(LabelError::Invalid(text.to_owned()));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Labels that some pods select together.
type Labels = BTreeMap<String, String>;

/// Returns the nodes, and lines about what they have that was not asked for.
pub(super) fn of(asked: &Asked<'_>, registry: &Registry, objects: &[Value]) -> (Vec<NodeSpec>, Vec<String>) {
    let needs = Needs::of(registry, objects);
    let mut lines = Vec::new();
    let classes = if asked.labels.is_empty() {
        let classes = classes(&needs.selected);
        lines.extend(labels_line(&classes, asked.nodes));
        classes
    } else {
        vec![asked.labels.iter().cloned().collect()]
    };
    let resources = needs.resources(asked.gpus);
    if !resources.is_empty() {
        let shown: Vec<String> = resources.iter().map(|(name, amount)| format!("{amount} {name}")).collect();
        lines.push(format!("each node has {}, as the manifests ask for them", shown.join(", ")));
    }
    let named: BTreeSet<&String> = classes.iter().filter_map(|class| class.get(HOSTNAME)).collect();
    let mut names = (1_u64..).map(|n| format!("n{n}")).filter(|name| !named.contains(name));
    let mut nodes = Vec::new();
    for class in &classes {
        let of_class: Vec<String> = match class.get(HOSTNAME) {
            Some(name) => vec![name.clone()],
            None => names.by_ref().take(usize::try_from(asked.nodes).unwrap_or(usize::MAX)).collect(),
        };
        for name in of_class {
            let mut node = NodeSpec::named(&name).with(GPU, &asked.gpus.to_string());
            node.labels.clone_from(class);
            nodes.push(resources.iter().fold(node, |node, (name, amount)| node.with(name, amount)));
        }
    }
    (nodes, lines)
}

fn labels_line(classes: &[Labels], nodes: u32) -> Option<String> {
    let shown = |class: &Labels| {
        let labels: Vec<String> = class.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let count = if class.contains_key(HOSTNAME) { 1 } else { nodes };
        format!("{count} with {}", if labels.is_empty() { "none".to_owned() } else { labels.join(", ") })
    };
    let is_plain = classes.iter().all(BTreeMap::is_empty);
    (!is_plain).then(|| {
        let shown: Vec<String> = classes.iter().map(shown).collect();
        format!("nodes have the labels that the manifests select: {}; --node-label sets others", shown.join("; "))
    })
}

/// Returns sets of labels such that each selection is in one of them. Selections that do not contradict each other share a set.
fn classes(selected: &BTreeSet<Labels>) -> Vec<Labels> {
    let mut classes: Vec<Labels> = Vec::new();
    for selection in selected {
        let agrees = |class: &&mut Labels| {
            selection.iter().all(|(key, value)| class.get(key).is_none_or(|other| other == value))
                && class.contains_key(HOSTNAME) == selection.contains_key(HOSTNAME)
        };
        match classes.iter_mut().find(agrees) {
            Some(class) => class.extend(selection.clone()),
            None => classes.push(selection.clone()),
        }
    }
    if classes.is_empty() {
        classes.push(Labels::new());
    }
    classes
}

/// What pods need of nodes.
#[derive(Debug, Default)]
struct Needs {
    /// Labels that each kind of pod selects; empty: none.
    selected: BTreeSet<Labels>,
    /// Largest request of one pod by resource, in thousandths.
    requests: BTreeMap<Text, u64>,
}

impl Needs {
    fn of(registry: &Registry, objects: &[Value]) -> Self {
        let mut needs = Self::default();
        for object in objects {
            let Some((fact, pods)) = rendered(registry, object, objects) else { continue };
            for pod in pods {
                needs.add_pod(&kube_model::requirements(pod.get("spec").unwrap_or(&Value::Null)));
            }
            let of_queue = fact.spec.ok().and_then(|spec| spec.queue?.nodes);
            needs
                .selected
                .extend(of_queue.map(|LabelSelector { requirements }| {
                    requirements.iter().filter_map(label_of).collect::<Labels>()
                }));
        }
        needs
    }

    fn add_pod(&mut self, pod: &PodRequirements) {
        let selector = pod.node_selector.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        let mut labels: Labels = selector.collect();
        // One of the terms must hold.
        if let Some(term) = pod.affinity.as_ref().and_then(|terms| terms.first()) {
            labels.extend(term.expressions.iter().filter_map(label_of));
            let names = term.fields.iter().filter_map(label_of).map(|(_, name)| (HOSTNAME.to_owned(), name));
            labels.extend(names);
        }
        labels.extend(pod.node_name.as_ref().map(|name| (HOSTNAME.to_owned(), name.to_string())));
        self.selected.insert(labels);
        for (resource, amount) in &pod.requests {
            let most = self.requests.entry(resource.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }

    /// Returns the resources of a node besides those that it has without limit, and its GPUs: of other GPUs as many as of these, of
    /// everything else as much as one pod for each GPU requests.
    fn resources(&self, gpus: u32) -> Vec<(String, String)> {
        let others = self.requests.iter().filter(|(name, _)| !UNLIMITED.contains(&&***name) && &***name != GPU);
        let amount = |(name, most): (&Text, &u64)| {
            let amount = if apis::template::is_gpu(name) {
                u64::from(gpus)
            } else {
                most.div_ceil(1000).saturating_mul(u64::from(gpus.max(1)))
            };
            (name.to_string(), amount.to_string())
        };
        others.map(amount).collect()
    }
}

/// Returns a label that meets a requirement; `None` where a node without the label does.
fn label_of(requirement: &LabelRequirement) -> Option<(String, String)> {
    let first = requirement.values.first().map(ToString::to_string);
    let number = || first.as_deref().and_then(|text| text.parse::<i64>().ok());
    let value = match requirement.operator {
        LabelOperator::In => first,
        LabelOperator::Exists => Some("true".to_owned()),
        LabelOperator::Gt => number().map(|number| number.saturating_add(1).to_string()),
        LabelOperator::Lt => number().map(|number| number.saturating_sub(1).to_string()),
        LabelOperator::NotIn | LabelOperator::DoesNotExist => None,
    };
    Some((requirement.key.to_string(), value?))
}

/// Returns the spec of a job, and the first pod of each of its groups.
fn rendered(registry: &Registry, object: &Value, others: &[Value]) -> Option<(SpecFact, Vec<Value>)> {
    let api = registry.get(&Resource::of(object))?;
    let text = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = JobKey {
        namespace: text(object, "/metadata/namespace").into(),
        name: text(object, "/metadata/name").into(),
        kind: Resource::of(object).kind,
        uid: Uid::from("simulated"),
    };
    let needed = api.referenced(object).into_iter().filter_map(|(kind, name)| {
        let is = |other: &&Value| {
            *text(other, "/kind") == *kind
                && *text(other, "/metadata/name") == *name
                && text(other, "/metadata/namespace") == *key.namespace
        };
        Some(((kind.clone(), name.clone()), Arc::new(others.iter().find(is)?.clone())))
    });
    let fact = apis::translation::spec_fact(api.as_ref(), &key, object, &needed.collect());
    let pods = apis::demand::first_pods(api.as_ref(), &key, &fact);
    Some((fact, pods))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, spec: &Value) -> Value {
        let mut pod = json!({"containers": [{"name": "aitj-c", "image": "i"}]});
        model::json::merge_patch(&mut pod, spec);
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicaSpecs": {"t": {"replicas": 1, "template": {"spec": pod}}}}})
    }

    fn nodes(objects: &[Value], labels: &[(String, String)]) -> (Vec<String>, Vec<String>) {
        let (nodes, lines) = of(&Asked { nodes: 2, gpus: 4, labels }, &Registry::all(), objects);
        let shown = |node: &NodeSpec| format!("{} {:?} {:?}", node.name, node.labels, node.resources).replace('"', "");
        (nodes.iter().map(shown).collect(), lines)
    }

    #[test]
    fn nodes_have_the_labels_that_pods_select() {
        let selects = |name: &str, selector: Value| job(name, &json!({"nodeSelector": selector}));
        let gpus = "{nvidia.com/gpu: 4}";
        assert_eq!(
            nodes(&[job("a", &json!({}))], &[]),
            (vec![format!("n1 {{}} {gpus}"), format!("n2 {{}} {gpus}")], vec![])
        );
        let agreeing =
            [selects("a", json!({"class": "H100"})), selects("b", json!({"zone": "z"})), job("c", &json!({}))];
        let (found, lines) = nodes(&agreeing, &[]);
        assert_eq!(found, ["n1", "n2"].map(|name| format!("{name} {{class: H100, zone: z}} {gpus}")));
        let line =
            "nodes have the labels that the manifests select: 2 with class=H100, zone=z; --node-label sets others";
        assert_eq!(lines, [line]);
        let given = [("class".to_owned(), "A100".to_owned())];
        let (found, lines) = nodes(&agreeing, &given);
        assert_eq!(
            (found, lines),
            (["n1", "n2"].map(|name| format!("{name} {{class: A100}} {gpus}")).to_vec(), vec![])
        );
    }

    #[test]
    fn selections_that_exclude_each_other_get_nodes_of_their_own() {
        let objects = [
            job("a", &json!({"nodeSelector": {"class": "H100"}})),
            job("b", &json!({"nodeSelector": {"class": "A100"}})),
            job("c", &json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}})),
        ];
        let (found, lines) = nodes(&objects, &[]);
        let named: Vec<&str> = found.iter().filter_map(|node| node.split(" {nvidia").next()).collect();
        let want = [
            "n2 {class: A100}",
            "n3 {class: A100}",
            "n4 {class: H100}",
            "n5 {class: H100}",
            "n1 {kubernetes.io/hostname: n1}",
        ];
        assert_eq!(named, want);
        assert!(
            lines.concat().contains("2 with class=A100; 2 with class=H100; 1 with kubernetes.io/hostname=n1"),
            "{lines:?}"
        );
    }

    #[test]
    fn affinity_counts_as_well() {
        let expression =
            |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let term = json!({"matchExpressions": [expression("a", "In", &["x", "y"]), expression("b", "Exists", &[]),
            expression("c", "Gt", &["7"]), expression("d", "NotIn", &["z"])]});
        let affinity = json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}});
        let (found, _) = nodes(&[job("a", &affinity)], &[]);
        assert_eq!(found[0], "n1 {a: x, b: true, c: 8} {nvidia.com/gpu: 4}");
    }

    #[test]
    fn nodes_have_the_resources_that_pods_request() {
        let limits = json!({"cpu": "64", "memory": "512Gi", "rdma/hca": "2", "amd.com/gpu": "1"});
        let container = json!({"name": "aitj-c", "image": "i", "resources": {"limits": limits}});
        let (found, lines) = nodes(&[job("a", &json!({"containers": [container]}))], &[]);
        assert_eq!(found[0], "n1 {} {amd.com/gpu: 4, nvidia.com/gpu: 4, rdma/hca: 8}");
        assert_eq!(lines, ["each node has 4 amd.com/gpu, 8 rdma/hca, as the manifests ask for them"]);
    }

    #[test]
    fn a_label_is_one_that_a_node_can_have() {
        let read = |text| label(text).map_err(|error| error.to_string());
        assert_eq!(read("example.com/class=H100"), Ok(("example.com/class".to_owned(), "H100".to_owned())));
        assert_eq!(read("class"), Err("class: write KEY=VALUE".to_owned()));
        assert_eq!(read("a b=c"), Err("a b=c: a node cannot have this label".to_owned()));
    }
}
