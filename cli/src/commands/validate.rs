//! `trainyard validate`: what is wrong with manifests, without starting anything.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use inputs::manifests::{self, Manifests, Server};
use k8s_driver::api_server;
use serde_json::json;
use terminal::columns::counted;
use terminal::out::{self, Failure};
use tokio::runtime::Builder;

use crate::commands::story::Output;

/// Arguments of `trainyard validate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard validate job.yaml
  trainyard validate -o json manifests/*.yaml
  trainyard validate --server job.yaml")]
pub(crate) struct ValidateArgs {
    /// Manifest files (YAML or JSON).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Text for people, one line for each finding, or one JSON object.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Ask the API server of the kubeconfig as well: it checks each object in a dry run, with its admission, and stores nothing.
    #[arg(long)]
    server: bool,
    /// Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE", requires = "server")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, requires = "server")]
    context: Option<String>,
    /// Namespace of objects that name none. Default: that of the context.
    #[arg(long, short, value_name = "NAME", requires = "server")]
    namespace: Option<String>,
}

/// Asks the API server of the kubeconfig. Returns its address.
fn ask(args: &ValidateArgs, manifests: &mut Manifests) -> Result<String, Failure> {
    let options = api_server::Options {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        ..api_server::Options::default()
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async {
        let mut server = Server::connect(&options, args.namespace.clone()).await?;
        manifests.ask(&mut server).await?;
        Ok(server.address)
    });
    asked.map_err(|failure: Failure| failure.with("; without --server the files alone are checked"))
}

/// Validates. Exit code 0 without errors (warnings are none), 1 with errors, 2 when a file cannot be read, or no API server answers.
///
/// # Errors
/// When the API server that is to be asked does not answer.
pub(crate) fn run(args: &ValidateArgs) -> Result<ExitCode, Failure> {
    let mut manifests = manifests::examine(&args.files);
    let asked = if args.server { Some(ask(args, &mut manifests)?) } else { None };
    let errors = manifests.problems.iter().filter(|problem| problem.is_error()).count();
    let objects = manifests.objects.len() + manifests.unnamed.len();
    match args.output {
        Output::Json => {
            let findings: Vec<_> = manifests.problems.iter().map(manifests::Problem::to_json).collect();
            let mut report = json!({"objects": objects, "errors": errors, "findings": findings});
            if let Some(address) = asked {
                report["server"] = address.into();
            }
            out::line(&report.to_string());
        }
        Output::Text => {
            for problem in &manifests.problems {
                out::line(&problem.line(false));
            }
            let warnings = manifests.problems.len() - errors;
            let by = asked.map(|address| format!("; asked the API server {address}")).unwrap_or_default();
            out::error_line(&format!(
                "{} in {}: {}, {}{by}",
                counted(objects, "object"),
                counted(args.files.len(), "file"),
                counted(errors, "error"),
                counted(warnings, "warning")
            ));
        }
    }
    Ok(if manifests.unreadable {
        ExitCode::from(out::USAGE)
    } else if errors > 0 {
        ExitCode::from(out::FOUND)
    } else {
        ExitCode::SUCCESS
    })
}
