//! The history of each writer: operations sent, operations acknowledged, and the states that a crash may therefore
//! leave.
//!
//! A *unit* is the set of keys that one writer changes in one operation: one key, or several keys that only change
//! together. Its history is a line of points, each the state after one operation:
//!
//! ```text
//! durable ── later[0] ── later[1] ── …      durable: cannot be undone by the crash under test
//!                                           later:   sent, perhaps applied, perhaps not
//! ```
//!
//! Invariants of the check:
//! 1. The state found is the durable point or one of the later ones, whole: all keys from the same point. Otherwise an
//!    acknowledged write was *lost*, a deleted or expired value was *resurrected*, a value is *torn*, or a *batch is
//!    broken*.
//! 2. Where loss is allowed, the surviving operations are a prefix in time: if a writer's operation survived, so did
//!    all its earlier ones. Otherwise there is a *hole*.
//! 3. A state that was found counts as acknowledged: the next crash must not undo it.
//! 4. A read by the only writer of a unit, without a crash in between, finds exactly its last point.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::content::{Content, Form};

/// Clocks are read before and after a request, and a server may read its clock only now and then.
const SLACK_MS: u64 = 60;

/// When a value expires, in Unix milliseconds: not before `earliest`, not after `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    pub earliest: u64,
    pub latest: u64,
}

/// One key after an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub content: Content,
    pub expires: Option<Expiry>,
}

impl State {
    /// A state that does not expire.
    pub fn lasting(content: Content) -> State {
        State { content, expires: None }
    }

    /// Whether a read between the two times may find `found`.
    fn allows(&self, found: &Content, window: Window) -> bool {
        if *found == self.content {
            return self.expires.is_none_or(|expiry| window.from <= expiry.latest.saturating_add(SLACK_MS));
        }
        let may_be_gone = self.expires.is_some_and(|expiry| window.to + SLACK_MS >= expiry.earliest);
        *found == Content::Absent && may_be_gone
    }

    /// Whether the value has certainly expired before the window.
    fn is_over(&self, window: Window) -> bool {
        self.content == Content::Absent
            || self.expires.is_some_and(|expiry| window.from > expiry.latest.saturating_add(SLACK_MS))
    }
}

/// The time of a read, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

/// Keys that one writer changes together.
#[derive(Clone, Debug)]
pub struct Unit {
    pub form: Form,
    pub keys: Vec<Vec<u8>>,
}

impl Unit {
    /// The form of the key with this number.
    pub fn form_of(&self, key: usize) -> Form {
        match self.form {
            Form::OneEach => Form::EACH[key % Form::EACH.len()],
            form => form,
        }
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An acknowledged write is missing.
    Lost,
    /// A deleted or expired value is present.
    Resurrected,
    /// A value that no writer wrote.
    Torn,
    /// Some keys of a batch, but not all.
    BrokenBatch,
    /// A later write survived, an earlier one of the same writer did not.
    Hole,
    /// A write that should succeed was refused or got a wrong reply.
    Refused,
    /// The store's counts differ from the content of its blocks.
    Miscounted,
    /// A CAS number that another change already had, or a number in an item that is not its own.
    Repeated,
    /// The store reports damage after a kill.
    Damaged,
}

/// A fault, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub fault: Fault,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.fault, self.what)
    }
}

/// What one writer did and saw, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// About to be sent. Operations are numbered from 1.
    Sent { op: u64, unit: usize, at: u64, states: Vec<State> },
    /// Acknowledged. A writer's operations are acknowledged in order.
    Acked { op: u64, at: u64 },
    /// A commit that began after operation `op` was acknowledged has returned.
    Committed { op: u64 },
    /// Read without a crash in between, after operation `after` of this writer.
    Read { unit: usize, after: u64, window: Window, found: Vec<Content> },
    /// Read after a crash, before any write.
    Recovered { unit: usize, window: Window, found: Vec<Content> },
    /// About to add 1 to a counter that all writers share.
    SharedSent { counter: usize },
    /// The addition was acknowledged.
    SharedAcked { counter: usize },
    /// The addition was declined, and has not happened.
    SharedDeclined { counter: usize },
    /// A request that should succeed did not.
    Refused { what: String },
}

#[derive(Clone, Debug)]
struct Point {
    op: u64,
    sent_at: u64,
    states: Vec<State>,
    acked: bool,
}

struct Track {
    unit: Unit,
    durable: Point,
    later: Vec<Point>,
}

/// Additions to one shared counter since it was last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    pub sent: i64,
    pub acked: i64,
    pub committed: i64,
}

