//! What a document consists of: prose, fenced blocks, and the commands in them.
//!
//! Owns the reading of Markdown as far as the tests of documents need it. It runs nothing, and knows no program.
//!
//! Words after the language of a fence are not shown to readers. Blocks of `sh` and `console` take these: `by-hand`, a block that is not
//! run; `fresh`, a block with which a new shell, directory and cluster begin; `fails`, a block whose last command must fail. A comment whose first word is `sh` holds commands that
//! readers need not see, such as those that make the files of an example. A block of `yaml` with the word `apply` is applied with kubectl.

/// A line of a document, by what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Text, headings and tables.
    Prose(&'a str),
    /// The beginning of a block, with all that stands after the fence.
    Open(&'a str),
    /// A line of a block, without the indentation of its fence.
    Code(&'a str),
    /// The end of a block or of a comment.
    Close,
    /// A line of a comment.
    Comment(&'a str),
}

/// The characters of an open fence.
#[derive(Debug, Clone, Copy)]
struct Fence {
    character: char,
    length: usize,
    indentation: usize,
}

/// Goes through a document, line by line.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut fence: Option<Fence> = None;
    let mut in_comment = false;
    text.lines()
        .map(|line| {
            if let Some(open) = fence {
                if closes(open, line) {
                    fence = None;
                    return Line::Close;
                }
                return Line::Code(without_indentation(line, open.indentation));
            }
            if in_comment {
                in_comment = !line.contains("-->");
                return if in_comment { Line::Comment(line) } else { Line::Close };
            }
            if let Some((open, info)) = opens(line) {
                fence = Some(open);
                return Line::Open(info);
            }
            if line.trim_start().starts_with("<!--") {
                in_comment = !line.contains("-->");
                return Line::Comment(line);
            }
            Line::Prose(line)
        })
        .collect()
}

fn opens(line: &str) -> Option<(Fence, &str)> {
    let rest = line.trim_start();
    let character = rest.chars().next().filter(|character| matches!(character, '`' | '~'))?;
    let info = rest.trim_start_matches(character);
    let length = rest.len() - info.len();
    // A line such as ```code``` is text.
    let is_fence = length >= 3 && !(character == '`' && info.contains('`'));
    is_fence.then(|| (Fence { character, length, indentation: line.len() - rest.len() }, info.trim()))
}

fn closes(open: Fence, line: &str) -> bool {
    let rest = line.trim();
    rest.len() >= open.length && rest.chars().all(|character| character == open.character)
}

fn without_indentation(line: &str, indentation: usize) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    line.get(spaces.min(indentation)..).unwrap_or_default()
}

/// Where the commands of a block stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each line belongs to a command.
    Shell,
    /// Lines with `$ ` are commands; the others are what they print.
    Console,
    /// A comment: readers do not see it.
    Hidden,
    /// Objects that kubectl applies.
    Manifest,
}

/// Ends the input of kubectl in a script.
const END_OF_MANIFEST: &str = "END_OF_MANIFEST";

/// A block of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// Number of the line with its fence, from 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// False for what only readers can do.
    pub(super) is_run: bool,
    /// True if nothing of the blocks before is there.
    pub(super) is_fresh: bool,
    /// True if its last command must fail.
    pub(super) fails: bool,
    /// Number of the line that ends it.
    pub(super) end: usize,
    /// The commands, each line with its number.
    pub(super) script: Vec<(usize, String)>,
}

impl Block {
    fn new(line: usize, kind: Kind) -> Self {
        Self { line, kind, is_run: true, is_fresh: false, fails: false, end: line, script: Vec::new() }
    }
}

