//! Demand of a job for GPUs: the label that names its queue, its priority, and the GPUs of its pods, the same for every API.
//!
//! Owns where each of these is read. It must not decide whether a job is held back: `engine::queues` does. Tests: at the end of
//! this file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_model::resources::{pod_requests, requested};
use model::{
    Demand, FieldError, GpuRequest, GroupSpec, Incarnation, JobKey, LabelRequirement, LabelSelector, PodHolding,
    PodRequirements, SlotId, SpecFact, Text, Timestamp,
};
use serde_json::{Map, Value, json};

use crate::api::{JobApi, PodSlot, RenderInput};
use crate::foreign::PodAmounts;
use crate::kueue;
use crate::node::HARDWARE_LABELS;
use crate::objects::{annotation, at, label, list_at, text_at};
use crate::progress;
use crate::template::is_gpu;

/// Label of a job that names its queue.
pub const QUEUE: &str = "trainyard.dev/queue";

/// Label of a job that names its priority: a whole number, higher first. Without it the priority is that of the spec, where its API has
/// one, or that of the PriorityClasses of its pods.
pub const PRIORITY: &str = "trainyard.dev/priority";

/// Label of a job that names its category: jobs of one category in one namespace and queue learn their speeds from each other. Without
/// it the name of the job does.
pub const CATEGORY: &str = "trainyard.dev/category";

/// Adds the demand of a job to its translated spec, if its pods request GPUs.
pub(crate) fn add(api: &dyn JobApi, key: &JobKey, object: &Value, fact: &mut SpecFact) {
    let Ok(spec) = &fact.spec else { return };
    let manifest: Value = serde_json::from_str(&fact.manifest).unwrap_or_default();
    let input = RenderInput { job: key, spec, manifest: &manifest };
    let pods: Vec<Option<Value>> =
        spec.groups.iter().map(|group| if group.gpus { first_pod(api, input, group) } else { None }).collect();
    let requests: Vec<Option<GpuRequest>> = pods.iter().map(|pod| request(at(pod.as_ref()?, &["spec"])?)).collect();
    let asks = requests.iter().any(Option::is_some);
    let (priority, problem) = priority(object, api.scheduling().and_then(|scheduling| scheduling.priority(object)));
    let classes = if asks && priority.is_none() { classes(api, input, &pods) } else { BTreeSet::new() };
    let demand = asks.then(|| Demand {
        queue: queue(object),
        priority,
        classes,
        submitted: created(object),
        category: label(object, CATEGORY).filter(|name| !name.is_empty()).map(Text::from),
        units: api.scheduling().and_then(|scheduling| scheduling.units(object)),
        level: api.scheduling().map_or(0, |scheduling| scheduling.level(object)),
    });
    let requirements: Vec<Option<Arc<PodRequirements>>> = (pods.iter().zip(&requests))
        .map(|(pod, request)| Some(Arc::new(requirements(at(pod.as_ref()?, &["spec"])?, request.as_ref()))))
        .collect();
    let Ok(spec) = &mut fact.spec else { return };
    for (group, (request, requirements)) in spec.groups.iter_mut().zip(requests.into_iter().zip(requirements)) {
        group.requirements = requirements.filter(|_| request.is_some());
        group.gpu_request = request;
    }
    if demand.as_ref().is_some_and(|demand| demand.queue.is_some()) {
        // A queue of ours takes the place of the coordinator's.
        spec.coordination = None;
    }
    spec.demand = demand;
    // The root queue gives a job what it asks for, or nothing.
    let is_sized = spec.externally_managed || spec.demand.as_ref().is_some_and(|demand| demand.queue.is_some());
    for group in spec.groups.iter_mut().filter(|group| !is_sized || group.gpu_request.is_none()) {
        group.sizes = None;
    }
    fact.warnings.extend(problem.into_iter().chain(progress::problem(object)).filter(|_| asks));
}

