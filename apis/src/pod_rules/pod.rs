//! Rules for the pod as a whole: its names, its network, its time limits. Restart policies are the APIs' to set.

use serde_json::Value;

use super::Judge::{Needed, Number, Other, Text, Word};
use super::{Faults, Place, Rule, rule};
use crate::names::{
    NOT_DNS_LABEL, NOT_DNS_SUBDOMAIN, NOT_LABEL_KEY, is_dns_label, is_dns_subdomain, is_ip, is_label_key,
};
use crate::objects::list_at;

const ADDRESS: &str = "must be an address, such as 10.9.8.7 or 2001:db8::1";
/// Most name servers of a pod.
const NAME_SERVERS_MAX: usize = 3;

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("grace-period", &["spec.terminationGracePeriodSeconds"], Other(grace_period)),
    rule("active-deadline", &["spec.activeDeadlineSeconds"], Number(1, i32::MAX as i64)),
    rule("hostname", &["spec.hostname"], Text(is_dns_label, NOT_DNS_LABEL)),
    rule("subdomain", &["spec.subdomain"], Text(is_dns_label, NOT_DNS_LABEL)),
    rule("service-account", &["spec.serviceAccountName"], Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN)),
    rule("priority-class", &["spec.priorityClassName"], Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN)),
    rule("runtime-class", &["spec.runtimeClassName"], Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN)),
    rule("node-name", &["spec.nodeName"], Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN)),
    rule("dns-policy", &["spec.dnsPolicy"], Word(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    rule("dns-policy-none", &["spec.dnsPolicy"], Other(without_name_servers)),
    rule("name-servers", &["spec.dnsConfig.nameservers"], Other(name_servers)),
    rule("name-server", &["spec.dnsConfig.nameservers[]"], Text(is_ip, ADDRESS)),
    rule("dns-option", &["spec.dnsConfig.options[].name"], Needed("an option needs a name")),
    rule("host-alias-ip-missing", &["spec.hostAliases[].ip"], Needed(ADDRESS)),
    rule("host-alias-ip", &["spec.hostAliases[].ip"], Text(is_ip, ADDRESS)),
    rule("host-alias-name", &["spec.hostAliases[].hostnames[]"], Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN)),
    rule("preemption-policy", &["spec.preemptionPolicy"], Word(&["Never", "PreemptLowerPriority"])),
    rule("os-name", &["spec.os.name"], Word(&["linux", "windows"])),
    rule("readiness-gate-missing", &["spec.readinessGates[].conditionType"], Needed("must name a condition")),
    rule("readiness-gate", &["spec.readinessGates[].conditionType"], Text(is_label_key, NOT_LABEL_KEY)),
    rule("scheduling-gate-missing", &["spec.schedulingGates[].name"], Needed("a gate needs a name")),
    rule("scheduling-gate", &["spec.schedulingGates[].name"], Text(is_label_key, NOT_LABEL_KEY)),
    rule("scheduling-gate-twice", &["spec.schedulingGates[].name"], Other(gate_twice)),
    rule("shared-processes", &["spec.shareProcessNamespace"], Other(shared_processes)),
];

fn grace_period(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.value.as_i64().is_some_and(|seconds| seconds < 0) {
        faults.mistake(place, "must be at least 0; API servers take a negative one as 1");
    }
}

fn without_name_servers(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.value == "None" && list_at(place.around(), &["dnsConfig", "nameservers"]).is_empty() {
        faults.error(place, "None needs name servers in dnsConfig.nameservers");
    }
}

fn name_servers(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.value.as_array().is_some_and(|servers| servers.len() > NAME_SERVERS_MAX) {
        faults.error(place, format!("must be at most {NAME_SERVERS_MAX}"));
    }
}

fn gate_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_repeated(place.siblings()) {
        faults.error(place, "is the name of another gate of this pod");
    }
}

fn shared_processes(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.value == &Value::Bool(true) && place.beside("hostPID") == &Value::Bool(true) {
        faults.error(place, "must not be true where hostPID is");
    }
}
