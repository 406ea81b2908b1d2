//! Holds the texts of a finished job: messages of its phases and entries of its trail.
//!
//! Several of them quote the message of its ending, which names its pods and is most of what is said of it. Tests: at the end of this file.

use model::Text;

/// Length from which a message is worth quoting, in bytes.
const MIN_QUOTED: usize = 64;

/// A text, which may quote the message of the ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// A text that quotes nothing.
    Plain(Text),
    /// The texts before and after the message.
    Quoting {
        /// Before it.
        before: Text,
        /// After it.
        after: Text,
    },
}

impl Message {
    /// Returns a text, held without the message that it quotes.
    pub(super) fn of(text: Text, message: &str) -> Self {
        let quoted = Some(message).filter(|message| message.len() >= MIN_QUOTED);
        match quoted.and_then(|message| text.split_once(message)) {
            Some((before, after)) => Self::Quoting { before: before.into(), after: after.into() },
            None => Self::Plain(text),
        }
    }

    /// Returns the whole text.
    pub(super) fn text(&self, message: &str) -> Text {
        match self {
            Self::Plain(text) => text.clone(),
            Self::Quoting { before, after } => [before, message, after].concat().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_as_it_was() {
        let long = "pod j-trainer-0 succeeded; ".repeat(4);
        for (message, text, quotes) in [
            ("failed", "failed; pods kept".to_owned(), false),
            (&*long, format!("ending as Succeeded decided: {long}"), true),
            (&*long, format!("{long}; pods deleted"), true),
            (&*long, long.clone(), true),
            (&*long, "Pending -> Running".to_owned(), false),
            ("", String::new(), false),
        ] {
            let held = Message::of(Text::from(&*text), message);
            assert_eq!(matches!(held, Message::Quoting { .. }), quotes, "{text}");
            assert_eq!(*held.text(message), *text);
        }
    }
}