/// Returns the blocks of commands, or what is wrong with the document, each with its line.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>, Vec<(usize, String)>> {
    let (mut blocks, mut problems): (Vec<Block>, Vec<(usize, String)>) = Default::default();
    let mut open: Option<Block> = None;
    let mut unclosed: Option<usize> = None;
    for (number, line) in (1..).zip(lines(text)) {
        match line {
            Line::Open(info) => {
                unclosed = Some(number);
                open = begin(number, info).unwrap_or_else(|problem| {
                    problems.push((number, problem));
                    None
                });
            }
            Line::Comment(text) => match text.trim().strip_prefix("<!-- sh") {
                Some("") => {
                    open = Some(Block::new(number, Kind::Hidden));
                }
                Some(words) if words.starts_with(' ') => {
                    problems.push((number, "commands of a comment stand below `<!-- sh`, and `-->` below them".into()));
                }
                _ => open.iter_mut().for_each(|block| block.script.push((number, text.to_owned()))),
            },
            Line::Code(text) => open.iter_mut().for_each(|block| block.script.push((number, text.to_owned()))),
            Line::Close => {
                unclosed = None;
                if let Some(mut block) = open.take() {
                    block.end = number;
                    if block.kind == Kind::Console {
                        block.script = typed(&block.script);
                    }
                    if block.script.iter().all(|(_, text)| text.trim().is_empty()) {
                        problems.push((block.line, "the block has no command".into()));
                    }
                    if block.kind == Kind::Manifest {
                        let apply = format!("kubectl apply -f - <<'{END_OF_MANIFEST}'");
                        block.script.insert(0, (block.line, apply));
                        block.script.push((number, END_OF_MANIFEST.to_owned()));
                    }
                    blocks.push(block);
                }
            }
            Line::Prose(_) => {}
        }
    }
    problems.extend(unclosed.map(|line| (line, "the block has no end".to_owned())));
    if problems.is_empty() { Ok(blocks) } else { Err(problems) }
}

/// Begins the block of a fence; none if it holds no commands.
fn begin(line: usize, info: &str) -> Result<Option<Block>, String> {
    let mut words = info.split_whitespace();
    let kind = match words.next() {
        Some("sh") => Kind::Shell,
        Some("console") => Kind::Console,
        Some("yaml") if info.contains("apply") => Kind::Manifest,
        Some(other @ ("bash" | "shell" | "zsh" | "shell-session" | "terminal")) => {
            return Err(format!("`{other}`: write `sh`, or `console` for commands with what they print"));
        }
        Some(_) => return Ok(None),
        None => return Err("the block has no language: sh, console, yaml, text, ...".into()),
    };
    let mut block = Block::new(line, kind);
    for word in words {
        match word {
            "by-hand" => block.is_run = false,
            "fresh" => block.is_fresh = true,
            "fails" => block.fails = true,
            "apply" if kind == Kind::Manifest => {}
            _ => return Err(format!("unknown word `{word}` after the language; there are by-hand, fresh, fails")),
        }
    }
    Ok(Some(block))
}

/// What is typed of a console: lines with a prompt, and those that continue them.
fn typed(lines: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut continues = false;
    let mut typed = Vec::new();
    for (number, line) in lines {
        let command = line.strip_prefix("$ ").or_else(|| continues.then_some(line.as_str()));
        continues = command.is_some_and(|command| command.ends_with('\\'));
        typed.extend(command.map(|command| (*number, command.to_owned())));
    }
    typed
}

/// The document with spaces in place of its code, comments and inline code, so that every byte stands where it was.
pub(super) fn prose(text: &str) -> String {
    let mut masked = without_blocks(text);
    for (from, to) in code_spans(&masked) {
        let spaces = blank(masked.get(from..to).unwrap_or_default());
        masked.replace_range(from..to, &spaces);
    }
    masked
}

/// The inline code of a document without its backticks, each with its line.
pub(super) fn inline_code(text: &str) -> Vec<(usize, String)> {
    let masked = without_blocks(text);
    let line = |at: usize| masked.get(..at).unwrap_or_default().matches('\n').count() + 1;
    let code = |from: usize, to: usize| masked.get(from..to).unwrap_or_default().trim_matches('`').trim().to_owned();
    code_spans(&masked).into_iter().map(|(from, to)| (line(from), code(from, to))).collect()
}

