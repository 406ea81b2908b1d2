//! Hashes values that are too many to keep. Two values of one hash count as equal; 64 bits make that unlikely in the life of a
//! cluster.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

/// Returns the hash, the same in every process.
pub(crate) fn hash(of: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}
