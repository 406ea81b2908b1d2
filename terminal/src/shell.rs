//! Quotes words for a POSIX shell, so that a printed command can be pasted.
//!
//! Owns no command. Tests: at the end.

/// Returns words on one line, each quoted where a shell would not read it as one word.
pub fn quoted<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().map(|word| quoted_word(word.as_ref())).collect::<Vec<_>>().join(" ")
}

fn quoted_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_reads_the_same_words() {
        for words in
            [&["python3", "train.py", "--lr=1e-3"][..], &["a b", "", "$HOME", "it's", "*", "\"", "a\nb"], &["训练.py"]]
        {
            let script = format!("printf '%s\\0' {}", quoted(words));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let read = String::from_utf8(output.stdout).unwrap();
            assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words, "{script}");
        }
        assert_eq!(quoted(["trainyard", "run", "a b"]), "trainyard run 'a b'");
    }
}
