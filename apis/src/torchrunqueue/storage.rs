//! Volumes as queues and jobs ask for them: the workspace, and the shared volumes whose size is per GPU.
//!
//! Owns reading, defaults and the arithmetic of sizes. It must not render claims. Tests: at the end of this file.

use serde_json::Value;
use settings::Quantity;

use crate::fields::{Findings, Unknown, Word, join};

/// Source of the files of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// An archive, uploaded by the user or downloaded.
    Zip,
    /// A repository.
    Git,
    /// An archive in an object store.
    S3,
    /// Files that are there already.
    Existing,
}

/// Accepted values of `source`.
pub(crate) const SOURCES: [Word<Option<Source>>; 4] = [
    ("zip", Some(Source::Zip)),
    ("git", Some(Source::Git)),
    ("s3", Some(Source::S3)),
    ("existing", Some(Source::Existing)),
];

/// Settings of a workspace as they were written, on a queue or a job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkspaceSettings<'a> {
    /// Size of the claim.
    pub(crate) size: Option<&'a str>,
    /// Image that fills it.
    pub(crate) image: Option<&'a str>,
    /// Pull policy of that image.
    pub(crate) pull_policy: Option<&'a str>,
    /// Path at which the training container sees it.
    pub(crate) mount_path: Option<&'a str>,
    /// Storage class of the claim.
    pub(crate) class: Option<&'a str>,
    /// Source of its files.
    pub(crate) source: Option<Source>,
    /// Address of the source.
    pub(crate) url: Option<&'a str>,
}

impl<'a> WorkspaceSettings<'a> {
    /// Reads `workspaceStorage` of a spec.
    pub(crate) fn read(spec: &'a Value, findings: &mut Findings) -> Self {
        Self::read_at(spec, "spec", "workspaceStorage", findings)
    }

    /// Reads them from a member of an object.
    fn read_at(holder: &'a Value, base: &str, key: &str, findings: &mut Findings) -> Self {
        if findings.object(holder, base, key).is_none() {
            return Self::default();
        }
        let parent = holder.get(key).unwrap_or(&Value::Null);
        let base = join(base, key);
        Self {
            size: size(parent, &base, "size", findings),
            image: text(parent, &base, "image", findings),
            pull_policy: text(parent, &base, "imagePullPolicy", findings),
            mount_path: path(parent, &base, findings),
            class: text(parent, &base, "storageClass", findings),
            source: findings.word(parent, &base, "source", &SOURCES, None, Unknown::Refused),
            url: text(parent, &base, "url", findings),
        }
    }

    /// Reads the settings of a job, and whether it has a workspace. Jobs of the first generation have them in `volumes.workspace`;
    /// what stands in `workspaceStorage` wins.
    pub(crate) fn of_job(spec: &'a Value, findings: &mut Findings) -> (Self, bool) {
        const BASE: &str = "spec.volumes";
        let own = Self::read(spec, findings);
        let volumes = spec.get("volumes").filter(|volumes| volumes.is_object()).unwrap_or(&Value::Null);
        let first = Self::read_at(volumes, BASE, "workspace", findings);
        let workspace = volumes.get("workspace").unwrap_or(&Value::Null);
        let is_on = findings.boolean(workspace, &join(BASE, "workspace"), "enabled").unwrap_or(true);
        let settings = Self {
            size: own.size.or(first.size),
            image: own.image.or(first.image),
            pull_policy: own.pull_policy.or(first.pull_policy),
            mount_path: own.mount_path.or(first.mount_path),
            class: own.class.or(first.class),
            // An address belongs to its source.
            source: own.source.or(first.source),
            url: if own.source.is_some() { own.url } else { own.url.or(first.url) },
        };
        (settings, is_on)
    }
}

/// A volume of `storage` that is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Volume<'a> {
    /// Size: of the whole volume, or per GPU.
    pub(crate) size: Option<&'a str>,
    /// Storage class of the claim.
    pub(crate) class: Option<&'a str>,
    /// Path at which the training container sees it.
    pub(crate) mount_path: Option<&'a str>,
    /// Claim that stands for one of ours.
    pub(crate) existing: Option<&'a str>,
    /// Set if the claim outlives what it was made for; absent where that was not written.
    pub(crate) retain: Option<bool>,
}

/// Volumes of `storage`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Volumes<'a> {
    /// The workspace; `None` where it is not mentioned.
    pub(crate) workspace: Option<Volume<'a>>,
    /// Set if the workspace is switched off.
    pub(crate) without_workspace: bool,
    /// Checkpoints, for each name of a job.
    pub(crate) checkpoints: Option<Volume<'a>>,
    /// Datasets, for the queue.
    pub(crate) datasets: Option<Volume<'a>>,
    /// Size of the shared memory per GPU.
    pub(crate) shm_per_gpu: Option<&'a str>,
}

