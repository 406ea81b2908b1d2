//! The crates that must stay pure: the packages they use, and that they compile where there is no operating system.

use crate::dependencies::{members, packages};
use crate::run::{Problem, cargo, has_target};

/// Crates that hold the rules, and views of what they decide. One that the workspace does not have yet is passed over.
const PURE: [&str; 7] = ["model", "settings", "kube-model", "scheduler", "engine", "apis", "explain"];
/// Runtimes, clients, clocks, chance and storage: none of it may reach a decision.
const BANNED: [&str; 6] = ["tokio", "kube", "rand", "chrono", "dashmap", "sled"];
const WASM: &str = "wasm32-unknown-unknown";

/// The pure crates that this workspace has.
fn crates() -> Result<Vec<&'static str>, Problem> {
    let members = members()?;
    Ok(PURE.into_iter().filter(|name| members.iter().any(|member| member == name)).collect())
}

/// Checks that no pure crate is built from a banned one; says how many packages were looked at.
pub(crate) fn dependencies() -> Result<String, Problem> {
    let crates = crates()?;
    let mut most = 0;
    for name in &crates {
        let packages = packages(&["-e", "normal", "-p", name])?;
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
    let is_of = |banned: &&str| {
        package.strip_prefix(*banned).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    };
    // `kube-model` is ours, and pure itself.
    !PURE.contains(&package) && BANNED.iter().any(is_of)
}

/// Checks the pure crates for WebAssembly, where there is neither clock nor thread nor file.
pub(crate) fn wasm() -> Result<String, Problem> {
    if !has_target(WASM) {
        return Err(Problem::Missing(format!("the target {WASM} is not installed: `rustup target add {WASM}`")));
    }
    let crates = crates()?;
    let mut check = cargo(&["check", "--quiet", "--target", WASM]);
    for name in &crates {
        check.args(["-p", name]);
    }
    crate::run::succeed(&mut check)?;
    Ok(format!("{} compile for {WASM}", crates.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::is_banned;

    #[test]
    fn families_are_banned_and_namesakes_are_not() {
        for package in ["tokio", "tokio-util", "kube", "kube-client", "rand", "rand_core", "sled"] {
            assert!(is_banned(package), "{package}");
        }
        for package in ["random", "kubernetes", "sledge", "serde", "model"] {
            assert!(!is_banned(package), "{package}");
        }
    }
}
