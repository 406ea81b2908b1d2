//! Sums over a job's groups, which the status of every API has for the columns of `kubectl get`.
//!
//! Owns their names, their schema, and what they count. The counters of each group stay as the originals wrote them. Tests: at the end of
//! this file.

use engine::Job;
use serde_json::{Map, Value, json};

use crate::crd::{column, field};

/// Pods that run, of those that are wanted: `1/2`.
const READY: &str = "ready";
/// Number of restarts.
pub(crate) const RESTARTS: &str = "restarts";
/// Path of the queue that a label names: Trainyard's or Kueue's.
const QUEUE: &str = r".metadata.labels['trainyard\.dev/queue','kueue\.x-k8s\.io/queue-name']";

/// Adds the sums to a status. Both are written from the start: a column without a value looks like an error.
pub(crate) fn add(status: &mut Map<String, Value>, job: &Job) {
    // An ended job wants no pods, however its spec is edited.
    let has_ended = job.ending().is_some() || job.phase.is_terminal();
    let lasting = || job.spec_groups().filter(|(spec, _)| !spec.once && !has_ended);
    let wanted = lasting().fold(0_u32, |sum, (_, group)| sum.saturating_add(group.replicas));
    let ready = lasting().fold(0_u32, |sum, (_, group)| sum.saturating_add(group.counters.active));
    status.insert(READY.to_owned(), json!(format!("{ready}/{wanted}")));
    status.insert(RESTARTS.to_owned(), json!(job.restarts()));
}

/// Returns the schemas of the sums.
pub(crate) fn schemas() -> [(&'static str, Value); 2] {
    [
        (READY, field("string", "Pods that run, of those that are wanted.")),
        (RESTARTS, field("integer", "Pods that failures replaced, and containers that were started again.")),
    ]
}

/// Returns the columns that show the sums, and the queue that a label of the job names.
pub(crate) fn columns() -> [Value; 3] {
    [
        column("Ready", "string", ".status.ready", 0, "Pods that run, of those that are wanted."),
        column("Restarts", "integer", ".status.restarts", 0, "Restarts so far."),
        column("Queue", "string", QUEUE, 0, "The queue that admits the job."),
    ]
}

/// Returns the column of the reason of the last condition.
pub(crate) fn reason() -> Value {
    column("Reason", "string", ".status.conditions[-1:].reason", 0, "Why the job stands there, in one word.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elasticjob::ElasticJob;
    use crate::testing;

    #[test]
    fn a_job_without_pods_has_both_sums() {
        let object = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {
            "rdzvEndpoint": "e:1", "replicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "elasticjob-worker", "image": "i"}]}}}},
        }});
        let (_, mut job) = testing::job(&ElasticJob, &object);
        let sums = |job: &Job| {
            let mut status = Map::new();
            add(&mut status, job);
            Value::Object(status)
        };
        assert_eq!(sums(&job), json!({"ready": "0/3", "restarts": 0}));
        let group = job.groups.get_mut("worker").unwrap();
        (group.counters.active, group.charged) = (2, 4);
        job.retry_counts = engine::RetryCounts::new(1, 2, 0, None);
        assert_eq!(sums(&job), json!({"ready": "2/3", "restarts": 7}));
    }
}
