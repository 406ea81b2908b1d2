//! Exit codes in words. Holds no state. Tests: at the end.

/// Names of the signals a container is ended by.
const SIGNALS: [(i32, &str); 19] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (30, "SIGPWR"),
    (31, "SIGSYS"),
];

/// First exit code that stands for a signal: 128 + its number.
const SIGNAL_BASE: i32 = 128;

/// Reasons of containers whose program never ran.
const NOT_STARTED: [&str; 2] = ["ContainerCannotRun", "StartError"];

/// Returns the number and the name of the signal that an exit code stands for.
#[must_use]
pub fn signal(code: i32) -> Option<(i32, &'static str)> {
    let number = code.checked_sub(SIGNAL_BASE)?;
    SIGNALS.iter().find(|(known, _)| *known == number).copied()
}

/// Returns how a container ended, in words that follow its name.
#[must_use]
pub fn words(code: i32, reason: &str) -> String {
    if NOT_STARTED.contains(&reason) {
        return format!("could not be started ({reason})");
    }
    match signal(code) {
        Some((number, name)) => {
            let memory = if reason == "OOMKilled" { ": out of memory (OOMKilled)" } else { "" };
            format!("was killed by signal {number} ({name}, code {code}){memory}")
        }
        None if reason.is_empty() => format!("exited with code {code}"),
        None => format!("exited with code {code} ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn codes_signals_and_programs_that_never_ran() {
        for (code, reason, want) in [
            (1, "Error", "exited with code 1 (Error)"),
            (0, "", "exited with code 0"),
            (137, "Error", "was killed by signal 9 (SIGKILL, code 137)"),
            (137, "OOMKilled", "was killed by signal 9 (SIGKILL, code 137): out of memory (OOMKilled)"),
            (143, "", "was killed by signal 15 (SIGTERM, code 143)"),
            (1, "OOMKilled", "exited with code 1 (OOMKilled)"),
            (128, "StartError", "could not be started (StartError)"),
            (255, "Error", "exited with code 255 (Error)"),
            (i32::MIN, "", "exited with code -2147483648"),
        ] {
            assert_eq!(words(code, reason), want);
        }
    }
}
