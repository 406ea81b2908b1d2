//! Scripts that complete commands and options, made from the arguments themselves: `trainyard completion`.
//!
//! Owns the arguments and the shells, for every program of this package. It must not know the commands. Tests:
//! `cli/tests/local/help.rs`.

use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};

use crate::out;

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `trainyard completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(trainyard completion bash)
  trainyard completion zsh > ~/.zfunc/_trainyard
  trainyard completion fish > ~/.config/fish/completions/trainyard.fish")]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script that completes commands and options of a program of this name.
pub fn completion(args: &CompletionArgs, mut command: Command, name: &str) -> ExitCode {
    let mut script = Vec::new();
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, name, &mut script);
    out::print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
