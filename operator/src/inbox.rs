//! Inbox: observations and answers that the next turn takes in.
//!
//! Owns their order. It must not judge them. Tests: at the end of this file.

use std::collections::VecDeque;

use apis::{ApiAnswer, CallId, Observation, ObservedObject, Registry, WatchTarget};
use model::{JobKey, Kind, Term};

/// Observations and answers that wait.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    observations: Vec<Observation<ObservedObject>>,
    answers: VecDeque<(CallId, ApiAnswer)>,
}

impl Inbox {
    pub(crate) fn observe(&mut self, observation: Observation<ObservedObject>) {
        self.observations.push(observation);
    }

    pub(crate) fn answer(&mut self, call: CallId, answer: ApiAnswer) {
        self.answers.push_back((call, answer));
    }

    pub(crate) fn has_observations(&self) -> bool {
        !self.observations.is_empty()
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Takes the observations: nodes, then jobs, then pods, then services. Within a kind they keep their order; between
    /// kinds watches have none. A job comes before its pods, which then find its spec and the counts of an adoption.
    pub(crate) fn take_observations(&mut self) -> Vec<Observation<ObservedObject>> {
        let mut taken = std::mem::take(&mut self.observations);
        taken.sort_by_key(|observation| Kind::ALL.iter().position(|kind| *kind == kind_of(observation)));
        taken
    }

    /// Takes the answer that came in first.
    pub(crate) fn next_answer(&mut self) -> Option<(CallId, ApiAnswer)> {
        self.answers.pop_front()
    }

    /// Returns true if a list of the target waits.
    pub(crate) fn holds_list_of(&self, target: &WatchTarget) -> bool {
        self.observations.iter().any(|observation| match observation {
            Observation::Listed { kind, of, .. } => *kind == target.kind && (of.is_none() || *of == target.of),
            Observation::Applied(_) | Observation::Deleted(_) => false,
        })
    }

    /// Returns the newest term in the mirrors of the jobs that wait, without jobs of other projects' types: users may write their status.
    pub(crate) fn newest_mirrored_term(&self, registry: &Registry) -> Term {
        let is_own = |key: &JobKey| registry.api_of(key).is_some_and(|api| !api.is_external());
        let term = |seen: &ObservedObject| {
            let ObservedObject::Job(key, object) = seen else { return Term::default() };
            if is_own(key) { apis::objects::mirror_stamp(object).term } else { Term::default() }
        };
        let terms = self.observations.iter().map(|observation| match observation {
            Observation::Listed { items, .. } => items.iter().map(term).max().unwrap_or_default(),
            Observation::Applied(object) => term(object),
            Observation::Deleted(_) => Term::default(),
        });
        terms.max().unwrap_or_default()
    }
}

/// Returns the kind of what was observed.
pub(crate) fn kind_of(observation: &Observation<ObservedObject>) -> Kind {
    match observation {
        Observation::Listed { kind, .. } => *kind,
        Observation::Applied(object) | Observation::Deleted(object) => object.kind(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apis::{Resource, Selector};
    use model::ResourceVersion;
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> ObservedObject {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        ObservedObject::read(&Registry::all(), Arc::new(node)).unwrap()
    }

    fn job(name: &str, term: u64) -> ObservedObject {
        let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": name, "namespace": "n", "uid": name}, "status": {"trainyard": {"term": term, "position": 1}}});
        ObservedObject::read(&Registry::all(), Arc::new(job)).unwrap()
    }

    /// A job of another project's type whose status a user wrote.
    fn foreign(term: u64) -> ObservedObject {
        let job = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
            "metadata": {"name": "m", "namespace": "n", "uid": "m"}, "status": {"trainyard": {"term": term, "position": 1}}});
        ObservedObject::read(&Registry::all(), Arc::new(job)).unwrap()
    }

    fn listed(kind: Kind, of: Option<&str>, items: Vec<ObservedObject>) -> Observation<ObservedObject> {
        Observation::Listed { kind, of: of.map(Into::into), rv: ResourceVersion(1), items }
    }

    #[test]
    fn observations_leave_by_kind_and_then_as_they_came() {
        let mut inbox = Inbox::default();
        let pods = listed(Kind::Pod, None, Vec::new());
        let jobs = listed(Kind::Job, None, vec![job("a", 3)]);
        let came = [pods.clone(), Observation::Applied(job("b", 9)), Observation::Deleted(node("x")), jobs.clone()];
        for observation in came {
            inbox.observe(observation);
        }
        inbox.observe(Observation::Applied(node("y")));
        inbox.observe(Observation::Applied(foreign(99)));
        let registry = Registry::all();
        assert_eq!(inbox.newest_mirrored_term(&registry), Term(9));
        let want = [
            Observation::Deleted(node("x")),
            Observation::Applied(node("y")),
            Observation::Applied(job("b", 9)),
            jobs,
            Observation::Applied(foreign(99)),
            pods,
        ];
        assert_eq!(inbox.take_observations(), want);
        assert!(!inbox.has_observations());
        assert_eq!(inbox.newest_mirrored_term(&registry), Term(0));
    }

    #[test]
    fn a_list_of_the_whole_kind_is_one_of_each_source() {
        let target = |of: &str| WatchTarget {
            kind: Kind::Pod,
            resource: Resource::new("v1", "Pod"),
            plural: "pods",
            namespaced: true,
            optional: false,
            selector: Selector::default(),
            of: Some(of.into()),
        };
        for (kind, of, first, second) in [
            (Kind::Pod, Some("first"), true, false),
            (Kind::Pod, None, true, true),
            (Kind::Service, Some("first"), false, false),
        ] {
            let mut inbox = Inbox::default();
            inbox.observe(listed(kind, of, Vec::new()));
            assert_eq!(
                (inbox.holds_list_of(&target("first")), inbox.holds_list_of(&target("second"))),
                (first, second)
            );
        }
    }
}
