//! Names of a scenario and their names on a server that runs several: namespaces, nodes and volumes carry a prefix there.
//!
//! Owns the translation of whole objects in both directions. Nothing else of an object is changed, and nothing that the
//! operator wrote. Tests: at the end of this file.

use apis::objects::OWNED_BY;
use model::{JobKey, Text};
use serde_json::Value;

/// Paths of members with a namespace or a node's name, by kind.
const NAMESPACES: [&str; 2] = ["/metadata/namespace", "/involvedObject/namespace"];

/// The names of one scenario.
#[derive(Debug, Clone)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// Names with this prefix, which must be a DNS label.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}-") }
    }

    /// Returns the mark of this scenario's nodes: a label without a value.
    pub fn mark(&self) -> String {
        format!("scenario-{}", self.prefix.trim_end_matches('-'))
    }

    /// The server's name.
    pub fn out(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The scenario's name; `None` for a name of another scenario.
    pub fn back<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.prefix)
    }

    /// An object as the server is to have it.
    pub fn object_out(&self, object: &Value) -> Value {
        translate(object, |name| Some(self.out(name))).unwrap_or_default()
    }

    /// An object as the scenario knows it; `None` when it belongs to another one.
    pub fn object_back(&self, object: &Value) -> Option<Value> {
        translate(object, |name| self.back(name).map(str::to_owned))
    }

    /// A job's key as the scenario knows it.
    pub fn key_back(&self, key: JobKey) -> Option<JobKey> {
        let namespace = Text::from(self.back(&key.namespace)?);
        Some(JobKey { namespace, ..key })
    }
}

fn translate(object: &Value, name: impl Fn(&str) -> Option<String>) -> Option<Value> {
    let mut object = object.clone();
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut places = NAMESPACES.to_vec();
    match &*kind {
        "Node" => places = vec!["/metadata/name", "/metadata/labels/kubernetes.io~1hostname"],
        "Pod" => places.push("/spec/nodeName"),
        "PersistentVolumeClaim" => places.push("/spec/volumeName"),
        "PersistentVolume" => places = vec!["/metadata/name"],
        _ => {}
    }
    // The namespace of the owner stands first.
    let owner = format!("/metadata/annotations/{}", OWNED_BY.replace('/', "~1"));
    places.push(&owner);
    for place in places {
        if let Some(Value::String(text)) = object.pointer_mut(place)
            && !text.is_empty()
        {
            *text = name(text)?;
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back() {
        let names = Names::new("s7");
        let pod = json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n1"}});
        let out = names.object_out(&pod);
        assert_eq!(out.pointer("/metadata/namespace"), Some(&json!("s7-default")));
        assert_eq!(out.pointer("/spec/nodeName"), Some(&json!("s7-n1")));
        assert_eq!(out.pointer("/metadata/name"), Some(&json!("p")));
        assert_eq!(names.object_back(&out), Some(pod));
        assert_eq!(Names::new("s71").object_back(&out), None);
        let owner = json!({OWNED_BY: "default/ModelVersion/v/u"});
        let volume = json!({"kind": "PersistentVolume", "metadata": {"name": "v", "annotations": owner}});
        let out = names.object_out(&volume);
        assert_eq!(out.pointer("/metadata/name"), Some(&json!("s7-v")));
        assert_eq!(
            out.pointer("/metadata/annotations/trainyard.dev~1owned-by"),
            Some(&json!("s7-default/ModelVersion/v/u"))
        );
        assert_eq!(names.object_back(&out), Some(volume));
        let node = json!({"kind": "Node", "metadata": {"name": "n1"}});
        assert_eq!(names.object_out(&node).pointer("/metadata/name"), Some(&json!("s7-n1")));
    }
}