/// Returns the PriorityClasses that the pods of a job name, with an empty name for pods that name none; nothing where none names any.
/// `pods`: the first pod of each group, as far as they were rendered.
fn classes(api: &dyn JobApi, input: RenderInput<'_>, pods: &[Option<Value>]) -> BTreeSet<Text> {
    let rendered = input.spec.groups.iter().zip(pods);
    let rendered = rendered.filter_map(|(group, pod)| pod.clone().or_else(|| first_pod(api, input, group)));
    let name = |pod: Value| Text::from(text_at(&pod, &["spec", "priorityClassName"]).unwrap_or_default());
    let names: BTreeSet<Text> = rendered.map(name).collect();
    if names.iter().all(|name| name.is_empty()) { BTreeSet::new() } else { names }
}

/// Returns the first pod of each group of a job, as far as it can be rendered; none of a spec that is refused.
pub fn first_pods(api: &dyn JobApi, key: &JobKey, fact: &SpecFact) -> Vec<Value> {
    let Ok(spec) = &fact.spec else { return Vec::new() };
    let manifest: Value = serde_json::from_str(&fact.manifest).unwrap_or_default();
    let input = RenderInput { job: key, spec, manifest: &manifest };
    spec.groups.iter().filter_map(|group| first_pod(api, input, group)).collect()
}

/// Returns a group's first pod as it is rendered; `None` when it cannot be.
pub(crate) fn first_pod(api: &dyn JobApi, input: RenderInput<'_>, group: &GroupSpec) -> Option<Value> {
    let slot = SlotId { group: group.name.clone(), index: 0 };
    let first = PodSlot { slot: &slot, group, incarnation: Incarnation::default(), count: 0 };
    api.pods()?.render(input, &[first]).into_iter().next()?.ok()
}

/// Returns what the demand of a job depends on besides its spec.
pub fn inputs(object: &Value) -> Value {
    let labels = [QUEUE, PRIORITY, CATEGORY, kueue::QUEUE_NAME, kueue::PRIORITY_CLASS].map(|key| label(object, key));
    let unread = progress::problem(object).and_then(|_| annotation(object, progress::PROGRESS));
    json!([labels, unread])
}

/// Returns the queue that an object's labels name.
fn queue(object: &Value) -> Option<Text> {
    label(object, QUEUE).filter(|name| !name.is_empty()).map(Text::from)
}

/// Returns the priority that an object's labels name, or that of its spec without one, and what is wrong with it.
pub(crate) fn priority(object: &Value, of_spec: Option<i32>) -> (Option<i32>, Option<FieldError>) {
    let Some(named) = label(object, PRIORITY) else { return (of_spec, None) };
    if let Ok(priority) = named.parse() {
        return (Some(priority), None);
    }
    let path = format!("metadata.labels.{PRIORITY}");
    let problem = FieldError::new(path, format!("{named:?}"), "must be a whole number; it counts as 0");
    (Some(0), Some(problem))
}

/// Returns the creation time of an object.
pub(crate) fn created(object: &Value) -> Timestamp {
    let text = text_at(object, &["metadata", "creationTimestamp"]);
    text.and_then(Timestamp::parse_rfc3339).unwrap_or_default()
}

/// Returns the GPUs that a pod requests of the first resource that it names. A pod that requests several kinds counts with the first.
fn request(spec: &Value) -> Option<GpuRequest> {
    let requests = requests(spec);
    let containers = ["containers", "initContainers"].into_iter().flat_map(|key| list_at(spec, &[key]));
    let mut named = containers.chain([spec]).flat_map(requested).map(|(name, _)| Text::from(name));
    let resource = named.find(|name| requests.contains_key(name))?;
    let count = requests.get(&resource).copied()?;
    Some(GpuRequest { resource, count })
}

/// Returns what a pod holds, by its labels and its spec; `None` of one that requests no GPUs.
pub(crate) fn holding(pod: &Value) -> Option<PodHolding> {
    let gpus = at(pod, &["spec"]).map(requests).filter(|gpus| !gpus.is_empty())?;
    Some(PodHolding { queue: queue(pod), gpus })
}

/// Returns the GPUs that a pod requests, by resource, rounded up to whole ones; none of which it requests 0.
pub(crate) fn requests(spec: &Value) -> BTreeMap<Text, u32> {
    let gpus = pod_requests(spec).into_iter().filter(|(name, amount)| is_gpu(name) && *amount > 0);
    let whole = |amount: i128| u32::try_from(amount.saturating_add(999).div_euclid(1000)).unwrap_or(u32::MAX);
    gpus.map(|(name, amount)| (Text::from(name), whole(amount))).collect()
}

