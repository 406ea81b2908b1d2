//! Calls that wait for the API server, a job's in their order, the jobs in turn: one with ten thousand pods to create keeps
//! no other's status from being written. Pure. Tests: at the end of this file.

use std::collections::{BTreeMap, VecDeque};

use model::JobKey;

/// A queue that serves jobs in turn.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    jobs: BTreeMap<JobKey, VecDeque<T>>,
    turn: VecDeque<JobKey>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { jobs: BTreeMap::new(), turn: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds something for a job.
    pub(super) fn push(&mut self, job: &JobKey, item: T) {
        self.len += 1;
        if let Some(items) = self.jobs.get_mut(job) {
            items.push_back(item);
        } else {
            self.jobs.insert(job.clone(), VecDeque::from([item]));
            self.turn.push_back(job.clone());
        }
    }

    /// Takes the next item of the job whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let job = self.turn.pop_front()?;
        let items = self.jobs.get_mut(&job)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.jobs.remove(&job);
        } else {
            self.turn.push_back(job);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_take_turns_and_each_keeps_its_order() {
        let job = |name: &str| JobKey {
            namespace: "ns".into(),
            name: name.into(),
            kind: "AITrainingJob".into(),
            uid: name.into(),
        };
        let mut queue = FairQueue::default();
        for n in 0..4 {
            queue.push(&job("large"), format!("l{n}"));
        }
        queue.push(&job("a"), "a0".to_owned());
        queue.push(&job("b"), "b0".to_owned());
        assert_eq!(queue.pop().as_deref(), Some("l0"));
        queue.push(&job("a"), "a1".to_owned());
        assert_eq!(queue.len(), 6);
        let rest: Vec<String> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, ["a0", "b0", "l1", "a1", "l2", "l3"]);
        assert!(queue.len() == 0 && queue.jobs.is_empty() && queue.turn.is_empty());
    }
}
