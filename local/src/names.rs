//! Names of pods and Services, and their addresses.
//!
//! There is no name server: every pod has a loopback address of its own, found by its name alone, so that the names of pods
//! that do not exist yet can be replaced too. Only names that are certain to mean a pod or Service are touched: those that
//! were seen, and those that start with the name of a seen job (`<job>-...`).
//!
//! A runner that runs every pod itself hands addresses out and sees to it that no two names share one. One of several nodes
//! cannot: all of them must come to the same address without a word between them, so there it is a function of the name.
//! `address` computes addresses; `rewrite` replaces names in texts. Tests: at the end.

mod address;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub(crate) use self::address::networks;
use self::address::{FIRST_NETWORK, HOSTS, hash, host, of_name};

/// Namespace and name.
type Name = (String, String);
type Labels = BTreeMap<String, String>;

/// Source of addresses.
#[derive(Debug)]
enum Space {
    /// The second part of every address: two runners on one machine should not share addresses.
    Runner(u8),
    /// Identifier that all nodes of this cluster share and no other cluster has.
    Cluster(String),
}

/// Addresses by name.
#[derive(Debug)]
pub(crate) struct Names {
    space: Space,
    by_name: BTreeMap<Name, Ipv4Addr>,
    taken: BTreeSet<Ipv4Addr>,
    pods: BTreeMap<Name, Labels>,
    services: BTreeMap<Name, Labels>,
    /// Names that pods are named after.
    owners: BTreeSet<Name>,
}

impl Names {
    /// Creates the names of a runner that runs every pod and has a network for itself.
    pub(crate) fn new(network: u8) -> Self {
        Self::of(Space::Runner(network))
    }

    /// Creates the names of one node among several of `cluster`.
    pub(crate) fn of_cluster(cluster: &str) -> Self {
        Self::of(Space::Cluster(cluster.to_owned()))
    }

    fn of(space: Space) -> Self {
        Self {
            space,
            by_name: BTreeMap::new(),
            taken: BTreeSet::new(),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            owners: BTreeSet::new(),
        }
    }

    /// An address of this network, to try whether this machine has them.
    pub(crate) fn sample(&self) -> Ipv4Addr {
        let network = match &self.space {
            Space::Runner(network) => *network,
            Space::Cluster(_) => FIRST_NETWORK,
        };
        Ipv4Addr::new(127, network, 255, 254)
    }

    /// Adds a pod. It keeps the address under which it, or a Service that selects it, was first named.
    pub(crate) fn add_pod(&mut self, namespace: &str, name: &str, labels: &Labels, owner: Option<&str>) {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(owner) = owner {
            self.add_owner(namespace, owner);
        }
        if !self.pods.contains_key(&key) && !self.by_name.contains_key(&key) {
            let waiting = self.services.iter().find(|((place, _), selector)| {
                place == namespace && selects(selector, labels) && !self.serves(namespace, selector)
            });
            if let Some(address) = waiting.and_then(|(service, _)| self.by_name.get(service)) {
                self.by_name.insert(key.clone(), *address);
            }
        }
        self.pods.insert(key, labels.clone());
    }

    /// Adds a Service; without a selector it is a name like any other.
    pub(crate) fn add_service(&mut self, namespace: &str, name: &str, selector: Labels) {
        self.services.insert((namespace.to_owned(), name.to_owned()), selector);
    }

    /// Removes a pod.
    pub(crate) fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Removes a Service.
    pub(crate) fn remove_service(&mut self, namespace: &str, name: &str) {
        self.services.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Adds an owner whose pods are named `<name>-...`.
    pub(crate) fn add_owner(&mut self, namespace: &str, name: &str) {
        self.owners.insert((namespace.to_owned(), name.to_owned()));
    }

    /// The address of a pod or Service, the same whenever it is asked for.
    pub(crate) fn address(&mut self, namespace: &str, name: &str) -> Ipv4Addr {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(address) = self.by_name.get(&key) {
            return *address;
        }
        let pod = self.first_selected(&key);
        let address = match (&self.space, pod) {
            // Nothing is kept: which pod a Service selects may be learnt later.
            (Space::Cluster(cluster), pod) => return of_name(cluster, namespace, pod.as_deref().unwrap_or(name)),
            (Space::Runner(_), Some(pod)) => self.address(namespace, &pod),
            (Space::Runner(network), None) => self.allocate(*network, namespace, name),
        };
        self.by_name.insert(key, address);
        address
    }

    /// The first pod a Service selects; a pod of the Service's own name is the Service's pod with any labels.
    fn first_selected(&self, service: &Name) -> Option<String> {
        if self.pods.contains_key(service) {
            return None;
        }
        let selector = self.services.get(service)?;
        let mut selected =
            self.pods.iter().filter(|((place, _), labels)| *place == service.0 && selects(selector, labels));
        selected.next().map(|((_, name), _)| name.clone())
    }

    fn serves(&self, namespace: &str, selector: &Labels) -> bool {
        self.pods.iter().any(|((place, _), labels)| place == namespace && selects(selector, labels))
    }

    /// By hash, then the next free one: a name gets the same address in every run unless two names collide.
    fn allocate(&mut self, network: u8, namespace: &str, name: &str) -> Ipv4Addr {
        let first = hash(&[namespace, "/", name]);
        for step in 0..HOSTS {
            let address = host(network, first.wrapping_add(step) % HOSTS);
            // The last one is kept free for the trial at the start.
            if address != self.sample() && self.taken.insert(address) {
                return address;
            }
        }
        // More names than addresses: sharing one is better than failing pods that may never listen.
        Ipv4Addr::LOCALHOST
    }

    fn is_known(&self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.pods.contains_key(&key)
            || self.services.contains_key(&key)
            || self.owners.iter().any(|(place, owner)| {
                place == namespace && name.strip_prefix(owner.as_str()).is_some_and(|rest| rest.starts_with('-'))
            })
    }

    /// Returns whether a Service of this name was seen.
    fn is_service(&self, namespace: &str, name: &str) -> bool {
        self.services.contains_key(&(namespace.to_owned(), name.to_owned()))
    }

    /// Returns whether a name can be a subdomain: the headless Service pods of a job are below, often named like the job.
    fn is_subdomain(&self, namespace: &str, name: &str) -> bool {
        self.owners.contains(&(namespace.to_owned(), name.to_owned())) || self.is_known(namespace, name)
    }
}

fn selects(selector: &Labels, labels: &Labels) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// A job `j` in `default`, its first pod seen; a Service `db` in `other`.
    pub(in crate::names) fn names() -> Names {
        let mut names = Names::new(FIRST_NETWORK);
        names.add_pod("default", "j-trainer-0", &Labels::new(), Some("j"));
        names.add_service("other", "db", Labels::new());
        names
    }