fn without_blocks(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    for (line, whole) in lines(text).into_iter().zip(text.split_inclusive('\n')) {
        match line {
            Line::Prose(_) => masked.push_str(whole),
            _ => masked.push_str(&blank(whole)),
        }
    }
    masked
}

/// As many spaces as the text has bytes; ends of lines stay.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Bytes of inline code with its backticks. It may go over lines, and ends with its paragraph at the latest.
fn code_spans(prose: &str) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in prose.match_indices('`') {
        match runs.last_mut() {
            Some((from, length)) if *from + *length == at => *length += 1,
            _ => runs.push((at, 1)),
        }
    }
    let mut spans = Vec::new();
    let mut runs = runs.into_iter().peekable();
    while let Some((from, length)) = runs.next() {
        let closing = runs.clone().find(|(_, other)| *other == length);
        let Some((to, _)) = closing else { continue };
        if prose.get(from..to).is_some_and(|between| between.contains("\n\n")) {
            continue;
        }
        spans.push((from, to + length));
        while runs.next_if(|(at, _)| *at <= to).is_some() {}
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, Vec<(usize, String)>> {
        let shown = |block: Block| {
            let lines: Vec<String> = block.script.iter().map(|(line, text)| format!("{line}:{text}")).collect();
            format!("{:?} {} {} {}", block.kind, block.is_run, block.is_fresh, lines.join("|"))
        };
        blocks(text).map(|blocks| blocks.into_iter().map(shown).collect())
    }

    #[test]
    fn blocks_are_found_with_their_words_and_lines() {
        let text =
            "# T\n\n```sh\na\n\nb\n```\n* x\n\n  ```sh by-hand fresh\n  c\n  ```\n```yaml\nd\n```\n<!-- sh\ne\n-->\n";
        let wanted = ["Shell true false 4:a|5:|6:b", "Shell false true 11:c", "Hidden true false 17:e"];
        assert_eq!(shown(text).unwrap(), wanted);
    }

    #[test]
    fn of_a_console_what_is_typed_counts() {
        let text = "```console\n$ a \\\n    b\nprinted\n$ c\n```\n";
        assert_eq!(shown(text).unwrap(), ["Console true false 2:a \\|3:    b|5:c"]);
    }

    #[test]
    fn a_manifest_is_the_input_of_kubectl() {
        let wanted = "Manifest true false 1:kubectl apply -f - <<'END_OF_MANIFEST'|2:kind: Pod|3:END_OF_MANIFEST";
        assert_eq!(shown("```yaml apply\nkind: Pod\n```\n").unwrap(), [wanted]);
    }

    #[test]
    fn a_longer_fence_holds_a_shorter_one() {
        assert_eq!(shown("````text\n```sh\n````\n~~~sh\na\n~~~\n").unwrap(), ["Shell true false 5:a"]);
    }

    #[test]
    fn what_would_not_be_run_is_a_problem() {
        let problem = |text: &str| shown(text).unwrap_err();
        assert!(problem("```sh byhand\na\n```\n")[0].1.contains("`byhand`"));
        assert!(problem("```bash\na\n```\n")[0].1.contains("write `sh`"));
        assert!(problem("\n```\na\n```\n")[0].1.contains("no language"));
        assert_eq!(problem("```sh\na\n"), [(1, "the block has no end".to_owned())]);
        assert_eq!(problem("```console\nprinted\n```\n"), [(1, "the block has no command".to_owned())]);
        assert!(problem("<!-- sh a\n-->\n")[0].1.contains("below"));
    }

    #[test]
    fn code_is_no_prose() {
        let text = "a `[b](c)` [d](e)\n```text\n[f](g)\n```\n<!-- [h](i) -->\n``j`\nk``\n";
        let prose = prose(text);
        assert_eq!(prose.len(), text.len());
        assert_eq!(prose.split_whitespace().collect::<Vec<_>>(), ["a", "[d](e)"]);
        assert_eq!(inline_code(text), [(1, "[b](c)".to_owned()), (6, "j`\nk".to_owned())]);
    }
}
