//! The environment in which the pods of a job find each other.
//!
//! Every pod gets the same text about all groups. [`PeerEnv`] holds it, so that rendering a job's pods formats it once and
//! not once per pod. Tests: `tests/pods.rs`.

use std::fmt::Write as _;

use model::{FieldError, JobKey, JobSpec, Text};
use serde_json::{Value, json};

use super::template::{Port, group_ports};
use crate::replicas::{slot_name, template_of};

/// Environment variables that are the same for every pod of a job.
///
/// They depend on nothing but the job, its spec and its manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerEnv {
    vars: Vec<Value>,
}

impl PeerEnv {
    /// Formats the environment of a job's pods: one block per group, in spec order.
    ///
    /// # Errors
    /// Returns an error if the manifest lacks the template of a group.
    pub fn new(job: &JobKey, spec: &JobSpec, manifest: &Value) -> Result<Self, FieldError> {
        let mut vars = Vec::with_capacity(spec.groups.len().saturating_mul(6));
        for group in &spec.groups {
            let template = template_of(manifest, group)?;
            let ports = group_ports(template);
            let lists = lists(job, &group.name, group.replicas, &ports);
            let hosts = u64::from(group.replicas).saturating_mul(u64::try_from(ports.len()).unwrap_or(u64::MAX));
            let prefix = group.display().to_uppercase();
            vars.push(var(&format!("{prefix}_INSTANCES"), &lists.instances));
            vars.push(var(&format!("{prefix}_INSTANCES_NUM"), &group.replicas.to_string()));
            vars.push(var(&format!("{prefix}_PORTS"), &numbers(&ports)));
            vars.push(var(&format!("{prefix}_PORTS_NUM"), &ports.len().to_string()));
            vars.push(var(&format!("{prefix}_HOSTS"), &lists.hosts));
            vars.push(var(&format!("{prefix}_HOSTS_NUM"), &hosts.to_string()));
        }
        Ok(Self { vars })
    }

    /// Returns the entries, as they stand in a container's `env`.
    pub fn vars(&self) -> &[Value] {
        &self.vars
    }
}

/// Returns one entry of a container's `env`.
pub(super) fn var(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

/// Joins port numbers with commas.
pub(super) fn numbers(ports: &[Port<'_>]) -> String {
    ports.iter().map(|port| port.number.to_string()).collect::<Vec<_>>().join(",")
}

struct Lists {
    instances: String,
    hosts: String,
}

fn lists(job: &JobKey, group: &Text, replicas: u32, ports: &[Port<'_>]) -> Lists {
    let mut lists = Lists { instances: String::new(), hosts: String::new() };
    for index in 0..replicas {
        let host = format!("{}.{}", slot_name(&job.name, group, index), job.namespace);
        append(&mut lists.instances, &host);
        for port in ports {
            append(&mut lists.hosts, &host);
            // Writing to a string cannot fail.
            let _ = write!(lists.hosts, ":{}", port.number);
        }
    }
    lists
}

fn append(list: &mut String, item: &str) {
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(item);
}

/// Returns the length in bytes of the longest entry about one group, name and closing zero included, without building it.
/// The entry holds the group's hosts, or without ports its instances.
pub(super) fn peer_text_bytes(job: &str, group: &str, namespace_len: usize, replicas: u32, ports: &[Port<'_>]) -> u64 {
    let len = |text: usize| u64::try_from(text).unwrap_or(u64::MAX);
    let digits: u64 = (0..6_u32)
        .map(|power| u64::from(replicas).saturating_sub(if power == 0 { 0 } else { 10_u64.saturating_pow(power) }))
        .sum();
    // `<job>-<group>-<index>.<namespace>` and a comma each.
    let fixed = len(job.len()).saturating_add(len(group.len())).saturating_add(len(namespace_len)).saturating_add(4);
    let instances = u64::from(replicas).saturating_mul(fixed).saturating_add(digits);
    let name = len(group.len()).saturating_add(len("_INSTANCES=".len()));
    let hosts: u64 = ports
        .iter()
        .map(|port| {
            let suffix = len(port.number.to_string().len()).saturating_add(1);
            instances.saturating_add(u64::from(replicas).saturating_mul(suffix))
        })
        .fold(0, u64::saturating_add);
    name.saturating_add(instances.max(hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_the_length_of_the_text() {
        let job = JobKey { namespace: "space".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: "u".into() };
        let port = |number| Port { number, protocol: "TCP" };
        for (replicas, ports) in
            [(0, vec![]), (1, vec![]), (10, vec![]), (12, vec![port(80)]), (1234, vec![port(80), port(65_535)])]
        {
            let lists = lists(&job, &"trainer".into(), replicas, &ports);
            let (name, text) = if ports.is_empty() {
                ("TRAINER_INSTANCES=", lists.instances)
            } else {
                ("TRAINER_HOSTS=", lists.hosts)
            };
            // The estimate has one comma too many, which stands for the closing zero, and the longer of the two names.
            let exact = name.len() + text.len() + usize::from(replicas > 0);
            let estimate = usize::try_from(peer_text_bytes("j", "trainer", 5, replicas, &ports)).unwrap();
            assert!((exact..=exact + "INSTANCES".len()).contains(&estimate), "{replicas}: {exact} {estimate}");
        }
    }
}
