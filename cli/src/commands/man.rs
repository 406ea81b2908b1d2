//! `trainyard man`: the manual, made from the arguments themselves.
//!
//! Owns the pages and their files. Tests: `tests/local/help.rs`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use terminal::near::did_you_mean;
use terminal::out::{self, Failure};

/// Arguments of `trainyard man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard man run
  trainyard man | man -l -
  trainyard man --to ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command whose page is printed; the first page when it is left out.
    #[arg(conflicts_with = "to")]
    command: Option<String>,
    /// The directory for the pages of all commands. Without it one page goes to standard output.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Prints the manual, or writes one page for each command.
pub(crate) fn man(args: &ManArgs, command: &Command) -> Result<ExitCode, Failure> {
    let of_command = |one: &Command| {
        let name = format!("trainyard-{}", one.get_name());
        (name.clone(), one.clone().display_name(name))
    };
    let Some(to) = &args.to else {
        let wanted = match &args.command {
            None => command.clone(),
            Some(name) => of_command(command.find_subcommand(name).ok_or_else(|| unknown(command, name))?).1,
        };
        out::print(&page(wanted)?);
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(to).map_err(|error| failed(to, &error))?;
    let pages = command.get_subcommands().filter(|one| !one.is_hide_set()).map(of_command);
    for (name, command) in std::iter::once(("trainyard".to_owned(), command.clone())).chain(pages) {
        let path = to.join(format!("{name}.1"));
        std::fs::write(&path, page(command)?).map_err(|error| failed(&path, &error))?;
    }
    out::error_line(&format!("written to {}", to.display()));
    Ok(ExitCode::SUCCESS)
}

fn unknown(command: &Command, name: &str) -> Failure {
    let near = did_you_mean(name, command.get_subcommands().map(Command::get_name));
    Failure::new(format!("{name}: no such command{near}"))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

fn page(command: Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
