//! TCP ports of this machine for the jobs that run on it. Every user's runs see each other's.
//!
//! On a cluster every pod has a network of its own, so all jobs may serve their group at one port. Here a server that listens on every
//! address, as PyTorch's store does, would meet the processes of another job. It must not know which words of a pod hold a port.
//! Tests: at the end.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;

use crate::claims::{Claim, claim};

/// Ports to choose from, the first free one first: from PyTorch's own default on, below those that the kernel gives to clients.
const PORTS: RangeInclusive<u16> = 29_500..=30_499;

/// Ports that jobs hold, each until the job is over.
#[derive(Debug, Default)]
pub struct Ports {
    /// By job and the port that the job would have on a cluster.
    held: BTreeMap<(String, u16), (u16, Claim)>,
}

impl Ports {
    /// Returns the port of this machine that stands for `written`, a port of a job on a cluster: always the same one until
    /// [`Ports::retain`] lets the job go, and no other job's. A port that it returned for the job stands for itself, and so does one
    /// that is `named` by the job's author, if it is free. `None` where all of 29500 to 30499 are in use.
    pub fn of_job(&mut self, job: &str, written: u16, named: bool) -> Option<u16> {
        let key = (job.to_owned(), written);
        if let Some((port, _)) = self.held.get(&key) {
            return Some(*port);
        }
        if self.held.iter().any(|((holder, _), (port, _))| holder == job && *port == written) {
            return Some(written);
        }
        let own = named.then_some(written);
        let (port, claim) = own.into_iter().chain(PORTS).find_map(|port| Some((port, take(port)?)))?;
        self.held.insert(key, (port, claim));
        Some(port)
    }

    /// Gives back the ports of all jobs but those that `is_running` names.
    pub fn retain(&mut self, is_running: impl Fn(&str) -> bool) {
        self.held.retain(|(job, _), _| is_running(job));
    }
}

/// Claims a port that no job has claimed and no process listens on.
fn take(port: u16) -> Option<Claim> {
    let claim = claim(&format!("port/{port}")).ok()?.ok()?;
    is_unused(port).then_some(claim)
}

/// Returns true if no process listens on the port, whatever its address.
fn is_unused(port: u16) -> bool {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::AddrInUse => false,
        // A machine without IPv6.
        Err(_) => TcpListener::bind(("0.0.0.0", port)).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_ports_of_its_own_until_it_is_over() {
        let (mut ports, mut others) = (Ports::default(), Ports::default());
        let first = ports.of_job("a", 29_500, false).unwrap();
        assert_eq!(ports.of_job("a", 29_500, false), Some(first), "kept over restarts");
        let mut all = vec![first, ports.of_job("a", 23_456, false).unwrap(), ports.of_job("b", 29_500, false).unwrap()];
        all.push(others.of_job("a", 29_500, false).unwrap());
        all.push(others.of_job("c", first, true).unwrap());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5, "{all:?}");
        let free = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        assert_eq!(others.of_job("d", free, true), Some(free));
        ports.retain(|job| job == "b");
        assert_eq!(ports.held.len(), 1);
        // What was given back can be taken by anyone, and is by the next one unless another test was faster.
        assert!(claim(&format!("port/{first}")).unwrap().is_ok() || others.of_job("e", 1, false) != Some(first));
    }

    #[test]
    fn a_port_that_a_stranger_listens_on_is_left_out() {
        for address in ["127.0.0.7", "0.0.0.0", "::1"] {
            let Ok(stranger) = TcpListener::bind((address, 0)) else { continue };
            let port = stranger.local_addr().unwrap().port();
            assert!(!is_unused(port), "{address}");
            assert!(take(port).is_none(), "{address}");
        }
    }
}
