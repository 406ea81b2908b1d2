//! Several studies side by side: on as many threads as wanted, with the result of one after the other.
//!
//! Owns nothing but the distribution of work; studies share only what they read. Tests: at the end of this file.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` on every item, on at most `threads` threads, and returns the results in the order of the items.
///
/// `done` is called for every item as it is finished, from any thread.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let run = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { break };
            let result = work(item);
            if let Ok(mut results) = results.lock() {
                results[i] = Some(result);
            }
            done(i);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, items.len().max(1)) {
            scope.spawn(run);
        }
        run();
    });
    // A thread that panicked has already ended the scope with its panic.
    results.into_inner().map_or_else(|_| Vec::new(), |results| results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_on_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        let finished = AtomicUsize::new(0);
        for threads in [0, 1, 3, 200] {
            let count = |_| {
                finished.fetch_add(1, Ordering::Relaxed);
            };
            let squares = each(&items, threads, |&n| n * n, count);
            assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        }
        assert_eq!(finished.load(Ordering::Relaxed), 400);
        assert!(each(&[] as &[u64], 4, |&n| n, |_| {}).is_empty());
    }
}
