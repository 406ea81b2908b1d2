//! Rules for the ports of containers.

use serde_json::Value;

use super::Judge::{Needed, Number, Other, Text};
use super::{Faults, Place, Rule, rule};
use crate::names::{NOT_PORT_NAME, is_port_name};
use crate::objects::list_at;

/// Highest port.
pub(super) const PORT_MAX: i64 = 65_535;
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("port-number", &["spec.container[].ports[].containerPort"], Number(1, PORT_MAX)),
    rule("port-number-missing", &["spec.container[].ports[].containerPort"], Needed("a port needs a number")),
    rule("port-name", &["spec.container[].ports[].name"], Text(is_port_name, NOT_PORT_NAME)),
    rule("port-name-twice", &["spec.container[].ports[].name"], Other(name_twice)),
    rule("port-protocol", &["spec.container[].ports[].protocol"], Other(protocol)),
    rule("host-port", &["spec.container[].ports[].hostPort"], Number(0, PORT_MAX)),
    rule("host-port-of-host-network", &["spec.containers[].ports[].hostPort"], Other(on_host_network)),
    rule("host-port-twice", &["spec.containers[].ports[].hostPort"], Other(host_port_twice)),
];

fn name_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_repeated(place.siblings()) {
        faults.error(place, "is the name of another port of this container");
    }
}

/// No version of Kubernetes has another one.
fn protocol(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let Some(text) = place.text().filter(|text| !PROTOCOLS.contains(text)) else { return };
    let near = PROTOCOLS.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| (*word).to_owned());
    faults.error_with(place, format!("must be one of {}", PROTOCOLS.join(", ")), near);
}

fn on_host_network(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let is_on_host = place.spec().get("hostNetwork") == Some(&Value::Bool(true));
    if is_on_host && !place.is_empty() && place.value != place.beside("containerPort") {
        faults.error(place, "must equal containerPort, as the pod is on the network of its node");
    }
}

fn host_port_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_empty() {
        return;
    }
    let text = |port: &Value, key: &str, default: &str| {
        let text = port.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.unwrap_or(default).to_owned()
    };
    let taken = |port: &Value| (port.get("hostPort").cloned(), text(port, "protocol", "TCP"), text(port, "hostIP", ""));
    let own = place.around();
    let containers = list_at(place.spec(), &["containers"]).iter();
    let mut earlier =
        containers.flat_map(|each| list_at(each, &["ports"])).take_while(|port| !std::ptr::eq(*port, own));
    if earlier.any(|port| taken(port) == taken(own)) {
        faults.error(place, "is taken by another port of this pod");
    }
}
