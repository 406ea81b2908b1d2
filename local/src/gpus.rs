//! The GPUs of this machine and who has them. Tests: at the end.

use std::collections::{BTreeMap, BTreeSet};

/// Hands out GPU indices.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    configured: bool,
    free: BTreeSet<u32>,
    held: BTreeMap<String, Vec<u32>>,
}

impl Gpus {
    /// `count` GPUs, numbered from 0; `None`: GPUs are not looked after.
    pub(crate) fn new(count: Option<u32>) -> Self {
        Self { configured: count.is_some(), free: (0..count.unwrap_or(0)).collect(), held: BTreeMap::new() }
    }

    /// Whether there is a number of GPUs to hand out from, be it 0.
    pub(crate) fn configured(&self) -> bool {
        self.configured
    }

    /// How many nobody has.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes the lowest free ones for a pod, all or none.
    pub(crate) fn take(&mut self, uid: &str, count: u32) -> Option<Vec<u32>> {
        let count = usize::try_from(count).ok()?;
        if count > self.free.len() {
            return None;
        }
        let taken: Vec<u32> = self.free.iter().copied().take(count).collect();
        for index in &taken {
            self.free.remove(index);
        }
        self.held.entry(uid.to_owned()).or_default().extend(&taken);
        Some(taken)
    }

    /// Takes back all a pod has.
    pub(crate) fn give_back(&mut self, uid: &str) {
        self.free.extend(self.held.remove(uid).unwrap_or_default());
    }
}

/// Whether a resource name stands for whole GPUs, for example `nvidia.com/gpu`.
pub(crate) fn is_gpu(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(_, name)| name == "gpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_first_all_or_none_and_back() {
        let mut gpus = Gpus::new(Some(4));
        assert_eq!(gpus.take("a", 1), Some(vec![0]));
        assert_eq!(gpus.take("b", 2), Some(vec![1, 2]));
        assert_eq!(gpus.take("c", 2), None);
        assert_eq!(gpus.free(), 1);
        gpus.give_back("a");
        gpus.give_back("a");
        assert_eq!(gpus.take("c", 2), Some(vec![0, 3]));
        assert_eq!(gpus.take("d", u32::MAX), None);
        assert!(!Gpus::new(None).configured() && Gpus::new(Some(0)).configured());
    }

    #[test]
    fn names() {
        for (name, want) in [
            ("nvidia.com/gpu", true),
            ("amd.com/gpu", true),
            ("gpu", false),
            ("cpu", false),
            ("nvidia.com/gpu.shared", false),
        ] {
            assert_eq!(is_gpu(name), want, "{name}");
        }
    }
}
