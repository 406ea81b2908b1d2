//! The thread on which everything waits for the network; the operator and its log have their own.
//!
//! Owns how often that thread is woken. Tests: at the end of this file.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// Least time between two looks at the network while there is much to see. Answers and watch events come one by one, and being
/// woken for each costs more than reading it; an answer takes longer than this when there are many.
const ROUND: Duration = Duration::from_millis(10);

/// Makes the runtime.
///
/// # Errors
/// When the system gives no file descriptors for it.
pub fn network() -> io::Result<Runtime> {
    let looked = Mutex::new(None);
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            // An instant is whole whatever happened to who held it.
            let mut looked = looked.lock().unwrap_or_else(PoisonError::into_inner);
            // What comes after a silence is seen at once.
            if let Some(rest) = looked.and_then(|at: Instant| ROUND.checked_sub(at.elapsed())) {
                std::thread::sleep(rest);
            }
            *looked = Some(Instant::now());
        })
        .build()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn what_comes_one_by_one_is_seen_together_and_what_comes_alone_at_once() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let other = std::thread::spawn(move || {
            for number in 0..50 {
                sender.send(number).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let (mut seen, mut looks, begun) = (0, 0_u128, Instant::now());
        network().unwrap().block_on(async {
            while receiver.recv().await.is_some() {
                (seen, looks) = (seen + 1, looks + 1);
                while receiver.try_recv().is_ok() {
                    seen += 1;
                }
            }
        });
        other.join().unwrap();
        assert_eq!(seen, 50);
        assert!(looks <= begun.elapsed().as_nanos() / ROUND.as_nanos() + 2, "{looks} looks");
    }
}
