//! Storage that models may name: flag `model-storage`.
//!
//! Owns the form of its entries, and the rule by which a path lies below another. Links in a file system are not followed. Tests: at
//! the end of this file.

use model::Text;

/// What a value has to be.
pub(crate) const FORM: &str = "list of `NODE:/PATH`, `*:/PATH` and `nfs://SERVER/PATH`, separated by commas, or `none`";

/// Storage that models may name. By default any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelStorage {
    /// The directories; `None` for any.
    allowed: Option<Vec<Directory>>,
}

/// A directory. Those below it are allowed as well.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directory {
    host: Host,
    path: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    AnyNode,
    Node(Text),
    Nfs(Text),
}

impl ModelStorage {
    /// Reads the value of the flag; `None` for one that has another form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim() == "none" {
            return Some(Self { allowed: Some(Vec::new()) });
        }
        let directories: Option<Vec<Directory>> = text.split(',').map(|entry| directory(entry.trim())).collect();
        Some(Self { allowed: Some(directories?) })
    }

    /// Returns true if a directory of a node may be named; without a node, of some node.
    pub fn allows_local(&self, node: Option<&str>, path: &str) -> bool {
        self.allows(path, |host| match host {
            Host::AnyNode => true,
            Host::Node(name) => node.is_none_or(|node| node == &**name),
            Host::Nfs(_) => false,
        })
    }

    /// Returns true if a directory of an NFS server may be named.
    pub fn allows_nfs(&self, server: &str, path: &str) -> bool {
        self.allows(path, |host| matches!(host, Host::Nfs(name) if &**name == server))
    }

    fn allows(&self, path: &str, is_host: impl Fn(&Host) -> bool) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        allowed.iter().any(|directory| is_host(&directory.host) && is_below(path, &directory.path))
    }
}

fn directory(entry: &str) -> Option<Directory> {
    let (host, path) = if let Some(rest) = entry.strip_prefix("nfs://") {
        let (server, path) = rest.split_at(rest.find('/')?);
        (Host::Nfs(Text::from(server)), path)
    } else {
        let (node, path) = entry.split_once(':')?;
        (if node == "*" { Host::AnyNode } else { Host::Node(Text::from(node)) }, path)
    };
    let is_named = match &host {
        Host::AnyNode => true,
        Host::Node(name) | Host::Nfs(name) => !name.is_empty(),
    };
    (is_named && is_below(path, "/")).then(|| Directory { host, path: Text::from(path) })
}

/// Returns true for an absolute path that is a directory or lies below it, and does not climb.
fn is_below(path: &str, directory: &str) -> bool {
    fn names(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').filter(|name| !matches!(*name, "" | "."))
    }
    let mut rest = names(path);
    path.starts_with('/')
        && !names(path).any(|name| name == "..")
        && names(directory).all(|name| rest.next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_storage_is_allowed_unless_directories_are_named() {
        let any = ModelStorage::default();
        assert!(any.allows_local(Some("a"), "/") && any.allows_nfs("s", "/"));
        let none = ModelStorage::parse("none").unwrap();
        assert!(!none.allows_local(Some("a"), "/data") && !none.allows_nfs("s", "/data"));
    }

    #[test]
    fn a_directory_allows_those_below_it_on_its_host() {
        let some = ModelStorage::parse("a:/data/models, *:/scratch,nfs://10.0.0.1/exports/,nfs://[fd00::1]/").unwrap();
        for (node, path, allowed) in [
            (Some("a"), "/data/models", true),
            (Some("a"), "/data//models/./x", true),
            (Some("a"), "/data/models2", false),
            (Some("a"), "/data/models/../..", false),
            (Some("a"), "data/models", false),
            (Some("a"), "/", false),
            (Some("b"), "/data/models", false),
            (Some("b"), "/scratch/x", true),
            (None, "/data/models/x", true),
            (None, "/etc", false),
            (Some("a"), "/exports", false),
        ] {
            assert_eq!(some.allows_local(node, path), allowed, "{node:?} {path}");
        }
        for (server, path, allowed) in [
            ("10.0.0.1", "/exports/m", true),
            ("10.0.0.1", "/", false),
            ("10.0.0.2", "/exports", false),
            ("[fd00::1]", "/x", true),
            ("a", "/data/models", false),
        ] {
            assert_eq!(some.allows_nfs(server, path), allowed, "{server} {path}");
        }
    }

    #[test]
    fn an_entry_has_a_host_and_an_absolute_path() {
        for wrong in ["", "data", "a:data", ":/data", "nfs:///x", "nfs://s", "a:/x,", "a:/x/../y", "any"] {
            assert_eq!(ModelStorage::parse(wrong), None, "{wrong}");
        }
    }
}