/// The progress of a unit, as seen after a crash.
struct Reached {
    unit: usize,
    /// The lowest operation at which it can have stopped.
    reached: u64,
    /// The first operation that certainly did not survive.
    missing: Option<u64>,
}

/// When the store under test guarantees that acknowledged operations survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Acknowledged operations are durable; otherwise only a commit makes them durable.
    pub on_acknowledge: bool,
    /// Operations that are not durable survive as a prefix in time.
    pub prefix: bool,
}

/// The history of one writer.
pub struct History {
    promise: Promise,
    tracks: Vec<Track>,
    shared: Vec<Additions>,
    /// The highest operation number used.
    last_op: u64,
    acked_count: u64,
    read_count: u64,
    violations: Vec<Violation>,
    /// The units read since the last crash.
    recovered: Vec<Reached>,
    /// How far the store's clock is ahead of the local one.
    clock_ahead_ms: i64,
}

impl History {
    /// Nothing written yet: every key is absent.
    pub fn new(promise: Promise, units: Vec<Unit>, shared: usize) -> History {
        let tracks = units
            .into_iter()
            .map(|unit| {
                let states = vec![State::lasting(Content::Absent); unit.keys.len()];
                let durable = Point { op: 0, sent_at: 0, states, acked: true };
                Track { unit, durable, later: Vec::new() }
            })
            .collect();
        History {
            promise,
            tracks,
            shared: vec![Additions::default(); shared],
            last_op: 0,
            acked_count: 0,
            read_count: 0,
            violations: Vec::new(),
            recovered: Vec::new(),
            clock_ahead_ms: 0,
        }
    }

    /// The store's time, in Unix milliseconds: all times of events are by this clock.
    pub fn now(&self) -> u64 {
        now_ms().saturating_add_signed(self.clock_ahead_ms)
    }

    /// Sets how far the store's clock is ahead of the local one from now on.
    pub fn set_clock_ahead(&mut self, milliseconds: i64) {
        self.clock_ahead_ms = milliseconds;
    }

    /// The units, in the order of their numbers.
    pub fn units(&self) -> impl Iterator<Item = &Unit> {
        self.tracks.iter().map(|track| &track.unit)
    }

    /// One unit.
    pub fn unit(&self, unit: usize) -> Option<&Unit> {
        self.tracks.get(unit).map(|track| &track.unit)
    }

    /// The state of the unit's keys once all operations that were sent are applied.
    pub fn latest(&self, unit: usize) -> &[State] {
        let Some(track) = self.tracks.get(unit) else { return &[] };
        &track.later.last().unwrap_or(&track.durable).states
    }

    /// The number for the next operation.
    pub fn next_op(&self) -> u64 {
        self.last_op + 1
    }

    /// Continues the numbering after `op`.
    pub fn skip_to(&mut self, op: u64) {
        self.last_op = self.last_op.max(op);
    }

    /// The highest number used.
    pub fn last_op(&self) -> u64 {
        self.last_op
    }

    /// Takes the content that was found as the written one, without checking it.
    pub fn adopt(&mut self, unit: usize, found: &[Content]) {
        let Some(track) = self.tracks.get_mut(unit) else { return };
        track.durable.states = found.iter().cloned().map(State::lasting).collect();
        track.later.clear();
    }

    /// Additions to the shared counters since [`History::forget_additions`].
    pub fn additions(&self) -> &[Additions] {
        &self.shared
    }

    /// Called when the shared counters have been read after a crash.
    pub fn forget_additions(&mut self) {
        self.shared.fill(Additions::default());
    }

    /// Acknowledged operations and checked reads, since the beginning.
    pub fn counts(&self) -> (u64, u64) {
        (self.acked_count, self.read_count)
    }

