//! `trainyard validate`: what is wrong with manifests, without starting anything.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::columns::counted;
use crate::commands::story::Output;
use crate::manifests;
use crate::out;

/// Arguments of `trainyard validate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard validate job.yaml
  trainyard validate -o json manifests/*.yaml")]
pub(crate) struct ValidateArgs {
    /// Manifest files (YAML or JSON).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Text for people, one line for each finding, or one JSON object.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Validates. Exit code 0 without errors (warnings are none), 1 with errors, 2 when a file cannot be read.
pub(crate) fn run(args: &ValidateArgs) -> ExitCode {
    let manifests = manifests::examine(&args.files);
    let errors = manifests.problems.iter().filter(|problem| problem.is_error()).count();
    let objects = manifests.objects.len() + manifests.unnamed.len();
    match args.output {
        Output::Json => {
            let findings: Vec<_> = manifests.problems.iter().map(manifests::Problem::to_json).collect();
            out::line(&json!({"objects": objects, "errors": errors, "findings": findings}).to_string());
        }
        Output::Text => {
            for problem in &manifests.problems {
                out::line(&problem.line(false));
            }
            let warnings = manifests.problems.len() - errors;
            out::error_line(&format!(
                "{} in {}: {}, {}",
                counted(objects, "object"),
                counted(args.files.len(), "file"),
                counted(errors, "error"),
                counted(warnings, "warning")
            ));
        }
    }
    if manifests.unreadable {
        ExitCode::from(out::USAGE)
    } else if errors > 0 {
        ExitCode::from(out::FOUND)
    } else {
        ExitCode::SUCCESS
    }
}
