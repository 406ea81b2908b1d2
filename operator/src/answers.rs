//! Answers to calls become facts: a returned object is observed, a rejection is a fact of its own, and an unknown outcome is
//! read.
//!
//! Owns the meaning of HTTP codes. It must not decide whose a taken name is: [`engine::admit`] does. Tests: the scenarios with
//! failing calls, `operator/tests/labels.rs`.

use std::sync::Arc;

use apis::{ApiAnswer, ApiError, FreeStorage, ObservedObject, objects};
use engine::State;
use engine::admit::{Admission, NameHolder, Ownership};
use model::{Command, JobFact, JobKey, Kind, ObjectRef, Outcome, OwnedFact, OwnedRef, Retain, Stamp, Text};
use serde_json::Value;

use crate::error::Error;
use crate::in_flight::Purpose;
use crate::intake::Intake;
use crate::operator::Operator;

/// Message of a write to an object of another project that did not come to stand on it.
const CHANGED: &str = "the object does not show what was written to it: its definition lacks the fields, or another controller \
                       changed them; the controller of its pods may be too old to suspend jobs";
/// Message of a status write that was accepted without the mirror.
const PRUNED: &str = "the API server dropped status.trainyard: the installed CustomResourceDefinition is older than this operator; \
                      apply the output of `trainyard crd`";

impl Operator {
    /// Turns the answers that came in into facts.
    pub(crate) fn take_answers(&mut self, facts: &mut Intake) -> Result<(), Error> {
        while let Some((id, answer)) = self.inbox.next_answer() {
            let Some((key, purpose)) = self.in_flight.end(id) else { continue };
            let object = purpose.object();
            // Another command about the object may follow, with or without a fact.
            facts.touch(&key);
            match purpose {
                Purpose::Command(command) => self.answer(&key, command, answer, facts),
                Purpose::ReadBefore { command, found, next } => {
                    self.read_before(&key, &command, (found, next), answer, facts);
                }
                Purpose::ReadTaken(command) => self.taken(&key, &object, &command, answer, facts),
                Purpose::ReadPatched(command) => self.patched(&key, &command, answer, facts),
                Purpose::ListPage { free, pods, .. } => self.page_listed(&key, free, pods, answer, facts),
                Purpose::ReadJob { known, .. } => {
                    if let Ok(job) = answer {
                        let have = objects::resource_version(&job);
                        if let Admission::Regressed { known } = State::admit_read(known, have) {
                            return Err(Error::ClusterWentBack { kind: Kind::Job, have: have.0, known: known.0 });
                        }
                        self.take_object(&job, facts);
                    }
                }
            }
            self.in_flight.settle(&key);
        }
        Ok(())
    }

