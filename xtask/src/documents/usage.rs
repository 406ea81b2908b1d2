//! Whether command lines name verbs and options that there are.
//!
//! Owns what a command line of Trainyard may say: what `trainyard VERB --help` prints of the program that was built. Of `cargo xtask`
//! the name of the command counts. Other programs are not its business.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, output};

/// Names under which the binary goes, with the words that they stand for.
const NAMES: [(&str, &[&str]); 4] =
    [("trainyard", &[]), ("kubectl-trainyard", &[]), ("kubectl-torchrun", &["torchrun"]), ("voda", &["voda"])];
/// Options that every verb has.
const COMMON: [&str; 4] = ["--help", "-h", "--version", "-V"];

/// What the help of a verb says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Help {
    /// True if a further verb follows.
    has_verbs: bool,
    /// Options, and whether each takes a value.
    options: BTreeMap<String, bool>,
}

/// The verbs and options of a program.
#[derive(Debug)]
pub(super) struct Usage {
    program: PathBuf,
    /// By the verbs that lead there; none for a verb that does not exist.
    known: RefCell<BTreeMap<Vec<String>, Option<Help>>>,
}

impl Usage {
    pub(super) fn of(program: &Path) -> Self {
        Self { program: program.to_path_buf(), known: RefCell::default() }
    }

    /// Returns what is wrong with a command line; none also if it is of another program.
    pub(super) fn check(&self, words: &[String]) -> Result<Option<String>, Problem> {
        let Some((program, rest)) = words.split_first() else { return Ok(None) };
        if program == "cargo" {
            return match rest {
                [xtask, rest @ ..] if xtask == "xtask" => Ok(xtask_command(rest)),
                [run, rest @ ..] if run == "run" => {
                    // A package or an example of its own is not the program that was built.
                    let end = rest.iter().position(|word| word == "--");
                    let (own, given) = rest.split_at(end.unwrap_or(rest.len()));
                    let is_other = own.iter().any(|word| matches!(word.as_str(), "-p" | "--package" | "--example"));
                    if is_other { Ok(None) } else { self.verbs(&[], given.get(1..).unwrap_or_default()) }
                }
                _ => Ok(None),
            };
        }
        if let Some((_, verbs)) = NAMES.iter().find(|(name, _)| name == program) {
            return self.verbs(verbs, rest);
        }
        if program != "kubectl" {
            return Ok(None);
        }
        match rest {
            [plugin, rest @ ..] if plugin == "trainyard" => self.verbs(&[], rest),
            [plugin, rest @ ..] if plugin == "torchrun" => self.verbs(&["torchrun"], rest),
            // A program in a pod.
            _ => match rest.iter().position(|word| word == "--").and_then(|at| rest.get(at + 1..)) {
                Some([program, rest @ ..]) if program == "trainyard" => self.verbs(&[], rest),
                _ => Ok(None),
            },
        }
    }

