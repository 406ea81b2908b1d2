//! Memory that is free but still held by the allocator.
//!
//! An allocator that gives pages back by and by (jemalloc, in the shipped image) looks whether there are any only as a thread
//! allocates: those of a thread at rest stay. So a thread at rest allocates a little to no purpose. It must not be done while
//! there is work; it says nothing of what is in use.

use std::hint::black_box;

/// Bytes allocated at once: more than a thread keeps for itself (32 KiB), so that each reaches the allocator proper.
const BLOCK: usize = 64 << 10;
/// Such blocks: jemalloc looks for pages to give back about once in a thousand times.
const BLOCKS: usize = 4096;

/// Has the allocator give back pages of the calling thread that have been free for a while. Takes a few milliseconds.
pub(crate) fn stir() {
    for _ in 0..BLOCKS {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
    }
}
