//! `cargo xtask site`: the documents as a site, built with mdBook.
//!
//! Owns which pages it has, in which order, and what becomes of links. The order stands in `docs/SUMMARY.md`, in which each page is listed once:
//! a comment `pages of DIRECTORY/` stands for all of a directory that are not. The source of the site lies as the repository does, so
//! links between pages are right in both. Links to other files lead to the repository, or are plain text where `Cargo.toml` names none.

mod built;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::documents::markdown::{self, Line};
use crate::documents::{self, links};
use crate::run::{Problem, io, root, succeed, target};
use crate::tools::Tool;

/// The site generator. Its server and its watcher, which are left out, are most of what it is compiled from.
const MDBOOK: Tool =
    Tool { package: "mdbook", version: "0.5.4", options: &["--no-default-features", "--features", "search"] };
const SUMMARY: &str = "docs/SUMMARY.md";
const SETTINGS: &str = "docs/book.toml";

/// Builds the site.
pub(crate) fn run() -> Result<(), Problem> {
    let missing = missing_pages()?;
    if !missing.is_empty() {
        return Err(Problem::failed(missing.join("\n")));
    }
    let mdbook = MDBOOK.installed()?;
    let (source, site) = (target().join("site-source"), target().join("site"));
    for directory in [&source, &site] {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(io(directory.display()))?;
        }
    }
    write_source(&source)?;
    succeed(Command::new(mdbook).arg("build").arg(&source).arg("--dest-dir").arg(&site))?;
    let broken = built::broken_links(&site)?;
    if !broken.is_empty() {
        return Err(Problem::failed(broken.join("\n")));
    }
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// Pages that the summary does not list, each as a problem with its remedy.
pub(crate) fn missing_pages() -> Result<Vec<String>, Problem> {
    let pages = pages()?;
    let listed = Summary::read(&pages)?.listed;
    let missing = pages.iter().filter(|page| !listed.contains(page));
    Ok(missing.map(|page| format!("{}: not in {SUMMARY}: list it there", page.display())).collect())
}

/// Every document but the summary is a page.
fn pages() -> Result<Vec<PathBuf>, Problem> {
    let mut pages = documents::all()?;
    pages.retain(|page| page != Path::new(SUMMARY));
    Ok(pages)
}

/// The summary with all its pages.
#[derive(Debug)]
struct Summary {
    text: String,
    /// Pages in their order.
    listed: Vec<PathBuf>,
}

impl Summary {
    fn read(pages: &[PathBuf]) -> Result<Self, Problem> {
        let path = root().join(SUMMARY);
        let text = fs::read_to_string(&path).map_err(io(path.display()))?;
        Self::expand(&text, pages, &mut |page| {
            let path = root().join(page);
            let text = fs::read_to_string(&path).map_err(io(path.display()))?;
            let title = markdown::lines(&text).into_iter().find_map(|line| match line {
                Line::Prose(line) => links::heading(line).map(str::to_owned),
                _ => None,
            });
            title.ok_or_else(|| Problem::failed(format!("{}: no heading to list it by", page.display())))
        })
    }

    /// Puts lists of pages in place of the comments that stand for them. A heading without any page is left out.
    fn expand(
        text: &str,
        pages: &[PathBuf],
        title: &mut dyn FnMut(&Path) -> Result<String, Problem>,
    ) -> Result<Self, Problem> {
        let summary = Path::new(SUMMARY);
        let resolve = |address: &str| links::resolve(summary, address);
        let named: BTreeSet<PathBuf> =
            links::find(text).iter().filter_map(|link| resolve(text.get(link.address.clone())?)).collect();
        let mut expanded = String::new();
        for line in text.lines() {
            let directory = line.trim().strip_prefix("<!-- pages of ").and_then(|rest| rest.strip_suffix("/ -->"));
            let Some(directory) = directory else {
                expanded.push_str(line);
                expanded.push('\n');
                continue;
            };
            let whole = resolve(directory).unwrap_or_default();
            for page in pages.iter().filter(|page| page.parent() == Some(&whole) && !named.contains(*page)) {
                let name = page.file_name().unwrap_or_default().to_string_lossy();
                let _ = writeln!(expanded, "- [{}]({directory}/{name})", title(page)?);
            }
        }
        let expanded = without_empty_parts(&expanded);
        let addresses = links::find(&expanded).into_iter().filter_map(|link| resolve(expanded.get(link.address)?));
        let listed = addresses.collect();
        Ok(Self { text: expanded, listed })
    }
}

