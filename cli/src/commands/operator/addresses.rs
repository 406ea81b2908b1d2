//! Addresses that `trainyard operator` listens on, as flags name them: its own, and those of the original operators.
//!
//! It must not bind. Tests: `tests.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use terminal::out::Failure;

/// Port of the log.
pub(super) const LOG_PORT: u16 = 8443;

/// Returns any address of the pod this runs in, or of this machine.
const fn any(pod: Option<IpAddr>) -> IpAddr {
    match pod {
        None | Some(IpAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Some(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The address of the pod this runs in, from its manifest (`POD_IP`).
pub(super) fn pod_address() -> Result<Option<IpAddr>, Failure> {
    let Some(text) = std::env::var("POD_IP").ok().filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Failure::new(format!("POD_IP: {text:?} is not an address")))
}

/// An address to listen on: in a pod any of its own, elsewhere this machine's alone.
pub(super) fn address(
    name: &str,
    text: Option<&String>,
    pod: Option<IpAddr>,
    port: u16,
) -> Result<Option<SocketAddr>, Failure> {
    let usual = pod.map_or_else(|| IpAddr::from(Ipv4Addr::LOCALHOST), |_| any(pod));
    match text.map(String::as_str) {
        None => Ok(Some(SocketAddr::new(usual, port))),
        Some("none" | "") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            Failure::new(format!("{name}: {text:?} is neither an address such as 0.0.0.0:{port} nor `none`"))
        }),
    }
}

/// Reads an address as the original operators do: without a host it is any of this machine's, a port alone is enough, and `0` is none.
pub(super) fn original_address(name: &str, text: &str, pod: Option<IpAddr>) -> Result<Option<SocketAddr>, Failure> {
    if text == "0" || text.is_empty() {
        return Ok(None);
    }
    let host_and_port = text.rsplit_once(':').unwrap_or(("", text));
    let read = match host_and_port {
        ("", port) => port.parse().ok().map(|port: u16| SocketAddr::new(any(pod), port)),
        ("localhost", port) => port.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        _ => text.parse().ok(),
    };
    read.map(Some).ok_or_else(|| {
        Failure::new(format!("{name}: {text:?} is neither an address such as :8080, nor a port, nor 0 for none"))
    })
}
