//! The built binary as a user has it: the samples run, and what they left behind is looked at.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::arch::Arch;
use crate::run::{
    Problem, Scratch, TEST_PROGRAMS, Watched, argument, built, cargo, io, is_there, root, succeed, watch,
};
use crate::venv;
use crate::wheel::{self, Platforms};

/// A sample that is not done by then never will be.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the samples with the debug build that the tests left.
pub(crate) fn run() -> Result<String, Problem> {
    succeed(&mut cargo(&TEST_PROGRAMS))?;
    let user = User { binary: built("trainyard"), scratch: Scratch::new("smoke")? };
    user.quickstart()?;
    user.simulated()?;
    if !is_there("python3") {
        return Ok("quickstart ran, replayed and simulated; what needs Python was passed over: no python3".to_owned());
    }
    user.python()?;
    user.wheel()?;
    Ok("quickstart ran, replayed and simulated; the Python sample ran, and the wheel was installed".to_owned())
}

struct User {
    binary: PathBuf,
    scratch: Scratch,
}

impl User {
    /// The first thing a new user does, and what the log then shows.
    fn quickstart(&self) -> Result<(), Problem> {
        let data = self.scratch.join("quickstart");
        let sample = "deploy/samples/quickstart.yaml";
        self.says(
            &["run", sample, "--data-dir", argument(&data)],
            &["Succeed, 1 restart, ", "quickstart  Restarting"],
        )?;
        // The same again finds the job done and runs nothing.
        self.says(&["run", sample, "--data-dir", argument(&data)], &["Succeed, 1 restart, "])?;
        let export = self.scratch.join("quickstart.jsonl.gz");
        self.says(&["log", "verify", argument(&data)], &["good"])?;
        self.says(&["log", "export", argument(&data), "--to", argument(&export)], &[])?;
        self.says(&["replay", argument(&export)], &["all decided alike"])?;
        self.says(&["history", "quickstart", "--log", argument(&export)], &["Restarting"])
    }

    fn simulated(&self) -> Result<(), Problem> {
        let fault = "--fault=exit=quickstart-trainer-1:1@5s";
        self.says(&["simulate", "deploy/samples/quickstart.yaml", fault], &["Succeed, 1 restart, "])
    }

    fn python(&self) -> Result<(), Problem> {
        let data = self.scratch.join("python");
        let sample = "deploy/samples/python-allreduce.yaml";
        self.says(
            &["run", sample, "--logs", "--data-dir", argument(&data)],
            &["Succeed, 1 restart, ", "sums are right"],
        )
    }

    /// The wheel with this binary, without its line tables, in an environment that has nothing else.
    fn wheel(&self) -> Result<(), Problem> {
        let (stripped, venv) = (self.scratch.join("stripped"), self.scratch.join("venv"));
        succeed(Command::new("objcopy").arg("--strip-all").args([&self.binary, &stripped]))?;
        let wheel = wheel::write(Arch::OWN, &stripped, Platforms::Glibc, "1700000000", &self.scratch.join(""))?;
        println!("$ pip install {}", wheel.display());
        venv::create(&venv)?;
        let programs = venv.join("bin");
        venv::pip_install(&programs, &["--no-index", argument(&wheel)])?;
        let user = Self { binary: programs.join("trainyard"), scratch: Scratch::new("wheel-user")? };
        user.says(&["--version"], &[concat!("trainyard ", env!("CARGO_PKG_VERSION"))])?;
        let data = user.scratch.join("data");
        user.says(&["run", "deploy/samples/quickstart.yaml", "--data-dir", argument(&data)], &["Succeed, 1 restart, "])
    }

    /// Runs the binary; it has to succeed and to say all of this.
    fn says(&self, args: &[&str], wanted: &[&str]) -> Result<(), Problem> {
        let shown = format!("trainyard {}", args.join(" "));
        println!("$ {shown}");
        let path = self.scratch.join("output");
        // Into a file: the program continues though its output is not read.
        let file = File::create(&path).map_err(io(path.display()))?;
        let mut child = Command::new(&self.binary)
            .args(args)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(io(path.display()))?)
            .stderr(file)
            .spawn()
            .map_err(io(&shown))?;
        let ended = watch(&mut child, Duration::from_millis(50), LIMIT, &mut |_| {})?;
        let output = std::fs::read_to_string(&path).map_err(io(path.display()))?;
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
