//! Who may read what a run writes: its user, and the users its containers run as.
//!
//! Owns the process's file mode creation mask, the modes of a data directory that an older build made, and the way into a
//! pod's volumes for other users. Tests: `tests/local/private.rs`.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{Mode, XattrFlags, setxattr};

/// The mask that programs of pods get: the one this process was started with.
static PROGRAM_MASK: OnceLock<u32> = OnceLock::new();

/// Directories whose files belong to pods; they are closed by the directories above them.
const CLAIMS: &str = "claims";

/// Makes every file that this process creates from now on readable for its user only. Programs of pods keep the mask that this
/// process was started with.
pub fn keep_files_private() {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    PROGRAM_MASK.get_or_init(|| before.as_raw_mode());
}

/// The mask of programs, once [`keep_files_private`] was called.
pub(crate) fn program_mask() -> Option<u32> {
    PROGRAM_MASK.get().copied()
}

/// Takes the rights of group and others from a data directory and what is in it, but not from the files in volume claims.
/// What cannot be changed is logged: a file system without modes, or a file of another user.
pub(crate) fn tighten(data_dir: &Path) {
    let claims = data_dir.join(CLAIMS);
    tighten_below(data_dir, &|path| path.parent().and_then(Path::parent) == Some(&claims));
}

fn tighten_below(path: &Path, is_last: &dyn Fn(&Path) -> bool) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    if found.is_symlink() {
        return;
    }
    if found.mode() & 0o077 != 0
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(found.mode() & 0o700))
    {
        tracing::warn!(path = %path.display(), %error, "other users may be able to read it");
    }
    if found.is_dir() && !is_last(path) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            tighten_below(&entry.path(), is_last);
        }
    }
}

/// The users and the group, other than this process's, that a pod's volumes are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) users: BTreeSet<u32>,
    pub(crate) group: Option<u32>,
}

impl Access {
    /// Lets these users through the directories from `top` to the parent of `volume`, and no others; gives the volume the
    /// mode a kubelet gives it.
    pub(crate) fn open(&self, top: &Path, volume: &Path) -> io::Result<()> {
        if !self.users.is_empty() {
            let above = volume.ancestors().skip(1).take_while(|path| path.starts_with(top));
            for path in above {
                setxattr(path, "system.posix_acl_access", &search_rights(&self.users), XattrFlags::empty())?;
            }
        }
        let mut mode = if self.users.is_empty() { 0o700 } else { 0o777 };
        if let Some(group) = self.group {
            std::os::unix::fs::chown(volume, None, Some(group))?;
            mode |= 0o2070;
        }
        if mode != 0o700 {
            fs::set_permissions(volume, Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    /// Mode of a file of a `ConfigMap` or Secret that names none.
    pub(crate) fn file_mode(&self) -> u32 {
        if !self.users.is_empty() {
            0o644
        } else if self.group.is_some() {
            0o640
        } else {
            0o600
        }
    }
}

/// An access control list by which users may pass a directory of which only the owner may see more: version 2 of
/// `posix_acl_xattr`, each entry a tag, rights and an id.
fn search_rights(users: &BTreeSet<u32>) -> Vec<u8> {
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x04;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let mut list = 2_u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, rights: u16, id: u32| {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    };
    entry(OWNER, 7, u32::MAX);
    for user in users {
        entry(USER, 1, *user);
    }
    entry(GROUP, 0, u32::MAX);
    entry(MASK, 1, u32::MAX);
    entry(OTHER, 0, u32::MAX);
    list
}
