//! Answers to calls become facts: what an object shows is observed, a refusal is a fact of its own, and what is not known is
//! asked again.

use std::sync::Arc;

use apis::{ApiAnswer, ApiError, ObservedObject, objects};
use engine::Admission;
use engine::admit::{NameHolder, Whose};
use model::{Command, Fact, JobKey, Kind, ObjectRef, Outcome, Stamp, Text};
use serde_json::Value;

use crate::intake::Intake;
use crate::operator::{Doing, Error, Operator};

/// Message of a status write that was accepted without the mirror.
const PRUNED: &str = "the API server dropped status.trainyard: the installed CustomResourceDefinition is older than this operator; \
                      apply the output of `trainyard crd`";

impl Operator {
    /// Turns the answers that came in into facts.
    pub(crate) fn take_answers(&mut self, facts: &mut Intake) {
        while let Some((id, answer)) = self.answers.pop_front() {
            let Some((key, doing)) = self.calls.remove(&id) else { continue };
            let object = doing.object();
            self.under_way.remove(&(key.clone(), object.clone()));
            // Whatever came of it, what is left to do for the job is looked at again.
            facts.touch(&key);
            match doing {
                Doing::Command(command) => self.answer(&key, command, answer, facts),
                Doing::ReadTaken(command) => self.taken(&key, &object, &command, answer, facts),
                Doing::ReadJob => {
                    if let Ok(job) = answer {
                        let have = objects::resource_version(&job);
                        if let Admission::Regressed { known } = self.state.admit_read(&key, have) {
                            self.went_back =
                                Some(Error::ClusterWentBack { kind: Kind::Job, have: have.0, known: known.0 });
                        }
                        self.offer_now(&job, facts);
                    }
                }
            }
        }
    }

    fn answer(&mut self, key: &JobKey, command: Command, answer: ApiAnswer, facts: &mut Intake) {
        let object = command.object();
        self.announce(key, &command, &answer);
        let outcome = match (&command, answer) {
            // The name belongs to another object by now, or to one that is not watched: there is none that is waited for.
            (Command::ReadPod { .. }, Ok(held)) if self.holder(key, &held).whose(key) != Whose::Ours => Outcome::Gone,
            (Command::CreatePod { .. } | Command::CreateService { .. } | Command::ReadPod { .. }, Ok(created)) => {
                self.offer_now(&created, facts);
                return;
            }
            (Command::ReadPod { .. } | Command::WriteMarker, Err(ApiError { code: 404, .. })) => Outcome::Gone,
            (Command::CreatePod { .. } | Command::CreateService { .. }, Err(ApiError { code: 409, .. })) => {
                self.read_again.push((key.clone(), Doing::ReadTaken(command)));
                return;
            }
            (Command::DeletePod { force, .. }, Ok(_)) => {
                if *force {
                    Outcome::Forced
                } else {
                    Outcome::Done
                }
            }
            (Command::DeletePod { uid, .. }, Err(ApiError { code: 404 | 409, .. })) => {
                facts.push(key, Fact::PodGone { uid: uid.clone(), rv: None });
                return;
            }
            (Command::DeleteService { uid, .. }, Err(ApiError { code: 404 | 409, .. })) => {
                facts.push(key, Fact::ServiceGone { uid: uid.clone() });
                return;
            }
            (Command::WriteStatus { stamp, .. }, Ok(job)) if !self.shows_mirror(key, &job, *stamp) => {
                Outcome::Refused { code: 200, message: Text::from(PRUNED) }
            }
            (Command::WriteStatus { stamp, .. }, Ok(job)) => {
                facts.push(key, Fact::Published { stamp: *stamp, rv: objects::resource_version(&job) });
                return;
            }
            (Command::WriteStatus { .. }, Err(ApiError { code: 409, .. })) => {
                self.read_again.push((key.clone(), Doing::ReadJob));
                return;
            }
            (Command::WriteStatus { .. }, Err(ApiError { code: 404, .. })) => Outcome::Unknown { code: 404 },
            (Command::DeleteService { .. } | Command::WriteMarker, Ok(_)) => Outcome::Done,
            (_, Err(error)) => outcome_of(error),
        };
        facts.push(key, Fact::Answered { object, outcome });
    }

    /// Returns true if the object that a status write returned shows the written mirror. An accepted write proves nothing: a
    /// CRD without the member has the API server drop it.
    fn shows_mirror(&self, key: &JobKey, job: &Value, stamp: Stamp) -> bool {
        self.registry.get(&key.kind).is_some_and(|api| api.job_fact(job).mirror >= stamp)
    }

    /// A name was taken: what holds it has been read.
    fn taken(&mut self, key: &JobKey, object: &ObjectRef, command: &Command, answer: ApiAnswer, facts: &mut Intake) {
        let held = match answer {
            Ok(held) => held,
            Err(ApiError { code: 404, .. }) => {
                // Gone meanwhile: the same again.
                facts.push(key, Fact::Answered { object: object.clone(), outcome: Outcome::Unknown { code: 409 } });
                return;
            }
            Err(error) => {
                facts.push(key, Fact::Answered { object: object.clone(), outcome: outcome_of(error) });
                return;
            }
        };
        let holder = self.holder(key, &held);
        if holder.whose(key) == Whose::Ours {
            self.offer_now(&held, facts);
        }
        let Some(outcome) = self.state.taken(key, &holder) else { return };
        if let Outcome::Taken { waiting: false, unseen } = outcome {
            self.announce_taken(key, command, &held, unseen);
        }
        facts.push(key, Fact::Answered { object: object.clone(), outcome });
    }

    /// Reads the object that holds a name of this job.
    fn holder(&self, key: &JobKey, held: &Value) -> NameHolder {
        NameHolder {
            uid: objects::uid(held).ok(),
            owner: objects::owner(&self.registry, held),
            deleting: objects::deleting_at(held).is_some(),
            watched: self.registry.get(&key.kind).is_some_and(|api| api.selector().selects(held)),
        }
    }

    /// Looks at an object an answer carried as if a watch had shown it.
    fn offer_now(&mut self, object: &Arc<Value>, facts: &mut Intake) {
        if let Some(seen) = ObservedObject::read(&self.registry, Arc::clone(object)) {
            self.applied(seen, facts, false);
        }
    }
}

impl Doing {
    /// The object it is about.
    pub(crate) fn object(&self) -> ObjectRef {
        match self {
            Self::Command(command) | Self::ReadTaken(command) => command.object(),
            Self::ReadJob => ObjectRef::Status,
        }
    }
}

/// Returns the outcome of a call that failed. Overload, server faults, silence and an expired token (401) leave it unknown; other
/// codes are refusals.
fn outcome_of(error: ApiError) -> Outcome {
    match error.code {
        0 | 401 | 408 | 409 | 429 | 500.. => Outcome::Unknown { code: error.code },
        code => Outcome::Refused { code, message: Text::from(error.message) },
    }
}