    #[test]
    fn addresses_are_stable_and_distinct() {
        let (mut one, mut other) = (names(), names());
        let mut seen = BTreeSet::new();
        for index in 0..20_000 {
            let name = format!("j-{index}");
            let address = one.address("default", &name);
            assert!(address.is_loopback() && ![0, 255].contains(&address.octets()[3]));
            assert!(seen.insert(address), "{name}");
            assert_eq!(address, other.address("default", &name));
        }
        assert!(!seen.contains(&one.sample()));
        assert_eq!(one.address("default", "j-7"), other.address("default", "j-7"));
        assert_ne!(one.address("default", "same"), one.address("elsewhere", "same"));
    }

    #[test]
    fn nodes_of_a_cluster_agree_without_a_word() {
        let (mut one, mut other) = (Names::of_cluster("c1"), Names::of_cluster("c1"));
        // What one knows and the order in which it was asked make no difference.
        one.add_pod("default", "j-trainer-0", &Labels::new(), Some("j"));
        let mut seen = BTreeSet::new();
        for index in (0..5_000).rev() {
            let address = one.address("default", &format!("j-trainer-{index}"));
            assert!(address.is_loopback() && ![0, 255].contains(&address.octets()[3]), "{address}");
            assert!((64..192).contains(&address.octets()[1]), "{address}");
            assert!(seen.insert(address), "{index}");
        }
        for index in 0..5_000 {
            assert!(seen.contains(&other.address("default", &format!("j-trainer-{index}"))));
        }
        assert_ne!(one.address("default", "j-trainer-0"), one.address("default", "j-ps-0"));
        assert_ne!(one.address("default", "j-trainer-0"), one.address("elsewhere", "j-trainer-0"));
        assert_ne!(one.address("default", "j-trainer-0"), Names::of_cluster("c2").address("default", "j-trainer-0"));
        // A Service of a pod's name is that pod, seen or not; another one is the pod it selects, once that is known.
        let selector = labels(&[("app", "x")]);
        one.add_service("default", "j-trainer-0", selector.clone());
        assert_eq!(one.address("default", "j-trainer-0"), other.address("default", "j-trainer-0"));
        one.add_service("default", "front", selector.clone());
        let alone = one.address("default", "front");
        one.add_pod("default", "back-7", &selector, None);
        assert_eq!(one.address("default", "front"), other.address("default", "back-7"));
        one.remove_pod("default", "back-7");
        assert_eq!(one.address("default", "front"), alone);
        one.remove_service("default", "front");
        assert_eq!(one.rewrite_env("default", "X", "front.default:80"), "front.default:80");
    }

    #[test]
    fn a_service_shares_the_address_of_a_pod_it_selects() {
        let selector = labels(&[("app", "x")]);
        // The pod is known first.
        let mut names = names();
        names.add_pod("default", "pod-a", &selector, None);
        names.add_service("default", "svc", selector.clone());
        assert_eq!(names.address("default", "svc"), names.address("default", "pod-a"));
        // The Service is named before there is a pod; only the first pod is it.
        let mut names = self::names();
        names.add_service("default", "svc", selector.clone());
        let address = names.address("default", "svc");
        names.add_pod("default", "pod-a", &selector, None);
        names.add_pod("default", "pod-b", &selector, None);
        assert_eq!(names.address("default", "pod-a"), address);
        assert_ne!(names.address("default", "pod-b"), address);
        // An empty selector selects nothing.
        names.add_service("default", "none", Labels::new());
        assert_ne!(names.address("default", "none"), address);
    }
}