impl<'a> Volumes<'a> {
    /// Reads `storage` of a queue.
    pub(super) fn read(spec: &'a Value, findings: &mut Findings) -> Self {
        const BASE: &str = "spec.storage";
        if findings.object(spec, "spec", "storage").is_none() {
            return Self::default();
        }
        let parent = spec.get("storage").unwrap_or(&Value::Null);
        let (workspace, without_workspace) = volume(parent, "workspace", "sizePerGPU", findings);
        Self {
            workspace,
            without_workspace,
            checkpoints: volume(parent, "checkpoints", "sizePerGPU", findings).0,
            datasets: volume(parent, "datasets", "size", findings).0,
            shm_per_gpu: size(parent, BASE, "shmSizePerGPU", findings),
        }
    }
}

/// Reads a volume, and whether it is switched off. One that is written is on.
fn volume<'a>(storage: &'a Value, key: &str, sized: &str, findings: &mut Findings) -> (Option<Volume<'a>>, bool) {
    if findings.object(storage, "spec.storage", key).is_none() {
        return (None, false);
    }
    let base = join("spec.storage", key);
    let parent = storage.get(key).unwrap_or(&Value::Null);
    let is_on = findings.boolean(parent, &base, "enabled").unwrap_or(true);
    let read = Volume {
        size: size(parent, &base, sized, findings),
        class: text(parent, &base, "storageClass", findings),
        mount_path: path(parent, &base, findings),
        existing: text(parent, &base, "existingClaim", findings),
        retain: findings.boolean(parent, &base, "retain"),
    };
    if is_on
        && read.size.is_none()
        && read.existing.is_none()
        && key != "workspace"
        && !findings.has_error_at(&join(&base, sized))
    {
        findings.error(join(&base, sized), None, "a volume needs a size, or existingClaim");
    }
    (is_on.then_some(read), !is_on)
}

fn text<'a>(parent: &'a Value, base: &str, key: &str, findings: &mut Findings) -> Option<&'a str> {
    findings.text(parent, base, key).filter(|text| !text.is_empty())
}

/// Reads a path at which a volume is mounted.
fn path<'a>(parent: &'a Value, base: &str, findings: &mut Findings) -> Option<&'a str> {
    let path = text(parent, base, "mountPath", findings)?;
    if !path.starts_with('/') || path.contains(':') {
        findings.error(join(base, "mountPath"), parent.get("mountPath"), "must be an absolute path without colons");
        return None;
    }
    Some(path)
}

/// Reads a positive quantity.
pub(super) fn size<'a>(parent: &'a Value, base: &str, key: &str, findings: &mut Findings) -> Option<&'a str> {
    let text = text(parent, base, key, findings)?;
    if Quantity::parse(text).is_none_or(|size| size <= Quantity::whole(0)) {
        findings.error(join(base, key), parent.get(key), "must be a quantity above 0, for example 10Gi");
        return None;
    }
    Some(text)
}

/// Multiplies a quantity, in its own unit where that is a whole number of it.
pub(crate) fn times(size: &str, count: u32) -> String {
    let size = size.trim();
    let (number, unit) =
        size.split_at_checked(size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len())).unwrap_or_default();
    let product = number.parse::<u64>().ok().and_then(|number| number.checked_mul(u64::from(count)));
    let whole = || Quantity::parse(size).map_or(0, Quantity::ceil);
    product
        .filter(|_| !unit.starts_with('.'))
        .map_or_else(|| whole().saturating_mul(i128::from(count)).to_string(), |product| format!("{product}{unit}"))
}

/// Scales an amount of CPU or memory by a part of the GPUs of a node, rounded down to the unit it is counted in: thousandths of a
/// CPU, or bytes.
pub(crate) fn scaled(amount: &Value, part: u32, of: u32, is_cpu: bool) -> Option<String> {
    let quantity = Quantity::read(amount)?;
    let units = if is_cpu { quantity.milli() } else { quantity.ceil() };
    let scaled = units.saturating_mul(i128::from(part)).checked_div(i128::from(of))?;
    // A pod needs a CPU to run at all.
    let whole = if is_cpu { scaled.checked_div(1000)? } else { scaled };
    Some(whole.max(1).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_multiplied_in_their_own_unit() {
        for (size, count, want) in [
            ("10Gi", 16, "160Gi"),
            ("50Gi", 16, "800Gi"),
            ("1.5Gi", 2, "3221225472"),
            ("100", 3, "300"),
            ("5M", 1, "5M"),
        ] {
            assert_eq!(times(size, count), want, "{size} x {count}");
        }
    }

    #[test]
    fn a_part_of_a_node_is_rounded_down_to_a_cpu_or_more() {
        for (amount, part, of, is_cpu, want) in [
            (json!("96"), 4, 8, true, "48"),
            (json!("7"), 1, 8, true, "1"),
            (json!(64), 6, 8, true, "48"),
            (json!("1Ti"), 4, 8, false, "549755813888"),
        ] {
            assert_eq!(scaled(&amount, part, of, is_cpu).as_deref(), Some(want), "{amount}");
        }
    }
}
