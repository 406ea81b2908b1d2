//! Addresses of pods, and their DNS names in environment values and arguments replaced by them.
//!
//! There is no name server: every pod has a loopback address of its own, found by its name alone, so that the names of pods
//! that do not exist yet can be replaced too. Only names that are certain to mean a pod or Service are touched: those that
//! were seen, and those that start with the name of a seen job (`<job>-...`).
//!
//! A runner that runs every pod itself hands addresses out and sees to it that no two names share one. One of several nodes
//! cannot: all of them must come to the same address without a word between them, so there it is a function of the name.
//! Tests: at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

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

/// Networks that addresses are taken from, of 127.0.0.0/8: 127.0 to 127.63 are left to resolvers and people.
const NETWORKS: u64 = 128;
/// The first of them.
const FIRST_NETWORK: u8 = 64;
/// Addresses of a network: 256 x 254, no .0 and no .255.
const HOSTS: u64 = 65_024;

/// The second parts of all networks, in the order in which a runner tries them. `seed` is the same whenever the same runner
/// comes back, so that it mostly gets the same network.
pub(crate) fn networks(seed: &str) -> impl Iterator<Item = u8> {
    let first = hash(&[seed]) % NETWORKS;
    (0..NETWORKS).map(move |step| FIRST_NETWORK + u8::try_from((first + step) % NETWORKS).unwrap_or_default())
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
    /// No names yet, of a runner that runs every pod and has a network for itself.
    pub(crate) fn new(network: u8) -> Self {
        Self::of(Space::Runner(network))
    }

    /// No names yet, of one node among several of `cluster`.
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

    /// A pod exists. It keeps the address under which it, or a Service that selects it, was first spoken of.
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

    /// A Service exists; without a selector it is a name like any other.
    pub(crate) fn add_service(&mut self, namespace: &str, name: &str, selector: Labels) {
        self.services.insert((namespace.to_owned(), name.to_owned()), selector);
    }

    /// A pod is gone.
    pub(crate) fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// A Service is gone.
    pub(crate) fn remove_service(&mut self, namespace: &str, name: &str) {
        self.services.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Something exists whose pods are named `<name>-...`.
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

    /// Returns whether a name can be a subdomain: the headless Service pods of a job are below, often named like the job.
    fn is_subdomain(&self, namespace: &str, name: &str) -> bool {
        self.owners.contains(&(namespace.to_owned(), name.to_owned())) || self.is_known(namespace, name)
    }

    /// Replaces the names in an environment value of a pod in `namespace`.
    pub(crate) fn rewrite_env(&mut self, namespace: &str, variable: &str, value: &str) -> String {
        self.rewrite(namespace, "", value, is_address_word(variable) && !variable.ends_with("HOSTNAME"))
    }

    /// Replaces the names in an argument; `before` is the argument before it, whose name gives the meaning of this one.
    pub(crate) fn rewrite_arg(&mut self, namespace: &str, before: &str, arg: &str) -> String {
        self.rewrite(namespace, before, arg, false)
    }

    fn rewrite(&mut self, namespace: &str, before: &str, text: &str, all_are_addresses: bool) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let end = rest.find(|c: char| !is_name_char(c)).unwrap_or(rest.len());
            if end == 0 {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..next]);
                at += next;
                continue;
            }
            let (token, after) = rest.split_at(end);
            let earlier = &text[..at];
            // Part of a path is always a file name; after `//` comes a host.
            let in_path = earlier.ends_with('/') && !earlier.ends_with("//");
            let port = after.strip_prefix(':').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            let bare = all_are_addresses || port || follows_address_flag(before, earlier);
            match self.meant_by(namespace, token, bare).filter(|_| !in_path) {
                Some((place, name)) => out.push_str(&self.address(&place, &name).to_string()),
                None => out.push_str(token),
            }
            at += end;
        }
        out
    }

    /// The pod or Service a word of text means to a pod in `namespace`; without `bare`, a name alone means nothing.
    fn meant_by(&self, namespace: &str, token: &str, bare: bool) -> Option<Name> {
        let token = token.strip_suffix('.').unwrap_or(token).to_ascii_lowercase();
        let labels: Vec<&str> = token.split('.').collect();
        if !labels.iter().all(|label| is_dns_label(label)) {
            return None;
        }
        let (labels, service) = match labels.as_slice() {
            [rest @ .., "svc"] | [rest @ .., "svc", "cluster", "local"] => (rest, true),
            rest => (rest, false),
        };
        let known = |place: &str, name: &str| {
            let found = self.is_known(place, name) || (service && self.is_subdomain(place, name));
            found.then(|| (place.to_owned(), name.to_owned()))
        };
        match *labels {
            [name] if bare && !service => known(namespace, name),
            [name, place] => known(place, name)
                // Pod and its subdomain, in the pod's own namespace.
                .or_else(|| known(namespace, name).filter(|_| !service && self.is_subdomain(namespace, place))),
            [name, subdomain, place] => known(place, name).filter(|_| self.is_subdomain(place, subdomain)),
            _ => None,
        }
    }
}

