//! Loopback addresses as a function of names.
//!
//! Owns the networks that addresses are taken from, and the hash. Tests: in `names`.

use std::hash::Hasher as _;
use std::net::Ipv4Addr;

use fnv::FnvHasher;

/// Networks that addresses are taken from, of 127.0.0.0/8: 127.0 to 127.63 are left to resolvers and people.
pub(super) const NETWORKS: u64 = 128;
/// The first of them.
pub(super) const FIRST_NETWORK: u8 = 64;
/// Addresses of a network: 256 x 254, no .0 and no .255.
pub(super) const HOSTS: u64 = 65_024;

/// The second parts of all networks, in the order in which a runner tries them. `seed` is the same whenever the same runner
/// comes back, so that it mostly gets the same network.
pub(crate) fn networks(seed: &str) -> impl Iterator<Item = u8> {
    let first = hash(&[seed]) % NETWORKS;
    (0..NETWORKS).map(move |step| FIRST_NETWORK + u8::try_from((first + step) % NETWORKS).unwrap_or_default())
}

/// The address of a name in a cluster of several nodes. Names that differ only in a number at their end follow each other, so
/// that pods of one group, which listen on one port, never share an address; others do so by chance, one pair in eight
/// million.
pub(super) fn of_name(cluster: &str, namespace: &str, name: &str) -> Ipv4Addr {
    let numbered = name.rsplit_once('-').filter(|(_, n)| n.len() <= 6 && n.bytes().all(|b| b.is_ascii_digit()));
    let (stem, index) = numbered.and_then(|(stem, n)| Some((stem, n.parse::<u64>().ok()?))).unwrap_or((name, 0));
    let all = NETWORKS * HOSTS;
    let place = (hash(&[cluster, "/", namespace, "/", stem]) % all + index) % all;
    let network = u8::try_from(place / HOSTS).unwrap_or_default();
    host(FIRST_NETWORK + network, place % HOSTS)
}

/// The `n`th address of a network, `n` below [`HOSTS`].
pub(super) fn host(network: u8, n: u64) -> Ipv4Addr {
    let part = |number| u8::try_from(number).unwrap_or_default();
    Ipv4Addr::new(127, network, part(n / 254), part(n % 254 + 1))
}

/// Returns the FNV-1a hash of the parts in a row: the same over builds and machines.
pub(super) fn hash(parts: &[&str]) -> u64 {
    let mut hasher = FnvHasher::default();
    for part in parts {
        hasher.write(part.as_bytes());
    }
    hasher.finish()
}
