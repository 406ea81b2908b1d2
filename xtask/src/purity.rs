//! The crates that must stay pure: what they are built from, and that they build where there is no operating system.

use crate::run::{Problem, cargo, output, text};

/// Crates that hold the rules. One that the workspace does not have yet is passed over.
const PURE: [&str; 4] = ["model", "scheduler", "engine", "apis"];
/// Runtimes, clients, clocks, chance and storage: none of it may reach a decision.
const BANNED: [&str; 6] = ["tokio", "kube", "rand", "chrono", "dashmap", "sled"];
const WASM: &str = "wasm32-unknown-unknown";

/// The pure crates that this workspace has.
fn crates() -> Result<Vec<&'static str>, Problem> {
    let tree = output(&mut cargo(&["tree", "--workspace", "--depth", "0", "--prefix", "none"]))?;
    if !tree.status.success() {
        return Err(Problem::failed(format!("cargo tree failed:\n{}", text(&tree))));
    }
    let members = names(&String::from_utf8_lossy(&tree.stdout));
    Ok(PURE.into_iter().filter(|name| members.iter().any(|member| member == name)).collect())
}

/// Names of the packages in the output of `cargo tree --prefix none`.
fn names(tree: &str) -> Vec<String> {
    let mut names: Vec<String> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Checks that no pure crate is built from a banned one; says how many packages were looked at.
pub(crate) fn dependencies() -> Result<String, Problem> {
    let crates = crates()?;
    let mut most = 0;
    for name in &crates {
        let tree = output(&mut cargo(&["tree", "-e", "normal", "--prefix", "none", "-p", name]))?;
        if !tree.status.success() {
            return Err(Problem::failed(format!("cargo tree -p {name} failed:\n{}", text(&tree))));
        }
        let packages = names(&String::from_utf8_lossy(&tree.stdout));
        if !packages.iter().any(|package| package == name) {
            return Err(Problem::failed(format!("cargo tree -p {name} does not name {name} itself")));
        }
        let found: Vec<&str> = packages.iter().map(String::as_str).filter(|package| is_banned(package)).collect();
        if !found.is_empty() {
            return Err(Problem::failed(format!("{name} must not be built from {}", found.join(", "))));
        }
        most = most.max(packages.len());
    }
    Ok(format!("{} are built from at most {most} packages, none of {}", crates.join(", "), BANNED.join(", ")))
}

/// A banned package, or one of its family (`kube-client`, `rand_core`).
fn is_banned(package: &str) -> bool {
    BANNED
        .iter()
        .any(|banned| package.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_'])))
}

/// Builds the pure crates for WebAssembly, where there is neither clock nor thread nor file. `None`: the target is not
/// installed and could not be.
pub(crate) fn wasm() -> Result<Option<String>, Problem> {
    if !has_target() {
        let added = std::process::Command::new("rustup").args(["target", "add", WASM]).output();
        if !added.is_ok_and(|added| added.status.success()) || !has_target() {
            return Ok(None);
        }
    }
    let crates = crates()?;
    let mut build = cargo(&["build", "--quiet", "--target", WASM]);
    for name in &crates {
        build.args(["-p", name]);
    }
    crate::run::succeed(&mut build)?;
    Ok(Some(format!("{} build for {WASM}", crates.join(", "))))
}

fn has_target() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libdir = std::process::Command::new(rustc).args(["--print", "target-libdir", "--target", WASM]).output();
    libdir.is_ok_and(|out| {
        out.status.success() && std::path::Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::{is_banned, names};

    #[test]
    fn families_are_banned_and_namesakes_are_not() {
        for package in ["tokio", "tokio-util", "kube", "kube-client", "rand", "rand_core", "sled"] {
            assert!(is_banned(package), "{package}");
        }
        for package in ["random", "kubernetes", "sledge", "serde", "model"] {
            assert!(!is_banned(package), "{package}");
        }
    }

    #[test]
    fn package_names_are_read_from_a_tree() {
        let tree =
            "engine v0.1.0 (/somewhere/engine)\nserde v1.0.0\nserde_derive v1.0.0 (proc-macro)\n\nserde v1.0.0 (*)\n";
        assert_eq!(names(tree), ["engine", "serde", "serde_derive"]);
    }
}