/// The address of a name in a cluster of several nodes. Names that differ only in a number at their end follow each other, so
/// that pods of one group, which listen on one port, never share an address; others do so by chance, one pair in eight
/// million.
fn of_name(cluster: &str, namespace: &str, name: &str) -> Ipv4Addr {
    let numbered = name.rsplit_once('-').filter(|(_, n)| n.len() <= 6 && n.bytes().all(|b| b.is_ascii_digit()));
    let (stem, index) = numbered.and_then(|(stem, n)| Some((stem, n.parse::<u64>().ok()?))).unwrap_or((name, 0));
    let all = NETWORKS * HOSTS;
    let place = (hash(&[cluster, "/", namespace, "/", stem]) % all + index) % all;
    let network = u8::try_from(place / HOSTS).unwrap_or_default();
    host(FIRST_NETWORK + network, place % HOSTS)
}

/// The `n`th address of a network, `n` below [`HOSTS`].
fn host(network: u8, n: u64) -> Ipv4Addr {
    let part = |number| u8::try_from(number).unwrap_or_default();
    Ipv4Addr::new(127, network, part(n / 254), part(n % 254 + 1))
}

fn selects(selector: &Labels, labels: &Labels) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

fn is_dns_label(label: &str) -> bool {
    !label.is_empty() && label.len() <= 63 && !label.contains('_') && !label.starts_with('-') && !label.ends_with('-')
}

/// Returns whether the name of a variable or flag says that its value is an address.
fn is_address_word(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    ["ADDR", "HOST", "ENDPOINT", "SERVER"].iter().any(|part| word.contains(part))
}

/// Returns whether text ends in `--some-host=` or `--some-host `, looking on into the argument before.
fn follows_address_flag(before: &str, earlier: &str) -> bool {
    let text = if earlier.is_empty() { before } else { earlier };
    let text = text.trim_end_matches(['=', ' ']);
    // A flag right before a word needs something between.
    if !earlier.is_empty() && text.len() == earlier.len() {
        return false;
    }
    let flag = text.rsplit(|c: char| !is_name_char(c)).next().unwrap_or_default();
    flag.starts_with('-') && is_address_word(flag)
}

