//! The part of a Pod object that this crate reads, typed. Unknown members are ignored: a cluster has use for them.
//!
//! Tests: through `plan`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::security::Members;
use crate::wire::RestartPolicy;

/// An explicit `null` is the same as a missing member, as for an API server.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

macro_rules! members {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[allow(clippy::struct_field_names)] // they are the wire's
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(crate) struct $name {
            $(#[serde(deserialize_with = "or_default")] pub(crate) $field: $type,)*
        }
    )*};
}

members! {
    /// A pod.
    Pod { metadata: Metadata, spec: Spec, status: Status, }
    Metadata {
        name: String,
        namespace: String,
        uid: String,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        owner_references: Vec<Owner>,
    }
    Owner { name: String, controller: bool, }
    Status { conditions: Vec<Value>, }
    Spec {
        node_name: String,
        hostname: String,
        restart_policy: RestartPolicy,
        active_deadline_seconds: Option<u64>,
        termination_grace_period_seconds: Option<u64>,
        service_account_name: String,
        security_context: Members,
        init_containers: Vec<Container>,
        containers: Vec<Container>,
        volumes: Vec<Volume>,
    }
    Container {
        name: String,
        image: String,
        command: Vec<String>,
        args: Vec<String>,
        working_dir: String,
        env: Vec<EnvVar>,
        env_from: Vec<EnvFrom>,
        security_context: Members,
        resources: Resources,
        volume_mounts: Vec<Mount>,
        restart_policy: Option<String>,
        termination_message_policy: String,
        liveness_probe: Option<Value>,
        readiness_probe: Option<Value>,
        startup_probe: Option<Value>,
        lifecycle: Option<Value>,
    }
    EnvVar { name: String, value: String, value_from: Option<EnvSource>, }
    /// Exactly one member is set.
    EnvSource {
        field_ref: Option<FieldRef>,
        resource_field_ref: Option<ResourceFieldRef>,
        config_map_key_ref: Option<KeyRef>,
        secret_key_ref: Option<KeyRef>,
    }
    FieldRef { field_path: String, }
    ResourceFieldRef { container_name: String, resource: String, divisor: Option<Value>, }
    KeyRef { name: String, key: String, optional: bool, }
    EnvFrom { prefix: String, config_map_ref: Option<NameRef>, secret_ref: Option<NameRef>, }
    NameRef { name: String, optional: bool, }
    Resources { limits: BTreeMap<String, Value>, requests: BTreeMap<String, Value>, }
    Mount { name: String, mount_path: String, sub_path: String, }
    Volume {
        name: String,
        empty_dir: Option<Value>,
        host_path: Option<HostPath>,
        config_map: Option<ConfigFiles>,
        secret: Option<SecretFiles>,
        persistent_volume_claim: Option<Claim>,
    }
    HostPath { path: String, r#type: String, }
    ConfigFiles { name: String, optional: bool, items: Vec<Item>, default_mode: Option<u32>, }
    SecretFiles { secret_name: String, optional: bool, items: Vec<Item>, default_mode: Option<u32>, }
    Item { key: String, path: String, mode: Option<u32>, }
    Claim { claim_name: String, }
}

impl Metadata {
    /// Name of the object this pod is managed by.
    pub(crate) fn controller(&self) -> Option<&str> {
        self.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.name.as_str())
    }
}

impl Resources {
    /// Returns the requested amount of a resource: the limit, or the request without one.
    pub(crate) fn asked(&self, resource: &str) -> Option<&Value> {
        self.limits.get(resource).or_else(|| self.requests.get(resource))
    }
}
