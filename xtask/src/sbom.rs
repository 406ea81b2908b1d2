//! The bill of materials of the shipped binary, in `CycloneDX` 1.5: each crate in it with version, licence and digest.
//!
//! Owns how `cargo-cyclonedx` is called and what becomes of its files. It writes one for each package of the workspace, beside its
//! manifest; that of the binary is published, without paths of this machine, and the others are removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, VERSION, io, root, succeed};
use crate::tools::Tool;

const CYCLONEDX: Tool = Tool { package: "cargo-cyclonedx", version: "0.5.9", options: &[] };
/// The package of the binary.
const PACKAGE: &str = "cli";

/// Writes it for a target.
pub(crate) fn write(triple: &str, epoch: &str, to: &Path) -> Result<PathBuf, Problem> {
    let stem = format!("trainyard-{VERSION}-{triple}.cdx");
    let name = format!("{stem}.json");
    let mut tool = Command::new(CYCLONEDX.installed()?);
    tool.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--no-build-deps"]);
    tool.args(["--target", triple, "--override-filename", &stem, "--manifest-path"]);
    tool.arg(root().join(PACKAGE).join("Cargo.toml")).env("SOURCE_DATE_EPOCH", epoch);
    let called = succeed(&mut tool);
    let written = collect(&name)?;
    called?;
    let text = written.ok_or_else(|| Problem::failed(format!("cargo-cyclonedx wrote no {PACKAGE}/{name}")))?;
    let path = to.join(&name);
    fs::write(&path, without_root(&text, &root())).map_err(io(path.display()))?;
    Ok(path)
}

/// Takes the files out of the packages, and returns the text of that of the binary.
fn collect(name: &str) -> Result<Option<String>, Problem> {
    let mut found = None;
    for entry in fs::read_dir(root()).map_err(io(root().display()))? {
        let directory = entry.map_err(io(root().display()))?.path();
        let file = directory.join(name);
        if file.is_file() {
            if directory.ends_with(PACKAGE) {
                found = Some(fs::read_to_string(&file).map_err(io(file.display()))?);
            }
            fs::remove_file(&file).map_err(io(file.display()))?;
        }
    }
    Ok(found)
}

/// Names packages of the workspace by their place in it.
fn without_root(text: &str, root: &Path) -> String {
    text.replace(&format!("file://{}/", root.display()), "file:///")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_by_their_place_in_the_workspace() {
        let text = "\"path+file:///home/me/src/model#0.1.0\"";
        assert_eq!(without_root(text, Path::new("/home/me/src")), "\"path+file:///model#0.1.0\"");
    }
}
