//! DNS names in environment values and arguments, replaced by addresses.
//!
//! Owns the decision which words of a text are names. Tests: at the end.

use super::{Name, Names};

/// Words of a text that are taken for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Every known name: the text is an address.
    All,
    /// Those that say so themselves, or stand where an address does.
    Certain,
    /// Whole names, which end in `svc` or `svc.cluster.local`.
    Whole,
}

impl Names {
    /// Replaces the names in an environment value of a pod in `namespace`.
    pub(crate) fn rewrite_env(&mut self, namespace: &str, variable: &str, value: &str) -> String {
        let is_address = is_address_word(variable) && !variable.ends_with("HOSTNAME");
        self.rewrite(namespace, "", value, if is_address { Taken::All } else { Taken::Certain })
    }

    /// Replaces the whole names in a file, which may hold anything else.
    pub(crate) fn rewrite_file(&mut self, namespace: &str, text: &str) -> String {
        self.rewrite(namespace, "", text, Taken::Whole)
    }

    /// Replaces the names in an argument; `before` is the argument before it, whose name gives the meaning of this one.
    pub(crate) fn rewrite_arg(&mut self, namespace: &str, before: &str, arg: &str) -> String {
        self.rewrite(namespace, before, arg, Taken::Certain)
    }

    fn rewrite(&mut self, namespace: &str, before: &str, text: &str, taken: Taken) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let end = rest.find(|c: char| !is_name_char(c)).unwrap_or(rest.len());
            if end == 0 {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..next]);
                at += next;
                continue;
            }
            let (token, after) = rest.split_at(end);
            let earlier = &text[..at];
            // Part of a path is always a file name; after `//` comes a host.
            let in_path = earlier.ends_with('/') && !earlier.ends_with("//");
            let port = after.strip_prefix(':').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            let bare = taken == Taken::All || port || follows_address_flag(before, earlier);
            let may_be = !in_path && (taken != Taken::Whole || is_whole(token));
            match self.meant_by(namespace, token, bare).filter(|_| may_be) {
                Some((place, name)) => out.push_str(&self.address(&place, &name).to_string()),
                None => out.push_str(token),
            }
            at += end;
        }
        out
    }

    /// The pod or Service a word of text means to a pod in `namespace`; without `bare`, a name alone means nothing.
    fn meant_by(&self, namespace: &str, token: &str, bare: bool) -> Option<Name> {
        let token = token.strip_suffix('.').unwrap_or(token).to_ascii_lowercase();
        let labels: Vec<&str> = token.split('.').collect();
        if !labels.iter().all(|label| is_dns_label(label)) {
            return None;
        }
        let (labels, service) = match labels.as_slice() {
            [rest @ .., "svc"] | [rest @ .., "svc", "cluster", "local"] => (rest, true),
            rest => (rest, false),
        };
        let known = |place: &str, name: &str| {
            let found = self.is_known(place, name) || (service && self.is_subdomain(place, name));
            found.then(|| (place.to_owned(), name.to_owned()))
        };
        match *labels {
            [name] if bare && !service => known(namespace, name),
            [name, place] => known(place, name)
                // Pod and its subdomain, in the pod's own namespace.
                .or_else(|| known(namespace, name).filter(|_| !service && self.is_subdomain(namespace, place))),
            // A name below a Service is that of a pod, seen or not: it may run on another node.
            [name, subdomain, place] if service && self.is_service(place, subdomain) => {
                Some((place.to_owned(), name.to_owned()))
            }
            [name, subdomain, place] => known(place, name).filter(|_| self.is_subdomain(place, subdomain)),
            _ => None,
        }
    }
}