    /// Takes the violations found since the last call.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// Applies the next event of the writer.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Sent { op, unit, at, states } => {
                self.last_op = self.last_op.max(*op);
                if let Some(track) = self.tracks.get_mut(*unit) {
                    let point = Point { op: *op, sent_at: *at, states: states.clone(), acked: false };
                    track.later.push(point);
                }
            }
            Event::Acked { op, at } => self.acked(*op, *at),
            Event::Committed { op } => {
                for track in &mut self.tracks {
                    track.advance_durable(|point| point.acked && point.op <= *op);
                }
                self.shared.iter_mut().for_each(|additions| additions.committed = additions.acked);
            }
            Event::Read { unit, after, window, found } => self.read(*unit, *after, *window, found),
            Event::Recovered { unit, window, found } => self.recovered(*unit, *window, found),
            Event::SharedSent { counter } => self.shared(*counter, |additions| additions.sent += 1),
            Event::SharedDeclined { counter } => self.shared(*counter, |additions| additions.sent -= 1),
            Event::SharedAcked { counter } => {
                self.acked_count += 1;
                self.shared(*counter, |additions| additions.acked += 1);
                if self.promise.on_acknowledge {
                    self.shared(*counter, |additions| additions.committed += 1);
                }
            }
            Event::Refused { what } => {
                self.violations.push(Violation { fault: Fault::Refused, what: what.clone() });
            }
        }
    }

    fn shared(&mut self, counter: usize, change: impl FnOnce(&mut Additions)) {
        if let Some(additions) = self.shared.get_mut(counter) {
            change(additions);
        }
    }

    fn acked(&mut self, op: u64, at: u64) {
        self.acked_count += 1;
        for track in &mut self.tracks {
            let Some(point) = track.later.iter_mut().find(|point| point.op == op) else { continue };
            point.acked = true;
            let took = at.saturating_sub(point.sent_at);
            for expiry in point.states.iter_mut().filter_map(|state| state.expires.as_mut()) {
                // A relative expiry began somewhere between sending and acknowledgement.
                expiry.latest = expiry.latest.min(expiry.earliest.saturating_add(took));
            }
            if self.promise.on_acknowledge {
                track.advance_durable(|point| point.op <= op);
            }
        }
    }

    fn read(&mut self, unit: usize, after: u64, window: Window, found: &[Content]) {
        self.read_count += 1;
        let Some(track) = self.tracks.get(unit) else { return };
        let expected = track.later.iter().rev().find(|point| point.op <= after).unwrap_or(&track.durable);
        if !expected.allows(found, window) {
            let violation = track.explain("read", &[expected], found, window);
            self.violations.push(violation);
        }
    }

    fn recovered(&mut self, unit: usize, window: Window, found: &[Content]) {
        self.read_count += 1;
        let Some(track) = self.tracks.get_mut(unit) else { return };
        let points: Vec<&Point> = std::iter::once(&track.durable).chain(&track.later).collect();
        let fitting: Vec<usize> = (0..points.len()).filter(|&at| points[at].allows(found, window)).collect();
        let (Some(&first), Some(&last)) = (fitting.first(), fitting.last()) else {
            let violation = track.explain("found after the crash", &points, found, window);
            self.violations.push(violation);
            return;
        };
        let missing = points.get(last + 1).map(|point| point.op);
        self.recovered.push(Reached { unit, reached: points[first].op, missing });
        // Invariant 3. States that look the same stay undecided: the value may expire when any of the fitting points
        // would.
        let states = found
            .iter()
            .enumerate()
            .map(|(key, content)| {
                let all = fitting.iter().filter_map(|&at| points[at].states.get(key));
                let expires = match content {
                    Content::Absent => None,
                    _ => union(all.filter(|state| state.content == *content).map(|state| state.expires)),
                };
                State { content: content.clone(), expires }
            })
            .collect();
        // The lowest operation at which it can have stopped. If the next crash comes before all units were read,
        // invariant 2 must not take a later operation that looks the same for a survivor.
        track.durable = Point { op: points[first].op, sent_at: 0, states, acked: true };
        track.later.clear();
        if self.recovered.len() == self.tracks.len() {
            self.check_prefix();
        }
    }

    /// Must be called when the writer's process is gone, before the next read.
    pub fn crashed(&mut self) {
        self.recovered.clear();
        // Additions that no commit covered may be lost, and the next commit will not restore them.
        self.shared.iter_mut().for_each(|additions| additions.acked = additions.committed);
    }

    /// Checks invariant 2, as soon as all units were read after a crash.
    fn check_prefix(&mut self) {
        let recovered = std::mem::take(&mut self.recovered);
        if !self.promise.prefix {
            return;
        }
        let Some(survivor) = recovered.iter().max_by_key(|found| found.reached) else { return };
        for found in &recovered {
            let Some(missing) = found.missing.filter(|missing| *missing < survivor.reached) else { continue };
            let what = format!(
                "operation {} on {} survived, operation {missing} on {} of the same writer did not",
                survivor.reached,
                self.names(survivor.unit),
                self.names(found.unit)
            );
            self.violations.push(Violation { fault: Fault::Hole, what });
        }
    }

    fn names(&self, unit: usize) -> String {
        self.tracks.get(unit).map_or_else(String::new, |track| track.names())
    }

    /// Whether the key may be, and whether it must be, in a scan made after all units were read.
    pub fn in_scan(&self, key: &[u8], window: Window) -> Option<(bool, bool)> {
        self.tracks.iter().find_map(|track| {
            let at = track.unit.keys.iter().position(|own| own == key)?;
            let state = track.durable.states.get(at)?;
            let may = !state.is_over(window);
            let must = may && !state.allows(&Content::Absent, window);
            Some((may, must))
        })
    }
}

