//! Decides whether another section can use a control plane, by the objects that are left on it.
//!
//! Owns which objects count. Jobs, queues, pods and services are deleted; where anything else is left, or a node is not as it was, the control plane is
//! not used again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::plane::Plane;
use crate::run::Problem;

/// Types of objects that stay until their section deletes them.
const LASTING: &str = "namespaces,persistentvolumes,customresourcedefinitions,clusterroles,clusterrolebindings,priorityclasses,\
                       storageclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,configmaps,secrets,\
                       serviceaccounts,persistentvolumeclaims,roles,rolebindings,statefulsets,deployments,cronjobs,jobs";
const COLUMNS: &str = "custom-columns=:.kind,:.metadata.namespace,:.metadata.name";
const NODES: &str =
    "jsonpath={range .items[*]}{.metadata.name} {.metadata.labels} {.metadata.annotations} {.spec}{\"\\n\"}{end}";
/// Pods and services of sections.
const NOT_SYSTEM: &str =
    "--field-selector=metadata.name!=kubernetes,metadata.namespace!=kube-system,metadata.namespace!=trainyard-system";
/// Pods of deleted jobs are gone by then.
const LIMIT: Duration = Duration::from_secs(5);

/// Objects that stood on a control plane before its first section.
#[derive(Debug)]
pub(super) struct Leftovers {
    /// Types of the definitions, with commas.
    served: String,
    lasting: Vec<String>,
    passing: Vec<String>,
}

impl Leftovers {
    /// Notes what is there.
    pub(super) fn note(plane: &Plane) -> Result<Self, Problem> {
        let definitions = plane.kubectl(&["get", "customresourcedefinitions", "-o", "name"])?;
        let served = definitions.lines().filter_map(|line| line.split_once('/').map(|(_, name)| name));
        let served = served.collect::<Vec<_>>().join(",");
        Ok(Self { lasting: lasting(plane)?, passing: passing(plane, &served)?, served })
    }

    /// Deletes jobs and queues, and what they own; returns whether all is as it was.
    pub(super) fn clear(&self, plane: &Plane) -> Result<bool, Problem> {
        if lasting(plane)? != self.lasting {
            return Ok(false);
        }
        let begin = Instant::now();
        let mut is_deleted = false;
        while passing(plane, &self.served)? != self.passing {
            if begin.elapsed() > LIMIT {
                return Ok(false);
            }
            if !is_deleted {
                let everywhere = ["--all-namespaces", "--wait=false"];
                plane.kubectl(&[&["delete", &self.served, "--all"], &everywhere[..]].concat())?;
                // The garbage collector learns of new definitions every 30 s only.
                plane.kubectl(&[&["delete", "pods,services", NOT_SYSTEM], &everywhere[..]].concat())?;
                is_deleted = true;
            }
            sleep(Duration::from_millis(200));
        }
        Ok(true)
    }
}

/// What only its section deletes, and how nodes are.
fn lasting(plane: &Plane) -> Result<Vec<String>, Problem> {
    let mut objects = objects(plane, LASTING)?;
    objects.extend(plane.kubectl(&["get", "nodes", "-o", NODES])?.lines().map(str::to_owned));
    Ok(objects)
}

/// Jobs, queues, and what they own.
fn passing(plane: &Plane, served: &str) -> Result<Vec<String>, Problem> {
    objects(plane, &format!("pods,services,{served}"))
}

fn objects(plane: &Plane, types: &str) -> Result<Vec<String>, Problem> {
    let listed = plane.kubectl(&["get", types, "--all-namespaces", "--ignore-not-found", "-o", COLUMNS])?;
    let mut objects: Vec<String> = listed.lines().filter(|line| counts(line)).map(str::to_owned).collect();
    objects.sort();
    Ok(objects)
}

/// Whether an object is of a section: not one that the control plane makes by itself, some time after its start.
fn counts(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let comes_by_itself = matches!(
        words.as_slice(),
        []
            | [_, "kube-system" | "kube-public" | "kube-node-lease", _]
            // Of the StatefulSet, whose volumes nothing provides.
            | ["Pod" | "PersistentVolumeClaim", "trainyard-system", _]
            | ["ConfigMap", _, "kube-root-ca.crt"]
            | ["ServiceAccount", _, "default"]
    );
    !comes_by_itself
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_by_itself_does_not_count() {
        for line in ["", "Pod   trainyard-system   trainyard-0", "ConfigMap a kube-root-ca.crt", "Role kube-system b"] {
            assert!(!counts(line), "{line}");
        }
        for line in ["Pod default a", "Namespace <none> a", "ConfigMap trainyard-system a", "Role default kube-system"]
        {
            assert!(counts(line), "{line}");
        }
    }
}
