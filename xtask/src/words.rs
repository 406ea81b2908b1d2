//! Words that this house does not use, in comments, texts, names and documents.
//!
//! Owns the list: each word, and what to write instead. Must not judge more than single words: that is for a reviewer.

use std::fs;
use std::path::Path;

use crate::documents::markdown::{self, Line};
use crate::run::{Problem, io, output, root, text};

/// Words of comments, texts and documents, with what to write instead.
const PROSE: [(&str, &str); 12] = [
    ("anew", "again"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("misshapen", "outdated"),
    ("nobody", "the part of the system that does not"),
    ("somebody", "the client, user or controller that does"),
    ("tell", "report, show, name or distinguish"),
    ("telling", "reporting, showing"),
    ("tells", "reports, shows, names or distinguishes"),
    ("told", "reported, printed or asked"),
    ("whoever", "the client or user that does"),
    ("went on", "continued"),
];

/// Words in names of types, functions and members, with what to write instead. A name is split at its underscores and capitals.
const NAMES: [(&str, &str); 19] = [
    ("anew", "again"),
    ("belief", "estimate"),
    ("contestant", "candidate"),
    ("coverage", "tracker"),
    ("desk", "scheduling"),
    ("entrant", "candidate"),
    ("inquiry", "request"),
    ("learner", "estimator"),
    ("lesson", "sample"),
    ("misshapen", "outdated"),
    ("nobody", "the part of the system that does not"),
    ("pupil", "estimate"),
    ("somebody", "the client that does"),
    ("steering", "patch"),
    ("tell", "report, show, emit"),
    ("tells", "reports, shows"),
    ("tenancy", "queue snapshot"),
    ("told", "reported, printed, asked"),
    ("untold", "pending"),
];

/// Documents and sources whose words are another's, or of their time.
const EXEMPT: [&str; 4] = ["CHANGELOG.md", "fixtures/legacy/", "fixtures/logs/", "xtask/src/words.rs"];

/// A word that is in the list, where it stands.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    word: &'static str,
    instead: &'static str,
}

/// Fails if a source or document has a word of the list. Returns how many files have none.
pub(crate) fn check() -> Result<String, Problem> {
    let (mut files, mut problems) = (0, Vec::new());
    for path in tracked()? {
        if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        let content = fs::read_to_string(root().join(&path)).map_err(io(&path))?;
        let found = if is_document(&path) { in_document(&content) } else { in_source(&content) };
        problems.extend(found.iter().map(|one| format!("{path}:{}: `{}`: write {}", one.line, one.word, one.instead)));
        files += 1;
    }
    if problems.is_empty() { Ok(format!("{files} files")) } else { Err(Problem::failed(problems.join("\n"))) }
}

/// Returns true for the path of a document; the others are Rust.
fn is_document(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

/// Paths of the sources and documents that git tracks, below the root.
fn tracked() -> Result<Vec<String>, Problem> {
    let mut command = std::process::Command::new("git");
    command.current_dir(root()).args(["ls-files", "--", "*.rs", "*.md"]);
    let listed = output(&mut command)?;
    if !listed.status.success() {
        return Err(Problem::Missing(format!("git ls-files failed:\n{}", text(&listed))));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(listed.lines().filter(|path| root().join(path).is_file()).map(str::to_owned).collect())
}

/// Words of the list in the prose of a document, but not between backquotes.
fn in_document(content: &str) -> Vec<Finding> {
    let prose = (1..).zip(markdown::lines(content)).filter_map(|(at, line)| match line {
        Line::Prose(text) => Some((at, text)),
        Line::Open(_) | Line::Code(_) | Line::Close | Line::Comment(_) => None,
    });
    prose.flat_map(|(at, text)| in_prose(&without_quotes(text), at)).collect()
}

/// Words of the list in Rust: in comments, in literals of several words, and in names.
fn in_source(content: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in content.lines().enumerate() {
        let (code, comment) = split(line);
        if let Some(comment) = comment {
            found.extend(in_prose(&without_quotes(comment), at + 1));
        }
        for (part, piece) in code.split('"').enumerate() {
            if part % 2 == 0 {
                found.extend(in_names(piece, at + 1));
            } else if piece.trim().contains(' ') {
                found.extend(in_prose(piece, at + 1));
            }
        }
    }
    found
}

/// A line's code, and its comment. An address (`https://`) begins none.
fn split(line: &str) -> (&str, Option<&str>) {
    let mut from = 0;
    while let Some(at) = line[from..].find("//").map(|at| from + at) {
        let is_quoted = line[..at].matches('"').count() % 2 == 1;
        if !is_quoted && !line[..at].ends_with(':') {
            return (&line[..at], Some(&line[at..]));
        }
        from = at + 2;
    }
    (line, None)
}

/// A line without what stands between backquotes: names and commands.
fn without_quotes(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

fn in_prose(line: &str, at: usize) -> Vec<Finding> {
    let words: Vec<String> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let has = |wanted: &str| {
        let wanted: Vec<&str> = wanted.split(' ').collect();
        words.windows(wanted.len()).enumerate().any(|(place, window)| {
            // Workers come and go on a cluster.
            let is_pair = place > 0 && words[place - 1] == "and" && wanted[0] == "go";
            !is_pair && window.iter().zip(&wanted).all(|(word, wanted)| word == wanted)
        })
    };
    listed(&PROSE, at, has)
}

fn in_names(code: &str, at: usize) -> Vec<Finding> {
    let mut parts: Vec<String> = Vec::new();
    for name in code.split(|c: char| !c.is_ascii_alphabetic()) {
        let mut part = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && part.ends_with(|last: char| last.is_ascii_lowercase()) {
                parts.push(std::mem::take(&mut part));
            }
            part.push(c);
        }
        parts.push(part);
    }
    listed(&NAMES, at, |wanted| parts.iter().any(|part| part.eq_ignore_ascii_case(wanted)))
}

fn listed(list: &[(&'static str, &'static str)], line: usize, has: impl Fn(&str) -> bool) -> Vec<Finding> {
    list.iter().filter(|(word, _)| has(word)).map(|(word, instead)| Finding { line, word, instead }).collect()
}

#[cfg(test)]
mod tests {
    use super::{in_document, in_source};

    fn words(found: &[super::Finding]) -> Vec<(usize, &str)> {
        found.iter().map(|one| (one.line, one.word)).collect()
    }

    #[test]
    fn a_word_is_found_in_comments_texts_and_names_of_a_source() {
        let source = "/// Tells the end.\nfn is_told() {}\nlet a = \"it goes on\"; // anew\nstruct PupilsAndPupil;\n";
        assert_eq!(words(&in_source(source)), [(1, "tells"), (2, "told"), (3, "anew"), (3, "goes on"), (4, "pupil")]);
    }

    #[test]
    fn other_words_names_in_quotes_and_single_literals_are_passed_over() {
        let source = "/// A teller; workers come and go on a cluster. `told` is a name.\n\
                      let user = \"nobody\"; // see https://told.example\nlet foretold = 1;\n";
        assert_eq!(words(&in_source("let user = \"nobody\";\nlet link = \"https://a.example\";\n")), []);
        assert_eq!(words(&in_source(source)), [(2, "told")], "an address in a comment has words");
    }

    #[test]
    fn blocks_of_code_in_documents_are_passed_over() {
        let document = "It goes on.\n```sh\necho told\n```\n`tell` is a verb; nobody\nreads it anew.\n";
        assert_eq!(words(&in_document(document)), [(1, "goes on"), (5, "nobody"), (6, "anew")]);
    }
}