impl Point {
    fn allows(&self, found: &[Content], window: Window) -> bool {
        self.states.len() == found.len()
            && self.states.iter().zip(found).all(|(state, found)| state.allows(found, window))
    }
}

impl Track {
    /// Advances the durable point to the last of the later points that fit.
    fn advance_durable(&mut self, fits: impl Fn(&Point) -> bool) {
        let Some(last) = self.later.iter().rposition(fits) else { return };
        if let Some(point) = self.later.drain(..=last).next_back() {
            self.durable = point;
        }
    }

    fn names(&self) -> String {
        let keys: Vec<String> = self.unit.keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        keys.join(" ")
    }

    /// Names the fault of a state that fits none of the points.
    fn explain(&self, when: &str, points: &[&Point], found: &[Content], window: Window) -> Violation {
        let mut fault = None;
        for (at, content) in found.iter().enumerate() {
            let states: Vec<&State> = points.iter().filter_map(|point| point.states.get(at)).collect();
            if states.iter().any(|state| state.allows(content, window)) {
                continue;
            }
            let Some(durable) = states.first() else { continue };
            fault = Some(match content {
                Content::Torn(_) => Fault::Torn,
                Content::Absent => Fault::Lost,
                _ if durable.is_over(window) => Fault::Resurrected,
                _ if is_older(content, &durable.content) => Fault::Lost,
                // Neither an old value nor one that was sent.
                _ => Fault::Torn,
            });
            break;
        }
        let found: Vec<String> = found.iter().map(Content::to_string).collect();
        let wanted: Vec<String> = points
            .iter()
            .map(|point| {
                let states: Vec<String> = point.states.iter().map(describe).collect();
                format!("[{}]", states.join(", "))
            })
            .collect();
        // Every key fits some point, but no point fits all keys.
        let fault = fault.unwrap_or(Fault::BrokenBatch);
        Violation {
            fault,
            what: format!(
                "{} {when} at {}: found [{}], wanted {}",
                self.names(),
                window.from,
                found.join(", "),
                wanted.join(" or ")
            ),
        }
    }
}

fn describe(state: &State) -> String {
    match state.expires {
        None => state.content.to_string(),
        Some(expiry) => format!("{} until {}..{}", state.content, expiry.earliest, expiry.latest),
    }
}

fn is_older(found: &Content, durable: &Content) -> bool {
    match (found, durable) {
        (Content::Stamped { seq: found, .. }, Content::Stamped { seq: durable, .. }) => found < durable,
        (Content::Number(_), Content::Number(_)) => true,
        (
            Content::Chunks { base: found_base, count: found },
            Content::Chunks { base: durable_base, count: durable },
        ) => (found_base, found) < (durable_base, durable),
        (
            Content::Entries { base: found_base, first: found, count },
            Content::Entries { base: durable_base, first: durable, count: durable_count },
        ) => (found_base, found, found + count) < (durable_base, durable, durable + durable_count),
        _ => false,
    }
}

/// The widest expiry that covers all; a value that never expires covers everything.
fn union(expiries: impl Iterator<Item = Option<Expiry>>) -> Option<Expiry> {
    let mut ends: Option<Expiry> = None;
    let mut lasting = false;
    for expiry in expiries {
        let Some(expiry) = expiry else {
            lasting = true;
            continue;
        };
        let so_far = ends.unwrap_or(expiry);
        ends = Some(Expiry {
            earliest: so_far.earliest.min(expiry.earliest),
            latest: so_far.latest.max(expiry.latest),
        });
    }
    ends.map(|expiry| Expiry { latest: if lasting { u64::MAX } else { expiry.latest }, ..expiry })
}

/// Compares a shared counter with the additions of all writers since it was last `base`.
pub fn check_shared(counter: usize, base: i64, found: &Content, additions: Additions) -> Option<Violation> {
    let least = base + additions.committed;
    let most = base + additions.sent;
    let number = match found {
        Content::Number(number) => *number,
        Content::Absent => 0,
        _ => {
            return Some(Violation {
                fault: Fault::Torn,
                what: format!("shared counter {counter}: found {found}"),
            });
        }
    };
    let fault = match number {
        number if number < least => Fault::Lost,
        number if number > most => Fault::Torn,
        _ => return None,
    };
    Some(Violation {
        fault,
        what: format!("shared counter {counter}: found {number}, wanted {least} to {most}"),
    })
}

/// Unix milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
