//! Rules for volumes, and where containers mount them.

use serde_json::Value;

use super::Judge::{Needed, Number, Other, Text, Word};
use super::{Faults, Place, Rule, resources, rule};
use crate::names::{NOT_DNS_LABEL, is_dns_label};
use crate::objects::list_at;

/// Sources of volumes. Of two, the second is refused.
const SOURCES: [&str; 30] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

/// Most bits of the mode of a file.
const MODE_MAX: i64 = 0o777;
/// Files that volumes of keys have.
const ITEMS: &[&str] = &[
    "spec.volumes[].configMap.items[].path",
    "spec.volumes[].secret.items[].path",
    "spec.volumes[].downwardAPI.items[].path",
    "spec.volumes[].projected.sources[].configMap.items[].path",
    "spec.volumes[].projected.sources[].secret.items[].path",
    "spec.volumes[].projected.sources[].downwardAPI.items[].path",
];
const BELOW: &str = "must be a path below the volume: neither / at its start, nor ..";

/// Rule for the name of a volume that is mounted.
pub(crate) const MOUNTED: &str = "mount-volume";

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("volume-name-missing", &["spec.volumes[].name"], Needed("a volume needs a name")),
    rule("volume-name", &["spec.volumes[].name"], Text(is_dns_label, NOT_DNS_LABEL)),
    rule("volume-name-twice", &["spec.volumes[].name"], Other(name_twice)),
    rule("volume-sources", &["spec.volumes[]"], Other(sources)),
    rule("empty-dir-size", &["spec.volumes[].emptyDir.sizeLimit"], Other(resources::negative)),
    rule(
        "volume-object",
        &[
            "spec.volumes[].configMap.name",
            "spec.volumes[].persistentVolumeClaim.claimName",
            "spec.volumes[].secret.secretName",
        ],
        Needed("must name an object"),
    ),
    rule(
        "volume-mode",
        &[
            "spec.volumes[].configMap.defaultMode",
            "spec.volumes[].downwardAPI.defaultMode",
            "spec.volumes[].projected.defaultMode",
            "spec.volumes[].secret.defaultMode",
            "spec.volumes[].configMap.items[].mode",
            "spec.volumes[].secret.items[].mode",
            "spec.volumes[].downwardAPI.items[].mode",
            "spec.volumes[].projected.sources[].configMap.items[].mode",
            "spec.volumes[].projected.sources[].secret.items[].mode",
            "spec.volumes[].projected.sources[].downwardAPI.items[].mode",
        ],
        Number(0, MODE_MAX),
    ),
    rule(
        "volume-key",
        &[
            "spec.volumes[].configMap.items[].key",
            "spec.volumes[].secret.items[].key",
            "spec.volumes[].projected.sources[].configMap.items[].key",
            "spec.volumes[].projected.sources[].secret.items[].key",
        ],
        Needed("must name a key of the object"),
    ),
    rule("volume-file-missing", ITEMS, Needed("must name a file")),
    rule("volume-file", ITEMS, Text(is_file, BELOW)),
    rule("host-path-missing", &["spec.volumes[].hostPath.path"], Needed("must name a directory or file of the node")),
    rule("host-path", &["spec.volumes[].hostPath.path"], Text(is_without_steps_back, "must not contain ..")),
    rule(
        "host-path-type",
        &["spec.volumes[].hostPath.type"],
        Word(&["BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"]),
    ),
    rule("nfs-server", &["spec.volumes[].nfs.server"], Needed("must name the server")),
    rule("nfs-path-missing", &["spec.volumes[].nfs.path"], Needed("must name a directory of the server")),
    rule("nfs-path", &["spec.volumes[].nfs.path"], Text(|path| path.starts_with('/'), "must start with /")),
    rule("csi-driver", &["spec.volumes[].csi.driver"], Needed("must name the driver")),
    rule(
        "ephemeral-template",
        &["spec.volumes[].ephemeral.volumeClaimTemplate"],
        Needed("must be the template of the claim"),
    ),
    rule("mount-name-missing", &["spec.container[].volumeMounts[].name"], Needed("must name a volume")),
    rule(MOUNTED, &["spec.container[].volumeMounts[].name"], Other(mounted)),
    rule("mount-path-missing", &["spec.container[].volumeMounts[].mountPath"], Needed("a mount needs a path")),
    rule("mount-path-twice", &["spec.container[].volumeMounts[].mountPath"], Other(path_twice)),
    rule(
        "mount-sub-path",
        &["spec.container[].volumeMounts[].subPath", "spec.container[].volumeMounts[].subPathExpr"],
        Text(is_below, BELOW),
    ),
    rule("mount-sub-paths", &["spec.container[].volumeMounts[].subPathExpr"], Other(two_sub_paths)),
    rule(
        "mount-propagation",
        &["spec.container[].volumeMounts[].mountPropagation"],
        Word(&["Bidirectional", "HostToContainer", "None"]),
    ),
    rule("mount-propagation-privileged", &["spec.container[].volumeMounts[].mountPropagation"], Other(bidirectional)),
    rule("mount-read-only", &["spec.container[].volumeMounts[].recursiveReadOnly"], Other(recursive_read_only)),
    rule("device-name", &["spec.container[].volumeDevices[].name"], Other(device)),
    rule("device-path", &["spec.container[].volumeDevices[].devicePath"], Needed("a device needs a path")),
];

