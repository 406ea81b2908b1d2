//! The table in `docs/ARCHITECTURE.md` of which crate of this workspace uses which.
//!
//! Owns making it from `cargo tree`, and comparing it with the document. Must not judge it: `purity` does.

use std::fs;
use std::path::PathBuf;

use crate::run::{Problem, cargo, io, output, root, text};

const BEGIN: &str = "<!-- dependencies: written by `cargo xtask dependencies` -->\n";
const END: &str = "<!-- dependencies end -->\n";

/// Names of the packages in one `cargo tree` of this workspace, sorted.
pub(crate) fn packages(args: &[&str]) -> Result<Vec<String>, Problem> {
    let tree = output(cargo(&["tree", "--prefix", "none"]).args(args))?;
    if !tree.status.success() {
        return Err(Problem::failed(format!("cargo tree {} failed:\n{}", args.join(" "), text(&tree))));
    }
    Ok(names(&String::from_utf8_lossy(&tree.stdout)))
}

/// Names of the packages in the output of `cargo tree --prefix none`.
fn names(tree: &str) -> Vec<String> {
    let mut names: Vec<String> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Packages of this workspace.
pub(crate) fn members() -> Result<Vec<String>, Problem> {
    packages(&["--workspace", "--depth", "0"])
}

/// Writes the table into the document.
pub(crate) fn write() -> Result<(), Problem> {
    let (path, before, _, after) = document()?;
    fs::write(&path, format!("{before}{}{after}", table()?)).map_err(io(path.display()))?;
    println!("{}: dependency table written", path.display());
    Ok(())
}

/// Fails if the table in the document is not that of the manifests.
pub(crate) fn check() -> Result<String, Problem> {
    let (path, _, found, _) = document()?;
    let table = table()?;
    if found != table {
        let shown = path.display();
        return Err(Problem::failed(format!(
            "{shown}: the dependency table is out of date; run `cargo xtask dependencies`"
        )));
    }
    Ok(format!("{} rows as in the manifests", table.lines().count().saturating_sub(2)))
}

/// The document's path, and its text before, in and after the table.
fn document() -> Result<(PathBuf, String, String, String), Problem> {
    let path = root().join("docs/ARCHITECTURE.md");
    let text = fs::read_to_string(&path).map_err(io(path.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let Some((before, (table, after))) = parts else {
        let shown = path.display();
        return Err(Problem::failed(format!("{shown}: no place for the dependency table: {BEGIN}...{END}")));
    };
    Ok((path, format!("{before}{BEGIN}"), table.to_owned(), format!("{END}{after}")))
}

/// The table: users below what they use.
fn table() -> Result<String, Problem> {
    let members = members()?;
    let mut rows = Vec::new();
    for name in &members {
        let own = |edges: &str| -> Result<Vec<String>, Problem> {
            let used = packages(&["--depth", "1", "-e", edges, "-p", name])?;
            Ok(used.into_iter().filter(|used| used != name && members.contains(used)).collect())
        };
        let (uses, mut tests) = (own("normal")?, own("dev")?);
        tests.retain(|used| !uses.contains(used));
        rows.push((name.as_str(), uses, tests));
    }
    Ok(render(&ordered(rows)))
}

type Row<'a> = (&'a str, Vec<String>, Vec<String>);

/// Rows so that what a crate uses stands above it, otherwise by name.
fn ordered(mut rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let mut placed: Vec<Row<'_>> = Vec::new();
    while !rows.is_empty() {
        let is_ready = |row: &Row<'_>| row.1.iter().all(|used| placed.iter().any(|(name, ..)| name == used));
        // Cargo refuses circles, so one is always ready.
        let next = rows.iter().position(is_ready).unwrap_or_default();
        placed.push(rows.remove(next));
    }
    placed
}

fn render(rows: &[Row<'_>]) -> String {
    let list = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let lines = rows.iter().map(|(name, uses, tests)| format!("| `{name}` | {} | {} |\n", list(uses), list(tests)));
    std::iter::once("| crate | uses | its tests also use |\n|---|---|---|\n".to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::{names, ordered, render};

    #[test]
    fn package_names_are_read_from_a_tree() {
        let tree =
            "engine v0.1.0 (/somewhere/engine)\nserde v1.0.0\nserde_derive v1.0.0 (proc-macro)\n\nserde v1.0.0 (*)\n";
        assert_eq!(names(tree), ["engine", "serde", "serde_derive"]);
    }

    #[test]
    fn what_a_crate_uses_stands_above_it() {
        let row = |name, uses: &[&str]| (name, uses.iter().map(|u| (*u).to_owned()).collect(), Vec::new());
        let rows = ordered(vec![row("apis", &["engine", "model"]), row("engine", &["model"]), row("model", &[])]);
        let table = render(&rows);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines, ["| `model` |  |  |", "| `engine` | `model` |  |", "| `apis` | `engine`, `model` |  |"]);
    }
}
