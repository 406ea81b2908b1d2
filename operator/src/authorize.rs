//! Reads the objects that decide a write outside of a job's namespace before it.
//!
//! Owns the objects that were read for the writes of this turn. It must not decide: the API of the job does ([`apis::authorization`]). Tests: scenarios
//! of ModelVersion, and those of TorchrunQueue with the flag `kai-parent-check`; `k8s-driver/tests/real/tenants.rs`.

use std::collections::{BTreeMap, BTreeSet};

use apis::authorization::{ClusterObject, Found, OwnedWrite};
use apis::{ApiAnswer, ApiCall, ApiError};
use model::{Command, JobFact, JobKey, ObjectRef, OwnedRef};
use serde_json::Value;

use crate::answers::outcome_of;
use crate::intake::Intake;
use crate::operator::Operator;

/// Objects that were read before the writes of a turn, by job and written object.
pub(crate) type Reads = BTreeMap<JobKey, BTreeMap<ObjectRef, Found>>;

/// Decision on a rendered call.
pub(crate) enum Verdict {
    /// It is sent.
    Permitted,
    /// An object is read first.
    Undecided { found: Found, next: ClusterObject },
    /// It is not sent; this stands for its answer.
    Refused(ApiError),
}

impl Operator {
    /// Decides whether the call of a command is sent.
    pub(crate) fn authorize(&mut self, key: &JobKey, command: &Command, call: &ApiCall) -> Verdict {
        let (Command::CreateOwned { object } | Command::UpdateOwned { object, .. }) = command else {
            return Verdict::Permitted;
        };
        let (Some(api), Some(body)) = (self.registry.api_of(key).cloned(), &call.body) else {
            return Verdict::Permitted;
        };
        let Some(owned) = api.owned() else { return Verdict::Permitted };
        let Some(needed) = owned.authorization_reads(key, object, body) else { return Verdict::Permitted };
        let found = self.reads.get_mut(key).and_then(|reads| reads.remove(&command.object())).unwrap_or_default();
        if let Some(next) = needed.objects.into_iter().find(|needed| !found.contains_key(needed)) {
            return Verdict::Undecided { found, next };
        }
        let others = if needed.others { self.others(key, object) } else { Vec::new() };
        let creates = matches!(command, Command::CreateOwned { .. });
        let write = OwnedWrite { job: key, object, creates, body, others: &others, found: &found };
        owned.authorize(&write).map_or_else(Verdict::Refused, |()| Verdict::Permitted)
    }

    /// Takes in the answer to a read before a write.
    pub(crate) fn read_before(
        &mut self,
        key: &JobKey,
        command: &Command,
        (mut found, read): (Found, ClusterObject),
        answer: ApiAnswer,
        facts: &mut Intake,
    ) {
        let object = match answer {
            Ok(object) => Some(object),
            // A path that is not served has an answer without a reason.
            Err(ApiError { code: 404, reason, .. }) if !reason.is_empty() => None,
            Err(error) => {
                facts.push(key, JobFact::Answered { object: command.object(), outcome: outcome_of(error) });
                return;
            }
        };
        found.insert(read, object);
        self.reads.entry(key.clone()).or_default().insert(command.object(), found);
    }

    /// Renders the objects of a type that other jobs of a job's namespace have, or are being given.
    fn others(&mut self, key: &JobKey, object: &OwnedRef) -> Vec<Value> {
        let is_alike =
            |other: &OwnedRef| other.api_version == object.api_version && other.kind == object.kind && other != object;
        let first = JobKey { namespace: key.namespace.clone(), name: "".into(), kind: "".into(), uid: "".into() };
        let of_namespace =
            self.state.jobs.live_from(Some(&first)).take_while(|(other, _)| other.namespace == key.namespace);
        let mut have: BTreeSet<(JobKey, OwnedRef)> = BTreeSet::new();
        for (other, job) in of_namespace.filter(|(other, _)| *other != key) {
            let known = job.owned.iter().filter(|(_, owned)| owned.fact.is_some()).map(|(name, _)| name);
            let all = known.chain(self.in_flight.written(other)).filter(|name| is_alike(name));
            have.extend(all.map(|name| (other.clone(), name.clone())));
        }
        let mut rendered = Vec::new();
        for (other, object) in &have {
            rendered.extend(self.render_owned(other, object).ok().flatten());
            self.manifests.forget(other);
        }
        rendered
    }
}
