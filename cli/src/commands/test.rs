//! `trainyard test`: scenarios of files and directories, each held to what it expects, and a report for build systems.
//!
//! Owns which files are scenarios and the report (XML as `JUnit` has it). What a scenario is and whether it came out as expected is
//! `simulator`'s. Tests: `tests/local/scenarios.rs`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use terminal::columns::counted;
use terminal::out::{self, Failure};

/// Maximum number of differences that are printed of one scenario.
const MAX_DIFFERENCES: usize = 5;

/// Arguments of `trainyard test`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all came out as expected, 1 one did not, 2 a file is no scenario.

Examples:
  trainyard test scenarios/
  trainyard test scenarios/ --filter restart --junit report.xml")]
pub(crate) struct TestArgs {
    /// Scenarios (YAML), or directories of them, which are searched with all below them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only files whose path contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Write a report as `JUnit` has it (XML).
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print failures and the summary only.
    #[arg(long, short)]
    quiet: bool,
}

/// Outcome of a scenario.
enum Verdict {
    Passed,
    /// It came out otherwise.
    Failed(Vec<String>),
    /// It cannot be read.
    Unusable(String),
}

/// A scenario that was run.
struct Case {
    path: PathBuf,
    verdict: Verdict,
    seconds: f64,
}

/// Runs the scenarios.
pub(crate) fn run(args: &TestArgs) -> Result<ExitCode, Failure> {
    let mut paths = Vec::new();
    for path in &args.paths {
        collect(path, &mut paths)?;
    }
    let wanted = |path: &PathBuf| args.filter.as_deref().is_none_or(|text| path.to_string_lossy().contains(text));
    paths.retain(wanted);
    if paths.is_empty() {
        return Err(Failure::new("no scenario there: scenarios are files that end in .yaml"));
    }
    let mut cases = Vec::new();
    for path in paths {
        let started = Instant::now();
        let verdict = judge(&path);
        let case = Case { path, verdict, seconds: started.elapsed().as_secs_f64() };
        say(&case, args.quiet);
        cases.push(case);
    }
    if let Some(path) = &args.junit {
        fs::write(path, report(&cases)).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    let count = |wanted: fn(&Verdict) -> bool| cases.iter().filter(|case| wanted(&case.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let unusable = count(|verdict| matches!(verdict, Verdict::Unusable(_)));
    let broken = if unusable > 0 { format!(", {unusable} cannot be read") } else { String::new() };
    out::line(&format!(
        "{}: {} passed, {failed} failed{broken}",
        counted(cases.len(), "scenario"),
        cases.len() - failed - unusable
    ));
    Ok(match (failed, unusable) {
        (0, 0) => ExitCode::SUCCESS,
        (_, 0) => ExitCode::from(out::FOUND),
        _ => ExitCode::from(out::USAGE),
    })
}

/// Adds the scenarios of a path, in order.
fn collect(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(failed)?.collect();
    let mut inside: Vec<PathBuf> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    inside.sort();
    for one in inside {
        let is_scenario = one.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        if one.is_dir() || is_scenario {
            collect(&one, found)?;
        }
    }
    Ok(())
}

fn judge(path: &Path) -> Verdict {
    let scenario = match simulator::load(path) {
        Ok(scenario) => scenario,
        Err(error) => return Verdict::Unusable(Failure::from(error).to_string()),
    };
    let run = simulator::run(&scenario);
    let mut differences =
        if scenario.expect.is_empty() { Vec::new() } else { simulator::check::failures(&scenario, &run) };
    if let (Err(error), None) = (&run, &scenario.expect.error) {
        differences.insert(0, error.to_string());
    }
    if differences.is_empty() { Verdict::Passed } else { Verdict::Failed(differences) }
}

fn say(case: &Case, quiet: bool) {
    let path = case.path.display();
    match &case.verdict {
        Verdict::Passed if quiet => {}
        Verdict::Passed => out::line(&format!("ok      {path}")),
        Verdict::Unusable(error) => out::line(&format!("ERROR   {error}")),
        Verdict::Failed(differences) => {
            out::line(&format!("FAILED  {path}"));
            for difference in differences.iter().take(MAX_DIFFERENCES) {
                out::line(&format!("        {difference}"));
            }
            let more = differences.len().saturating_sub(MAX_DIFFERENCES);
            if more > 0 {
                out::line(&format!("        and {more} more"));
            }
        }
    }
}

/// Returns the report: one suite, a case for each scenario.
fn report(cases: &[Case]) -> String {
    let count = |wanted: fn(&Verdict) -> bool| cases.iter().filter(|case| wanted(&case.verdict)).count();
    let failures = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let errors = count(|verdict| matches!(verdict, Verdict::Unusable(_)));
    let seconds: f64 = cases.iter().map(|case| case.seconds).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let totals = format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\"", cases.len());
    let _ = writeln!(xml, "<testsuites {totals}>\n  <testsuite name=\"trainyard\" {totals}>");
    for case in cases {
        let folder = case.path.parent().unwrap_or_else(|| Path::new("")).display().to_string();
        let name = case.path.file_stem().unwrap_or_default().to_string_lossy();
        let _ = write!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" time=\"{:.3}\"",
            escaped(&folder),
            escaped(&name),
            escaped(&case.path.display().to_string()),
            case.seconds
        );
        let (element, text) = match &case.verdict {
            Verdict::Passed => {
                xml.push_str("/>\n");
                continue;
            }
            Verdict::Failed(differences) => ("failure", differences.join("\n")),
            Verdict::Unusable(error) => ("error", error.clone()),
        };
        let first = text.lines().next().unwrap_or_default();
        let _ = writeln!(
            xml,
            ">\n      <{element} message=\"{}\">{}</{element}>\n    </testcase>",
            escaped(first),
            escaped(&text)
        );
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Returns text as it may stand in XML, which has no control characters.
fn escaped(text: &str) -> String {
    let is_banned = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    model::printable::in_markup(&text.replace(is_banned, "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_xml_has_no_markup_of_its_own() {
        assert_eq!(escaped("a < \"b\" & c\u{1b}[1m\n"), "a &lt; &quot;b&quot; &amp; c\u{fffd}[1m\n");
    }
}
