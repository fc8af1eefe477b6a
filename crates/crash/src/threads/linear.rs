//! Whether a history can have happened one call after the other, each within its time (Herlihy and Wing), and
//! leave what was found after a crash (durable linearizability: Izraelevitz, Mendes, Scott, DISC 2016).
//!
//! The search is Wing and Gong's with Lowe's memory of what was tried, over all keys at once, since a batch happens to
//! all of its keys in one moment. It stays small because few calls overlap, and because a call that only reads is
//! taken as soon as it fits: that never hurts.

use super::history::{Call, Shape};
use super::values::{Id, Values};
use std::collections::HashSet;

/// A call as the search sees it.
#[derive(Clone, Debug)]
pub struct Event<'h> {
    /// What it was.
    pub call: &'h Call,
    /// When it ended; `u64::MAX` when it did not.
    pub ended: u64,
    /// Whether it must have happened.
    pub required: bool,
}

/// What must be reached.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'g> {
    /// Nothing but that all can have happened.
    Any,
    /// This, at the end.
    Ends(&'g [Id]),
    /// This, at some moment not before the last commit.
    Passes(&'g [Id]),
    /// This, at the last commit.
    Committed(&'g [Id]),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Config {
    decided: Vec<u64>,
    state: Vec<Id>,
    /// [`Goal::Passes`]: whether it was, since the last commit. [`Goal::Committed`]: what was at the last commit.
    passed: bool,
    committed: Vec<Id>,
}

impl Config {
    fn is_decided(&self, at: usize) -> bool {
        self.decided[at / 64] >> (at % 64) & 1 != 0
    }

    fn decide(&mut self, at: usize) {
        self.decided[at / 64] |= 1 << (at % 64);
    }

    fn count(&self) -> u32 {
        self.decided.iter().map(|word| word.count_ones()).sum()
    }
}

struct Search<'s, 'h> {
    events: &'s [Event<'h>],
    goal: Goal<'s>,
    shape: Shape,
    /// Changes of tables commit what was before them.
    tables_commit: bool,
    values: &'s mut Values,
    seen: HashSet<Config>,
    best: Option<Config>,
}

/// Whether `events`, in the order in which they began, can have happened from `state` on and reach `goal`.
///
/// # Errors
/// How far it goes, and what does not fit then.
pub fn check(
    events: &[Event<'_>],
    shape: Shape,
    state: &[Id],
    goal: Goal<'_>,
    values: &mut Values,
) -> Result<(), String> {
    // With an interval; with `Manual` only the caller commits.
    let tables_commit = matches!(goal, Goal::Passes(_));
    let mut search = Search { events, goal, shape, tables_commit, values, seen: HashSet::new(), best: None };
    let mut first = Config {
        decided: vec![0; events.len().div_ceil(64)],
        state: state.to_vec(),
        passed: false,
        committed: if matches!(goal, Goal::Committed(_)) { state.to_vec() } else { Vec::new() },
    };
    search.look(&mut first);
    if search.go(first) { Ok(()) } else { Err(search.explain()) }
}

impl Search<'_, '_> {
    /// Notes whether the goal is passed here.
    fn look(&self, config: &mut Config) {
        if let Goal::Passes(goal) = self.goal {
            config.passed |= config.state == goal;
        }
    }

    fn is_reached(&self, config: &Config) -> bool {
        let all = (0..self.events.len()).all(|at| config.is_decided(at) || !self.events[at].required);
        all && match self.goal {
            Goal::Any => true,
            Goal::Ends(goal) => config.state == goal,
            Goal::Passes(_) => config.passed,
            Goal::Committed(goal) => config.committed == goal,
        }
    }

    /// Calls that may be next: none that is left over ended before they began.
    fn candidates(&self, config: &Config) -> Vec<usize> {
        let mut found = Vec::new();
        let mut end = u64::MAX;
        for (at, event) in self.events.iter().enumerate() {
            if event.call.begun > end {
                break;
            }
            if !config.is_decided(at) {
                end = end.min(event.ended);
                found.push(at);
            }
        }
        found.retain(|&at| self.events[at].call.begun <= end);
        found
    }

    fn go(&mut self, mut config: Config) -> bool {
        // Whatever only reads and fits.
        loop {
            let mut more = false;
            for at in self.candidates(&config) {
                let act = &self.events[at].call.act;
                if act.only_reads() && act.apply(&config.state, self.shape, self.values).is_some() {
                    config.decide(at);
                    more = true;
                }
            }
            if !more {
                break;
            }
        }
        if self.is_reached(&config) {
            return true;
        }
        if self.seen.contains(&config) {
            return false;
        }
        self.seen.insert(config.clone());
        if self.best.as_ref().is_none_or(|best| best.count() < config.count()) {
            self.best = Some(config.clone());
        }
        for at in self.candidates(&config) {
            let event = &self.events[at];
            if event.call.act.only_reads() {
                continue;
            }
            if let Some(state) = event.call.act.apply(&config.state, self.shape, self.values) {
                let mut next = Config { state, ..config.clone() };
                next.decide(at);
                let is_commit = matches!(event.call.act, super::history::Act::Commit);
                let is_change = self.tables_commit && event.call.act.commits() && next.state != config.state;
                if is_commit || is_change {
                    next.passed = false;
                    if matches!(self.goal, Goal::Committed(_)) {
                        next.committed.clone_from(&next.state);
                    }
                }
                self.look(&mut next);
                if self.go(next) {
                    return true;
                }
            }
            if !event.required && event.ended < u64::MAX {
                let mut next = config.clone();
                next.decide(at);
                if self.go(next) {
                    return true;
                }
            }
        }
        false
    }

    /// The furthest that the search came, and what did not fit.
    fn explain(&self) -> String {
        let Some(best) = &self.best else { return "nothing was tried".into() };
        let id = |id: &Id| if *id == super::values::ABSENT { "-".to_owned() } else { format!("#{id}") };
        let show = |state: &[Id]| state.iter().map(id).collect::<Vec<_>>().join(" ");
        let stuck = self.candidates(best);
        let wanted = match self.goal {
            Goal::Any => String::new(),
            Goal::Ends(goal) => format!("\n    found after the crash: {}", show(goal)),
            Goal::Passes(goal) => format!(
                "\n    found after the crash, wanted at a moment since the last commit: {}",
                show(goal)
            ),
            Goal::Committed(goal) => format!(
                "\n    found after the crash, wanted at the last commit: {}; that has: {}",
                show(goal),
                show(&best.committed)
            ),
        };
        let mut keys: Vec<usize> = stuck.iter().flat_map(|&at| self.events[at].call.act.keys()).collect();
        if let Goal::Ends(goal) | Goal::Passes(goal) | Goal::Committed(goal) = self.goal {
            keys.extend((0..goal.len()).filter(|&key| goal[key] != best.state[key]));
        }
        let mut lines = Vec::new();
        for (at, event) in self.events.iter().enumerate() {
            let state = if best.is_decided(at) { "fits  " } else { "stuck " };
            let near = event.call.act.keys().iter().any(|key| keys.contains(key)) || stuck.contains(&at);
            if near || event.call.act.keys().is_empty() {
                let maybe = if event.required { "" } else { " (may not have happened)" };
                lines.push(format!("\n      {state}{}{maybe}", event.call.show()));
            }
        }
        let skipped = lines.len().saturating_sub(40);
        format!(
            "no order of the calls explains what they told\n    furthest state: {}{wanted}{}{}",
            show(&best.state),
            if skipped > 0 { format!("\n      ({skipped} earlier calls left out)") } else { String::new() },
            lines[skipped..].concat()
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A panic here is a failed test.

    use super::super::history::Act;
    use super::super::values::ABSENT;
    use super::*;

    fn call(thread: usize, begun: u64, ended: u64, act: Act) -> Call {
        let end = (ended < u64::MAX).then_some(ended);
        Call { thread, act, begun, ended: end, from: 0, to: end.map(|_| 0), group: None, void: false }
    }

    fn holds(calls: &[Call], goal: Goal<'_>) -> bool {
        let mut sorted = calls.to_vec();
        sorted.sort_by_key(|call| call.begun);
        let events: Vec<Event<'_>> = sorted
            .iter()
            .map(|call| Event { call, ended: call.ended.unwrap_or(u64::MAX), required: call.ended.is_some() })
            .collect();
        let shape = Shape { keys: 2, tables: 0 };
        check(&events, shape, &[ABSENT, ABSENT], goal, &mut Values::default()).is_ok()
    }

    const NEVER: u64 = u64::MAX;
    const fn put(value: Id) -> Act {
        Act::Put { key: 0, value }
    }
    const fn read(found: Id) -> Act {
        Act::Read { key: 0, found }
    }
    fn batch(first: Id, second: Id) -> Act {
        Act::Swap { expects: Vec::new(), writes: vec![(0, first), (1, second)], told: Some(true) }
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_that_overlaps_it() {
        assert!(holds(&[call(1, 1, 2, put(1)), call(2, 3, 4, read(1))], Goal::Any));
        assert!(!holds(&[call(1, 1, 2, put(1)), call(2, 3, 4, read(ABSENT))], Goal::Any));
        assert!(holds(&[call(1, 1, 4, put(1)), call(2, 2, 3, read(ABSENT))], Goal::Any));
        assert!(holds(&[call(1, 1, 4, put(1)), call(2, 2, 3, read(1))], Goal::Any));
    }

    #[test]
    fn what_was_seen_is_not_unseen() {
        let calls = [call(1, 1, NEVER, put(1)), call(2, 2, 3, read(1)), call(3, 4, 5, read(ABSENT))];
        assert!(!holds(&calls, Goal::Any));
        assert!(holds(&calls[..2], Goal::Any));
    }

    #[test]
    fn a_crash_may_undo_only_what_nobody_saw() {
        let pending = call(1, 1, NEVER, put(1));
        assert!(holds(std::slice::from_ref(&pending), Goal::Ends(&[ABSENT, ABSENT])));
        assert!(holds(std::slice::from_ref(&pending), Goal::Ends(&[1, ABSENT])));
        let seen = [pending, call(2, 2, 3, read(1))];
        assert!(holds(&seen, Goal::Ends(&[1, ABSENT])));
        assert!(!holds(&seen, Goal::Ends(&[ABSENT, ABSENT])));
        assert!(!holds(&[call(1, 1, 2, put(1))], Goal::Ends(&[ABSENT, ABSENT])));
    }

    #[test]
    fn a_batch_is_seen_whole() {
        let second = |found| Act::Read { key: 1, found };
        let calls = |first, then| {
            [call(1, 1, 9, batch(1, 2)), call(2, 2, 3, read(first)), call(2, 4, 5, second(then))]
        };
        assert!(holds(&calls(1, 2), Goal::Any));
        assert!(holds(&calls(ABSENT, 2), Goal::Any));
        assert!(!holds(&calls(1, ABSENT), Goal::Any));
        assert!(!holds(&[call(1, 1, NEVER, batch(1, 2))], Goal::Ends(&[1, ABSENT])));
    }

    #[test]
    fn a_lost_update_is_found() {
        let add = |begun, ended, seen, value| {
            call(
                begun as usize,
                begun,
                ended,
                Act::Swap { expects: vec![(0, seen)], writes: vec![(0, value)], told: Some(true) },
            )
        };
        assert!(!holds(&[call(0, 1, 2, put(1)), add(3, 6, 1, 2), add(4, 5, 1, 3)], Goal::Any));
        assert!(holds(&[call(0, 1, 2, put(1)), add(3, 6, 1, 2), add(4, 5, 2, 3)], Goal::Any));
    }

    #[test]
    fn what_survives_an_interval_is_a_prefix_from_the_last_commit_on() {
        let calls = [
            call(1, 1, 2, put(1)),
            call(1, 3, 4, Act::Commit),
            call(1, 5, 6, put(2)),
            call(1, 7, 8, Act::Put { key: 1, value: 3 }),
        ];
        assert!(holds(&calls, Goal::Passes(&[1, ABSENT])));
        assert!(holds(&calls, Goal::Passes(&[2, ABSENT])));
        assert!(holds(&calls, Goal::Passes(&[2, 3])));
        assert!(!holds(&calls, Goal::Passes(&[ABSENT, ABSENT])));
        assert!(!holds(&calls, Goal::Passes(&[1, 3])));
        assert!(holds(&calls, Goal::Committed(&[1, ABSENT])));
        assert!(!holds(&calls, Goal::Committed(&[2, ABSENT])));
    }
}
