//! The GPUs that this run allots, and the pods that have them. Tests: at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use crate::claims::{Claim, claim};

/// Allots GPUs to pods.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    configured: bool,
    /// Names as `CUDA_VISIBLE_DEVICES` has them: numbers or identifiers.
    devices: Vec<String>,
    /// Indices of `devices` that no pod has.
    free: BTreeSet<usize>,
    held: BTreeMap<String, Vec<usize>>,
    /// Other runs of this machine cannot take these GPUs while they are held.
    claims: Vec<Claim>,
}

/// Reason for which GPUs cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The environment does not allow as many.
    #[error("--gpus {count}: CUDA_VISIBLE_DEVICES=\"{list}\" allows {allowed}")]
    NotVisible {
        /// Number that is wanted.
        count: u32,
        /// Value of the variable.
        list: String,
        /// Number of GPUs in it.
        allowed: usize,
    },
    /// A claim cannot be made.
    #[error("--gpus {count}: GPU {gpu} cannot be claimed: {source}")]
    Claim {
        /// Number that is wanted.
        count: u32,
        /// The GPU, as the whole machine numbers it.
        gpu: String,
        /// Cause of the error.
        source: io::Error,
    },
    /// Other processes hold too many.
    #[error(
        "--gpus {count}: {free} of {all} GPUs are free: {}. Wait for their holder to end, or request fewer",
        holders.join(", ")
    )]
    Held {
        /// Number that is wanted.
        count: u32,
        /// Number of GPUs that are free.
        free: usize,
        /// Number of GPUs that are allowed.
        all: usize,
        /// Each of the others, and its holder.
        holders: Vec<String>,
    },
}

/// GPUs that a run may take, by the environment it was started in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VisibleGpus {
    /// `CUDA_VISIBLE_DEVICES`: the GPUs to choose from.
    pub devices: Option<String>,
    /// The same GPUs as the whole machine numbers them, where the scheduler that started this run says so.
    pub machine_devices: Option<String>,
}

impl VisibleGpus {
    /// Reads `CUDA_VISIBLE_DEVICES`, and `SLURM_STEP_GPUS` or `SLURM_JOB_GPUS`: Slurm numbers a job's GPUs from 0.
    #[must_use]
    pub fn of_environment() -> Self {
        let read = |name: &str| std::env::var(name).ok();
        Self {
            devices: read("CUDA_VISIBLE_DEVICES"),
            machine_devices: read("SLURM_STEP_GPUS").or_else(|| read("SLURM_JOB_GPUS")),
        }
    }

    /// Returns the number of GPUs that this run may take and that no other run has, as the driver shows them.
    #[must_use]
    pub fn count_free(&self) -> u32 {
        let is_free = |(_, on_machine): &(String, String)| matches!(claim(&format!("gpu/{on_machine}")), Ok(Ok(_)));
        u32::try_from(self.candidates(0).iter().filter(|one| is_free(one)).count()).unwrap_or(u32::MAX)
    }

    /// Each GPU with the name that is claimed for it. Without a list: as many as the machine has, or as are wanted.
    fn candidates(&self, wanted: u32) -> Vec<(String, String)> {
        let split = |list: &String| -> Vec<String> {
            let names = list.split(',').map(str::trim);
            // CUDA ignores what follows a name that means no GPU.
            names
                .take_while(|name| !name.is_empty() && *name != "-1" && *name != "NoDevFiles")
                .map(str::to_owned)
                .collect()
        };
        let Some(list) = &self.devices else {
            let count = wanted.max(count_on_machine());
            return (0..count).map(|n| (n.to_string(), n.to_string())).collect();
        };
        let devices = split(list);
        let machine = self.machine_devices.as_ref().map(split).filter(|machine| machine.len() == devices.len());
        let machine = machine.unwrap_or_else(|| devices.clone());
        devices.into_iter().zip(machine).collect()
    }
}

/// GPUs that the driver shows; 0 where it cannot be asked.
fn count_on_machine() -> u32 {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten();
    u32::try_from(entries.count()).unwrap_or(u32::MAX)
}

impl Gpus {
    /// GPUs are not looked after.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Creates `count` GPUs, numbered from 0, without claiming them.
    pub(crate) fn unclaimed(count: u32) -> Self {
        Self::of((0..count).map(|n| n.to_string()).collect(), Vec::new())
    }

    fn of(devices: Vec<String>, claims: Vec<Claim>) -> Self {
        let free = (0..devices.len()).collect();
        Self { configured: true, devices, free, held: BTreeMap::new(), claims }
    }

    /// Takes `count` GPUs that no other run of this machine has, the first ones first.
    ///
    /// # Errors
    /// Returns an error if there are not as many; it names those that are held, and by which process.
    pub(crate) fn claim(count: u32, visible: &VisibleGpus) -> Result<Self, GpuError> {
        let mut gpus = Self::of(Vec::new(), Vec::new());
        gpus.claim_more(count, visible)?;
        Ok(gpus)
    }

