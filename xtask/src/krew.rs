//! The manifest by which [Krew](https://krew.sigs.k8s.io) installs `kubectl trainyard` from the published archives.
//!
//! Owns its text. The archives are `release`'s, and their address the publisher's.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::run::{Problem, VERSION, io};

/// The archive of a processor.
#[derive(Debug)]
pub(crate) struct Platform {
    pub(crate) arch: Arch,
    /// Name of the file.
    pub(crate) archive: String,
    /// The directory inside of it.
    pub(crate) folder: String,
    pub(crate) sha256: String,
}

/// Writes the manifest. `url`: directory of the published archives.
pub(crate) fn write(url: &str, platforms: &[Platform], to: &Path) -> Result<PathBuf, Problem> {
    let path = to.join("krew-trainyard.yaml");
    fs::write(&path, manifest(url, platforms)).map_err(io(path.display()))?;
    Ok(path)
}

fn manifest(url: &str, platforms: &[Platform]) -> String {
    let url = url.trim_end_matches('/');
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: trainyard
spec:
  version: v{VERSION}
  homepage: {url}
  shortDescription: Explain and follow distributed training jobs
  description: |
    Lists the training jobs that Trainyard runs on a cluster, explains why each is
    where it is, follows the output of its workers, shows queues, and validates
    manifests. The operator on the cluster is installed separately.
  platforms:
"
    );
    for Platform { arch, archive, folder, sha256 } in platforms {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "    - selector:
        matchLabels: {{os: linux, arch: {}}}
      uri: {url}/{archive}
      sha256: {sha256}
      files:
        - {{from: {folder}/trainyard, to: kubectl-trainyard}}
        - {{from: {folder}/LICENSE, to: .}}
      bin: kubectl-trainyard
",
            arch.in_go()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(arch: &str) -> Platform {
        let arch = Arch::read(arch).expect("it is released");
        let of = |what: &str| format!("{what}-{arch}");
        Platform { arch, archive: format!("t-{arch}.tar.gz"), folder: of("t"), sha256: of("digest") }
    }

    #[test]
    fn each_archive_is_a_platform_with_its_digest() {
        let text = manifest("https://example.com/v1/", &[platform("aarch64"), platform("x86_64")]);
        for (go, arch) in [("arm64", "aarch64"), ("amd64", "x86_64")] {
            let wanted = format!(
                "    - selector:
        matchLabels: {{os: linux, arch: {go}}}
      uri: https://example.com/v1/t-{arch}.tar.gz
      sha256: digest-{arch}
      files:
        - {{from: t-{arch}/trainyard, to: kubectl-trainyard}}
"
            );
            assert!(text.contains(&wanted), "{text}");
        }
        assert_eq!(text.matches("- selector:").count(), 2, "{text}");
        assert!(text.contains(&format!("version: v{VERSION}\n")), "{text}");
    }
}