    fn answer(&mut self, key: &JobKey, command: Command, answer: ApiAnswer, facts: &mut Intake) {
        let object = command.object();
        self.announce(key, &command, &answer);
        let outcome = match (&command, answer) {
            // A log that cannot be read shows nothing.
            (Command::ReadLog { .. }, answer) => {
                let api = self.registry.api_of(key);
                let log = answer.ok();
                let latency_us = api.zip(log).and_then(|(api, log)| api.scaling()?.latency_us(log.as_str()?));
                facts.push(key, JobFact::Measured { latency_us });
                return;
            }
            (Command::FindNode, answer) => {
                self.page_listed(key, FreeStorage::default(), false, answer, facts);
                return;
            }
            (Command::CreateOwned { object } | Command::ReadOwned { object }, Ok(held))
                if self.is_left(key, object) =>
            {
                self.take_object(&held, facts);
                Self::take_left(key, &held, facts);
                return;
            }
            (Command::ReadOwned { object }, Ok(held)) if self.is_read(key, object) => {
                Self::take_left(key, &held, facts);
                return;
            }
            (Command::ReadOwned { object }, Err(ApiError { code: 404, message, .. })) if self.is_read(key, object) => {
                Outcome::Refused { code: 404, message: Text::from(message) }
            }
            // Another object holds the name by now, or one that no watch shows: the pod in question does not exist.
            (Command::ReadPod { .. }, Ok(held)) if self.holder(key, &held).ownership(key) != Ownership::Ours => {
                Outcome::Gone
            }
            (Command::ReadOwned { .. }, Ok(held)) if self.holder(key, &held).ownership(key) != Ownership::Ours => {
                Outcome::Gone
            }
            (
                Command::CreatePod { .. }
                | Command::CreateService { .. }
                | Command::CreateOwned { .. }
                | Command::ReadPod { .. }
                | Command::ReadOwned { .. },
                Ok(created),
            ) => {
                self.take_object(&created, facts);
                return;
            }
            (
                Command::ReadPod { .. }
                | Command::ReadOwned { .. }
                | Command::SetFinalizer { .. }
                | Command::WriteAnnotations { .. }
                | Command::WriteEndAnnotation,
                Err(ApiError { code: 404, .. }),
            )
            | (Command::DeleteJob, Err(ApiError { code: 404 | 409, .. }))
            | (Command::ReleasePod { .. }, Ok(_)) => Outcome::Gone,
            (
                Command::CreatePod { .. } | Command::CreateService { .. } | Command::CreateOwned { .. },
                Err(ApiError { code: 409, .. }),
            ) => {
                self.in_flight.read_next(key, Purpose::ReadTaken(command));
                return;
            }
            // What the patch changed is read: its answer may hold no more than a version.
            (
                Command::UpdateOwned { .. } | Command::ReportOwned { .. } | Command::MarkPod { .. },
                Ok(_) | Err(ApiError { code: 404 | 409, .. }),
            ) => {
                self.in_flight.read_next(key, Purpose::ReadPatched(command));
                return;
            }
            (Command::DeleteOwned { uid, .. }, Err(ApiError { code: 404 | 409, .. })) => {
                facts.push(key, JobFact::OwnedGone { uid: uid.clone() });
                return;
            }
            (Command::DeletePod { grace_seconds: Some(0), .. }, Ok(_)) => Outcome::Forced,
            // It changed: the watch shows how.
            (Command::ReleasePod { .. }, Err(ApiError { code: 409, .. })) => Outcome::Unknown { code: 409 },
            (Command::DeletePod { uid, .. }, Err(ApiError { code: 404 | 409, .. }))
            | (Command::ReleasePod { uid, .. }, Err(ApiError { code: 404, .. })) => {
                facts.push(key, JobFact::PodGone { uid: uid.clone(), rv: None });
                return;
            }
            (Command::DeleteService { uid, .. }, Err(ApiError { code: 404 | 409, .. })) => {
                facts.push(key, JobFact::ServiceGone { uid: uid.clone() });
                return;
            }
            (Command::WriteStatus { stamp, .. }, Ok(job)) if !self.shows_mirror(key, &job, *stamp) => {
                let is_foreign = self.registry.api_of(key).is_some_and(|api| api.is_external());
                Outcome::Refused { code: 200, message: Text::from(if is_foreign { CHANGED } else { PRUNED }) }
            }
            (Command::WriteStatus { stamp, .. }, Ok(job)) => {
                facts.push(key, JobFact::Published { stamp: *stamp, rv: objects::resource_version(&job) });
                return;
            }
            (
                Command::WriteStatus { .. } | Command::SetFinalizer { .. } | Command::WriteAnnotations { .. },
                Err(ApiError { code: 409, .. }),
            )
            | (Command::SetFinalizer { .. } | Command::WriteAnnotations { .. }, Ok(_)) => {
                let known = self.state.known_version(key);
                self.in_flight.read_next(key, Purpose::ReadJob { known, of: object });
                return;
            }
            (Command::WriteStatus { .. }, Err(ApiError { code: 404, .. })) => Outcome::Unknown { code: 404 },
            (
                Command::DeletePod { .. }
                | Command::DeleteService { .. }
                | Command::DeleteOwned { .. }
                | Command::DeleteJob
                | Command::WriteEndAnnotation,
                Ok(_),
            ) => Outcome::Done,
            (_, Err(error)) => outcome_of(error),
        };
        facts.push(key, JobFact::Answered { object, outcome });
    }