    /// Takes more GPUs until no pod has `count` of them, or no more are to be had. Returns the number of all.
    ///
    /// # Errors
    /// When all together are fewer than `count`.
    pub(crate) fn claim_more(&mut self, count: u32, visible: &VisibleGpus) -> Result<u32, GpuError> {
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        let own = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let candidates = visible.candidates(count.saturating_add(own));
        if candidates.len() < wanted {
            let list = visible.devices.clone().unwrap_or_default();
            return Err(GpuError::NotVisible { count, list, allowed: candidates.len() });
        }
        self.configured = true;
        let mut taken = Vec::new();
        for (device, on_machine) in &candidates {
            if self.free.len() >= wanted {
                break;
            }
            if self.devices.contains(device) {
                continue;
            }
            match claim(&format!("gpu/{on_machine}")) {
                Ok(Ok(one)) => {
                    self.free.insert(self.devices.len());
                    self.devices.push(device.clone());
                    self.claims.push(one);
                }
                Ok(Err(holder)) => taken.push(format!("GPU {on_machine} is held by {holder}")),
                Err(source) => return Err(GpuError::Claim { count, gpu: on_machine.clone(), source }),
            }
        }
        if self.devices.len() < wanted {
            let (free, all) = (self.devices.len(), candidates.len());
            return Err(GpuError::Held { count, free, all, holders: taken });
        }
        Ok(u32::try_from(self.devices.len()).unwrap_or(u32::MAX))
    }

    /// Returns whether there is a number of GPUs to allot from, be it 0.
    pub(crate) fn configured(&self) -> bool {
        self.configured
    }

    /// Number of GPUs that no pod has.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes the first free ones for a pod, all or none.
    pub(crate) fn take(&mut self, uid: &str, count: u32) -> Option<Vec<String>> {
        let count = usize::try_from(count).ok()?;
        if count > self.free.len() {
            return None;
        }
        let taken: Vec<usize> = self.free.iter().copied().take(count).collect();
        for index in &taken {
            self.free.remove(index);
        }
        let names = taken.iter().filter_map(|index| self.devices.get(*index).cloned()).collect();
        self.held.entry(uid.to_owned()).or_default().extend(taken);
        Some(names)
    }

    /// Takes back all a pod has.
    pub(crate) fn release(&mut self, uid: &str) {
        self.free.extend(self.held.remove(uid).unwrap_or_default());
    }
}

/// Returns whether a resource name stands for whole GPUs, for example `nvidia.com/gpu`.
pub(crate) fn is_gpu(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(_, name)| name == "gpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_first_all_or_none_and_back() {
        let mut gpus = Gpus::unclaimed(4);
        assert_eq!(gpus.take("a", 1).unwrap(), ["0"]);
        assert_eq!(gpus.take("b", 2).unwrap(), ["1", "2"]);
        assert_eq!(gpus.take("c", 2), None);
        assert_eq!(gpus.free(), 1);
        gpus.release("a");
        gpus.release("a");
        assert_eq!(gpus.take("c", 2).unwrap(), ["0", "3"]);
        assert_eq!(gpus.take("d", u32::MAX), None);
        assert!(!Gpus::none().configured() && Gpus::unclaimed(0).configured());
    }

    fn visible(devices: &str) -> VisibleGpus {
        VisibleGpus { devices: Some(devices.to_owned()), machine_devices: None }
    }

    #[test]
    fn two_runs_never_have_the_same_gpu() {
        let name = |n: u32| format!("t{}-{n}", std::process::id());
        let three = visible(&format!("{},{} ,{}", name(0), name(1), name(2)));
        assert_eq!(three.count_free(), 3);
        let mut first = Gpus::claim(2, &three).unwrap();
        assert_eq!(three.count_free(), 1);
        assert_eq!(first.take("a", 2).unwrap(), [name(0), name(1)]);
        let error = Gpus::claim(2, &three).unwrap_err().to_string();
        let own = format!("GPU {} is held by pid {}", name(0), std::process::id());
        assert!(error.starts_with("--gpus 2: 1 of 3 GPUs are free") && error.contains(&own), "{error}");
        assert_eq!(Gpus::claim(1, &three).unwrap().take("b", 1).unwrap(), [name(2)]);
        let error = first.claim_more(4, &three).unwrap_err().to_string();
        assert!(error.ends_with("allows 3"), "{error}");
        assert_eq!(first.claim_more(1, &three).unwrap(), 3, "one more, as pods have the others");
        assert_eq!(
            first.claim_more(3, &three).unwrap(),
            3,
            "there are no more: the pods of the first job are waited for"
        );
        assert_eq!(first.take("c", 1).unwrap(), [name(2)]);
        assert_eq!(first.take("d", 1), None);
        drop(first);
        assert!(Gpus::claim(3, &three).is_ok());
    }

    #[test]
    fn the_environment_restricts_what_is_allotted() {
        for list in ["", "-1", "NoDevFiles", "-1,7"] {
            assert!(Gpus::claim(1, &visible(list)).unwrap_err().to_string().contains("allows 0"), "{list}");
        }
        let slurm = VisibleGpus { devices: Some("0,1".into()), machine_devices: Some("4,6".into()) };
        let pairs = slurm.candidates(1);
        assert_eq!(pairs, [("0".into(), "4".into()), ("1".into(), "6".into())], "claimed by the machine's numbers");
        assert_eq!(VisibleGpus::default().candidates(2).first(), Some(&("0".into(), "0".into())));
        assert!(Gpus::claim(0, &visible("")).is_ok());
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
