//! Users of this machine, by the files that list them.
//!
//! Directory services are not asked: a user that only they know counts as one without an entry. Tests: at the end.

use std::collections::BTreeSet;
use std::fs;

/// A user's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) gid: u32,
    pub(crate) groups: BTreeSet<u32>,
    pub(crate) home: String,
}

/// The contents of `/etc/passwd` and `/etc/group`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Reads the files; one that cannot be read has no entries.
    pub(crate) fn of_this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// Returns a user's groups and home. A user without an entry has the group of its own number, not the one of root.
    pub(crate) fn of_user(&self, uid: u32) -> Account {
        let entry = self.passwd.lines().map(fields).find(|entry| number(entry, 2) == Some(uid));
        let Some(entry) = entry else {
            return Account { gid: uid, groups: BTreeSet::from([uid]), home: "/".to_owned() };
        };
        let gid = number(&entry, 3).unwrap_or(uid);
        let name = entry.first().copied().unwrap_or_default();
        let is_member = |group: &Vec<&str>| group.get(3).is_some_and(|names| names.split(',').any(|one| one == name));
        let groups = self.group.lines().map(fields).filter(is_member).filter_map(|group| number(&group, 2));
        let home = entry.get(5).filter(|home| !home.is_empty()).map_or("/", |home| home);
        Account { gid, groups: groups.chain([gid]).collect(), home: home.to_owned() }
    }
}

fn fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

fn number(entry: &[&str], n: usize) -> Option<u32> {
    entry.get(n)?.parse().ok()
}

#[cfg(test)]
impl Accounts {
    pub(crate) fn of(passwd: &str, group: &str) -> Self {
        Self { passwd: passwd.to_owned(), group: group.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_with_and_without_an_entry() {
        let accounts = Accounts::of(
            "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:100:Ada:/home/ada:/bin/sh\n",
            "users:x:100:\nvideo:x:44:bob,ada\ngpu:x:45:adam\n",
        );
        let ada = Account { gid: 100, groups: BTreeSet::from([44, 100]), home: "/home/ada".to_owned() };
        assert_eq!(accounts.of_user(1000), ada);
        let unknown = Account { gid: 77, groups: BTreeSet::from([77]), home: "/".to_owned() };
        assert_eq!(accounts.of_user(77), unknown);
    }
}