/// Leaves out headings that no page follows.
fn without_empty_parts(text: &str) -> String {
    let mut kept = String::new();
    for part in text.split_inclusive("\n# ") {
        // The mark belongs to the next part.
        let (own, mark) = part.strip_suffix("# ").map_or((part, ""), |own| (own, "# "));
        if kept.ends_with("# ") && !own.contains("](") {
            kept.truncate(kept.len() - 2);
        } else {
            kept.push_str(own);
        }
        kept.push_str(mark);
    }
    kept
}

/// Writes what mdBook builds the site of.
fn write_source(source: &Path) -> Result<(), Problem> {
    let pages = pages()?;
    let summary = Summary::read(&pages)?;
    let repository = repository()?;
    let mut settings = read(SETTINGS)?;
    if let Some(url) = &repository {
        let _ = writeln!(settings, "git-repository-url = \"{url}\"");
    }
    write(&source.join("book.toml"), &settings)?;
    let rewriter = Rewriter { pages: &summary.listed, repository: repository.as_deref() };
    let (written, _) = rewriter.rewrite(Path::new("SUMMARY.md"), &from_root(&summary.text));
    write(&source.join("src/SUMMARY.md"), &written)?;
    for page in &pages {
        let (written, files) = rewriter.rewrite(page, &read(page)?);
        write(&source.join("src").join(with_index(page)), &written)?;
        for file in files {
            let to = source.join("src").join(&file);
            fs::copy(root().join(&file), &to).map_err(io(to.display()))?;
        }
    }
    Ok(())
}

/// The summary as it is one directory higher.
fn from_root(text: &str) -> String {
    let mut moved = text.to_owned();
    for link in links::find(text).into_iter().rev() {
        let address = text.get(link.address.clone()).unwrap_or_default();
        let path = links::resolve(Path::new(SUMMARY), address).unwrap_or_default();
        moved.replace_range(link.address, &path.to_string_lossy());
    }
    moved
}

/// The first page of a directory is its index.
fn with_index(page: &Path) -> PathBuf {
    if page.file_name().is_some_and(|name| name == "README.md") { page.with_file_name("index.md") } else { page.into() }
}

/// The URL of the repository, if the workspace names one.
fn repository() -> Result<Option<String>, Problem> {
    let manifest = read("Cargo.toml")?;
    let value = manifest.lines().find_map(|line| line.strip_prefix("repository = \"")?.strip_suffix('"'));
    Ok(value.map(|url| url.trim_end_matches('/').to_owned()))
}

/// Makes pages of documents.
struct Rewriter<'a> {
    /// In their order.
    pages: &'a [PathBuf],
    repository: Option<&'a str>,
}

impl Rewriter<'_> {
    /// Returns the text of a page, and the files that it links to and that belong to the site.
    fn rewrite(&self, document: &Path, text: &str) -> (String, Vec<PathBuf>) {
        let mut files = Vec::new();
        let mut page = text.to_owned();
        for link in links::find(text).into_iter().rev() {
            let address = text.get(link.address.clone()).unwrap_or_default();
            let (path, anchor) = address.split_once('#').unwrap_or((address, ""));
            if links::is_elsewhere(address) || path.is_empty() {
                continue;
            }
            let Some(target) = links::resolve(document, path) else { continue };
            let found = self.pages.iter().find(|page| **page == target);
            // A directory is as its first page.
            let found = found.or_else(|| self.pages.iter().find(|page| page.starts_with(&target)));
            if let Some(found) = found {
                let hash = if anchor.is_empty() { "" } else { "#" };
                page.replace_range(link.address, &format!("{}{hash}{anchor}", relative(document, &with_index(found))));
            } else if target.starts_with("docs") && root().join(&target).is_file() {
                files.push(target);
            } else if let Some(repository) = self.repository {
                page.replace_range(link.address, &format!("{repository}/blob/HEAD/{}", target.display()));
            } else {
                page.replace_range(link.whole, text.get(link.text).unwrap_or_default());
            }
        }
        (without_words(&page), files)
    }
}

