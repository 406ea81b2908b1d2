//! A kind is named in its own folder only: no other product file knows it, but those that serve that kind alone.
//!
//! Tests and their crates name kinds as they like. Comments do not count.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apis::api::Descriptor;
use apis::{JobApi, Registry};

/// Files and folders that serve one kind alone, or name a kind to users, each with the folders of those kinds.
const OTHERS: [(&str, &[&str]); 17] = [
    // Kinds of one product, which reference each other.
    ("apis/src/jobqueue/", &["torchrunqueue"]),
    ("apis/src/models/", &["modelversion"]),
    ("apis/src/torchjob/", &["modelversion"]),
    ("apis/src/torchrunjob/", &["torchrunqueue", "jobqueue"]),
    ("apis/src/torchrunqueue/", &["jobqueue"]),
    // Descriptions for users.
    ("apis/src/aitrainingjob/crd.rs", &["trainingqueue"]),
    ("apis/src/elasticjob/crd.rs", &["trainingqueue"]),
    ("cli/src/commands/control.rs", &["elasticjob"]),
    ("cli/src/sample.rs", &["aitrainingjob"]),
    // Reasons of rights, for users.
    ("apis/src/owned.rs", &["torchrunqueue"]),
    ("apis/src/resources.rs", &["torchjob"]),
    // Commands and flags of the product that a kind comes from.
    ("cli/src/commands/operator/settings.rs", &["torchjob", "torchrunqueue"]),
    ("plugins/src/torchrun/", &["torchrunjob", "torchrunqueue", "jobqueue"]),
    ("plugins/src/voda/", &["mpijob", "trainingqueue"]),
    ("plugins/src/collect/", &["mpijob"]),
    // What a command on one machine becomes.
    ("local-run/src/command.rs", &["elasticjob"]),
    // The controllers of other projects, and the programs of their jobs.
    ("simulator/src/", &["mpijob", "trainingqueue"]),
];

/// Crates of tests and of their tools.
const TESTS: [&str; 6] = ["bench", "conformance", "control-plane", "fixtures", "snapshots", "xtask"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a folder of sources can be read") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "testing", "target"].contains(&&*name) {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") && !["tests.rs", "testing.rs"].contains(&&*name)
        {
            found.push(path);
        }
    }
}

/// Returns the folder of each served API, and the words that name its kind: the kind, the folder, and the plural. Model is left out: it is
/// a word of English.
fn names() -> Vec<(String, [String; 3])> {
    let of = |api: &Arc<dyn JobApi>| {
        let Descriptor { kind, plural, .. } = *api.descriptor();
        (kind.to_lowercase(), [kind.to_owned(), kind.to_lowercase(), plural.to_owned()])
    };
    Registry::all().iter().filter(|api| api.descriptor().kind != apis::models::KIND).map(of).collect()
}

/// Returns the words of a file's product code.
fn words(text: &str) -> BTreeSet<&str> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

#[test]
fn a_kind_is_named_in_its_own_folder_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root).expect("the workspace can be read") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.join("src").is_dir() && !TESTS.contains(&&*name) {
            sources(&path.join("src"), &mut files);
        }
    }
    assert!(files.len() > 500, "only {} files were found", files.len());
    let apis = names();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        // The table of APIs and their modules.
        if ["apis/src/lib.rs", "apis/src/served.rs"].contains(&&*name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source can be read");
        let words = words(&text);
        for (folder, names) in &apis {
            if name.starts_with(&format!("apis/src/{folder}/")) || !names.iter().any(|name| words.contains(&**name)) {
                continue;
            }
            match OTHERS.iter().find(|(place, kinds)| name.starts_with(place) && kinds.contains(&&**folder)) {
                Some((place, _)) => drop(used.insert((*place, &**folder))),
                None => wrong.push(format!("{name} names {folder}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let listed = OTHERS.iter().flat_map(|(place, kinds)| kinds.iter().map(|kind| (*place, *kind)));
    let unused: Vec<_> = listed.filter(|row| !used.contains(row)).collect();
    assert!(unused.is_empty(), "these do not name the kind any more: {unused:?}");
}
