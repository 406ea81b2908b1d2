//! The life of one pod, as a kubelet leads it: which container to start, end or start again, and when the pod is over.
//!
//! Pure: time and what happened come in, actions go out; after every input the same level-triggered step decides. It must
//! not know processes. `status` shows it. Tests: `lifecycle/tests.rs`, and `tests/local/processes.rs` with real processes.

use model::Timestamp;

use crate::wire::{Container, Plan};

/// Index of a container: init containers first, in order.
pub(crate) type ContainerIndex = usize;

/// Input of a pod's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// Nothing but time passing; also the first input.
    Tick,
    /// The program of a container runs.
    Running { slot: ContainerIndex, pid: i32 },
    /// It could not be started.
    NotStarted { slot: ContainerIndex, message: String },
    /// It ended at that time, and meanwhile everything it started.
    Exited { slot: ContainerIndex, code: i32, message: String, at: Timestamp },
    /// The pod is to end.
    Stop { grace_ms: u64 },
    /// Kills all that runs; it counts as ended with this code.
    Exit { code: i32 },
}

/// Action that follows from an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start a container; `restart` counts its earlier runs in this pod.
    Start { slot: ContainerIndex, restart: u32 },
    /// Ask it to end.
    Term { slot: ContainerIndex },
    /// End it.
    Kill { slot: ContainerIndex },
}

/// A run of a container that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terminated {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) started_at: Timestamp,
    pub(crate) finished_at: Timestamp,
}

/// State of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Never started yet.
    Waiting,
    Starting,
    Running {
        pid: i32,
        started_at: Timestamp,
    },
    Terminated(Terminated),
    /// Ended, and to be started again then.
    BackOff {
        until: Timestamp,
        wait_ms: u64,
    },
}

/// One container.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    pub(crate) spec: Container,
    pub(crate) init: bool,
    pub(crate) state: State,
    /// The run before the present one.
    pub(crate) last: Option<Terminated>,
    pub(crate) restarts: u32,
    /// The wait before the next restart.
    next_wait_ms: u64,
    term_sent: bool,
    kill_sent: bool,
    /// The exit code to report instead of the real one.
    forced: Option<i32>,
}

impl Track {
    fn is_live(&self) -> bool {
        matches!(self.state, State::Starting | State::Running { .. })
    }

    /// Exit code of the last run when the container does not run.
    pub(crate) fn code(&self) -> Option<i32> {
        match &self.state {
            State::Terminated(run) => Some(run.code),
            State::Waiting | State::Starting | State::Running { .. } | State::BackOff { .. } => None,
        }
    }
}

/// Why and until when the pod is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stopping {
    deadline: Timestamp,
    /// Only sidecars are left to end: the pod's own work is done.
    sidecars_only: bool,
}

/// One pod.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle {
    pub(crate) plan: Plan,
    pub(crate) started_at: Timestamp,
    pub(crate) tracks: Vec<Track>,
    /// The pod ran longer than it may.
    pub(crate) past_deadline: bool,
    stopping: Option<Stopping>,
    /// An exit asked for while nothing ran.
    exit_when_running: Option<i32>,
}

impl Lifecycle {
    /// A pod nothing of which has been started.
    pub(crate) fn new(plan: Plan, now: Timestamp) -> Self {
        let track = |spec: &Container, init| Track {
            spec: spec.clone(),
            init,
            state: State::Waiting,
            last: None,
            restarts: 0,
            next_wait_ms: 0,
            term_sent: false,
            kill_sent: false,
            forced: None,
        };
        let inits = plan.init.iter().map(|container| track(container, true));
        let tracks = inits.chain(plan.main.iter().map(|container| track(container, false))).collect();
        Self { plan, started_at: now, tracks, past_deadline: false, stopping: None, exit_when_running: None }
    }

