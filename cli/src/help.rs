//! The first page of help: commands in groups, and what exit codes mean.
//!
//! Owns the groups and their order; a command's line is its own. Tests: at the end.

use std::fmt::Write as _;

use clap::Command;

/// Groups of commands, in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run jobs on this machine", &["run", "attach", "stop", "delete", "scale", "suspend", "resume", "rerun", "retry"]),
    ("Look at jobs, here or on a cluster", &["ps", "top", "get", "logs", "wait", "explain", "history", "queue"]),
    ("Check and try without pods", &["validate", "simulate", "test", "scenario", "replay", "schedule"]),
    ("Logs of decisions", &["log", "diff"]),
    ("Submit to a cluster", &["torchrun", "voda"]),
    ("Serve a cluster", &["operator", "node-agent", "collect", "crd", "rbac"]),
    ("This program", &["version", "completion", "man", "sample", "help"]),
];

/// Width of a line.
const WIDTH: usize = 80;

/// Exit codes of every command.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0    fine: every job succeeded
  1    a job did not succeed, or something was found, or is not there
  2    wrong usage, or input that cannot be used; nothing was started
  124  the time given with --timeout has passed
  130  stopped with Ctrl-C (128 + the number of the signal)";

/// Returns the command with its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for name in names {
            let found = command.get_subcommands().find(|one| one.get_name() == *name);
            let about = match found.and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None if *name == "help" => "Print the help of a command".to_owned(),
                // Not in this build.
                None => continue,
            };
            let _ = writeln!(text, "  {name:<10}  {about}");
        }
        text.push('\n');
    }
    // What stands in braces is for clap.
    let text = text.replace('{', "(").replace('}', ")");
    command
        .help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"))
        .after_help(format!(
            "{EXIT_CODES}\n\nExamples:\n  trainyard run -n 4 -- python train.py\n  trainyard ps\n  trainyard logs train -f"
        ))
        .max_term_width(WIDTH)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    #[test]
    fn every_command_is_in_one_group_and_on_one_line() {
        let command = Arguments::command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let count = listed.len();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), count, "once each");
        for one in command.get_subcommands() {
            assert!(listed.contains(&one.get_name()), "{}", one.get_name());
        }
        let text = grouped(command).render_long_help().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn every_command_has_examples_where_it_has_options() {
        for command in Arguments::command().get_subcommands().filter(|one| !one.has_subcommands()) {
            if ["sample", "help", "rbac", "version", "completion", "man", "crd"].contains(&command.get_name()) {
                continue;
            }
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Examples:\n  trainyard "), "{}", command.get_name());
            assert!(after.lines().all(|line| line.chars().count() <= WIDTH), "{after}");
        }
    }
}
