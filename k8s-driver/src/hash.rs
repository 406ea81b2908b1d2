//! What is remembered of something in its place, where there would be thousands: a hash. Two that clash are taken for the same;
//! at 64 bits that is not to be expected in the life of a cluster.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

/// The hash, the same in every process.
pub(crate) fn hash(of: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}
