//! Reads one connection to a leader's log, and appends verified batches of records to the own log.

use std::time::Duration;

use event_log::jsonl::{self, Fault, Reader};
use event_log::{Checkpoint, Frame, Head};
use model::{Position, Term};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::follower::end;
use crate::core::{OperatorHandle, RequestError};
use crate::metrics::Metrics;
use crate::replication::remote::{Error, Lines, Remote};

/// Number of records per durable append.
const BATCH_RECORDS: usize = 512;
/// Size of the text gathered before an append, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum length of a line, in bytes: above that of any record or checkpoint.
const MAX_LINE_BYTES: usize = 512 << 20;
/// Time to wait for more text before an append.
const BATCH_INTERVAL: Duration = Duration::from_millis(2);

/// Reason for which a session ended.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It was stopped, or the leader changed.
    Asked,
    /// It failed.
    Failed(String),
}

/// The own log cannot be read or written now.
#[derive(Debug, thiserror::Error)]
#[error("the own log is not open")]
struct NotOpen;

/// Difference between the own log and the leader's, of which it should be the beginning.
#[derive(Debug, thiserror::Error)]
enum Divergence {
    /// It has another record at its end.
    #[error("another record at {0}")]
    At(Position),
    /// The leader's has another record after this end.
    #[error("another record after {0}")]
    After(Position),
    /// It has more records.
    #[error("longer than the leader's, at {0}")]
    Longer(Position),
    /// It ends before the leader's begins.
    #[error("the leader's begins at {0}")]
    Earlier(Position),
    /// A record of the leader's does not continue it.
    #[error(transparent)]
    Record(Box<operator::Error>),
}

/// One connection.
pub(super) struct Session<'a> {
    pub(super) remote: Remote,
    pub(super) operator: &'a OperatorHandle,
    pub(super) metrics: &'a Metrics,
    /// Records after which the own log is compacted; 0 for never.
    pub(super) compact_after: u64,
    pub(super) stop: &'a CancellationToken,
}

/// Outcome of an append.
enum AppendOutcome {
    Appended(Head),
    /// The own log is not a beginning of the leader's.
    Diverged(Divergence),
    Failed(String),
}

