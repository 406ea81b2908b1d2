//! One left-to-right tournament per GPU: the shape of AFS and of its relatives.
//!
//! The rule that compares two jobs need not be transitive, so the order of the duels is part of the policy and a heap will
//! not do. What is saved is the part before the job that just changed: the champion there stands. Cost: O(G x J).

use crate::job::Curve;

/// Candidate for the next GPUs: the values that a comparison reads, side by side for speed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Work left: time at reference speed.
    pub(super) rem: u64,
    /// GPUs given so far.
    pub(super) given: u32,
    /// GPUs it would have with the next grant.
    pub(super) next: u32,
    /// Speed now.
    pub(super) speed: u64,
    /// Speed with the next grant.
    pub(super) faster: u64,
    /// True if it can be given more.
    pub(super) open: bool,
    min: u32,
    max: u32,
}

impl Candidate {
    /// A job with `given` GPUs.
    pub(super) fn new(rem: u64, sizes: (u32, u32), curve: &Curve, given: u32) -> Self {
        let (min, max) = sizes;
        let blank = Self { rem, given, next: 0, speed: 0, faster: 0, open: true, min, max };
        blank.with(given, curve)
    }

    fn with(mut self, given: u32, curve: &Curve) -> Self {
        self.given = given;
        self.next = if given == 0 { self.min } else { given.saturating_add(1) };
        self.speed = curve.at(given).0;
        self.faster = curve.at(self.next).0;
        self.open = given < self.max;
        self
    }
}

/// Hands out `free` GPUs: each time the tournament's winner gets its next grant. `wins(a, b)` returns whether `b`, the later
/// one, replaces `a`. A job whose next grant does not fit drops out for good, as what is free only shrinks.
pub(super) fn run<'c>(
    field: &mut [Candidate],
    curve: impl Fn(usize) -> Option<&'c Curve>,
    mut free: u32,
    wins: impl Fn(&Candidate, &Candidate) -> bool,
) {
    let mut champions: Vec<Option<usize>> = vec![None; field.len()];
    let mut start = 0;
    // Waiting jobs by what their start needs, the largest last: those that drop out next.
    let mut waiting: Vec<(u32, usize)> =
        (field.iter().enumerate()).filter(|(_, c)| c.given == 0).map(|(i, c)| (c.min, i)).collect();
    waiting.sort_unstable();
    while free > 0 {
        while let Some(&(min, i)) = waiting.last()
            && min > free
        {
            waiting.pop();
            if let Some(candidate) = field.get_mut(i).filter(|c| c.given == 0) {
                candidate.open = false;
                start = start.min(i);
            }
        }
        let Some(winner) = play(field, &mut champions, start, &wins) else { break };
        let (Some(candidate), Some(curve)) = (field.get_mut(winner), curve(winner)) else { break };
        free = free.saturating_sub(candidate.next.saturating_sub(candidate.given));
        *candidate = candidate.with(candidate.next, curve);
        start = winner;
    }
}

/// Plays on from `start`; before it nothing has changed, so its champions stand.
fn play(
    field: &[Candidate],
    champions: &mut [Option<usize>],
    start: usize,
    wins: impl Fn(&Candidate, &Candidate) -> bool,
) -> Option<usize> {
    let before = start.checked_sub(1).and_then(|i| champions.get(i)).copied().flatten();
    let mut best = before.and_then(|i| field.get(i).map(|c| (i, c)));
    for ((i, candidate), champion) in field.iter().enumerate().zip(champions).skip(start) {
        if candidate.open && best.is_none_or(|(_, a)| wins(a, candidate)) {
            best = Some((i, candidate));
        }
        *champion = best.map(|(i, _)| i);
    }
    best.map(|(i, _)| i)
}
