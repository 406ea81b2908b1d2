//! Which sources of a leadership are listed, and which APIs a term does without.
//!
//! A term begins when every source was listed. A source that the server refuses, or that fails again and again, would hold
//! up the jobs of every API. When all else is listed, the APIs it shows are left out of the term instead, until their
//! sources can be listed again. Nodes belong to no API, so there is no term without them. Decides from reports alone; it
//! must not talk to the server. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};

use model::Text;
use tokio::sync::mpsc;

/// Number of consecutive refusals of a list (4xx) after which a source counts as unavailable: about three seconds.
const MAX_REFUSALS: u32 = 3;
/// Number of consecutive failed lists, refusals included, after which a source counts as unavailable: about half a minute.
const MAX_FAILURES: u32 = 10;

/// Result of an attempt to list a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListReport {
    /// Index of the source in [`ListTracker::new`].
    pub source: usize,
    /// Why it failed, or `Ok`.
    pub outcome: Result<(), ListFailure>,
}

/// Why a source could not be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListFailure {
    /// True if the server rejected the request: trying again helps only after a change of the cluster.
    pub refused: bool,
    /// The source and the reason, for users.
    pub message: String,
}

/// Reports attempts to list one source. The default reports to no one.
#[derive(Debug, Default)]
pub struct ListReporter(Option<(usize, mpsc::UnboundedSender<ListReport>)>);

impl ListReporter {
    /// Reports attempts to list the source of this index.
    pub(crate) const fn new(source: usize, sender: mpsc::UnboundedSender<ListReport>) -> Self {
        Self(Some((source, sender)))
    }

    /// Reports an attempt.
    pub(crate) fn report(&self, outcome: Result<(), ListFailure>) {
        if let Some((source, sender)) = &self.0 {
            // A leadership that is over takes no reports.
            let _ = sender.send(ListReport { source: *source, outcome });
        }
    }
}

#[derive(Debug, Default)]
struct Progress {
    listed: bool,
    failures: u32,
    refusals: u32,
    message: String,
}

impl Progress {
    const fn is_unavailable(&self) -> bool {
        !self.listed && (self.refusals >= MAX_REFUSALS || self.failures >= MAX_FAILURES)
    }
}

/// The sources of one leadership until its term begins.
#[derive(Debug)]
pub(crate) struct ListTracker {
    /// Kinds of the APIs that each source shows, none for nodes.
    shows: Vec<BTreeSet<Text>>,
    progress: Vec<Progress>,
}

impl ListTracker {
    /// Starts with nothing listed. `shows` has the kinds of the APIs that each source shows.
    pub(crate) fn new(shows: Vec<BTreeSet<Text>>) -> Self {
        let progress = shows.iter().map(|_| Progress::default()).collect();
        Self { shows, progress }
    }

    /// Records an attempt.
    pub(crate) fn record(&mut self, report: ListReport) {
        let Some(progress) = self.progress.get_mut(report.source) else { return };
        match report.outcome {
            Ok(()) => *progress = Progress { listed: true, ..Progress::default() },
            Err(failure) => {
                progress.failures += 1;
                progress.refusals = if failure.refused { progress.refusals + 1 } else { 0 };
                progress.message = failure.message;
            }
        }
    }

    /// Returns the APIs to leave out, each with the reason. Empty while everything else is not listed yet, and when no API
    /// would be left.
    pub(crate) fn unavailable_kinds(&self) -> BTreeMap<Text, String> {
        let sources = || self.shows.iter().zip(&self.progress);
        let mut unavailable = BTreeMap::new();
        for (shows, progress) in sources().filter(|(_, progress)| progress.is_unavailable()) {
            for kind in shows {
                unavailable.entry(kind.clone()).or_insert_with(|| progress.message.clone());
            }
        }
        let needed =
            |shows: &BTreeSet<Text>| shows.is_empty() || shows.iter().any(|kind| !unavailable.contains_key(kind));
        let whole = sources().filter(|(shows, _)| needed(shows)).all(|(_, progress)| progress.listed);
        let any_left = sources().any(|(shows, _)| !shows.is_empty() && needed(shows));
        if whole && any_left { unavailable } else { BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: usize = 0;

    /// Nodes, then jobs and pods of `A`, then of `B`.
    fn tracker() -> ListTracker {
        ListTracker::new([&[][..], &["A"], &["A"], &["B"], &["B"]].map(kinds).to_vec())
    }

    fn kinds(kinds: &[&str]) -> BTreeSet<Text> {
        kinds.iter().map(|kind| Text::from(*kind)).collect()
    }

    fn listed(tracker: &mut ListTracker, sources: &[usize]) {
        for source in sources {
            tracker.record(ListReport { source: *source, outcome: Ok(()) });
        }
    }

    fn fail(tracker: &mut ListTracker, source: usize, refused: bool, times: u32) {
        for _ in 0..times {
            let message = format!("source {source}");
            tracker.record(ListReport { source, outcome: Err(ListFailure { refused, message }) });
        }
    }

    fn left_out(tracker: &ListTracker) -> Vec<(String, String)> {
        tracker.unavailable_kinds().into_iter().map(|(kind, why)| (kind.to_string(), why)).collect()
    }

    #[test]
    fn an_api_with_a_refused_source_is_left_out_once_all_else_is_listed() {
        let mut tracker = tracker();
        fail(&mut tracker, 3, true, MAX_REFUSALS);
        listed(&mut tracker, &[NODES, 1]);
        assert_eq!(left_out(&tracker), [], "the other API's pods are not listed");
        listed(&mut tracker, &[2]);
        assert_eq!(left_out(&tracker), [("B".to_owned(), "source 3".to_owned())]);
        listed(&mut tracker, &[3]);
        assert_eq!(left_out(&tracker), [], "it was listed after all");
    }

    #[test]
    fn failures_that_may_pass_are_waited_for_longer() {
        let mut tracker = tracker();
        listed(&mut tracker, &[NODES, 1, 2, 3]);
        fail(&mut tracker, 4, true, MAX_REFUSALS - 1);
        fail(&mut tracker, 4, false, 1);
        fail(&mut tracker, 4, true, MAX_REFUSALS - 1);
        assert_eq!(left_out(&tracker), [], "no three refusals in a row");
        fail(&mut tracker, 4, false, MAX_FAILURES);
        assert_eq!(left_out(&tracker), [("B".to_owned(), "source 4".to_owned())]);
    }

    #[test]
    fn there_is_no_term_without_nodes_or_without_any_api() {
        let mut tracker = tracker();
        listed(&mut tracker, &[1, 2, 3, 4]);
        fail(&mut tracker, NODES, true, 2 * MAX_FAILURES);
        assert_eq!(left_out(&tracker), []);
        listed(&mut tracker, &[NODES]);
        let mut tracker = ListTracker::new([&[][..], &["A"], &["A", "B"], &["B"]].map(kinds).to_vec());
        listed(&mut tracker, &[NODES, 1, 3]);
        fail(&mut tracker, 2, true, MAX_FAILURES);
        assert_eq!(left_out(&tracker), [], "both APIs' pods come from the refused source");
    }
}