impl Session<'_> {
    /// Reads until it cannot continue. `reading` is called once records come, or there are none to come.
    pub(super) async fn run(&self, reading: impl Fn()) -> Stopped {
        loop {
            let (head, term) = match self.own_end().await {
                Ok(own) => own,
                Err(error) => return Stopped::Failed(error.to_string()),
            };
            let opened = tokio::select! {
                () = self.stop.cancelled() => return Stopped::Asked,
                opened = self.remote.log(head.position.next(), true) => opened,
            };
            let why = match opened {
                Ok(lines) if lines.head.position == head.position && lines.head.digest != head.digest => {
                    Divergence::At(head.position)
                }
                Ok(lines) => {
                    reading();
                    match self.read(lines, head, term).await {
                        Ok(stopped) => return stopped,
                        Err(diverged) => diverged,
                    }
                }
                Err(Error::BeyondHead { .. }) => Divergence::Longer(head.position),
                Err(error) => return Stopped::Failed(error.to_string()),
            };
            let why = why.to_string();
            if let Err(error) = self.archive(&why).await {
                return Stopped::Failed(format!("the own log ({why}) cannot be archived: {error}"));
            }
        }
    }

    /// The end of the own log, and the term there.
    async fn own_end(&self) -> Result<(Head, Term), NotOpen> {
        let own = self.operator.with(|operator| {
            let stats = operator.log().stats();
            (stats.head, stats.last_term.unwrap_or_default())
        });
        own.await.map_err(|_| NotOpen)
    }

    /// Appends lines until the stream ends.
    ///
    /// # Errors
    /// Returns an error if the own log is not a beginning of the leader's.
    async fn read(&self, mut lines: Lines, mut head: Head, mut term: Term) -> Result<Stopped, Divergence> {
        let mut text: Vec<u8> = Vec::new();
        // This number of its bytes holds no end of a line: a checkpoint is one long line in many pieces.
        let mut unfinished = 0;
        let mut leader_head = lines.head;
        // The beginning of an answer may be a checkpoint; anywhere else there is none.
        let mut beginning = true;
        self.metrics.followed(head.position, leader_head.position);
        loop {
            let more = tokio::select! {
                () = self.stop.cancelled() => return Ok(Stopped::Asked),
                more = lines.next() => more,
            };
            let (mut ended, mut failed) = (false, None);
            match more {
                Ok(Some(bytes)) => text.extend_from_slice(&bytes),
                Ok(None) => ended = true,
                Err(error) => failed = Some(error.to_string()),
            }
            // What else is there already goes into the same durable write.
            while !ended && failed.is_none() && text.len() < BATCH_BYTES {
                match timeout(BATCH_INTERVAL, lines.next()).await {
                    Err(_) => break,
                    Ok(Ok(Some(bytes))) => text.extend_from_slice(&bytes),
                    Ok(Ok(None)) => ended = true,
                    Ok(Err(error)) => failed = Some(error.to_string()),
                }
            }
            let fresh = text.get(unfinished..).unwrap_or_default();
            let end = fresh.iter().rposition(|byte| *byte == b'\n').map(|at| unfinished + at + 1);
            if let Some(end) = end {
                let rest = text.split_off(end);
                let complete = std::mem::replace(&mut text, rest);
                match self.append_lines(complete, head, term, &mut beginning).await {
                    Ok(taken) => (head, term) = taken,
                    Err(AppendOutcome::Diverged(why)) => return Err(why),
                    Err(AppendOutcome::Failed(why)) => return Ok(Stopped::Failed(why)),
                    Err(AppendOutcome::Appended(_)) => {}
                }
                leader_head.position = leader_head.position.max(head.position);
                self.metrics.followed(head.position, leader_head.position);
            } else if text.len() > MAX_LINE_BYTES {
                return Ok(Stopped::Failed("the leader sends a line longer than any record".to_owned()));
            }
            unfinished = text.len();
            if let Some(why) = failed {
                return Ok(Stopped::Failed(why));
            }
            if ended {
                return Ok(Stopped::Failed("the leader ended the answer".to_owned()));
            }
        }
    }

    /// Verifies complete lines against the own chain and takes the records over.
    async fn append_lines(
        &self,
        text: Vec<u8>,
        mut head: Head,
        mut term: Term,
        beginning: &mut bool,
    ) -> Result<(Head, Term), AppendOutcome> {
        let name = "the leader's log";
        let failed = |error: jsonl::Error| AppendOutcome::Failed(error.to_string());
        let mut reader = if std::mem::take(beginning) && text.starts_with(br#"{"checkpoint""#) {
            let reader = Reader::new(&text[..], name).map_err(failed)?;
            if let Some(checkpoint) = reader.checkpoint() {
                self.begin_at(checkpoint, head).await?;
                (head, term) = (reader.head(), reader.term());
            }
            reader
        } else {
            Reader::resume(&text[..], name, head, term)
        };
        let mut frames = Vec::new();
        let mut first = true;
        loop {
            let next = match reader.next() {
                // The first record that does not continue the own chain shows that the chains differ.
                Some(Err(jsonl::Error::Line {
                    reason: Fault::Digest { .. } | Fault::TermBackwards { .. }, ..
                })) if first => {
                    return Err(AppendOutcome::Diverged(Divergence::After(head.position)));
                }
                next => next.transpose().map_err(failed)?,
            };
            first = false;
            let ended = next.is_none();
            frames.extend(next);
            if !frames.is_empty() && (ended || frames.len() >= BATCH_RECORDS) {
                let last = frames.last().map_or(term, |frame: &Frame| frame.term);
                match self.append(std::mem::take(&mut frames)).await {
                    AppendOutcome::Appended(end) => (head, term) = (end, last),
                    other => return Err(other),
                }
            }
            if ended {
                return Ok((head, term));
            }
        }
    }

    async fn append(&self, frames: Vec<Frame>) -> AppendOutcome {
        let limit = self.compact_after;
        let taken = self.operator.with(move |operator| {
            operator.follow(&frames)?;
            if limit > 0 && operator.log().records() > limit {
                operator.compact()?;
            }
            Ok::<_, operator::Error>(operator.log().head())
        });
        match taken.await {
            Ok(Ok(head)) => AppendOutcome::Appended(head),
            Ok(Err(error @ operator::Error::Diverged { .. })) => {
                AppendOutcome::Diverged(Divergence::Record(Box::new(error)))
            }
            // Records that cannot be read are not taken over, so the own log is as before.
            Ok(Err(error @ operator::Error::Record { .. })) => {
                AppendOutcome::Failed(format!("the leader's log: {error}"))
            }
            Ok(Err(error)) => {
                // What reached the disk is not known: the operator starts again from its log.
                let reopened = self.operator.reopen().await;
                AppendOutcome::Failed(match reopened {
                    Ok(()) => format!("the own log: {error}"),
                    Err(again) => format!("the own log: {error}; {again}"),
                })
            }
            Err(_) => AppendOutcome::Failed(NotOpen.to_string()),
        }
    }

    /// The leader's log begins with a checkpoint, at or after the own end.
    async fn begin_at(&self, checkpoint: &Checkpoint, own: Head) -> Result<(), AppendOutcome> {
        let begins = Head { position: checkpoint.position, digest: checkpoint.digest };
        if begins == own {
            return Ok(());
        }
        if own != Head::default() {
            return Err(AppendOutcome::Diverged(Divergence::Earlier(checkpoint.position.next())));
        }
        let checkpoint = checkpoint.clone();
        match self.operator.with(move |operator| operator.follow_from(&checkpoint)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let _ = self.operator.reopen().await;
                Err(AppendOutcome::Failed(format!("the leader's checkpoint: {error}")))
            }
            Err(_) => Err(AppendOutcome::Failed(NotOpen.to_string())),
        }
    }

    async fn archive(&self, why: &str) -> Result<(), RequestError> {
        let at = end(self.operator);
        let kept = self.operator.archive(why).await?;
        tracing::warn!(why, kept, position = at.0, "the own log is not a prefix of the leader's and was archived");
        Ok(())
    }
}