    /// Takes an input and returns the actions that follow.
    pub(crate) fn step(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        self.observe(input, now);
        let over = self.plan.active_deadline_ms.is_some_and(|limit| now.since_ms(self.started_at) >= limit);
        if over && !self.past_deadline && !self.is_settled() {
            self.past_deadline = true;
            self.stop(self.plan.grace_ms, false, now);
        }
        let mut actions = self.forced_exits();
        if self.stopping.is_none_or(|stopping| stopping.sidecars_only) {
            self.proceed(now, &mut actions);
        }
        self.wind_down(now, &mut actions);
        actions
    }

    /// Returns the time of the next step, if nothing happens before.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let back_offs = self.tracks.iter().filter_map(|track| match track.state {
            State::BackOff { until, .. } if self.stopping.is_none() => Some(until),
            _ => None,
        });
        let limit = self.plan.active_deadline_ms.filter(|_| !self.past_deadline && !self.is_settled());
        let live = self.tracks.iter().any(|track| track.is_live() && !track.kill_sent);
        back_offs
            .chain(limit.map(|limit| self.started_at.plus_ms(limit)))
            .chain(self.stopping.filter(|_| live).map(|stopping| stopping.deadline))
            .min()
    }

    /// Returns whether nothing runs and nothing will be started.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_settled() && !self.tracks.iter().any(Track::is_live)
    }

    /// Returns whether the pod is ending, or its own work is over: no container is started any more.
    fn is_settled(&self) -> bool {
        self.stopping.is_some_and(|stopping| !stopping.sidecars_only) || self.init_failed() || self.mains_over()
    }

    fn observe(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Tick => {}
            Input::Running { slot, pid } => {
                if let Some(track) = self.tracks.get_mut(slot) {
                    track.state = State::Running { pid, started_at: now };
                }
            }
            Input::NotStarted { slot, message } => {
                // Kubernetes' own numbers for a program that is not there: code 128, started at the beginning of time.
                self.ended(slot, 128, "StartError", message, (now, now));
            }
            Input::Exited { slot, code, message, at } => {
                let forced = self.tracks.get(slot).and_then(|track| track.forced);
                let code = forced.unwrap_or(code);
                self.ended(slot, code, if code == 0 { "Completed" } else { "Error" }, message, (at.min(now), now));
            }
            Input::Stop { grace_ms } => self.stop(grace_ms, false, now),
            Input::Exit { code } => self.exit_when_running = Some(code),
        }
    }

    fn stop(&mut self, grace_ms: u64, sidecars_only: bool, now: Timestamp) {
        let mut deadline = now.plus_ms(grace_ms);
        if let Some(earlier) = self.stopping.filter(|earlier| !earlier.sidecars_only) {
            deadline = deadline.min(earlier.deadline);
        }
        self.stopping = Some(Stopping { deadline, sidecars_only });
    }

    fn ended(
        &mut self,
        slot: ContainerIndex,
        code: i32,
        reason: &'static str,
        message: String,
        (at, now): (Timestamp, Timestamp),
    ) {
        let back_off = self.plan.back_off;
        let Some(track) = self.tracks.get_mut(slot) else { return };
        let started_at = match track.state {
            State::Running { started_at, .. } => started_at,
            State::Starting if reason != "StartError" => now,
            _ => Timestamp(0),
        };
        // The start is when this process heard of it, which may be later than a short program's end.
        let finished_at = at.max(started_at);
        if started_at.0 > 0 && now.since_ms(started_at) >= back_off.forget_ms {
            track.next_wait_ms = 0;
        }
        track.state = State::Terminated(Terminated { code, reason, message, started_at, finished_at });
        (track.term_sent, track.kill_sent, track.forced) = (false, false, None);
    }

    /// Kills what runs, once an exit was asked for.
    fn forced_exits(&mut self) -> Vec<Action> {
        let Some(code) = self.exit_when_running else { return Vec::new() };
        let running = |track: &Track| matches!(track.state, State::Running { .. }) && !track.spec.sidecar;
        let mut actions = Vec::new();
        for (slot, track) in self.tracks.iter_mut().enumerate().filter(|(_, track)| running(track)) {
            track.forced = Some(code);
            track.kill_sent = true;
            actions.push(Action::Kill { slot });
        }
        if !actions.is_empty() {
            self.exit_when_running = None;
        }
        actions
    }

    /// Starts what is due: init containers one after the other, then all others, and again what ended.
    fn proceed(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let mut blocked = false;
        for slot in 0..self.tracks.len() {
            let Some(track) = self.tracks.get(slot) else { return };
            if track.init && !blocked {
                // A sidecar is passed once it runs, and kept running; the others once they have succeeded.
                let passed = if track.spec.sidecar {
                    matches!(track.state, State::Running { .. }) || track.restarts > 0
                } else {
                    track.code() == Some(0)
                };
                if track.spec.sidecar || !passed {
                    self.start_if_due(slot, now, actions);
                }
                blocked = !passed;
            } else if !track.init && !blocked {
                self.start_if_due(slot, now, actions);
            }
        }
    }

    fn start_if_due(&mut self, slot: ContainerIndex, now: Timestamp, actions: &mut Vec<Action>) {
        let sidecars_only = self.stopping.is_some();
        let policy = self.plan.restart_policy;
        let back_off = self.plan.back_off;
        let Some(track) = self.tracks.get_mut(slot) else { return };
        if sidecars_only {
            return;
        }
        if let State::Terminated(run) = &track.state {
            // A sidecar is restarted under every policy; `Always` means on failure for an init container, which is
            // only asked about here while it has not succeeded.
            if !track.spec.sidecar && !policy.restarts(run.code) {
                return;
            }
            let wait_ms = track.next_wait_ms;
            track.next_wait_ms = if wait_ms == 0 { back_off.first_ms } else { (wait_ms * 2).min(back_off.most_ms) };
            let until = run.finished_at.plus_ms(wait_ms);
            track.last = Some(run.clone());
            track.restarts = track.restarts.saturating_add(1);
            track.state = State::BackOff { until, wait_ms };
        }
        match track.state {
            State::BackOff { until, .. } if until > now => {}
            State::Waiting | State::BackOff { .. } => {
                track.state = State::Starting;
                actions.push(Action::Start { slot, restart: track.restarts });
            }
            State::Starting | State::Running { .. } | State::Terminated(_) => {}
        }
    }

    /// Ends what has to end: everything of a pod that is stopped; sidecars of one whose work is over.
    fn wind_down(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if self.stopping.is_none() && (self.mains_over() || self.init_failed()) {
            self.stop(self.plan.grace_ms, true, now);
        }
        let Some(stopping) = self.stopping else { return };
        let due = now >= stopping.deadline;
        for (slot, track) in self.tracks.iter_mut().enumerate().filter(|(_, track)| track.is_live()) {
            if due && !track.kill_sent {
                track.kill_sent = true;
                actions.push(Action::Kill { slot });
            } else if !due && !track.term_sent && matches!(track.state, State::Running { .. }) {
                // One that is still starting is signalled when it runs: before that, no process receives the signal.
                track.term_sent = true;
                actions.push(Action::Term { slot });
            }
        }
    }

    /// Returns whether an init container failed for good.
    pub(crate) fn init_failed(&self) -> bool {
        let policy = self.plan.restart_policy;
        self.tracks.iter().any(|track| {
            track.init && !track.spec.sidecar && track.code().is_some_and(|code| code != 0 && !policy.restarts(code))
        })
    }

    /// Returns whether every container ended and none will be started again.
    fn mains_over(&self) -> bool {
        let policy = self.plan.restart_policy;
        let over = |track: &Track| track.code().is_some_and(|code| !policy.restarts(code));
        self.tracks.iter().filter(|track| !track.init).all(over)
    }
}

#[cfg(test)]
mod tests;
