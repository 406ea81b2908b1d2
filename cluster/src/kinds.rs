//! The types of objects that are served: the built-in ones and every registered `CustomResourceDefinition`.
//!
//! Owns what is particular to a type: scope, status subresource, schema, which watch delivers it. It must not hold objects.
//! Tests: `tests/cluster/schema.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::Resource;
use model::Text;
use serde_json::Value;

use crate::error::DefinitionError;
use crate::merge::{at, items, text};
use crate::schema::Schema;

/// Number of a served kind; the built-in ones have fixed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindId(u16);

impl KindId {
    pub(crate) const POD: Self = Self(0);
    pub(crate) const SERVICE: Self = Self(1);
    pub(crate) const NODE: Self = Self(2);
    pub(crate) const EVENT: Self = Self(3);
    pub(crate) const NAMESPACE: Self = Self(4);
    pub(crate) const CLAIM: Self = Self(8);
}

/// A served kind.
#[derive(Debug, Clone)]
pub(crate) struct ServedKind {
    pub(crate) id: KindId,
    pub(crate) name: Text,
    /// API group; empty for the core group.
    pub(crate) group: Text,
    pub(crate) plural: Text,
    pub(crate) namespaced: bool,
    /// Watch that delivers its objects.
    pub(crate) watch: Option<model::Kind>,
    /// True if its objects count changes of their spec.
    pub(crate) generation: bool,
}

