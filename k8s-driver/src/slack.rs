//! Memory that is free but still held by the allocator.
//!
//! An allocator that caches for each thread and gives back by and by (jemalloc, in the shipped image) does either only as the
//! thread allocates: what a thread cached, and the pages kept for it, stay for as long as it is at rest. So a thread at rest
//! allocates a little to no purpose. It must not be done while there is work; it says nothing of what is in use.

use std::hint::black_box;

/// Bytes allocated at once: more than a thread caches (32 KiB), and as much as is allocated between two looks at its cache.
const BLOCK: usize = 64 << 10;
/// Such blocks: jemalloc looks at one of its 41 size classes at a time and takes three quarters of what lies there unused, and
/// looks for pages to give back once in a thousand times.
const BLOCKS: usize = 4096;

/// Has the allocator look through what it holds for the calling thread. Takes a few milliseconds. Pages freed by it or shortly
/// before go back the next time, when they have been free for a while.
pub(crate) fn stir() {
    for _ in 0..BLOCKS {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
    }
}