fn is_without_steps_back(path: &str) -> bool {
    path.split('/').all(|step| step != "..")
}

fn is_below(path: &str) -> bool {
    !path.starts_with('/') && is_without_steps_back(path)
}

/// A file of a volume of keys: names with `..` are the kubelet's.
fn is_file(path: &str) -> bool {
    is_below(path) && !path.starts_with("..")
}

fn name_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_repeated(place.siblings()) {
        faults.error(place, "is the name of another volume of this pod");
    }
}

/// A volume without a source is an empty directory.
fn sources(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let given = |source: &&&str| place.value.get(**source).is_some_and(|value| !value.is_null());
    let given: Vec<&str> = SOURCES.iter().filter(given).copied().collect();
    if given.len() > 1 {
        faults.error(place, format!("a volume has one source, not {}", given.join(" and ")));
    }
}

fn volume<'a>(place: &Place<'a, '_>) -> Option<&'a Value> {
    list_at(place.spec(), &["volumes"]).iter().find(|volume| volume.get("name") == Some(place.value))
}

fn mounted(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.text().is_some() && volume(place).is_none() {
        let names = list_at(place.spec(), &["volumes"]).iter().filter_map(|volume| volume.get("name")?.as_str());
        let suggestion = crate::nearest::nearest(place.text().unwrap_or_default(), names).map(str::to_owned);
        faults.error_with(place, "is the name of none of the pod's volumes", suggestion);
    }
}

fn path_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_repeated(place.siblings()) {
        faults.error(place, "is where this container has another mount");
    }
}

fn two_sub_paths(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.text().is_some() && place.beside("subPath").as_str().is_some_and(|path| !path.is_empty()) {
        faults.error(place, "a mount has a subPath or a subPathExpr, not both");
    }
}

fn bidirectional(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let context = place.container().and_then(|container| container.get("securityContext")?.get("privileged"));
    if place.value == "Bidirectional" && context != Some(&Value::Bool(true)) {
        faults.error(place, "Bidirectional needs securityContext.privileged: true");
    }
}

fn recursive_read_only(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let asks = place.value == "Enabled" || place.value == "IfPossible";
    if asks && place.beside("readOnly") != &Value::Bool(true) {
        faults.error(place, "needs readOnly: true");
    }
}

fn device(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let is_claim = |volume: &Value| {
        ["ephemeral", "persistentVolumeClaim"]
            .iter()
            .any(|key| volume.get(*key).is_some_and(|source| !source.is_null()))
    };
    match volume(place) {
        None => faults.error(place, "is the name of none of the pod's volumes"),
        Some(volume) if !is_claim(volume) => faults.error(place, "must be a volume of a persistentVolumeClaim"),
        Some(_) => {}
    }
}
