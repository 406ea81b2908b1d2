//! Read-ahead: other threads hash the next blocks while the caller works on the present frames.
//!
//! Owns cutting a scan into batches, the threads, and joining what they verified; every check is [`Frames`]' own, and the
//! joints between batches are checked here, so the result is what one thread would give. Possible because a block states
//! the digest it follows. Memory is bounded by a few batches. Tests: `tests/conformance.rs` reads long logs both ways;
//! `tests/damage.rs` damages them.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use model::{Position, Term};

use crate::block::{BlockKey, Header};
use crate::chain::{Frames, Tip};
use crate::digest::Head;
use crate::error::{Damage, Error};
use crate::store::BlockIter;
use crate::types::Frame;

/// Shorter reads are not worth a thread.
const WORTH_RECORDS: u64 = 2048;
/// Blocks per batch: about 400 KB.
const BATCH_BLOCKS: usize = 64;
const MAX_WORKERS: usize = 4;

type Batch<B> = Vec<Result<(BlockKey, B), Error>>;

/// Blocks that one worker verifies, and what is known of the chain before them.
struct Work<B> {
    blocks: Batch<B>,
    start: Tip,
    group_end: Option<Position>,
    from: Position,
    until: Option<Head>,
    reply: Sender<Done>,
}

/// The result of one batch.
struct Done {
    start: Tip,
    end: Tip,
    first_term: Option<Term>,
    frames: Vec<Frame>,
    result: Result<(), Error>,
}

fn verify<B: AsRef<[u8]> + 'static>(work: Work<B>) {
    let blocks: BlockIter<'static, B> = Box::new(work.blocks.into_iter());
    let mut frames = Frames::part(blocks, work.start, work.from, work.until, work.group_end);
    let (mut out, mut result) = (Vec::new(), Ok(()));
    for frame in frames.by_ref() {
        match frame {
            Ok(frame) => out.push(frame),
            Err(error) => result = Err(error),
        }
    }
    let (end, first_term) = (frames.tip(), frames.first_term());
    // Sending fails when the reader was dropped.
    let _ = work.reply.send(Done { start: work.start, end, first_term, frames: out, result });
}

/// Threads that verify batches; they end with this value.
struct Workers<B> {
    work: Option<SyncSender<Work<B>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: AsRef<[u8]> + Send + 'static> Workers<B> {
    /// Starts the threads; `None` where there is nothing to gain, or no thread to be had.
    fn start() -> Option<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
        if count < 2 {
            return None;
        }
        let (work, queue) = sync_channel::<Work<B>>(count);
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..count {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name("event-log-read".to_owned());
            let run = move || {
                while let Some(work) = next(&queue) {
                    verify(work);
                }
            };
            threads.extend(thread.spawn(run).ok());
        }
        (!threads.is_empty()).then_some(Self { work: Some(work), threads })
    }
}

fn next<B>(queue: &Mutex<Receiver<Work<B>>>) -> Option<Work<B>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        self.work = None; // the queue closes and every thread comes to its end
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Verified frames in order, like [`Frames`] with several threads behind it.
pub(crate) struct ReadAhead<'a, B> {
    blocks: BlockIter<'a, B>,
    held: Option<Result<(BlockKey, B), Error>>,
    workers: Workers<B>,
    pending: VecDeque<Receiver<Done>>,
    /// Start of the batch that is cut next.
    cut: Tip,
    cut_group: Option<Position>,
    ended: bool,
    /// End of what is verified and joined.
    tip: Tip,
    from: Position,
    until: Option<Head>,
    ready: VecDeque<Frame>,
    failed: Option<Error>,
    done: bool,
}

