//! The commands of a piece of shell, as far as their words can be read without running them.
//!
//! Owns what separates commands and words. It expands nothing: `$X` stays as it is.

/// A command with its words, and the line that it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) words: Vec<String>,
}

impl Command {
    /// Its words from the program on: without assignments, words of the shell, and programs that run another one.
    pub(super) fn program(&self) -> &[String] {
        let mut rest = self.words.as_slice();
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "if" | "then" | "else" | "elif" | "do" | "while" | "until" | "!" | "{" | "time" | "env" | "sudo"
                | "nohup" | "exec" | "xargs" => rest = others,
                "timeout" => rest = others.get(1..).unwrap_or_default(),
                "uvx" => {
                    let own = if others.first().is_some_and(|word| word == "--from") { 2 } else { 0 };
                    rest = others.get(own..).unwrap_or_default();
                }
                assignment if is_assignment(assignment) => rest = others,
                _ => break,
            }
        }
        rest
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
    })
}

/// What is being read: the whole text, or what stands between `$(` and `)`.
#[derive(Debug, Default)]
struct Frame {
    words: Vec<String>,
    word: Option<String>,
    line: usize,
    /// Inside of double quotes.
    quoted: bool,
    /// The next word is the file of a redirection.
    is_file: bool,
    /// Parentheses that are open and stand for no substitution.
    parentheses: usize,
}

impl Frame {
    fn push(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn end_word(&mut self, line: usize) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.is_file) {
            return;
        }
        if self.words.is_empty() {
            self.line = line;
        }
        self.words.push(word);
    }

    fn end_command(&mut self, line: usize, commands: &mut Vec<Command>) {
        self.end_word(line);
        self.is_file = false;
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            commands.push(Command { line: self.line, words });
        }
    }
}

/// Returns the commands of a script, whose lines have numbers.
pub(super) fn commands(script: &[(usize, String)]) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut frames = vec![Frame::default()];
    let mut documents: Vec<String> = Vec::new();
    for (number, text) in script {
        if let Some(end) = documents.first() {
            if text.trim() == end {
                documents.remove(0);
            }
            continue;
        }
        let continues = read_line(*number, text, &mut frames, &mut commands);
        if let Some(frame) = frames.last_mut() {
            if frame.quoted {
                frame.push("\n");
            } else if !continues {
                frame.end_command(*number, &mut commands);
            }
        }
        documents.extend(here_documents(text));
    }
    if let Some(last) = script.last() {
        for mut frame in frames.into_iter().rev() {
            frame.end_command(last.0, &mut commands);
        }
    }
    commands
}

/// Reads a line; returns whether the next one continues it.
fn read_line(number: usize, text: &str, frames: &mut Vec<Frame>, commands: &mut Vec<Command>) -> bool {
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let depth = frames.len();
        let Some(frame) = frames.last_mut() else { return false };
        match character {
            '\\' => match characters.next() {
                None => return true,
                Some(next) => frame.push(&next.to_string()),
            },
            '$' if characters.next_if_eq(&'(').is_some() => {
                frame.push("$()");
                frames.push(Frame::default());
            }
            '"' => {
                frame.quoted = !frame.quoted;
                frame.push("");
            }
            _ if frame.quoted => frame.push(&character.to_string()),
            '\'' => {
                let inside: String = characters.by_ref().take_while(|next| *next != '\'').collect();
                frame.push(&inside);
            }
            '#' if frame.word.is_none() => return false,
            ' ' | '\t' => frame.end_word(number),
            '(' => {
                frame.end_command(number, commands);
                frame.parentheses += 1;
            }
            ')' if frame.parentheses == 0 && depth > 1 => {
                frame.end_command(number, commands);
                frames.pop();
            }
            ')' => {
                frame.end_command(number, commands);
                frame.parentheses = frame.parentheses.saturating_sub(1);
            }
            '>' | '<' => {
                // The number of a descriptor, as in `2>`, is no word.
                frame.word.take_if(|word| word.chars().all(|digit| digit.is_ascii_digit()));
                frame.end_word(number);
                frame.is_file = true;
                while characters.next_if(|next| matches!(next, '>' | '<' | '&' | '-')).is_some() {}
            }
            '&' if characters.peek() == Some(&'>') => frame.end_word(number),
            ';' | '|' | '&' | '`' => frame.end_command(number, commands),
            _ => frame.push(&character.to_string()),
        }
    }
    false
}

/// Ends of the here-documents that begin below a line.
fn here_documents(text: &str) -> Vec<String> {
    let parts = text.split("<<").skip(1).filter(|rest| !rest.starts_with('<'));
    let ends = parts.filter_map(|rest| rest.trim_start_matches(['-', ' ']).split_whitespace().next());
    ends.map(|end| end.trim_matches(['\'', '"']).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let script: Vec<(usize, String)> = (1..).zip(text.lines().map(str::to_owned)).collect();
        commands(&script).iter().map(|command| format!("{}:{}", command.line, command.words.join("|"))).collect()
    }

    #[test]
    fn commands_are_separated() {
        assert_eq!(read("a b | c && d; e & # f\ng"), ["1:a|b", "1:c", "1:d", "1:e", "2:g"]);
        assert_eq!(read("a \\\n  b\n(c; d)"), ["1:a|b", "3:c", "3:d"]);
    }

    #[test]
    fn quotes_and_redirections_are_read() {
        assert_eq!(read("a 'b c' \"d e\" f\\ g > h 2>&1 i"), ["1:a|b c|d e|f g|i"]);
        assert_eq!(read("a --to=\"x;y\" '' < b"), ["1:a|--to=x;y|"]);
    }

    #[test]
    fn substitutions_are_commands() {
        assert_eq!(read("a \"$(b c)\" d"), ["1:b|c", "1:a|$()|d"]);
        assert_eq!(read("x=$(a | b)"), ["1:a", "1:b", "1:x=$()"]);
    }

    #[test]
    fn a_here_document_is_no_command() {
        assert_eq!(read("a <<'E'\nb | c\nE\nd"), ["1:a", "4:d"]);
    }

    #[test]
    fn the_program_is_found() {
        let program = |text: &str| {
            let script = [(1, text.to_owned())];
            commands(&script)[0].program().join(" ")
        };
        assert_eq!(program("A=b env trainyard ps"), "trainyard ps");
        assert_eq!(program("timeout 5 trainyard ps"), "trainyard ps");
        assert_eq!(program("uvx --from x.whl trainyard run"), "trainyard run");
        assert_eq!(program("for a in trainyard"), "for a in trainyard");
    }
}
