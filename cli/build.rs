//! Records the commit that the binary is built from, for `trainyard version`. Without git it is not known.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
    };
    // The commit changes with these files alone; changes that are not committed do not count.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-env-changed=TRAINYARD_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("TRAINYARD_COMMIT").ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])) {
        println!("cargo::rustc-env=TRAINYARD_COMMIT={commit}");
        if let Some(date) = git(&["show", "--no-patch", "--format=%cs", &commit]) {
            println!("cargo::rustc-env=TRAINYARD_COMMIT_DATE={date}");
        }
    }
}
