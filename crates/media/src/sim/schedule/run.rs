//! One run: its threads, and whose turn it is.

use super::choice::{Chooser, Strategy};
use super::{ME, Point};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Where all choices come from.
    pub seed: u64,
    /// How they are made.
    pub strategy: Strategy,
    /// A run that takes more steps does not end: a livelock.
    pub steps_max: u64,
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Points that were reached.
    pub steps: u64,
    /// How often the turn passed to another thread.
    pub switches: u64,
    /// Threads that there were.
    pub threads: usize,
    /// Over all points and the threads that reached them.
    pub digest: u64,
    /// Why the run was stopped: a panic, a deadlock, a livelock.
    pub failure: Option<String>,
}

/// Simulated time that a step takes.
const STEP_NANOS: u64 = 500;
/// How long a run that is being stopped may take to unwind.
const STOP_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Until somebody releases this.
    Blocked(usize),
    /// Until somebody notifies this, or until then.
    Waiting(usize, u64),
    Sleeping(u64),
    Joining(usize),
    /// It has left; what it had is gone.
    Gone,
}

impl Status {
    fn until(self) -> Option<u64> {
        match self {
            Self::Waiting(_, until) | Self::Sleeping(until) => Some(until),
            _ => None,
        }
    }
}

struct Thread {
    name: String,
    says: String,
    status: Status,
    /// Its work is done; the destructors of its thread-locals run. It must not unwind any more.
    leaving: bool,
    turn: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    chooser: Option<Chooser>,
    threads: Vec<Thread>,
    current: usize,
    steps_max: u64,
    stamp: u64,
    nanos: u64,
    stopping: bool,
    report: Report,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Run {
    state: Mutex<State>,
    all_gone: Condvar,
}

/// What unwinds the threads of a run that is stopped.
struct Stopped;

/// Runs that are over, to be used again: threads keep a reference to theirs until they end.
static IDLE: Mutex<Vec<&'static Run>> = Mutex::new(Vec::new());

/// Runs `main` as the first thread of a new run, and waits until all its threads have left.
///
/// One run at a time in a process, where what runs shares anything with others, as the engine's reclamation does.
pub fn run(settings: &Settings, main: impl FnOnce() + Send + 'static) -> Report {
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let run: &'static Run = idle.unwrap_or_else(|| Box::leak(Box::default()));
    *run.lock() = State {
        chooser: Some(Chooser::new(settings.strategy, settings.seed)),
        steps_max: settings.steps_max,
        ..State::default()
    };
    run.spawn("main", main);
    let mut state = run.lock();
    loop {
        let over = |state: &State| state.threads.iter().all(|thread| thread.status == Status::Gone);
        if over(&state) {
            break;
        }
        if state.stopping {
            let (mut state, timeout) = run
                .all_gone
                .wait_timeout_while(state, STOP_MAX, |state| !over(state))
                .unwrap_or_else(PoisonError::into_inner);
            let mut report = std::mem::take(&mut state.report);
            report.threads = state.threads.len();
            drop(state);
            if timeout.timed_out() {
                // They keep their run for ever.
                let failure = report.failure.get_or_insert_default();
                failure.push_str("\n    (some of its threads did not end)");
            } else {
                IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(run);
            }
            return report;
        }
        state = run.all_gone.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let mut report = std::mem::take(&mut state.report);
    report.threads = state.threads.len();
    drop(state);
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    report
}

impl State {
    fn digest(&mut self, me: usize, what: Point, detail: u64) {
        let word = (me as u64) << 56 ^ (what as u64) << 48 ^ detail;
        self.report.digest = (self.report.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    fn fail(&mut self, what: String) {
        if self.report.failure.is_none() {
            self.report.failure = Some(what);
        }
        self.stopping = true;
        for thread in &self.threads {
            thread.turn.notify_all();
        }
    }

    /// What each thread does, for people.
    fn picture(&self) -> String {
        let lines = self.threads.iter().enumerate().filter(|(_, thread)| thread.status != Status::Gone);
        lines
            .map(|(i, thread)| {
                let state = match thread.status {
                    Status::Ready => "is ready".to_owned(),
                    Status::Blocked(on) => {
                        // An address means nothing to a reader; print the threads that wait for the same one.
                        let same = (0..self.threads.len())
                            .filter(|&other| self.threads[other].status == Status::Blocked(on) && other != i);
                        let same: Vec<String> = same.map(|other| other.to_string()).collect();
                        let others =
                            if same.is_empty() { String::new() } else { format!(", as {}", same.join(", ")) };
                        format!("waits for a lock{others}")
                    }
                    Status::Waiting(..) => "waits to be notified".into(),
                    Status::Sleeping(_) => "sleeps".into(),
                    Status::Joining(other) => format!("waits for thread {other} to end"),
                    Status::Gone => "is gone".into(),
                };
                format!("\n    thread {i} ({}) {state}: {}", thread.name, thread.says)
            })
            .collect()
    }

    /// Whose turn is next; `None` when no thread is ready, which stops the run unless all have ended.
    fn next(&mut self, me: usize, relaxing: bool) -> Option<usize> {
        let mut chooser = self.chooser.take()?;
        let ready = |state: &Self| -> Vec<usize> {
            (0..state.threads.len()).filter(|&i| state.threads[i].status == Status::Ready).collect()
        };
        let mut now = ready(self);
        let sleepers: Vec<u64> = self.threads.iter().filter_map(|thread| thread.status.until()).collect();
        let nobody_else = now.is_empty() || relaxing && now == [me];
        if !sleepers.is_empty() && (nobody_else || chooser.wakes_early()) {
            self.nanos = self.nanos.max(sleepers[chooser.below(sleepers.len())]);
        }
        if sleepers.iter().any(|&until| until <= self.nanos) {
            for thread in &mut self.threads {
                if thread.status.until().is_some_and(|until| until <= self.nanos) {
                    thread.status = Status::Ready;
                }
            }
            now = ready(self);
        }
        let next = (!now.is_empty()).then(|| chooser.choose(&now, me, relaxing));
        self.chooser = Some(chooser);
        if next.is_none() && self.threads.iter().any(|thread| thread.status != Status::Gone) {
            self.fail(format!("deadlock: no thread is ready{}", self.picture()));
        }
        next
    }
}

impl Run {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the calling thread, if the run is being stopped and the thread can be ended here.
    fn stop_here(state: &State, me: usize) -> bool {
        state.stopping && !state.threads[me].leaving && !std::thread::panicking()
    }

    pub(super) fn point(&self, me: usize, what: Point, detail: u64) {
        let mut state = self.lock();
        if state.stopping {
            if Self::stop_here(&state, me) {
                drop(state);
                resume_unwind(Box::new(Stopped));
            }
            if what == Point::Relax {
                drop(state);
                std::thread::yield_now();
            }
            return;
        }
        assert_eq!(state.current, me, "a thread reached {what:?} without its turn (invariant 1)");
        state.report.steps += 1;
        state.nanos += STEP_NANOS;
        state.digest(me, what, detail);
        if state.report.steps > state.steps_max {
            let what = format!("livelock: no end after {} steps{}", state.steps_max, state.picture());
            state.fail(what);
        }
        self.hand_over(state, me, what == Point::Relax);
    }

    /// Passes the turn to the next thread, and waits for the caller's turn. False when the run is stopped and the
    /// caller cannot be ended here.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, me: usize, relaxing: bool) -> bool {
        if !state.stopping
            && let Some(next) = state.next(me, relaxing)
        {
            if next == me {
                return true;
            }
            state.report.switches += 1;
            state.current = next;
            state.threads[next].turn.notify_one();
        }
        let turn = Arc::clone(&state.threads[me].turn);
        while state.current != me && !state.stopping {
            state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.stopping {
            return true;
        }
        state.threads[me].status = Status::Ready;
        if Self::stop_here(&state, me) {
            drop(state);
            resume_unwind(Box::new(Stopped));
        }
        false
    }

    /// Waits as `status` says.
    fn become_and_wait(&self, me: usize, status: impl FnOnce(&State) -> Status) -> bool {
        let mut state = self.lock();
        if state.stopping {
            if Self::stop_here(&state, me) {
                drop(state);
                resume_unwind(Box::new(Stopped));
            }
            return false;
        }
        assert_eq!(state.current, me, "a thread waits without its turn (invariant 1)");
        let status = status(&state);
        state.threads[me].status = status;
        self.hand_over(state, me, false)
    }

    pub(super) fn block(&self, me: usize, on: usize) -> bool {
        self.become_and_wait(me, |_| Status::Blocked(on))
    }

    pub(super) fn release(&self, on: usize) {
        for thread in &mut self.lock().threads {
            if thread.status == Status::Blocked(on) {
                thread.status = Status::Ready;
            }
        }
    }

    pub(super) fn wait(&self, me: usize, on: usize, timeout: Duration) -> bool {
        let nanos = timeout.as_nanos().min(u128::from(u64::MAX / 2)) as u64;
        self.become_and_wait(me, |state| Status::Waiting(on, state.nanos + nanos))
    }

    pub(super) fn notify_one(&self, on: usize) {
        let mut state = self.lock();
        let mut waiting = state.threads.iter_mut().filter(
            |thread| matches!(thread.status, Status::Waiting(at, _) | Status::Blocked(at) if at == on),
        );
        if let Some(thread) = waiting.next() {
            thread.status = Status::Ready;
        }
    }

    pub(super) fn sleep(&self, me: usize, time: Duration) -> bool {
        let nanos = time.as_nanos().min(u128::from(u64::MAX / 2)) as u64;
        self.become_and_wait(me, |state| Status::Sleeping(state.nanos + nanos))
    }

    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.lock().nanos)
    }

    pub(super) fn stamp(&self) -> u64 {
        let mut state = self.lock();
        state.stamp += 1;
        state.stamp
    }

    pub(super) fn say(&self, me: usize, what: &str) {
        let mut state = self.lock();
        state.threads[me].says.clear();
        state.threads[me].says.push_str(what);
    }

    pub(super) fn join(&self, me: usize, other: usize) {
        self.point(me, Point::Other, other as u64);
        if self.lock().threads[other].status != Status::Gone {
            let _ = self.become_and_wait(me, |state| match state.threads[other].status {
                Status::Gone => Status::Ready,
                _ => Status::Joining(other),
            });
        }
    }

    pub(super) fn spawn(&'static self, name: &str, work: impl FnOnce() + Send + 'static) -> usize {
        let turn = Arc::new(Condvar::new());
        let id = {
            let mut state = self.lock();
            if let Some(chooser) = &mut state.chooser {
                chooser.enter();
            }
            state.threads.push(Thread {
                name: name.to_owned(),
                says: String::new(),
                status: Status::Ready,
                leaving: false,
                turn,
            });
            state.threads.len() - 1
        };
        // The keeper sees the thread leave, with all that its thread-locals do on the way (invariant 2).
        let keeper = std::thread::Builder::new().name(format!("keeper of {name}"));
        let thread = std::thread::Builder::new().name(name.to_owned());
        let kept = keeper.spawn(move || {
            let kept = thread.spawn(move || self.live(id, work));
            let started = kept.map(|thread| thread.join()).is_ok();
            self.left(id, started);
        });
        if kept.is_err() {
            self.left(id, false);
        }
        id
    }

    /// The life of a thread.
    fn live(&'static self, me: usize, work: impl FnOnce()) {
        ME.set(Some((self, me)));
        let mut state = self.lock();
        let turn = Arc::clone(&state.threads[me].turn);
        while state.current != me && !state.stopping {
            state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let begins = !state.stopping;
        drop(state);
        let ended = if begins { catch_unwind(AssertUnwindSafe(work)) } else { Ok(()) };
        let mut state = self.lock();
        state.threads[me].leaving = true;
        if let Err(payload) = ended
            && !payload.is::<Stopped>()
        {
            let said = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("something");
            let (name, says) = (state.threads[me].name.clone(), state.threads[me].says.clone());
            state.fail(format!("thread {me} ({name}) panicked: {said}\n    while: {says}"));
        }
    }

    /// A thread has ended: a thread that waits for it becomes ready, and the turn passes.
    fn left(&self, me: usize, started: bool) {
        let mut state = self.lock();
        state.threads[me].status = Status::Gone;
        if !started {
            state.fail(format!("thread {me} could not be started"));
        }
        for thread in &mut state.threads {
            if thread.status == Status::Joining(me) {
                thread.status = Status::Ready;
            }
        }
        state.digest(me, Point::Other, u64::MAX);
        // Not a panic, which would end the keeper before it reports the run.
        if !state.stopping && state.current != me {
            let turn = state.current;
            state.fail(format!("thread {me} ended in the turn of thread {turn} (schedule, invariant 2)"));
        }
        if !state.stopping
            && let Some(next) = state.next(me, false)
        {
            state.current = next;
            state.threads[next].turn.notify_one();
        }
        self.all_gone.notify_all();
    }
}
