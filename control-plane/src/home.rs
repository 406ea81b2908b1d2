//! The directory of a plane: closed to others, used by one plane at a time, and removed at the end if it is temporary.

use std::env;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, io};
use crate::keeper::{Keeper, Remover};

/// Environment variable that keeps temporary directories, for reading logs after a test.
const KEEP: &str = "TRAINYARD_CONTROL_PLANE_KEEP";

#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    // In this order: the remover must not remove what is removed here.
    _remover: Option<Remover>,
    _temporary: Option<TempDir>,
    _lock: File,
}

impl Home {
    /// Takes the directory given, or a temporary one. What an earlier plane left there is removed.
    pub(crate) fn open(given: Option<&Path>, keeper: &Keeper) -> Result<Self, Error> {
        let (path, temporary) = if let Some(path) = given {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(path.display()))?;
            (path.to_path_buf(), None)
        } else {
            temporary()?
        };
        let path = path.canonicalize().map_err(io(path.display()))?;
        let lock = lock(&path)?;
        clear(&path)?;
        let remover = temporary.as_ref().map(|_| Remover::start(keeper, &path)).transpose()?;
        Ok(Self { path, _remover: remover, _temporary: temporary, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A new directory, closed to others from the start, and what removes it.
fn temporary() -> Result<(PathBuf, Option<TempDir>), Error> {
    let directory = tempfile::Builder::new().prefix("control-plane-").tempdir();
    let directory = directory.map_err(io("making a temporary directory"))?;
    if env::var_os(KEEP).is_none() {
        return Ok((directory.path().to_path_buf(), Some(directory)));
    }
    let path = directory.keep();
    eprintln!("control-plane: data and logs stay in {}", path.display());
    Ok((path, None))
}

fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(io(path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Option {
            option: "directory",
            value: directory.display().to_string(),
            why: "another control plane is using it",
        }),
        Err(TryLockError::Error(error)) => Err(io(path.display())(error)),
    }
}

/// Removes what a plane writes, and nothing else: the directory may be a user's.
fn clear(directory: &Path) -> Result<(), Error> {
    for name in ["etcd.data", "pki", "logs", "kubectl-cache", "helm"] {
        let path = directory.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(io(path.display()))?;
        }
    }
    for entry in fs::read_dir(directory).map_err(io(directory.display()))? {
        let path = entry.map_err(io(directory.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = name == "kubeconfig" || name.ends_with(".kubeconfig") || name.starts_with("etcd:");
        if ours {
            fs::remove_file(&path).map_err(io(path.display()))?;
        }
    }
    Ok(())
}
