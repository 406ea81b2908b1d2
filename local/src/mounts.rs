//! Paths below the mounts of a container, as paths of this machine: nothing is mounted here, and a volume is a directory.
//!
//! Owns where a path stands in a text. Files that a program opens by a path of its own are not found. Tests: at the end.

use std::path::Path;

use crate::pod::Container;
use crate::volumes::{Place, is_plain_name};

/// Every process of a machine has its own of these.
const SHARED_MEMORY: &str = "/dev/shm";

/// Mount paths of a container and the directories that stand for them, the longest path first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(String, String)>);

impl Mounts {
    pub(crate) fn of(container: &Container, places: &[Place]) -> Self {
        let place_of = |name: &str| places.iter().find(|place| place.name == name);
        let mut mounts: Vec<(String, String)> = container
            .volume_mounts
            .iter()
            .filter_map(|mount| {
                let path = mount.mount_path.trim_end_matches('/');
                let place = &place_of(&mount.name)?.path;
                let is_used = path.starts_with('/') && path != SHARED_MEMORY && Path::new(path) != place;
                let within = mount.sub_path.split('/').filter(|part| is_plain_name(part));
                let place = within.fold(place.clone(), |place, part| place.join(part));
                is_used.then(|| (path.to_owned(), place.to_string_lossy().into_owned()))
            })
            .collect();
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    /// Replaces every path of a text that is a mount or below one.
    pub(crate) fn rewrite(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let (mut rest, mut before) = (text, None);
        while let Some(first) = rest.chars().next() {
            let found = can_begin(before).then(|| {
                self.0.iter().find_map(|(path, place)| {
                    let after = rest.strip_prefix(path.as_str())?;
                    ends(after).then_some((after, place))
                })
            });
            if let Some((after, place)) = found.flatten() {
                out.push_str(place);
                (rest, before) = (after, Some('/'));
            } else {
                out.push(first);
                (rest, before) = (rest.get(first.len_utf8()..).unwrap_or_default(), Some(first));
            }
        }
        out
    }
}

/// Returns whether a text has a path that is `mount` or below it.
pub(crate) fn has_path_below(text: &str, mount: &str) -> bool {
    let mount = mount.trim_end_matches('/');
    !mount.is_empty()
        && text.match_indices(mount).any(|(at, _)| {
            let (before, rest) = text.split_at(at);
            can_begin(before.chars().next_back()) && rest.strip_prefix(mount).is_some_and(ends)
        })
}

/// Returns whether a path can begin after a character.
fn can_begin(before: Option<char>) -> bool {
    before.is_none_or(|before| before.is_whitespace() || "\"'`=:,;()[]<>|&".contains(before))
}

/// Returns whether the last name of a path has ended where this text begins.
fn ends(after: &str) -> bool {
    after.chars().next().is_none_or(|next| !(next.is_alphanumeric() || "-_.".contains(next)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mounts() -> Mounts {
        let container: Container = serde_json::from_value(json!({"name": "c", "volumeMounts": [
            {"name": "files", "mountPath": "/app"},
            {"name": "data", "mountPath": "/app/data/"},
            {"name": "part", "mountPath": "/part", "subPath": "a/../b"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "root", "mountPath": "/"},
            {"name": "none", "mountPath": "/none"},
        ]}))
        .unwrap();
        let place = |name: &str| Place { name: name.to_owned(), path: format!("/d/{name}").into() };
        Mounts::of(&container, &["files", "data", "part", "shm", "root"].map(place))
    }

    #[test]
    fn paths_are_replaced_where_they_begin_and_end() {
        let mounts = mounts();
        for (text, want) in [
            ("/app", "/d/files"),
            ("/app/train.py", "/d/files/train.py"),
            ("/app/data/x", "/d/data/x"),
            ("/app/database", "/d/files/database"),
            ("cd /app && python '/app/a.py' --out=/app/data", "cd /d/files && python '/d/files/a.py' --out=/d/data"),
            ("/lib:/app:/app/lib", "/lib:/d/files:/d/files/lib"),
            ("/part/x", "/d/part/a/b/x"),
            (
                "/application http://h/app x/app ./app /app.py /app-2",
                "/application http://h/app x/app ./app /app.py /app-2",
            ),
            ("/dev/shm/x / /none/x", "/dev/shm/x / /none/x"),
        ] {
            assert_eq!(mounts.rewrite(text), want);
        }
        assert!(has_path_below("ls /app/", "/app") && has_path_below("/x /app", "/app/"));
        assert!(!has_path_below("/apple x/app", "/app") && !has_path_below("/app", "/"));
    }
}
