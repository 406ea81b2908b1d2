//! `cargo xtask documents`: every command in every document is run, and every link leads somewhere.
//!
//! Owns which documents there are, what is checked of each, and the report. How blocks are marked is `markdown`'s, which cluster
//! their commands have `section`'s. It must not pass where it found nothing.

mod bash;
mod leftovers;
pub(crate) mod links;
pub(crate) mod markdown;
mod place;
mod plane;
mod runner;
mod section;
mod shell;
mod usage;

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Problem, Scratch, build_quietly, built, io, root};
use crate::{cluster, site};
use markdown::{Block, Kind};
use usage::Usage;

/// Programs whose words in the text are checked, too.
const CHECKED: [&str; 5] = ["trainyard ", "kubectl trainyard ", "kubectl torchrun ", "voda ", "cargo xtask "];

/// A document as it was read.
#[derive(Debug)]
struct Document {
    /// Its path from the root.
    path: PathBuf,
    text: String,
    blocks: Vec<Block>,
}

impl Document {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Number of blocks that readers see and that are run, or are not.
    fn count(&self, is_run: bool) -> usize {
        self.blocks.iter().filter(|block| block.is_run == is_run && block.kind != Kind::Hidden).count()
    }

    fn by_hand(&self) -> impl Iterator<Item = String> {
        let blocks = self.blocks.iter().filter(|block| !block.is_run);
        blocks.map(|block| format!("{}:{}", self.name(), block.line))
    }
}

/// Checks the documents that are named, or all; builds the programs first, unless `--built` says that they are there.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    let (flags, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    if let Some(flag) = flags.iter().find(|flag| **flag != "--built") {
        return Err(Problem::Usage(format!("documents does not know `{flag}`; there is --built")));
    }
    let names: Vec<PathBuf> = names.iter().map(|name| PathBuf::from(name.trim_start_matches("./"))).collect();
    if flags.is_empty() {
        build_quietly(&["trainyard"])?;
        cluster::build()?;
    }
    println!("{}", check(&names)?);
    Ok(())
}

/// Checks them with the programs that are there, and returns what was done.
pub(crate) fn check(names: &[PathBuf]) -> Result<String, Problem> {
    let Some(python) = place::python() else {
        return Ok("SKIPPED: no python3, with which documents run programs".to_owned());
    };
    let (documents, mut problems) = read(names)?;
    problems.extend(site::missing_pages()?);
    let links = check_text(&documents, &mut problems)?;
    if !problems.is_empty() {
        return Err(Problem::failed(problems.join("\n")));
    }
    let failures = runner::run(&documents, &python)?;
    let by_hand: Vec<String> = documents.iter().flat_map(Document::by_hand).collect();
    if !by_hand.is_empty() {
        println!("not run, for they are done by hand: {}", by_hand.join(", "));
    }
    if !failures.is_empty() {
        return Err(Problem::failed(failures.join("\n")));
    }
    let run: usize = documents.iter().map(|document| document.count(true)).sum();
    if run == 0 {
        return Err(Problem::failed("no document has a block of commands that is run"));
    }
    Ok(format!(
        "{run} blocks of {} documents ran, {} are by hand, {links} links lead somewhere",
        documents.len(),
        by_hand.len()
    ))
}

/// All documents, from the root of the repository.
pub(crate) fn all() -> Result<Vec<PathBuf>, Problem> {
    let mut found = Vec::new();
    collect(Path::new(""), false, &mut found)?;
    collect(Path::new("docs"), true, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(directory: &Path, deep: bool, found: &mut Vec<PathBuf>) -> Result<(), Problem> {
    let path = root().join(directory);
    for entry in fs::read_dir(&path).map_err(io(path.display()))? {
        let entry = entry.map_err(io(path.display()))?;
        let own = directory.join(entry.file_name());
        if own.extension().is_some_and(|extension| extension == "md") {
            found.push(own);
        } else if deep && entry.path().is_dir() {
            collect(&own, deep, found)?;
        }
    }
    Ok(())
}

fn read(names: &[PathBuf]) -> Result<(Vec<Document>, Vec<String>), Problem> {
    let known = all()?;
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        let what = "is no document: there are those in the root of the repository and in docs/";
        return Err(Problem::Usage(format!("{} {what}", name.display())));
    }
    let mut problems = Vec::new();
    let mut documents = Vec::new();
    for path in if names.is_empty() { known } else { names.to_vec() } {
        let text = fs::read_to_string(root().join(&path)).map_err(io(path.display()))?;
        let blocks = markdown::blocks(&text).unwrap_or_else(|found| {
            problems.extend(found.into_iter().map(|(line, what)| format!("{}:{line}: {what}", path.display())));
            Vec::new()
        });
        documents.push(Document { path, text, blocks });
    }
    Ok((documents, problems))
}

/// Checks what can be checked without running anything; returns the number of links.
fn check_text(documents: &[Document], problems: &mut Vec<String>) -> Result<usize, Problem> {
    let scratch = Scratch::new("syntax")?;
    let usage = Usage::of(&built("trainyard"));
    let mut checker = links::Checker::default();
    let mut links = 0;
    for document in documents {
        let mut wrong = |line: usize, what: &str| problems.push(format!("{}:{line}: {what}", document.name()));
        for block in &document.blocks {
            if let Some(what) = bash::syntax(&scratch, block)? {
                wrong(block.line, &what);
            }
            for command in shell::commands(&block.script) {
                if let Some(what) = usage.check(command.program())? {
                    wrong(command.line, &what);
                }
            }
        }
        for (line, code) in markdown::inline_code(&document.text) {
            // In a table a bar needs a backslash.
            let code = code.replace("\\|", "|").replace('\n', " ");
            if !CHECKED.iter().any(|program| code.starts_with(program)) {
                continue;
            }
            for command in shell::commands(&[(line, code)]) {
                if let Some(what) = usage.check(command.program())? {
                    wrong(line, &what);
                }
            }
        }
        let (count, broken) = checker.check(&root(), &document.path, &document.text)?;
        links += count;
        for (line, what) in broken {
            wrong(line, &what);
        }
    }
    Ok(links)
}