impl<'a, B: AsRef<[u8]> + Send + 'static> ReadAhead<'a, B> {
    fn new(blocks: BlockIter<'a, B>, start: Tip, from: Position, until: Option<Head>, workers: Workers<B>) -> Self {
        Self {
            blocks,
            held: None,
            workers,
            pending: VecDeque::new(),
            cut: start,
            cut_group: None,
            ended: false,
            tip: start,
            from,
            until,
            ready: VecDeque::new(),
            failed: None,
            done: false,
        }
    }

    /// Cuts the next batch, at a block that begins a record, and hands it out.
    fn hand_out(&mut self) {
        let mut blocks: Batch<B> = Vec::with_capacity(BATCH_BLOCKS);
        while let Some(item) = self.held.take().or_else(|| self.blocks.next()) {
            let begins_record = matches!(&item, Ok((key, _)) if key.fragment == 0);
            if blocks.len() >= BATCH_BLOCKS && begins_record {
                self.held = Some(item);
                break;
            }
            let failed = item.is_err();
            blocks.push(item);
            if failed {
                break;
            }
        }
        if self.held.is_none() {
            self.ended = true;
        }
        if blocks.is_empty() {
            return;
        }
        let group_of_last = match blocks.last() {
            Some(Ok((_, bytes))) => Header::read(bytes.as_ref()).ok().map(|header| header.group_end),
            _ => None,
        };
        let (reply, answer) = channel();
        let work =
            Work { blocks, start: self.cut, group_end: self.cut_group, from: self.from, until: self.until, reply };
        self.pending.push_back(answer);
        if let Some(workers) = &self.workers.work {
            // Cannot fail while the threads live; if it does, the missing answer is the error.
            let _ = workers.send(work);
        }
        self.cut_group = group_of_last;
        if let Some(Ok((key, bytes))) = &self.held {
            match Header::read(bytes.as_ref()) {
                Ok(header) => self.cut = Tip::before(&header),
                // The worker that gets this block reports it, at the place the block claims by its key.
                Err(_) => self.cut.head.position = Position(key.position.0.saturating_sub(1)),
            }
        }
    }

    /// Takes the next batch's answer and joins it to the chain. `false` at the end of the chain.
    fn join_next(&mut self) -> Result<bool, Error> {
        while !self.ended && self.pending.len() < 2 * self.workers.threads.len() {
            self.hand_out();
        }
        let at = self.tip.head.position.next();
        let Some(answer) = self.pending.pop_front() else {
            return match self.until {
                Some(until) if until != self.tip.head => Err(Error::damaged(at, Damage::Missing)),
                None if self.cut_group.is_some_and(|end| end != self.tip.head.position) => {
                    Err(Error::damaged(at, Damage::Missing))
                }
                _ => Ok(false),
            };
        };
        let lost = |_| Error::Engine { action: "read", message: "a reading thread ended early".to_owned() };
        let part = answer.recv().map_err(lost)?;
        if part.start.head.position != self.tip.head.position {
            let gap = part.start.head.position > self.tip.head.position;
            return Err(Error::damaged(at, if gap { Damage::Missing } else { Damage::Misplaced("block") }));
        }
        if part.start.head.digest != self.tip.head.digest {
            // A block whose header is unreadable has no digest to compare; its own fault says more.
            return Err(part.result.err().unwrap_or_else(|| Error::damaged(at, Damage::Chain)));
        }
        if part.start.body_bytes != self.tip.body_bytes {
            return Err(part.result.err().unwrap_or_else(|| Error::damaged(at, Damage::Misplaced("group"))));
        }
        if part.first_term.is_some_and(|term| term < self.tip.term) {
            return Err(Error::damaged(at, Damage::Misplaced("term goes backwards")));
        }
        self.tip = part.end;
        self.ready = part.frames.into();
        // The worker stops at the head and has compared it.
        self.done = self.until.is_some_and(|until| self.tip.head.position >= until.position);
        self.failed = part.result.err();
        Ok(true)
    }

    fn step(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.done || !self.join_next()? {
                return Ok(None);
            }
        }
    }
}

impl<B: AsRef<[u8]> + Send + 'static> Iterator for ReadAhead<'_, B> {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.done = true;
            self.ready.clear();
        }
        next
    }
}

/// Verified frames, by one thread or several.
pub(crate) enum Reader<'a, B> {
    /// For short reads.
    One(Box<Frames<'a, B>>),
    /// For long ones.
    Many(Box<ReadAhead<'a, B>>),
}

impl<'a, B: AsRef<[u8]> + Send + 'static> Reader<'a, B> {
    /// Makes a reader as [`Frames::new`] does; `records` is the approximate number of records to read.
    pub(crate) fn new(blocks: BlockIter<'a, B>, start: Tip, from: Position, until: Option<Head>, records: u64) -> Self {
        match (records >= WORTH_RECORDS).then(Workers::start).flatten() {
            Some(workers) => Self::Many(Box::new(ReadAhead::new(blocks, start, from, until, workers))),
            None => Self::One(Box::new(Frames::new(blocks, start, from, until))),
        }
    }

    /// Returns the end of the verified chain.
    pub(crate) const fn tip(&self) -> Tip {
        match self {
            Self::One(frames) => frames.tip(),
            Self::Many(frames) => frames.tip,
        }
    }

    /// Verifies to the end without making frames.
    pub(crate) fn finish(mut self) -> (Tip, Result<(), Error>) {
        let everything = Position(u64::MAX);
        match &mut self {
            Self::One(frames) => frames.skip_to(everything),
            Self::Many(frames) => frames.from = everything,
        }
        let result = self.by_ref().find_map(Result::err).map_or(Ok(()), Err);
        (self.tip(), result)
    }
}

impl<B: AsRef<[u8]> + Send + 'static> Iterator for Reader<'_, B> {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(frames) => frames.next(),
            Self::Many(frames) => frames.next(),
        }
    }
}