/// Leaves out what readers do not see: comments, and what stands after the language of a fence.
fn without_words(text: &str) -> String {
    let mut kept = String::new();
    let mut in_comment = false;
    for (line, whole) in markdown::lines(text).into_iter().zip(text.lines()) {
        let was_in_comment = std::mem::replace(&mut in_comment, matches!(line, Line::Comment(_)));
        if in_comment || (was_in_comment && line == Line::Close) {
            continue;
        }
        let words = match line {
            Line::Open(info) => info.split_once(' ').map_or("", |(_, words)| words),
            _ => "",
        };
        kept.push_str(whole.trim_end().strip_suffix(words).unwrap_or(whole).trim_end());
        kept.push('\n');
    }
    kept
}

/// The address of a page from a document.
fn relative(document: &Path, page: &Path) -> String {
    let from: Vec<_> = document.parent().into_iter().flat_map(Path::components).collect();
    let to: Vec<_> = page.components().collect();
    let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = std::iter::repeat_n("..".to_owned(), from.len() - common);
    let down = to.iter().skip(common).map(|component| component.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

fn read(path: impl AsRef<Path>) -> Result<String, Problem> {
    let path = root().join(path);
    fs::read_to_string(&path).map_err(io(path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), Problem> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).map_err(io(directory.display()))?;
    fs::write(path, text).map_err(io(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_directory_is_expanded_and_an_empty_one_left_out() {
        let text = "# Summary\n\n[A](../README.md)\n\n# Guides\n\n<!-- pages of guides/ -->\n\n# APIs\n\n- [B](apis/b.md)\n<!-- pages of apis/ -->\n";
        let pages = paths(&["README.md", "docs/apis/a.md", "docs/apis/b.md", "docs/c.md"]);
        let summary = Summary::expand(text, &pages, &mut |page| Ok(page.display().to_string())).unwrap();
        assert_eq!(summary.listed, paths(&["README.md", "docs/apis/b.md", "docs/apis/a.md"]));
        assert!(!summary.text.contains("Guides"), "{}", summary.text);
        assert!(
            summary.text.ends_with("# APIs\n\n- [B](apis/b.md)\n- [docs/apis/a.md](apis/a.md)\n"),
            "{}",
            summary.text
        );
    }

    #[test]
    fn links_of_a_page_lead_to_pages() {
        let pages = paths(&["README.md", "docs/a.md", "docs/apis/b.md", "docs/apis/c.md"]);
        let text = "[r](../../README.md#x) [d](../../docs/apis/) [s](../../LICENSE) [c](c.md) [e](https://e.f) [m](../measured.csv)\n\
                    <!-- sh\na\n-->\n```sh by-hand\n[x](LICENSE)\n```\n";
        let document = Path::new("docs/apis/b.md");
        let (page, files) = Rewriter { pages: &pages, repository: None }.rewrite(document, text);
        let code = "```sh\n[x](LICENSE)\n```\n";
        let wanted = "[r](../../index.md#x) [d](b.md) s [c](c.md) [e](https://e.f) [m](../measured.csv)\n";
        assert_eq!(page, format!("{wanted}{code}"));
        assert_eq!(files, paths(&["docs/measured.csv"]));
        let (page, _) =
            Rewriter { pages: &pages, repository: Some("https://h/r") }.rewrite(document, "[s](../../LICENSE)");
        assert_eq!(page, "[s](https://h/r/blob/HEAD/LICENSE)\n");
    }

    #[test]
    fn the_summary_moves_to_the_root() {
        assert_eq!(from_root("[A](../README.md)\n- [B](apis/b.md)\n"), "[A](README.md)\n- [B](docs/apis/b.md)\n");
    }
}
