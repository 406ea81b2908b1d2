//! Containers whose command is a shell, although their API puts a launcher's arguments before the container's own.
//!
//! Owns when that is remarked. The command is the user's: nothing is refused. Tests: at the end of this file.

use serde_json::Value;

use crate::fields::{Findings, join};
use crate::objects::list_at;

/// Programs that run a script.
const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];

/// Remarks on the containers of a template at a path that get a launcher's arguments before their own.
pub(crate) fn check(
    containers: &[Value],
    template: &str,
    gets_arguments: impl Fn(&Value) -> bool,
    findings: &mut Findings,
) {
    for (n, container) in containers.iter().enumerate().filter(|(_, container)| gets_arguments(container)) {
        check_container(container, &format!("{template}.spec.containers[{n}]"), findings);
    }
}

fn check_container(container: &Value, path: &str, findings: &mut Findings) {
    let command: Vec<&str> = list_at(container, &["command"]).iter().filter_map(Value::as_str).collect();
    let Some((program, rest)) = command.split_first() else { return };
    if !SHELLS.contains(&program.rsplit('/').next().unwrap_or_default()) {
        return;
    }
    let flag = rest.iter().position(|word| is_script_flag(word));
    let script = match flag {
        Some(flag) => rest.get(flag.saturating_add(1)),
        // A file is run with the arguments as its own.
        None if rest.iter().any(|word| !word.starts_with('-')) => return,
        None => None,
    };
    let problem = match script {
        None => {
            "the launcher's arguments stand before args, so the shell takes the first of them as its script; write the launcher \
             as command, or the script behind -c, with \"$@\" where its launcher takes the arguments"
        }
        Some(script) if !takes_arguments(script) => {
            "the launcher's arguments are arguments of the shell, and its script does not use them; write \"$@\" where its \
             launcher takes them, and any word behind the script, which the shell takes as its name"
        }
        Some(_) => return,
    };
    findings.warn(join(path, "command"), container.get("command"), problem);
}

/// Returns true for `-c`, also among other flags of one letter, such as `-lc`.
fn is_script_flag(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|flags| !flags.starts_with('-') && flags.ends_with('c'))
}

/// Returns true if a script uses its arguments.
fn takes_arguments(script: &str) -> bool {
    ["$@", "$*", "${@", "${*", "$0", "$1", "${0", "${1"].iter().any(|word| script.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shells_that_take_the_arguments_for_something_else_are_remarked() {
        for (command, remark) in [
            (json!(null), ""),
            (json!(["python"]), ""),
            (json!(["torchrun", "-c"]), ""),
            (json!(["/bin/bash", "-c"]), "as its script"),
            (json!(["sh", "-lc"]), "as its script"),
            (json!(["bash"]), "as its script"),
            (json!(["sh", "-c", "torchrun train.py"]), "does not use them"),
            (json!(["sh", "-c", "exec torchrun \"$@\"", "sh"]), ""),
            (json!(["bash", "-e", "train.sh"]), ""),
            (json!("sh -c"), ""),
            (json!([1]), ""),
        ] {
            let mut findings = Findings::default();
            check_container(&json!({"command": command, "args": ["x"]}), "c", &mut findings);
            assert!(!findings.has_errors());
            let found: Vec<String> = findings.into_list().iter().map(|each| each.field.to_string()).collect();
            assert_eq!(found.len(), usize::from(!remark.is_empty()), "{command}: {found:?}");
            assert!(found.iter().all(|text| text.starts_with("c.command: ") && text.contains(remark)), "{found:?}");
        }
    }
}