    /// Takes in a page of nodes, or of pods, and asks for the next one; after the last one the node is found.
    fn page_listed(&mut self, key: &JobKey, mut free: FreeStorage, pods: bool, answer: ApiAnswer, facts: &mut Intake) {
        let page = match answer {
            Ok(page) => page,
            Err(error) => {
                // The token of a page may have expired.
                let outcome = if error.code == 410 { Outcome::Unknown { code: 410 } } else { outcome_of(error) };
                facts.push(key, JobFact::Answered { object: ObjectRef::StorageNode, outcome });
                return;
            }
        };
        if pods {
            free.add_pods(&page);
        } else {
            free.add_nodes(&page);
        }
        let next = objects::text_at(&page, &["metadata", "continue"]).unwrap_or_default();
        if next.is_empty() && (pods || free.is_empty()) {
            let node = free.most().cloned().unwrap_or_else(|| Text::from(""));
            facts.push(key, JobFact::NodeFound { node });
            return;
        }
        let pods = pods || next.is_empty();
        self.in_flight.read_next(key, Purpose::ListPage { free, pods, page: next.to_owned() });
    }

    /// Returns true if the object that a status write returned shows the written mirror. An accepted write proves nothing: a
    /// CRD without the member has the API server drop it.
    fn shows_mirror(&self, key: &JobKey, job: &Value, stamp: Stamp) -> bool {
        self.registry.api_of(key).is_some_and(|api| api.object_fact(job).mirror >= stamp)
    }

    /// Takes in the read of an object that holds a name of the job.
    fn taken(&mut self, key: &JobKey, object: &ObjectRef, command: &Command, answer: ApiAnswer, facts: &mut Intake) {
        let held = match answer {
            Ok(held) => held,
            Err(ApiError { code: 404, .. }) => {
                // Deleted meanwhile: create again.
                facts.push(key, JobFact::Answered { object: object.clone(), outcome: Outcome::Unknown { code: 409 } });
                return;
            }
            Err(error) => {
                facts.push(key, JobFact::Answered { object: object.clone(), outcome: outcome_of(error) });
                return;
            }
        };
        let holder = self.holder(key, &held);
        if let Command::CreateOwned { object } = command
            && !holder.deleting
            && self.is_left(key, object)
        {
            Self::take_left(key, &held, facts);
            return;
        }
        if holder.ownership(key) == Ownership::Ours {
            self.take_object(&held, facts);
        }
        if self.is_free(key, command, &holder)
            && let Ok(fact) = apis::owned::fact(&held)
        {
            facts.push(key, JobFact::Owned(Box::new(fact)));
            return;
        }
        let Some(outcome) = self.state.taken(key, &holder) else { return };
        if let Outcome::Taken { waiting: false, unseen } = outcome {
            self.announce_taken(key, command, &held, unseen);
        }
        facts.push(key, JobFact::Answered { object: object.clone(), outcome });
    }

    /// Takes in the read of a pod or an owned object after a patch of it.
    fn patched(&mut self, key: &JobKey, command: &Command, answer: ApiAnswer, facts: &mut Intake) {
        match (command, answer) {
            (_, Ok(object)) => self.take_object(&object, facts),
            (Command::UpdateOwned { uid, .. } | Command::ReportOwned { uid, .. }, Err(ApiError { code: 404, .. })) => {
                facts.push(key, JobFact::OwnedGone { uid: uid.clone() });
            }
            (Command::MarkPod { uid, .. }, Err(ApiError { code: 404, .. })) => {
                facts.push(key, JobFact::PodGone { uid: uid.clone(), rv: None });
            }
            (_, Err(error)) => {
                facts.push(key, JobFact::Answered { object: command.object(), outcome: outcome_of(error) });
            }
        }
    }

