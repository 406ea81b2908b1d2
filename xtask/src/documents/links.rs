//! Links between documents: every relative one leads to a file, and every anchor to a heading.
//!
//! Owns how links and anchors are found. Anchors are those that GitHub and mdBook give to headings. Links to other hosts are not followed.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use super::markdown::{self, Line};
use crate::run::{Problem, io};

/// A link of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Number of its line, from 1.
    pub(crate) line: usize,
    /// All bytes of it, from the bracket or the exclamation mark on.
    pub(crate) whole: Range<usize>,
    /// Bytes of its text.
    pub(crate) text: Range<usize>,
    /// Bytes of the address.
    pub(crate) address: Range<usize>,
}

/// Finds the links of a document, not those in code.
pub(crate) fn find(text: &str) -> Vec<Link> {
    let prose = markdown::prose(text);
    let mut links = Vec::new();
    for (middle, _) in prose.match_indices("](") {
        let Some(begin) = opening(&prose, middle) else { continue };
        let inside = prose.get(middle + 2..).unwrap_or_default();
        let Some(length) = inside.find(')') else { continue };
        let address = inside.get(..length).unwrap_or_default();
        // A title may follow.
        let address = address.split_whitespace().next().unwrap_or_default();
        let is_image = prose.get(..begin).is_some_and(|before| before.ends_with('!'));
        links.push(Link {
            line: prose.get(..middle).unwrap_or_default().matches('\n').count() + 1,
            whole: begin - usize::from(is_image)..middle + 2 + length + 1,
            text: begin + 1..middle,
            address: middle + 2..middle + 2 + address.len(),
        });
    }
    links
}

/// The bracket that opens a text which ends here.
fn opening(prose: &str, end: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, character) in prose.get(..end)?.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether an address leads to another host.
pub(crate) fn is_elsewhere(address: &str) -> bool {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.chars().all(|character| character.is_ascii_alphanumeric() || "+.-".contains(character))
}

/// The path that a relative address leads to from a document, below the same root; none where it leads out.
pub(crate) fn resolve(document: &Path, address: &str) -> Option<PathBuf> {
    if address.is_empty() {
        return Some(document.to_path_buf());
    }
    let mut path = document.parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(address).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Anchors of a document, in the order of its headings.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = markdown::lines(text).into_iter().filter_map(|line| match line {
        Line::Prose(line) => heading(line),
        _ => None,
    });
    headings
        .map(|title| {
            let slug = slug(title);
            let count = seen.entry(slug.clone()).or_default();
            *count += 1;
            if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
        })
        .collect()
}

/// The title, if the line is a heading.
pub(crate) fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    let depth = line.len() - title.len();
    ((1..=6).contains(&depth) && title.starts_with(' ')).then(|| title.trim())
}

/// The anchor of a title: small letters, hyphens for spaces, without other marks.
fn slug(title: &str) -> String {
    let mut shown = title.to_owned();
    // Of a link the text alone is shown.
    for link in find(title).into_iter().rev() {
        let text = title.get(link.text).unwrap_or_default();
        shown.replace_range(link.whole, text);
    }
    let kept = shown.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Reads documents once each.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    known: BTreeMap<PathBuf, Vec<String>>,
}

impl Checker {
    /// Returns what is wrong with the links of a document, each with its line, and how many it has within the repository.
    pub(crate) fn check(
        &mut self,
        root: &Path,
        document: &Path,
        text: &str,
    ) -> Result<(usize, Vec<(usize, String)>), Problem> {
        let mut problems = Vec::new();
        let mut count = 0;
        for link in find(text) {
            let address = text.get(link.address).unwrap_or_default();
            if is_elsewhere(address) {
                continue;
            }
            count += 1;
            let (path, anchor) = address.split_once('#').map_or((address, None), |(path, anchor)| (path, Some(anchor)));
            let target = resolve(document, path).filter(|target| root.join(target).exists());
            let Some(target) = target else {
                problems.push((link.line, format!("the link `{address}` leads to no file")));
                continue;
            };
            let Some(anchor) = anchor else { continue };
            if !self.anchors_of(root, &target)?.iter().any(|known| known == anchor) {
                problems.push((link.line, format!("the link `{address}` leads to no heading of {}", target.display())));
            }
        }
        Ok((count, problems))
    }

    fn anchors_of(&mut self, root: &Path, document: &Path) -> Result<&[String], Problem> {
        if !self.known.contains_key(document) {
            let path = root.join(document);
            let is_text = document.extension().is_some_and(|extension| extension == "md");
            let text = if is_text { fs::read_to_string(&path).map_err(io(path.display()))? } else { String::new() };
            self.known.insert(document.to_path_buf(), anchors(&text));
        }
        Ok(self.known.get(document).map_or(&[], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_with_their_parts() {
        let text = "x\n[a `[` b](c.md#d \"title\") ![i](j.png) [two\nlines](e)\n`[f](g)`\n";
        let parts = |link: Link| (link.line, text[link.text].to_owned(), text[link.address].to_owned());
        let found: Vec<_> = find(text).into_iter().map(parts).collect();
        let wanted = [(2, "a `[` b", "c.md#d"), (2, "i", "j.png"), (3, "two\nlines", "e")];
        assert_eq!(found, wanted.map(|(line, text, address)| (line, text.to_owned(), address.to_owned())));
        assert_eq!(&text[find(text)[1].whole.clone()], "![i](j.png)");
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text =
            "# The `run` command, and more!\n## Try it\n```sh\n# no heading\n```\n## Try it\n## [a b](c.md) d_e-f\n";
        assert_eq!(anchors(text), ["the-run-command-and-more", "try-it", "try-it-1", "a-b-d_e-f"]);
    }

    #[test]
    fn addresses_are_taken_from_the_document() {
        let from = Path::new("docs/apis/a.md");
        assert_eq!(resolve(from, "../b.md"), Some("docs/b.md".into()));
        assert_eq!(resolve(from, ""), Some(from.into()));
        assert_eq!(resolve(from, "../../../c"), None);
        assert_eq!(resolve(from, "/c"), None);
        assert!(is_elsewhere("https://example.com") && is_elsewhere("mailto:a@b") && !is_elsewhere("a/b.md#c:d"));
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let root = crate::run::root();
        let text =
            "[a](docs/ARCHITECTURE.md#glossary) [b](docs/no.md)\n[c](#none) [d](LICENSE) [e](https://x.y/z)\n# One\n";
        let (count, problems) = Checker::default().check(&root, Path::new("README.md"), text).unwrap();
        assert_eq!(count, 4);
        assert_eq!(problems.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2]);
    }
}
