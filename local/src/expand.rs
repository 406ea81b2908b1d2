//! `$(VAR)` in commands, arguments and environment values, by the rules of Kubernetes. Pure. Tests: at the end.

/// Replaces `$(NAME)` by what `lookup` knows of it. An unknown name stays as written, `$$` is one `$` (so `$$(NAME)` is
/// never replaced), and a reference that is not closed is plain text.
pub(crate) fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_rules() {
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "B" => Some("$(A)".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, want) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)z", "x1y1z"),
            ("$(B)", "$(A)"), // a value is not expanded again
            ("$(EMPTY)|", "|"),
            ("$(NOPE)", "$(NOPE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$A ${A} $", "$A ${A} $"),
            ("$$", "$"),
            ("$(A", "$(A"),
            ("$(A $(A)", "$(A $(A)"), // the name runs to the first closing parenthesis
            ("$()", "$()"),
            ("a$)b", "a$)b"),
            ("ü$(A)ü", "ü1ü"),
        ] {
            assert_eq!(expand(text, lookup), want, "{text}");
        }
    }
}