    fn verbs(&self, first: &[&str], words: &[String]) -> Result<Option<String>, Problem> {
        let mut verbs: Vec<String> = first.iter().map(|&word| word.to_owned()).collect();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(help) = self.help(&verbs)? else { return Ok(None) };
            if word == "--" {
                break;
            }
            if word.starts_with('-') && word.len() > 1 {
                let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
                // Of `-it` and `-n4` the first letter counts.
                let name = if name.starts_with("--") { name } else { name.get(..2).unwrap_or(name) };
                match help.options.get(name) {
                    Some(true) if word == name => drop(words.next()),
                    Some(_) => {}
                    None if COMMON.contains(&name) => {}
                    None => return Ok(Some(format!("`trainyard {}` has no option `{name}`", verbs.join(" ")))),
                }
            } else if help.has_verbs && !is_name(word) {
                break;
            } else if help.has_verbs {
                verbs.push(word.clone());
                if self.help(&verbs)?.is_none() {
                    return Ok(Some(format!("there is no `trainyard {}`", verbs.join(" "))));
                }
                if word == "help" {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// The help of a verb; none if there is no such verb.
    fn help(&self, verbs: &[String]) -> Result<Option<Help>, Problem> {
        if let Some(known) = self.known.borrow().get(verbs) {
            return Ok(known.clone());
        }
        let output = output(Command::new(&self.program).args(verbs).arg("--help"))?;
        let help = output.status.success().then(|| parse(&String::from_utf8_lossy(&output.stdout)));
        self.known.borrow_mut().insert(verbs.to_vec(), help.clone());
        Ok(help)
    }
}

/// A word that can be a verb: no `VERB`, `$X` or `...`, which stand for one.
fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
}

fn xtask_command(words: &[String]) -> Option<String> {
    let name = words.iter().find(|word| is_name(word))?;
    let lines = crate::USAGE.lines().filter_map(|line| line.strip_prefix("  "));
    // Lines that continue another one stand further in.
    let mut known = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_whitespace().next());
    (!known.any(|command| command == name)).then(|| format!("there is no `cargo xtask {name}`"))
}

fn parse(help: &str) -> Help {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
    let has_verbs = usage.ends_with(" <COMMAND>") || usage.ends_with(" [COMMAND]");
    let mut options = BTreeMap::new();
    for line in help.lines() {
        let mut names = Vec::new();
        let mut takes_value = false;
        for word in line.split_whitespace() {
            if !word.starts_with('-') {
                takes_value = word.starts_with('<') && !names.is_empty();
                break;
            }
            let end = word.find([',', '[', '=']).unwrap_or(word.len());
            names.extend(word.get(..end).filter(|name| name.len() > 1).map(str::to_owned));
        }
        options.extend(names.into_iter().map(|name| (name, takes_value)));
    }
    Help { has_verbs, options }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str =
        "Runs jobs.\n\nUsage: trainyard <COMMAND>\n\nLook:\n  ps  List jobs\n\nOptions:\n  -h, --help  Print\n";
    const PS: &str = "Usage: trainyard ps [OPTIONS] [-- <COMMAND>...]\n\nOptions:\n  -n, --name <NAME>\n          A name\n      \
                      --dry-run[=<WAY>]  None\n  -q, --quiet\n          - text:  Lines\n";

    fn usage() -> Usage {
        let verbs = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let known = [
            (verbs(&[]), Some(parse(TOP))),
            (verbs(&["ps"]), Some(parse(PS))),
            (verbs(&["pss"]), None),
            (verbs(&["torchrun"]), Some(parse(TOP))),
            (verbs(&["torchrun", "ps"]), Some(parse(PS))),
        ];
        Usage { program: PathBuf::from("/does/not/exist"), known: RefCell::new(known.into()) }
    }

    fn check(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        usage().check(&words).unwrap()
    }

    #[test]
    fn the_help_is_read() {
        let options = parse(PS).options;
        assert_eq!(options.get("--name"), Some(&true));
        assert_eq!((options.get("-n"), options.get("--quiet")), (Some(&true), Some(&false)));
        assert_eq!(options.get("--dry-run"), Some(&false));
        assert!(parse(TOP).has_verbs && !parse(PS).has_verbs);
    }

    #[test]
    fn right_command_lines_pass() {
        let right = [
            "trainyard ps -n --no -q --dry-run=client",
            "trainyard ps -n4 -- python --any",
            "trainyard VERB --flag",
            "kubectl torchrun ps --name=x",
            "kubectl exec pod -- trainyard ps -q",
            "cargo run --release -- ps -q",
            "cargo run -p studies --example e -- --traces x",
            "cargo xtask test",
            "helm install trainyard --no-option",
        ];
        for line in right {
            assert_eq!(check(line), None, "{line}");
        }
    }

    #[test]
    fn wrong_ones_are_named() {
        assert_eq!(check("trainyard pss"), Some("there is no `trainyard pss`".into()));
        assert_eq!(check("trainyard ps --nam x"), Some("`trainyard ps` has no option `--nam`".into()));
        assert_eq!(check("kubectl trainyard ps -z"), Some("`trainyard ps` has no option `-z`".into()));
        assert_eq!(check("cargo run -- ps -z"), Some("`trainyard ps` has no option `-z`".into()));
        assert_eq!(check("cargo xtask transition"), Some("there is no `cargo xtask transition`".into()));
        assert_eq!(check("cargo xtask tests"), Some("there is no `cargo xtask tests`".into()));
    }
}
