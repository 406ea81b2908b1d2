//! Jobs that ended and whose objects are gone: their names, for a while.
//!
//! Best effort: forgotten with the process, and never a reason to decide anything. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{JobKey, Text, Timestamp};

/// Time in milliseconds for which the end of a job is remembered.
const REMEMBERED_MS: u64 = 60 * 60 * 1000;

/// Maximum number of names kept.
const MAX_NAMES: usize = 10_000;

/// Ends of jobs by kind, namespace and name.
#[derive(Debug, Default)]
pub(crate) struct RecentEnds(BTreeMap<(Text, Text, Text), Timestamp>);

impl RecentEnds {
    /// Notes the end of a job whose object is gone.
    pub(crate) fn note(&mut self, key: &JobKey, ended_at: Timestamp, now: Timestamp) {
        if self.0.len() >= MAX_NAMES {
            self.0.retain(|_, at| now.since_ms(*at) < REMEMBERED_MS);
        }
        if self.0.len() < MAX_NAMES {
            self.0.insert(name(key), ended_at);
        }
    }

    /// Returns the end of the job that had this job's name before, if that is remembered.
    pub(crate) fn of_name(&self, key: &JobKey, now: Timestamp) -> Option<Timestamp> {
        self.0.get(&name(key)).copied().filter(|at| now.since_ms(*at) < REMEMBERED_MS)
    }
}

fn name(key: &JobKey) -> (Text, Text, Text) {
    (key.kind.clone(), key.namespace.clone(), key.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, uid: &str) -> JobKey {
        JobKey { namespace: "ns".into(), name: name.into(), kind: "K".into(), uid: uid.into() }
    }

    #[test]
    fn an_end_is_known_by_its_name_for_an_hour() {
        let mut ends = RecentEnds::default();
        let (end, hour) = (Timestamp(1000), 3_600_000);
        ends.note(&key("a", "1"), end, end);
        assert_eq!(ends.of_name(&key("a", "2"), end.plus_ms(hour - 1)), Some(end));
        assert_eq!(ends.of_name(&key("a", "2"), end.plus_ms(hour)), None);
        assert_eq!(ends.of_name(&key("b", "2"), end), None);
    }

    #[test]
    fn names_are_bounded_and_old_ones_make_room() {
        let mut ends = RecentEnds::default();
        for n in 0..=MAX_NAMES {
            ends.note(&key(&n.to_string(), "u"), Timestamp(5), Timestamp(5));
        }
        assert_eq!(ends.0.len(), MAX_NAMES);
        let later = Timestamp(5).plus_ms(REMEMBERED_MS);
        ends.note(&key("new", "u"), later, later);
        assert_eq!((ends.0.len(), ends.of_name(&key("new", "v"), later)), (1, Some(later)));
    }
}
