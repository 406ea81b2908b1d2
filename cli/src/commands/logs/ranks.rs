//! Ranks of the processes that `torchrun` starts inside pods.
//!
//! Owns which lines of a pod's output one process wrote: `torchrun --tee 3` begins each line with the role and the local rank
//! (`[default0]:`). It must not read any output. Tests: at the end, and `cli/tests/local/logs.rs`.

use model::last_words::prefixed;
use terminal::out::Failure;

/// Bytes of the output of a pod in which local ranks are looked for.
pub(super) const BEGIN_BYTES: u64 = 1 << 20;

/// A process inside a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    /// Rank of the pod.
    pub(super) pod: u32,
    local: u32,
}

impl Process {
    /// Returns the process of a rank, by what the first pod of a job wrote first; `None` where a pod is one process.
    ///
    /// # Errors
    /// The job has no such rank. `pods`: number of its pods.
    pub(super) fn of(rank: u32, begin: &str, job: &str, pods: usize) -> Result<Option<Self>, Failure> {
        let last = begin.lines().filter_map(local_rank).map(|(local, _)| local).max();
        let Some(count) = last.and_then(|last| last.checked_add(1)).filter(|count| *count > 1) else {
            return Ok(None);
        };
        let all = count.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX));
        if rank >= all {
            let last = all.saturating_sub(1);
            return Err(Failure::new(format!(
                "--rank {rank}: {job} has the ranks 0 to {last}, {count} in each of {pods} pods"
            )));
        }
        Ok(Some(Self { pod: rank / count, local: rank % count }))
    }

    /// Returns the text of a line of the pod, if this process wrote it.
    pub(super) fn text_of(self, line: &str) -> Option<&str> {
        local_rank(line).filter(|(local, _)| *local == self.local).map(|(_, text)| text)
    }
}

/// Splits a line of `torchrun --tee` into the local rank and the text. Lines of PyTorch itself begin with `[rank0]:`, which is no role.
fn local_rank(line: &str) -> Option<(u32, &str)> {
    let (name, _) = prefixed(line)?;
    let role = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let local = name.get(role.len()..)?.parse().ok()?;
    // With the spaces that the text begins with.
    let text = line.get("[]:".len() + name.len()..)?;
    (role != "rank").then_some((local, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_a_process_of_a_pod() {
        let begin = "[default0]:a\n[rank7]: PyTorch\nplain\n[default1]:b\n";
        let of = |rank| Process::of(rank, begin, "j", 2).map_err(|failure| failure.to_string());
        assert_eq!(of(0), Ok(Some(Process { pod: 0, local: 0 })));
        assert_eq!(of(3), Ok(Some(Process { pod: 1, local: 1 })));
        assert_eq!(of(4), Err("--rank 4: j has the ranks 0 to 3, 2 in each of 2 pods".to_owned()));
        assert!(matches!(Process::of(1, "[default0]:alone\n", "j", 2), Ok(None)));
        assert!(matches!(Process::of(1, "[1/5]: step\n[3]: x\n", "j", 2), Ok(None)));
    }

    #[test]
    fn lines_of_a_process_lose_what_torchrun_put_before_them() {
        let process = Process { pod: 0, local: 1 };
        let lines =
            ["[default1]:  loss [0]: 1", "[default0]:no", "[rank1]: no", "no", "[trainer_a1]:", "[default11]:no"];
        let texts: Vec<_> = lines.iter().filter_map(|line| process.text_of(line)).collect();
        assert_eq!(texts, ["  loss [0]: 1", ""]);
    }
}
