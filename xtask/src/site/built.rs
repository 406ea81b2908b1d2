//! The site as mdBook left it: every link in it leads to a file of it, and every anchor to an element.
//!
//! Owns how addresses are read from HTML. What is wrong here is wrong with the source that `site` writes, or with mdBook.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::documents::links;
use crate::run::{Problem, io};

/// Served for addresses that do not exist, so its own are taken from the root of the host.
const NOT_FOUND: &str = "404.html";

/// Links of the site that lead nowhere.
pub(super) fn broken_links(site: &Path) -> Result<Vec<String>, Problem> {
    let mut pages = BTreeMap::new();
    read(site, Path::new(""), &mut pages)?;
    if pages.is_empty() {
        return Err(Problem::failed(format!("{}: mdBook wrote no page", site.display())));
    }
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for address in attributes(text, "href=\"") {
            if links::is_elsewhere(address) {
                continue;
            }
            let (path, anchor) = address.split_once('#').unwrap_or((address, ""));
            let target =
                links::resolve(page, path).map(|path| if path == Path::new("") { "index.html".into() } else { path });
            let is_there = target.as_ref().is_some_and(|target| site.join(target).exists());
            let leads = is_there
                && (anchor.is_empty()
                    || target.and_then(|target| pages.get(&target)).is_some_and(|text| has_element(text, anchor)));
            if !leads {
                broken.push(format!("{}: `{address}` leads nowhere", page.display()));
            }
        }
    }
    Ok(broken)
}

fn read(site: &Path, directory: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<(), Problem> {
    let path = site.join(directory);
    for entry in fs::read_dir(&path).map_err(io(path.display()))? {
        let entry = entry.map_err(io(path.display()))?;
        let own = directory.join(entry.file_name());
        if entry.path().is_dir() {
            read(site, &own, pages)?;
        } else if own.extension().is_some_and(|extension| extension == "html") && own != Path::new(NOT_FOUND) {
            pages.insert(own, fs::read_to_string(entry.path()).map_err(io(entry.path().display()))?);
        }
    }
    Ok(())
}

/// Values of an attribute, each once.
fn attributes<'a>(text: &'a str, name: &str) -> BTreeSet<&'a str> {
    text.split(name).skip(1).filter_map(|rest| rest.split('"').next()).filter(|value| !value.is_empty()).collect()
}

fn has_element(text: &str, anchor: &str) -> bool {
    text.contains(&format!("id=\"{anchor}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Scratch;

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let scratch = Scratch::new("site").unwrap();
        let site = scratch.join("");
        fs::create_dir_all(site.join("docs")).unwrap();
        let page = r##"<h1 id="a"></h1><a href="../index.html#b"><a href="#a"><a href="#c"><a href="no.html"><a href="https://x.y">"##;
        fs::write(site.join("docs/p.html"), page).unwrap();
        fs::write(site.join("index.html"), r#"<a id="b" href="docs/p.html">"#).unwrap();
        let wanted = ["docs/p.html: `#c` leads nowhere", "docs/p.html: `no.html` leads nowhere"];
        assert_eq!(broken_links(&site).unwrap(), wanted);
    }
}