/// Returns what a pod holds of its node.
pub(crate) fn amounts(spec: &Value) -> PodAmounts {
    let mut requests = kube_model::requirements(spec).requests;
    requests.retain(|resource, _| !is_gpu(resource));
    PodAmounts { gpus: self::requests(spec), requests }
}

/// Returns what a pod requires of its node besides the GPUs by which queues count it.
fn requirements(spec: &Value, gpus: Option<&GpuRequest>) -> PodRequirements {
    let mut requirements = kube_model::requirements(spec);
    if let Some(gpus) = gpus {
        requirements.requests.remove(&gpus.resource);
    }
    // Labels that are not kept of nodes cannot be judged.
    requirements.node_selector.retain(|key, _| !key.starts_with(HARDWARE_LABELS));
    let mut is_open = false;
    for term in requirements.affinity.iter_mut().flatten() {
        let before = term.expressions.len();
        term.expressions.retain(|expression| !expression.key.starts_with(HARDWARE_LABELS));
        is_open |= term.expressions.len() < before && term.expressions.is_empty() && term.fields.is_empty();
    }
    requirements.affinity = requirements.affinity.filter(|_| !is_open);
    requirements
}

/// Binds a rendered pod, or a template, to nodes of its job's share. A pod of a named queue may run nowhere else, and carries the
/// queue's label. Of others the scheduler is asked to prefer the nodes for which there is room. Without nodes it may run on any that
/// the queue selects.
pub fn place(pod: &mut Value, nodes: &[&str], queue: Option<&Text>, selector: Option<&LabelSelector>) {
    let Some(members) = pod.as_object_mut() else { return };
    if let Some(metadata) = members.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
        match (queue, metadata.get_mut("labels").and_then(Value::as_object_mut)) {
            (Some(queue), Some(labels)) => drop(labels.insert(QUEUE.to_owned(), json!(&**queue))),
            (Some(queue), None) => drop(metadata.insert("labels".to_owned(), json!({QUEUE: &**queue}))),
            // Some APIs give their pods the labels of the job, which may name another queue by now.
            (None, Some(labels)) => drop(labels.remove(QUEUE)),
            (None, None) => {}
        }
    }
    let terms = terms(nodes, selector);
    if terms.is_empty() {
        return;
    }
    if queue.is_some() {
        return require(pod, terms);
    }
    let preferred = node_affinity(pod)
        .map(|rules| rules.entry("preferredDuringSchedulingIgnoredDuringExecution").or_insert_with(|| json!([])));
    if let Some(preferred) = preferred.and_then(Value::as_array_mut) {
        preferred.extend(terms.into_iter().map(|(list, rules)| json!({"weight": 100, "preference": {list: rules}})));
    }
}

/// Returns the rules of a rendered pod about its node.
fn node_affinity(pod: &mut Value) -> Option<&mut Map<String, Value>> {
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut)?;
    let affinity = spec.entry("affinity").or_insert_with(|| json!({})).as_object_mut()?;
    affinity.entry("nodeAffinity").or_insert_with(|| json!({})).as_object_mut()
}