impl ServedKind {
    /// `pods`, `aitrainingjobs.elasticdeeplearning.ai`: how errors call the kind.
    pub(crate) fn qualified_plural(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Pod`, `AITrainingJob.elasticdeeplearning.ai`: how validation errors call the kind.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.name.to_string() } else { format!("{}.{}", self.name, self.group) }
    }
}

/// One served version of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) kind: Arc<ServedKind>,
    /// True if `status` is a subresource: main writes leave it alone.
    pub(crate) status: bool,
    /// Path of the member that the subresource `scale` sets; absent where there is no such subresource.
    pub(crate) replicas: Option<Arc<[Text]>>,
    pub(crate) schema: Option<Arc<Schema>>,
}

/// Every served kind.
#[derive(Debug, Clone)]
pub(crate) struct Kinds {
    by_id: Vec<Arc<ServedKind>>,
    by_resource: BTreeMap<Resource, Served>,
    /// The registered definitions, by kind and group, so that they can be saved.
    definitions: BTreeMap<(Text, Text), Arc<Value>>,
}

struct Builtin {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    status: bool,
    watch: Option<model::Kind>,
    generation: bool,
}

const fn plain(api_version: &'static str, kind: &'static str, plural: &'static str) -> Builtin {
    Builtin { api_version, kind, plural, namespaced: true, status: false, watch: None, generation: false }
}

/// In the order of the constants of [`KindId`].
const BUILTIN: &[Builtin] = &[
    Builtin { status: true, watch: Some(model::Kind::Pod), generation: true, ..plain("v1", "Pod", "pods") },
    Builtin { status: true, watch: Some(model::Kind::Service), ..plain("v1", "Service", "services") },
    Builtin { namespaced: false, status: true, watch: Some(model::Kind::Node), ..plain("v1", "Node", "nodes") },
    plain("v1", "Event", "events"),
    Builtin {
        namespaced: false,
        status: true,
        watch: Some(model::Kind::Namespace),
        ..plain("v1", "Namespace", "namespaces")
    },
    plain("v1", "ConfigMap", "configmaps"),
    plain("v1", "Secret", "secrets"),
    plain("v1", "ServiceAccount", "serviceaccounts"),
    Builtin {
        status: true,
        watch: Some(model::Kind::Owned),
        ..plain("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    },
    Builtin { namespaced: false, status: true, ..plain("v1", "PersistentVolume", "persistentvolumes") },
    plain("coordination.k8s.io/v1", "Lease", "leases"),
    Builtin {
        namespaced: false,
        watch: Some(model::Kind::Class),
        ..plain("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
    },
    Builtin { status: true, watch: Some(model::Kind::Quota), ..plain("v1", "ResourceQuota", "resourcequotas") },
    Builtin { namespaced: false, ..plain("storage.k8s.io/v1", "StorageClass", "storageclasses") },
    Builtin { generation: true, status: true, ..plain("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets") },
];

/// Returns the path that the subresource `scale` of a version sets, such as `.spec.replicas`.
fn replicas_path(version: &Value, path: &str) -> Result<Option<Arc<[Text]>>, DefinitionError> {
    if at(version, &["subresources", "scale"]).is_none_or(Value::is_null) {
        return Ok(None);
    }
    let written = text(version, &["subresources", "scale", "specReplicasPath"]);
    let members: Vec<Text> = written.split('.').skip(1).map(Text::from).collect();
    let starts_right = written.starts_with(".spec.") && !written.contains(['[', '\'', '"']);
    if !starts_right || members.iter().any(|member| member.is_empty()) {
        return Err(DefinitionError::at(path, "must be a JSON path under .spec, without array notation"));
    }
    Ok(Some(members.into()))
}

/// The group of an API version: `apps` of `apps/v1`, nothing of `v1`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Default for Kinds {
    fn default() -> Self {
        let mut kinds = Self { by_id: Vec::new(), by_resource: BTreeMap::new(), definitions: BTreeMap::new() };
        for builtin in BUILTIN {
            let kind = kinds.add(ServedKind {
                id: KindId(0),
                name: Text::from(builtin.kind),
                group: Text::from(group_of(builtin.api_version)),
                plural: Text::from(builtin.plural),
                namespaced: builtin.namespaced,
                watch: builtin.watch,
                generation: builtin.generation,
            });
            let served = Served { kind, status: builtin.status, replicas: None, schema: None };
            kinds.by_resource.insert(Resource::new(builtin.api_version, builtin.kind), served);
        }
        kinds
    }
}

impl Kinds {
    /// Adds a kind, or replaces the one of the same name and group, and gives it its number.
    fn add(&mut self, mut kind: ServedKind) -> Arc<ServedKind> {
        let place = self.by_id.iter().position(|k| k.name == kind.name && k.group == kind.group);
        kind.id = KindId(u16::try_from(place.unwrap_or(self.by_id.len())).unwrap_or(u16::MAX));
        let kind = Arc::new(kind);
        match place.and_then(|n| self.by_id.get_mut(n)) {
            Some(slot) => *slot = Arc::clone(&kind),
            None => self.by_id.push(Arc::clone(&kind)),
        }
        kind
    }

    /// Serves what a `CustomResourceDefinition` describes; registering it again replaces it.
    pub(crate) fn register(&mut self, crd: &Value) -> Result<(), DefinitionError> {
        let needed = |path: &[&str]| match text(crd, path) {
            "" => Err(DefinitionError::at(path.join("."), "a name is required")),
            name => Ok(Text::from(name)),
        };
        let (group, name) = (needed(&["spec", "group"])?, needed(&["spec", "names", "kind"])?);
        let plural = needed(&["spec", "names", "plural"])?;
        let namespaced = match text(crd, &["spec", "scope"]) {
            "Namespaced" => true,
            "Cluster" => false,
            other => {
                let problem = format!("must be \"Namespaced\" or \"Cluster\", not {other:?}");
                return Err(DefinitionError::at("spec.scope", problem));
            }
        };
        if self.by_id.iter().take(BUILTIN.len()).any(|k| k.group == group && k.name == name) {
            return Err(DefinitionError::at("spec.names.kind", format!("{name} of group {group} is built in")));
        }
        let mut versions = Vec::new();
        for (n, version) in items(crd, &["spec", "versions"]).iter().enumerate() {
            let path = format!("spec.versions[{n}]");
            let version_name = text(version, &["name"]);
            if version_name.is_empty() {
                return Err(DefinitionError::at(format!("{path}.name"), "a name is required"));
            }
            if version.get("served").and_then(Value::as_bool) != Some(true) {
                continue;
            }
            let Some(schema) = at(version, &["schema", "openAPIV3Schema"]) else {
                return Err(DefinitionError::at(format!("{path}.schema.openAPIV3Schema"), "schemas are required"));
            };
            let schema = Schema::compile(schema, &format!("{path}.schema.openAPIV3Schema"))?;
            let status = at(version, &["subresources", "status"]).is_some_and(|v| !v.is_null());
            let replicas = replicas_path(version, &format!("{path}.subresources.scale.specReplicasPath"))?;
            let resource = Resource::new(&format!("{group}/{version_name}"), &name);
            versions.push((resource, status, replicas, Arc::new(schema)));
        }
        if versions.is_empty() {
            return Err(DefinitionError::at("spec.versions", "no version is served"));
        }
        let watch = Some(model::Kind::Job);
        let key = (name.clone(), group.clone());
        let kind = self.add(ServedKind { id: KindId(0), name, group, plural, namespaced, watch, generation: true });
        self.by_resource.retain(|_, served| served.kind.id != kind.id);
        for (resource, status, replicas, schema) in versions {
            let served = Served { kind: Arc::clone(&kind), status, replicas, schema: Some(schema) };
            self.by_resource.insert(resource, served);
        }
        self.definitions.insert(key, Arc::new(crd.clone()));
        Ok(())
    }

    /// The served version of a type of object.
    pub(crate) fn served(&self, resource: &Resource) -> Option<&Served> {
        self.by_resource.get(resource)
    }

    /// The kind of a number.
    pub(crate) fn get(&self, id: KindId) -> Option<&Arc<ServedKind>> {
        self.by_id.get(usize::from(id.0))
    }

    /// The kind of that name and API group, if objects of it can exist here.
    pub(crate) fn find(&self, group: &str, name: &str) -> Option<&Arc<ServedKind>> {
        self.by_id.iter().find(|k| &*k.group == group && &*k.name == name)
    }

    /// A served type of object of that kind name; built-in ones first.
    pub(crate) fn resource_named(&self, name: &str) -> Option<&Resource> {
        let named = self.by_resource.iter().filter(|(resource, _)| &*resource.kind == name);
        named.min_by_key(|(_, served)| served.kind.id).map(|(resource, _)| resource)
    }

    /// Every kind.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ServedKind>> {
        self.by_id.iter()
    }

    /// The registered definitions.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.definitions.values()
    }
}