/// Returns whether a word ends as the whole name of a Service or of a pod below one.
fn is_whole(token: &str) -> bool {
    let token = token.strip_suffix('.').unwrap_or(token).to_ascii_lowercase();
    [".svc", ".svc.cluster.local"].iter().any(|end| token.ends_with(end))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

fn is_dns_label(label: &str) -> bool {
    !label.is_empty() && label.len() <= 63 && !label.contains('_') && !label.starts_with('-') && !label.ends_with('-')
}

/// Returns whether the name of a variable or flag says that its value is an address.
fn is_address_word(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    ["ADDR", "HOST", "ENDPOINT", "SERVER"].iter().any(|part| word.contains(part))
}

/// Returns whether text ends in `--some-host=` or `--some-host `, looking on into the argument before.
fn follows_address_flag(before: &str, earlier: &str) -> bool {
    let text = if earlier.is_empty() { before } else { earlier };
    let text = text.trim_end_matches(['=', ' ']);
    // A flag right before a word needs something between.
    if !earlier.is_empty() && text.len() == earlier.len() {
        return false;
    }
    let flag = text.rsplit(|c: char| !is_name_char(c)).next().unwrap_or_default();
    flag.starts_with('-') && is_address_word(flag)
}

#[cfg(test)]
mod tests {
    use crate::names::tests::names;

    use super::*;

    /// `{name}` and `{name/namespace}` in a wanted text are addresses.
    fn fill(names: &mut Names, text: &str) -> String {
        let mut out = String::new();
        for (n, part) in text.split(['{', '}']).enumerate() {
            if n % 2 == 0 {
                out.push_str(part);
            } else {
                let (name, place) = part.split_once('/').unwrap_or((part, "default"));
                out.push_str(&names.address(place, name).to_string());
            }
        }
        out
    }

    #[test]
    fn environment_values() {
        for (variable, value, want) in [
            ("TRAINER_INSTANCES", "j-trainer-0.default,j-trainer-10.default", "{j-trainer-0},{j-trainer-10}"),
            (
                "TRAINER_HOSTS",
                "j-trainer-0.default:2222,j-trainer-1.default:2222",
                "{j-trainer-0}:2222,{j-trainer-1}:2222",
            ),
            ("X", "J-Trainer-0.default", "{j-trainer-0}"), // names do not know upper case
            ("X", "j-trainer-0.default.svc", "{j-trainer-0}"),
            ("X", "j-trainer-0.default.svc.cluster.local", "{j-trainer-0}"),
            ("X", "j-trainer-0.default.svc.cluster.local.", "{j-trainer-0}"),
            ("X", "j-0.j.default.svc:29500", "{j-0}:29500"), // pod, subdomain
            ("X", "j-0.j", "{j-0}"),
            ("X", "j-0.j.default", "{j-0}"),
            ("X", "j.default.svc", "{j}"), // the headless Service itself
            ("X", "tcp://j-trainer-0.default:80/x", "tcp://{j-trainer-0}:80/x"),
            ("X", "user@j-trainer-0.default", "user@{j-trainer-0}"),
            ("X", "http://db.other/", "http://{db/other}/"),
            ("X", "j-trainer-0:80", "{j-trainer-0}:80"),
            ("X", "j-trainer-0", "j-trainer-0"), // a name of a pod, not an address
            ("HOSTNAME", "j-trainer-0", "j-trainer-0"),
            ("MASTER_ADDR", "j-master-0", "{j-master-0}"),
            ("HOSTS", "j-master-0 slots=2,j-worker-0 slots=2", "{j-master-0} slots=2,{j-worker-0} slots=2"),
            ("MASTER_ADDR", "localhost", "localhost"),
            ("JOB", "j", "j"),
            ("X", "/ckpt/j-trainer-0.default/x", "/ckpt/j-trainer-0.default/x"), // a path
            ("X", "j-trainer-0.default_x", "j-trainer-0.default_x"),             // not a whole word
            ("X", "xj-trainer-0.default", "xj-trainer-0.default"),
            ("X", "j-trainer-0.defaults", "j-trainer-0.defaults"),
            ("X", "jj-trainer-0.default", "jj-trainer-0.default"), // another job's, never seen
            ("X", "example.com train.py model.default", "example.com train.py model.default"),
            ("X", "etcd.etcd-system.svc.cluster.local:2379", "etcd.etcd-system.svc.cluster.local:2379"),
            ("X", "127.0.0.1:80 1.5 -.- ..", "127.0.0.1:80 1.5 -.- .."),
            ("X", "größe=j-trainer-0.default;ü", "größe={j-trainer-0};ü"),
            ("X", "", ""),
        ] {
            let mut names = names();
            let got = names.rewrite_env("default", variable, value);
            assert_eq!(got, fill(&mut names, want), "{variable}={value}");
        }
    }

    #[test]
    fn files() {
        for (text, want) in [
            ("j-trainer-0.j.default.svc slots=2\n", "{j-trainer-0} slots=2\n"),
            ("http://db.other.svc.cluster.local:80/", "http://{db/other}:80/"),
            ("x-7.db.other.svc", "{x-7/other}"), // a pod below a Service, on whichever node
            ("x-7.none.other.svc x-7.j.default.svc", "x-7.none.other.svc x-7.j.default.svc"),
            ("j-trainer-0 j-trainer-0.default j-trainer-0:80", "j-trainer-0 j-trainer-0.default j-trainer-0:80"),
            ("/srv/db.other.svc", "/srv/db.other.svc"),
        ] {
            let mut names = names();
            let got = names.rewrite_file("default", text);
            assert_eq!(got, fill(&mut names, want), "{text}");
        }
    }

    #[test]
    fn arguments() {
        for (before, arg, want) in [
            ("--name", "j-trainer-0", "j-trainer-0"),
            ("--master-addr", "j-trainer-0", "{j-trainer-0}"),
            ("", "--master_addr=j-trainer-0", "--master_addr={j-trainer-0}"),
            ("", "--rdzv_endpoint=j-trainer-0:29500", "--rdzv_endpoint={j-trainer-0}:29500"),
            ("", "--rdzv_id=j-trainer-0", "--rdzv_id=j-trainer-0"),
            ("-c", "run --host j-trainer-0 --id j-trainer-0", "run --host {j-trainer-0} --id j-trainer-0"),
            ("master-addr", "j-trainer-0", "j-trainer-0"),
            ("--host", "x j-trainer-0", "x j-trainer-0"),
        ] {
            let mut names = names();
            let got = names.rewrite_arg("default", before, arg);
            assert_eq!(got, fill(&mut names, want), "{before} {arg}");
        }
    }
}