/// Has a rendered pod run on a node that one of some terms selects: each is a list of a node selector term, and what is added to it.
pub(crate) fn require(pod: &mut Value, terms: Vec<(&'static str, Vec<Value>)>) {
    let required = node_affinity(pod)
        .map(|rules| rules.entry("requiredDuringSchedulingIgnoredDuringExecution").or_insert_with(|| json!({})));
    let Some(required) = required.and_then(Value::as_object_mut) else { return };
    let alternatives = required.entry("nodeSelectorTerms").or_insert_with(|| json!([]));
    let Some(alternatives) = alternatives.as_array_mut() else { return };
    if alternatives.is_empty() {
        alternatives.push(json!({}));
    }
    // Each alternative of the user's is there once for every term, beside what it has.
    let own = std::mem::take(alternatives);
    for (list, rules) in terms {
        alternatives.extend(own.iter().cloned().map(|mut term| {
            if let Some(members) = term.as_object_mut()
                && let Some(list) = members.entry(list).or_insert_with(|| json!([])).as_array_mut()
            {
                list.extend(rules.iter().cloned());
            }
            term
        }));
    }
}

/// Returns the alternatives for the node of a pod: the list of a node selector term, and what is added to it.
fn terms(nodes: &[&str], selector: Option<&LabelSelector>) -> Vec<(&'static str, Vec<Value>)> {
    if nodes.is_empty() {
        let selector = selector.filter(|selector| !selector.requirements.is_empty());
        let expressions = |selector: &LabelSelector| selector.requirements.iter().map(expression).collect();
        return selector.map(|selector| ("matchExpressions", expressions(selector))).into_iter().collect();
    }
    // A rule by the name of a node takes one name.
    let field = |node: &&str| vec![json!({"key": "metadata.name", "operator": "In", "values": [node]})];
    nodes.iter().map(|node| ("matchFields", field(node))).collect()
}

/// Returns a requirement on labels as a node selector has it.
fn expression(requirement: &LabelRequirement) -> Value {
    let LabelRequirement { key, operator, values } = requirement;
    let values: Vec<&str> = values.iter().map(|value| &**value).collect();
    let mut expression = json!({"key": &**key, "operator": operator.name()});
    if let Some(members) = expression.as_object_mut().filter(|_| !values.is_empty()) {
        members.insert("values".to_owned(), json!(values));
    }
    expression
}

#[cfg(test)]
mod tests {
    use model::LabelOperator;

    use super::*;

    #[test]
    fn gpus_of_containers_add_up_and_init_containers_run_before() {
        let of = |containers: Value, init: Value| {
            request(&json!({"containers": containers, "initContainers": init}))
                .map(|r| (r.resource.to_string(), r.count))
        };
        let gpus = |kind: &str, count: i64| json!({"resources": {kind: {"nvidia.com/gpu": count}}});
        let some = |count| Some(("nvidia.com/gpu".to_owned(), count));
        assert_eq!(of(json!([gpus("limits", 2), gpus("requests", 1), {}]), json!([])), some(3));
        assert_eq!(of(json!([gpus("limits", 2)]), json!([gpus("limits", 4)])), some(4));
        assert_eq!(of(json!([gpus("limits", 0)]), json!([])), None);
        assert_eq!(of(json!([{"resources": {"limits": {"cpu": 1}}}]), json!(null)), None);
    }

    #[test]
    fn a_pod_is_bound_to_its_node_beside_its_own_affinity() {
        let mut pod = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [1]}, {"matchExpressions": [2]}]}}}}});
        place(&mut pod, &["n1"], Some(&"q".into()), None);
        let terms = at(&pod, &["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
        let field = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
        assert_eq!(
            terms.unwrap()["nodeSelectorTerms"],
            json!([{"matchExpressions": [1], "matchFields": field}, {"matchExpressions": [2], "matchFields": field}])
        );
        let mut pod = json!({"spec": {}});
        place(&mut pod, &["n2"], None, None);
        let preferred = &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(preferred[0]["preference"]["matchFields"][0]["values"], json!(["n2"]));
    }

    #[test]
    fn a_pod_without_a_node_may_run_on_those_that_its_queue_selects() {
        let requirement = |key: &str, operator, values: &[&str]| {
            let values = values.iter().map(|value| Text::from(*value)).collect();
            LabelRequirement { key: key.into(), operator, values }
        };
        let requirements =
            vec![requirement("pool", LabelOperator::In, &["a"]), requirement("spot", LabelOperator::DoesNotExist, &[])];
        let selector = LabelSelector { requirements };
        let of = |selector: &LabelSelector| {
            let mut pod = json!({"spec": {}});
            place(&mut pod, &[], Some(&"q".into()), Some(selector));
            pod["spec"].take()
        };
        let terms = json!([{"matchExpressions": [
            {"key": "pool", "operator": "In", "values": ["a"]},
            {"key": "spot", "operator": "DoesNotExist"},
        ]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        assert_eq!(of(&selector), json!({"affinity": {"nodeAffinity": required}}));
        assert_eq!(of(&LabelSelector::default()), json!({}), "every node is selected");
    }
}
