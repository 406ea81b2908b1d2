//! CPU time, memory, threads and open files of this process, read from `/proc` at each request for the metrics.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks in a second as `/proc` counts them: fixed at 100 for user space on every architecture Linux still runs Rust on.
const TICKS: f64 = 100.0;

#[derive(Debug, Default)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut write = |name: &str, help: &str, value: Option<f64>, counts: bool| {
            let Some(value) = value else { return Ok(()) };
            if counts {
                let metric = ConstCounter::new(value);
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
            } else {
                let metric = ConstGauge::new(value);
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
            }
        };
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        write("process_cpu_seconds", "User and system CPU time", cpu_seconds(&stat), true)?;
        let resident = field(&status, "VmRSS:").map(|kib| kib * 1024.0);
        write("process_resident_memory_bytes", "Resident memory", resident, false)?;
        write("process_threads", "Threads", field(&status, "Threads:"), false)?;
        let files = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        let files = files.and_then(|n| u32::try_from(n).ok()).map(f64::from);
        write("process_open_fds", "Open files", files, false)
    }
}

/// User and system time of `/proc/self/stat`. The second member is the program's name and may hold anything, so counting
/// starts behind its last bracket.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut members = rest.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    Some((members.next()?.ok()? + members.next()?.ok()?) / TICKS)
}

fn field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 8 0 100 1000 200 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
        assert_eq!(field("Name:\ta\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12.0));
    }
}
