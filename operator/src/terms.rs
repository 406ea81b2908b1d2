//! Terms: which one this process has, and which one begins next.
//!
//! Owns the choice of a term that is greater than every known one. It must not know where terms are claimed: the driver
//! writes them to the Lease. Tests: at the end of this file.

use model::{Term, Timestamp};

/// Terms of one process.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Term of this process; zero until it begins.
    current: Term,
    /// Newest term of a Lease when the process started.
    last: Term,
    /// Terms are claimed elsewhere before they begin.
    claimed: bool,
    /// The term that was claimed for this process, until it begins.
    granted: Option<Term>,
}

impl Terms {
    pub(crate) const fn new(last: Term, claimed: bool) -> Self {
        Self { current: Term(0), last, claimed, granted: None }
    }

    /// Returns the term that began; zero before.
    pub(crate) const fn current(&self) -> Term {
        self.current
    }

    pub(crate) const fn has_begun(&self) -> bool {
        self.current.0 > 0
    }

    /// Returns a term greater than any known one, and than the present second. `newest` is that of the log and the mirrors.
    pub(crate) fn proposal(&self, newest: Term, now: Timestamp) -> Term {
        Term(newest.max(self.last).0.max(now.0 / 1000).saturating_add(1))
    }

    pub(crate) const fn grant(&mut self, term: Term) {
        self.granted = Some(term);
    }

    /// Begins a term and returns it: the granted one where terms are claimed, unless a newer one is known by now.
    pub(crate) fn begin(&mut self, newest: Term, now: Timestamp) -> Option<Term> {
        let term = if self.claimed {
            self.granted.take().filter(|term| *term > newest.max(self.last))?
        } else {
            self.proposal(newest, now)
        };
        self.current = term;
        Some(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_greater_than_all_that_are_known() {
        // (in the Lease, in log and mirrors, now in ms, proposed)
        for (last, newest, now, want) in [(0, 0, 0, 1), (7, 3, 0, 8), (3, 7, 0, 8), (3, 7, 9_000, 10), (3, 7, 7_999, 8)]
        {
            let mut terms = Terms::new(Term(last), false);
            assert_eq!(terms.proposal(Term(newest), Timestamp(now)), Term(want));
            assert!(!terms.has_begun());
            assert_eq!(
                terms.begin(Term(newest), Timestamp(now)),
                Some(Term(want)),
                "without claims it begins by itself"
            );
            assert_eq!((terms.current(), terms.has_begun()), (Term(want), true));
        }
    }

    #[test]
    fn a_claimed_term_begins_once_and_only_if_it_is_new() {
        let mut terms = Terms::new(Term(5), true);
        assert_eq!(terms.begin(Term(0), Timestamp(0)), None, "none was granted");
        for (granted, newest, begins) in [(5, 0, false), (6, 6, false), (7, 6, true)] {
            terms.grant(Term(granted));
            assert_eq!(terms.begin(Term(newest), Timestamp(0)), begins.then_some(Term(granted)));
            assert_eq!(terms.has_begun(), begins);
        }
        assert_eq!(terms.begin(Term(0), Timestamp(0)), None, "a grant serves once");
    }
}