    /// Returns true if an object that is kept for good is free to be taken over: the job it was made for is gone.
    fn is_free(&self, key: &JobKey, command: &Command, holder: &NameHolder) -> bool {
        let Command::CreateOwned { object } = command else { return false };
        self.keep_of(key, object) == Some(Retain::Retained)
            && holder.watched
            && !holder.deleting
            && holder
                .owner
                .as_ref()
                .is_some_and(|owner| !self.state.jobs.summary(owner).is_some_and(|job| job.known && !job.gone))
    }

    /// Returns true for an object that serves whatever it is, and that no watch has to show.
    fn is_left(&self, key: &JobKey, object: &OwnedRef) -> bool {
        self.keep_of(key, object) == Some(Retain::Left)
    }

    /// Returns true for an object of another system that the pods of the job get something from.
    fn is_read(&self, key: &JobKey, object: &OwnedRef) -> bool {
        let job = self.state.job(key);
        job.is_some_and(|job| job.gates().any(|gate| gate.reads.contains(object)))
    }

    /// Returns the time for which an object that the job wants is kept.
    fn keep_of(&self, key: &JobKey, object: &OwnedRef) -> Option<Retain> {
        let job = self.state.job(key)?;
        let wanted = job.spec()?.owned.iter().find(|owned| owned.object == *object);
        wanted.map(|owned| owned.keep)
    }

    /// Takes in an object that is there, whichever client created it.
    fn take_left(key: &JobKey, held: &Value, facts: &mut Intake) {
        if let Ok(fact) = apis::owned::fact(held) {
            facts.push(key, JobFact::Owned(Box::new(OwnedFact { keep: Retain::Left, ..fact })));
        }
    }

    /// Reads the object that holds a name of this job.
    fn holder(&self, key: &JobKey, held: &Value) -> NameHolder {
        NameHolder {
            uid: objects::uid(held).ok(),
            owner: self.registry.owner(held),
            deleting: objects::deleting_at(held).is_some(),
            watched: self.registry.api_of(key).is_some_and(|api| api.selector().selects(held)),
        }
    }

    /// Takes in the object of an answer as if a watch had reported it; and its deletion, if a watch has reported that already.
    fn take_object(&mut self, object: &Arc<Value>, facts: &mut Intake) {
        let Some(seen) = ObservedObject::read(&self.registry, Arc::clone(object)) else { return };
        let is_deleted = match &seen {
            ObservedObject::Pod(key, fact) => self.in_flight.is_deleted(key, &fact.uid),
            ObservedObject::Service(key, fact) => self.in_flight.is_deleted(key, &fact.uid),
            ObservedObject::Owned(key, fact) => self.in_flight.is_deleted(key, &fact.uid),
            ObservedObject::Job(..)
            | ObservedObject::Node(_)
            | ObservedObject::Class(_)
            | ObservedObject::Quota(_)
            | ObservedObject::Namespace(_)
            | ObservedObject::Foreign(_) => false,
        };
        self.applied(seen, facts, false);
        if is_deleted && let Some(seen) = ObservedObject::read(&self.registry, Arc::clone(object)) {
            self.deleted(seen, facts);
        }
    }
}

/// Returns the outcome of a call that failed. Overload, server faults, silence and an expired token (401) leave it unknown; other
/// codes are rejections.
pub(crate) fn outcome_of(error: ApiError) -> Outcome {
    match error.code {
        0 | 401 | 408 | 409 | 429 | 500.. => Outcome::Unknown { code: error.code },
        code => Outcome::Refused { code, message: Text::from(error.message) },
    }
}