/// FNV-1a: small, stable over builds and machines.
fn hash(parts: &[&str]) -> u64 {
    parts
        .iter()
        .flat_map(|part| part.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// A job `j` in `default`, its first pod seen; a Service `db` in `other`.
    fn names() -> Names {
        let mut names = Names::new(FIRST_NETWORK);
        names.add_pod("default", "j-trainer-0", &Labels::new(), Some("j"));
        names.add_service("other", "db", Labels::new());
        names
    }

    /// `{name}` and `{name/namespace}` in a wanted text are addresses.
    fn fill(names: &mut Names, text: &str) -> String {
        let mut out = String::new();
        for (n, part) in text.split(['{', '}']).enumerate() {
            if n % 2 == 0 {
                out.push_str(part);
            } else {
                let (name, place) = part.split_once('/').unwrap_or((part, "default"));
                out.push_str(&names.address(place, name).to_string());
            }
        }
        out
    }

    #[test]
    fn environment_values() {
        for (variable, value, want) in [
            ("TRAINER_INSTANCES", "j-trainer-0.default,j-trainer-10.default", "{j-trainer-0},{j-trainer-10}"),
            (
                "TRAINER_HOSTS",
                "j-trainer-0.default:2222,j-trainer-1.default:2222",
                "{j-trainer-0}:2222,{j-trainer-1}:2222",
            ),
            ("X", "J-Trainer-0.default", "{j-trainer-0}"), // names do not know upper case
            ("X", "j-trainer-0.default.svc", "{j-trainer-0}"),
            ("X", "j-trainer-0.default.svc.cluster.local", "{j-trainer-0}"),
            ("X", "j-trainer-0.default.svc.cluster.local.", "{j-trainer-0}"),
            ("X", "j-0.j.default.svc:29500", "{j-0}:29500"), // pod, subdomain
            ("X", "j-0.j", "{j-0}"),
            ("X", "j-0.j.default", "{j-0}"),
            ("X", "j.default.svc", "{j}"), // the headless Service itself
            ("X", "tcp://j-trainer-0.default:80/x", "tcp://{j-trainer-0}:80/x"),
            ("X", "user@j-trainer-0.default", "user@{j-trainer-0}"),
            ("X", "http://db.other/", "http://{db/other}/"),
            ("X", "j-trainer-0:80", "{j-trainer-0}:80"),
            ("X", "j-trainer-0", "j-trainer-0"), // a name of a pod, not an address
            ("HOSTNAME", "j-trainer-0", "j-trainer-0"),
            ("MASTER_ADDR", "j-master-0", "{j-master-0}"),
            ("HOSTS", "j-master-0 slots=2,j-worker-0 slots=2", "{j-master-0} slots=2,{j-worker-0} slots=2"),
            ("MASTER_ADDR", "localhost", "localhost"),
            ("JOB", "j", "j"),
            ("X", "/ckpt/j-trainer-0.default/x", "/ckpt/j-trainer-0.default/x"), // a path
            ("X", "j-trainer-0.default_x", "j-trainer-0.default_x"),             // not a whole word
            ("X", "xj-trainer-0.default", "xj-trainer-0.default"),
            ("X", "j-trainer-0.defaults", "j-trainer-0.defaults"),
            ("X", "jj-trainer-0.default", "jj-trainer-0.default"), // another job's, never seen
            ("X", "example.com train.py model.default", "example.com train.py model.default"),
            ("X", "etcd.etcd-system.svc.cluster.local:2379", "etcd.etcd-system.svc.cluster.local:2379"),
            ("X", "127.0.0.1:80 1.5 -.- ..", "127.0.0.1:80 1.5 -.- .."),
            ("X", "größe=j-trainer-0.default;ü", "größe={j-trainer-0};ü"),
            ("X", "", ""),
        ] {
            let mut names = names();
            let got = names.rewrite_env("default", variable, value);
            assert_eq!(got, fill(&mut names, want), "{variable}={value}");
        }
    }

    #[test]
    fn arguments() {
        for (before, arg, want) in [
            ("--name", "j-trainer-0", "j-trainer-0"),
            ("--master-addr", "j-trainer-0", "{j-trainer-0}"),
            ("", "--master_addr=j-trainer-0", "--master_addr={j-trainer-0}"),
            ("", "--rdzv_endpoint=j-trainer-0:29500", "--rdzv_endpoint={j-trainer-0}:29500"),
            ("", "--rdzv_id=j-trainer-0", "--rdzv_id=j-trainer-0"),
            ("-c", "run --host j-trainer-0 --id j-trainer-0", "run --host {j-trainer-0} --id j-trainer-0"),
            ("master-addr", "j-trainer-0", "j-trainer-0"),
            ("--host", "x j-trainer-0", "x j-trainer-0"),
        ] {
            let mut names = names();
            let got = names.rewrite_arg("default", before, arg);
            assert_eq!(got, fill(&mut names, want), "{before} {arg}");
        }
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
        // The Service is spoken of before there is a pod; only the first pod is it.
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
