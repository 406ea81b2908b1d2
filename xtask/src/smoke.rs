//! The built binary as a user has it: the samples run, and what they left behind is looked at.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::run::{Problem, Scratch, Watched, build_quietly, built, io, is_there, root, watch};

/// A sample that is not done by then never will be.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the samples with the debug build that the tests left.
pub(crate) fn run() -> Result<String, Problem> {
    build_quietly(&["trainyard"])?;
    let user = User { binary: built("trainyard"), scratch: Scratch::new("smoke")? };
    user.quickstart()?;
    user.simulated()?;
    if !is_there("python3") {
        return Ok("quickstart ran, replayed and simulated; the Python sample was passed over: no python3".to_owned());
    }
    user.python()?;
    Ok("quickstart ran, replayed and simulated; the Python sample ran".to_owned())
}

struct User {
    binary: PathBuf,
    scratch: Scratch,
}

impl User {
    /// The first thing a new user does, and what the log then tells.
    fn quickstart(&self) -> Result<(), Problem> {
        let data = self.scratch.join("quickstart");
        let sample = "deploy/samples/quickstart.yaml";
        self.says(&["run", sample, "--data-dir", text(&data)], &["Succeed, 1 restart, ", "quickstart  Restarting"])?;
        // The same again finds the job done and runs nothing.
        self.says(&["run", sample, "--data-dir", text(&data)], &["Succeed, 1 restart, "])?;
        let export = self.scratch.join("quickstart.jsonl.gz");
        self.says(&["log", "verify", text(&data)], &["good"])?;
        self.says(&["log", "export", text(&data), "--to", text(&export)], &[])?;
        self.says(&["replay", text(&export)], &["all decided alike"])?;
        self.says(&["history", "quickstart", "--log", text(&export)], &["Restarting"])
    }

    fn simulated(&self) -> Result<(), Problem> {
        let fault = "--fault=exit=quickstart-trainer-1:1@5s";
        self.says(&["simulate", "deploy/samples/quickstart.yaml", fault], &["Succeed, 1 restart, "])
    }

    fn python(&self) -> Result<(), Problem> {
        let data = self.scratch.join("python");
        let sample = "deploy/samples/python-allreduce.yaml";
        self.says(&["run", sample, "--logs", "--data-dir", text(&data)], &["Succeed, 1 restart, ", "sums are right"])
    }

    /// Runs the binary; it has to succeed and to say all of this.
    fn says(&self, args: &[&str], wanted: &[&str]) -> Result<(), Problem> {
        let shown = format!("trainyard {}", args.join(" "));
        println!("$ {shown}");
        let told = self.scratch.join("output");
        // Into a file: the program goes on though its output is not read.
        let file = File::create(&told).map_err(io(told.display()))?;
        let mut child = Command::new(&self.binary)
            .args(args)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(io(told.display()))?)
            .stderr(file)
            .spawn()
            .map_err(io(&shown))?;
        let ended = watch(&mut child, Duration::from_millis(50), LIMIT, &mut |_| {})?;
        let output = std::fs::read_to_string(&told).map_err(io(told.display()))?;
        match ended {
            Watched::Ended(status) if status.success() => {}
            Watched::Ended(status) => {
                return Err(Problem::failed(format!("`{shown}` failed ({status}):\n{output}")));
            }
            Watched::TooLong => {
                return Err(Problem::failed(format!("`{shown}` was not done after {} s:\n{output}", LIMIT.as_secs())));
            }
        }
        match wanted.iter().find(|words| !output.contains(**words)) {
            None => Ok(()),
            Some(missing) => Err(Problem::failed(format!("`{shown}` did not say `{missing}`:\n{output}"))),
        }
    }
}

/// A path as an argument: those made here are plain text.
fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
