//! Runs scripts with bash: a check of their syntax, and a section with what it prints.
//!
//! Owns how a failure is found and reported. A program that a section left in the background must not have failed, and is ended.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::markdown::Block;
use super::place::Place;
use super::section::{self, Section};
use crate::run::{Problem, Scratch, Watched, io, output, text, watch};

/// A section that is not done by then never will be.
const LIMIT: Duration = Duration::from_secs(240);
/// Lines of output that a report shows.
const SHOWN: usize = 20;
/// Read by bash before the script. `FAILURE` is a file. The first failure is kept: commands in functions and subshells fail with what calls them.
const PRELUDE: &str = r#"unset BASH_ENV
set -E
failed() { [[ -s FAILURE ]] || printf '%s\n' "$1" "$2" "$3" > FAILURE; }
finish() {
  local status=$? process
  trap - ERR EXIT
  set +e
  for process in $(jobs -p); do
    if [[ " $(jobs -pr | tr '\n' ' ') " == *" $process "* ]]; then
      kill "$process"
    else
      wait "$process"
      local own=$?
      if ((status == 0 && own != 0 && own < 128)); then
        failed "$own" 0 "a program in the background"
        status=1
      fi
    fi
  done
  exit "$status"
}
trap 'failed "$?" "$LINENO" "$BASH_COMMAND"' ERR
trap finish EXIT
"#;

/// Returns what is wrong with the syntax of a block.
pub(super) fn syntax(scratch: &Scratch, block: &Block) -> Result<Option<String>, Problem> {
    let path = scratch.join("block");
    fs::write(&path, section::script("", &[block])).map_err(io(path.display()))?;
    let checked = output(Command::new("bash").arg("-n").arg(&path))?;
    if checked.status.success() {
        return Ok(None);
    }
    let name = format!("{}: ", path.display());
    Ok(Some(text(&checked).replace(&name, "").trim().to_owned()))
}

/// Runs a section; returns the report of what failed.
pub(super) fn run(name: &str, section: &Section<'_>, place: &Place, seen: &Seen) -> Result<Option<String>, Problem> {
    let [script, prelude, failure, log] = ["document", "prelude", "failure", "output"].map(|name| place.file(name));
    fs::write(&script, section::script(name, &section.blocks)).map_err(io(script.display()))?;
    let quoted = format!("'{}'", failure.display());
    fs::write(&prelude, PRELUDE.replace("FAILURE", &quoted)).map_err(io(prelude.display()))?;
    // Into a file: programs in the background may continue to print.
    let file = File::create(&log).map_err(io(log.display()))?;
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail"]).arg(&script).current_dir(place.work()).stdin(Stdio::null());
    command.stdout(file.try_clone().map_err(io(log.display()))?).stderr(file);
    for (variable, _) in std::env::vars_os() {
        // Settings of the programs that the reader does not have.
        if variable.to_string_lossy().starts_with("TRAINYARD_") {
            command.env_remove(variable);
        }
    }
    command.env_remove("KUBECONFIG").env("BASH_ENV", &prelude).envs(seen.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn().map_err(io("bash"))?;
    let ended = watch(&mut child, Duration::from_millis(20), LIMIT, &mut |_| {})?;
    place.end_processes()?;
    let how = match ended {
        Watched::Ended(status) if status.success() => return Ok(None),
        Watched::Ended(status) => failed(name, &failure).unwrap_or_else(|| format!("ended with {status}")),
        Watched::TooLong => format!("was not done after {} s", LIMIT.as_secs()),
    };
    let printed = fs::read(&log).map_err(io(log.display()))?;
    Ok(Some(report(name, &String::from_utf8_lossy(&printed), &how)))
}

/// Environment of the commands.
pub(super) type Seen = Vec<(&'static str, std::ffi::OsString)>;

/// The first command that failed, as the prelude wrote it down.
fn failed(name: &str, path: &Path) -> Option<String> {
    let written = fs::read_to_string(path).ok()?;
    let mut lines = written.splitn(3, '\n');
    let (code, line, command) = (lines.next()?, lines.next()?, lines.next()?.trim_end());
    let place = if line == "0" { name.to_owned() } else { format!("{name}:{line}") };
    Some(format!("{place}: exit code {code} of `{command}`"))
}

/// A report: the block, the command, and the end of what was printed since the block began.
fn report(name: &str, printed: &str, how: &str) -> String {
    let lines: Vec<&str> = printed.lines().collect();
    let begins = lines.iter().rposition(|line| line.starts_with(&section::marker(name, 0).replace(":0", ":")));
    let block = begins.and_then(|at| lines.get(at)).map_or(name, |line| line.trim_start_matches("== "));
    let own = lines.get(begins.map_or(0, |at| at + 1)..).unwrap_or_default();
    let shown = own.get(own.len().saturating_sub(SHOWN)..).unwrap_or_default();
    let shown: Vec<String> = shown.iter().map(|line| format!("\n    {line}")).collect();
    format!("the block at {block} failed\n  {how}; its output ends:{}", shown.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::markdown;

    fn run_text(text: &str) -> Option<String> {
        let blocks = markdown::blocks(text).unwrap();
        let sections = section::divide(&blocks);
        let place = Place::bare().unwrap();
        run("d.md", &sections[0], &place, &Vec::new()).unwrap()
    }

    #[test]
    fn blocks_share_a_shell() {
        assert_eq!(run_text("# T\n```sh\nA=1\nmkdir x && cd x\n```\n```sh\n[ $A = 1 ]\n[ -d ../x ]\n```\n"), None);
    }

    #[test]
    fn a_failure_is_reported_with_its_line() {
        let report = run_text("# T\n```sh\necho before\n```\n\n```sh\necho here\nf() { false; }\nf\n```\n").unwrap();
        assert!(report.starts_with("the block at d.md:6 failed"), "{report}");
        assert!(report.contains("exit code 1 of `false`") && report.ends_with("    here"), "{report}");
        assert!(!report.contains("before"), "{report}");
    }

    #[test]
    fn a_name_without_a_value_and_a_broken_pipe_of_commands_fail() {
        assert!(run_text("```sh\necho $NONE\n```\n").unwrap().contains("NONE: unbound variable"));
        assert!(run_text("```sh\nfalse | cat\n```\n").is_some());
    }

    #[test]
    fn a_block_may_have_to_fail() {
        assert_eq!(run_text("```sh fails\ntrue\n\nfalse\n```\n```sh\ntrue\n```\n"), None);
        assert!(run_text("```sh fails\nfalse\ntrue\n```\n").unwrap().contains("was to fail"));
    }

    #[test]
    fn programs_in_the_background_are_ended_and_must_not_fail() {
        assert_eq!(run_text("```sh\nsleep 1000 &\nsetsid sleep 1000 &\ntrue\n```\n"), None);
        let report = run_text("```sh\nsh -c 'exit 3' &\nsleep 0.2\n```\n").unwrap();
        assert!(report.contains("exit code 3 of `a program in the background`"), "{report}");
    }

    #[test]
    fn the_syntax_is_checked_with_lines_of_the_document() {
        let scratch = Scratch::new("syntax").unwrap();
        let blocks = markdown::blocks("# T\n\n```sh by-hand\nif true\n```\n```sh\na\n```\n").unwrap();
        let wrong = syntax(&scratch, &blocks[0]).unwrap().unwrap();
        assert!(wrong.contains("line 5"), "{wrong}");
        assert_eq!(syntax(&scratch, &blocks[1]).unwrap(), None);
    }
}
