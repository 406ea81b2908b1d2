//! The manifest by which [Krew](https://krew.sigs.k8s.io) installs `kubectl trainyard` from a published archive.
//!
//! Owns its text. The archive is `release`'s, and its address the publisher's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Problem, VERSION, io};

/// Writes the manifest. `url`: directory of the published archive. `folder`: the directory inside of it.
pub(crate) fn write(url: &str, archive: &Path, folder: &str, sha256: &str, to: &Path) -> Result<PathBuf, Problem> {
    let path = to.join("krew-trainyard.yaml");
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    fs::write(&path, manifest(url, &name, folder, sha256)).map_err(io(path.display()))?;
    Ok(path)
}

fn manifest(url: &str, archive: &str, folder: &str, sha256: &str) -> String {
    let url = url.trim_end_matches('/');
    // Names of processors as Go has them.
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
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
    - selector:
        matchLabels: {{os: linux, arch: {arch}}}
      uri: {url}/{archive}
      sha256: {sha256}
      files:
        - {{from: {folder}/trainyard, to: kubectl-trainyard}}
        - {{from: {folder}/LICENSE, to: .}}
      bin: kubectl-trainyard
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_named_with_its_digest() {
        let text = manifest("https://example.com/v1/", "t.tar.gz", "t", "ab12");
        assert!(text.contains("uri: https://example.com/v1/t.tar.gz\n      sha256: ab12\n"), "{text}");
        assert!(text.contains("- {from: t/trainyard, to: kubectl-trainyard}"), "{text}");
        assert!(text.contains(&format!("version: v{VERSION}\n")), "{text}");
    }
}
