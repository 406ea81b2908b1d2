//! The output of torchrun: what the rank that failed first wrote, instead of what the launcher reports of it.
//!
//! Tests: at the end.

use super::{Exception, TRACEBACK, cut, exceptions, names_lost_peer, once, plain_lines, prefixed};

/// Title of the last part of the launcher's report.
const ROOT_CAUSE: &str = "Root Cause (first observed failure):";

/// The launcher's own exception.
const LAUNCHER_ERROR: &str = "ChildFailedError";

/// Words that mark the launcher's own lines among those of its ranks.
const OF_LAUNCHER: &str = "torch/distributed/elastic";
/// The same in older versions.
const OF_OLDER_LAUNCHER: &str = "torch.distributed.elastic";

/// Longest part of a rank's own output that is kept, in characters.
const MAX: usize = 1024;

/// What the launcher reports of the failure that it saw first.
#[derive(Debug, Default)]
struct Report<'a> {
    rank: &'a str,
    local_rank: &'a str,
    code: &'a str,
    /// The exception, or the signal, where the launcher knows it.
    traceback: String,
}

/// Returns what the rank that failed first wrote, its number first; `None` where no launcher reports a failure.
#[must_use]
pub fn of_failing_rank(text: &str) -> Option<String> {
    let (before, root) = text.rsplit_once(ROOT_CAUSE)?;
    let report = report(root);
    let words = of_report(&report).or_else(|| of_output(before, &report));
    let words = words.unwrap_or_else(|| format!("exited with code {}", report.code));
    Some(format!("rank {}: {words}", report.rank))
}

/// Reads the last part of the launcher's report.
fn report(root: &str) -> Report<'_> {
    let mut report = Report::default();
    let mut lines = root.lines();
    while let Some(line) = lines.next() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim() {
            "rank" => {
                let (rank, local) = value.split_once(" (local_rank: ").unwrap_or((value, ""));
                (report.rank, report.local_rank) = (rank, local.trim_end_matches(')'));
            }
            "exitcode" => report.code = value.split(' ').next().unwrap_or(value),
            "traceback" => {
                // The lines that follow are indented by two.
                let rest = lines.by_ref().take_while(|line| !line.starts_with("==="));
                let rest = rest.map(|line| line.strip_prefix("  ").unwrap_or(line));
                report.traceback = std::iter::once(value).chain(rest).collect::<Vec<_>>().join("\n");
            }
            _ => {}
        }
    }
    report
}

/// Returns the exception that the launcher knows, from a file that the rank left, or the signal that ended the rank.
fn of_report(report: &Report<'_>) -> Option<String> {
    let lines = plain_lines(&report.traceback);
    if let Some(exception) = exceptions(&lines).pop() {
        return Some(exception.lines().join("\n"));
    }
    report.traceback.starts_with("Signal ").then(|| lines.first().map_or_else(String::new, |line| (*line).to_owned()))
}

/// Returns the exception in the output of a rank, or else the end of it: what stands before the launcher's own exception.
fn of_output(before: &str, report: &Report<'_>) -> Option<String> {
    let is_own = |line: &&str| !line.contains(OF_LAUNCHER) && !line.contains(OF_OLDER_LAUNCHER);
    // The launcher's own exception is the last one, where it wrote one.
    let is_launcher = |tail: &str| tail.contains(LAUNCHER_ERROR) && !tail.contains("[rank");
    let end = before.rfind(TRACEBACK).filter(|at| before.get(*at..).is_some_and(is_launcher));
    let output = before.get(..end.unwrap_or(before.len()))?;
    let own: Vec<&str> = output.lines().filter(is_own).collect();
    let names = [format!("rank{}", report.rank), format!("default{}", report.local_rank)];
    let named = |line: &&&str| prefixed(line).is_some_and(|(name, _)| names.iter().any(|one| one == name));
    let of_rank: Vec<&str> = own.iter().filter(named).copied().collect();
    let text = if of_rank.is_empty() { own.join("\n") } else { of_rank.join("\n") };
    let lines = plain_lines(&text);
    let all = exceptions(&lines);
    let follows = |exception: &Exception<'_>| names_lost_peer(&exception.message.join("\n"));
    let first = all.iter().find(|exception| !follows(exception)).or_else(|| all.first());
    first.map(|exception| exception.lines().join("\n")).or_else(|| cut(once(&lines).join("\n").trim(), MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCHER: &str = "W1128 11:00:00.1 9 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 12 closing signal SIGTERM
E1128 11:00:00.2 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 13) of binary: /usr/bin/python3
Traceback (most recent call last):
  File \"/usr/bin/torchrun\", line 8, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
t.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_11:00:00
  host      : h
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 13)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
";

    fn frames(exception: &str) -> String {
        format!("Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\n    f()\n{exception}\n")
    }

    #[test]
    fn the_exception_of_the_failing_rank_is_reported_not_that_of_the_launcher() {
        let of = |output: &str| of_failing_rank(&format!("{output}{LAUNCHER}")).unwrap();
        let want = "rank 3: ValueError: boom\nFile \"t.py\", line 2, in <module>\nf()";
        assert_eq!(of(&frames("ValueError: boom")), want);
        // Others followed it.
        let reset = frames("RuntimeError: Connection reset by peer");
        assert_eq!(of(&format!("{reset}{}", frames("ValueError: boom"))), want);
        // Each line names its rank.
        let of_rank = |rank: &str, exception: &str| -> String {
            frames(exception).lines().fold(String::new(), |text, line| text + &format!("[{rank}]: {line}\n"))
        };
        assert_eq!(of(&format!("{}{}", of_rank("rank2", "KeyError: 'x'"), of_rank("rank3", "ValueError: boom"))), want);
        assert_eq!(of("no GPU is free\n"), "rank 3: no GPU is free");
        assert_eq!(of(""), "rank 3: exited with code 1");
    }

    #[test]
    fn a_file_that_the_rank_left_and_a_signal_are_in_the_report() {
        let hint = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
        let indented = frames("ValueError: boom").trim_end().replace('\n', "\n  ");
        let words = of_failing_rank(&LAUNCHER.replace(hint, &indented)).unwrap();
        assert_eq!(words, "rank 3: ValueError: boom\nFile \"t.py\", line 2, in <module>\nf()");
        let killed = of_failing_rank(&LAUNCHER.replace(hint, "Signal 9 (SIGKILL) received by PID 13")).unwrap();
        assert_eq!(killed, "rank 3: Signal 9 (SIGKILL) received by PID 13");
        assert_eq!(of_failing_rank("Traceback"), None);
    }
}
