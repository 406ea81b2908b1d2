//! What this machine has, read once when the agent starts.
//!
//! A fact that cannot be read is left out rather than guessed; nothing here can fail.

use std::fs;
use std::path::Path;
use std::thread;

/// The machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    pub(crate) cpus: u32,
    pub(crate) memory_kib: u64,
    /// Room on the file system of the data directory.
    pub(crate) storage_kib: u64,
    pub(crate) kernel: String,
    pub(crate) boot_id: String,
    pub(crate) id: String,
    pub(crate) os_image: String,
    /// Where the API server finds this node; 0: nowhere.
    pub(crate) port: u16,
}

/// Reads it.
pub(crate) fn read(data_directory: &Path, port: u16) -> Machine {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let meminfo = line("/proc/meminfo");
    let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory = memory.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let release = line("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let storage = rustix::fs::statvfs(data_directory).map(|fs| fs.f_blocks.saturating_mul(fs.f_frsize) / 1024);
    Machine {
        cpus: thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        memory_kib: memory.unwrap_or_default(),
        storage_kib: storage.unwrap_or_default(),
        kernel: line("/proc/sys/kernel/osrelease"),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        id: line("/etc/machine-id"),
        port,
        os_image: name.map(|name| name.trim_matches('"').to_owned()).unwrap_or_default(),
    }
}

/// The architecture in Kubernetes' words.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
