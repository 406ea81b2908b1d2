//! Judges objects of jobs that were read: whether they still exist, and whether the job takes its state from them.

use model::fact::Adopted;
use model::{JobKey, ObjectFact, Phase, ResourceVersion, Stamp, Term};

use super::{Admission, Arrival};
use crate::state::State;

/// Writers of the mirror on a job's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorWriter {
    /// Operators alone.
    Operator,
    /// Users as well: a mirror counts only where an operator may have written it.
    Anyone {
        /// The term that begins with this turn.
        begins: Option<Term>,
    },
}

/// Consequence of reading the object of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectReading {
    /// Nothing: the job is not known and was deleted before the newest list.
    Deleted,
    /// The job continues with what is known of it.
    Known(Box<ObjectFact>),
    /// The job takes its state from its object first. Its spec has to be read again.
    Adopted(Box<Adopted>, Box<ObjectFact>),
}

impl State {
    /// Returns the consequence of reading the object of a job, before its facts are handled. `adopt` reads the job's state off the object.
    pub fn read_object(
        &self,
        key: &JobKey,
        fact: ObjectFact,
        arrival: Arrival,
        writer: MirrorWriter,
        adopt: impl FnOnce() -> Adopted,
    ) -> ObjectReading {
        if self.is_deleted_job(key, &fact, arrival) {
            return ObjectReading::Deleted;
        }
        if let MirrorWriter::Anyone { begins } = writer
            && !self.is_own_mirror(key, fact.mirror, begins)
        {
            // The operator writes its own again.
            return ObjectReading::Known(Box::new(ObjectFact { mirror: Stamp::default(), ..fact }));
        }
        match self.adoption(key, &fact, arrival.term_begins, adopt) {
            Some(adopted) => ObjectReading::Adopted(Box::new(adopted), Box::new(fact)),
            None => ObjectReading::Known(Box::new(fact)),
        }
    }

    /// Returns true if another operator leads by now: a job that this one knows has a mirror that its log does not contain.
    pub(crate) fn is_superseded(&self, key: &JobKey, arrival: Arrival) -> bool {
        !arrival.term_begins && self.jobs.summary(key).is_some_and(|job| job.known)
    }

    /// Returns the state that a job takes from its object before the fact is admitted: its mirror is newer than what is known
    /// of the job and not covered by the log, or it has no mirror, is new here and its status shows a phase. `read` reads the
    /// object.
    fn adoption(
        &self,
        key: &JobKey,
        fact: &ObjectFact,
        term_begins: bool,
        read: impl FnOnce() -> Adopted,
    ) -> Option<Adopted> {
        if term_begins && self.has_void_share(key, fact) {
            return Some(read());
        }
        let known = self.jobs.summary(key).filter(|job| job.known);
        if fact.mirror == Stamp::default() {
            return known.is_none().then(read).filter(|adopted| adopted.mirror.phase != Phase::New);
        }
        let is_newer = known.is_none_or(|job| fact.mirror > job.acked_stamp && fact.rv > job.rv);
        (is_newer && !self.covers(fact.mirror)).then(read)
    }

    /// Returns true if this operator or an earlier one may have written a mirror that users may write as well. `begins`: the term that begins
    /// with this turn. No other operator writes while this one leads. One that was adopted is written again until a record changes the job.
    fn is_own_mirror(&self, key: &JobKey, mirror: Stamp, begins: Option<Term>) -> bool {
        self.covers(mirror)
            || begins.is_some_and(|term| mirror.term <= term)
            || self.jobs.summary(key).is_some_and(|job| mirror <= job.acked_stamp)
    }

    /// Returns true if a share was decided in an earlier term and never acknowledged: whether its write still comes is not known.
    fn has_void_share(&self, key: &JobKey, fact: &ObjectFact) -> bool {
        self.jobs.live(key).is_some_and(|job| {
            let is_shown = fact.mirror >= job.allocation.stamp || job.stamps.acknowledged() >= job.allocation.stamp;
            job.object.is_known() && !is_shown && !job.allocation.share.is_empty()
        })
    }

    /// Returns true if the job is not known and was deleted before the newest list.
    fn is_deleted_job(&self, key: &JobKey, fact: &ObjectFact, arrival: Arrival) -> bool {
        !self.jobs.summary(key).is_some_and(|job| job.known) && !arrival.exists(fact.rv)
    }

    /// Returns the version of a job's object that is known, zero for an unknown job.
    pub fn known_version(&self, key: &JobKey) -> ResourceVersion {
        self.jobs.summary(key).map_or_else(ResourceVersion::default, |job| job.rv)
    }

    /// Returns the verdict on an object that was read at a version: a read shows at least what was `known` when it was sent.
    /// A watch may have shown a newer version meanwhile.
    pub fn admit_read(known: ResourceVersion, rv: ResourceVersion) -> Admission {
        if rv < known { Admission::Regressed { known } } else { Admission::Admitted }
    }
}
