//! Checks that the calls of a history can have happened one after the other, each within its time (Herlihy and Wing),
//! and leave the content found after a crash (durable linearizability: Izraelevitz, Mendes, Scott, DISC 2016).
//!
//! The search is Wing and Gong's with Lowe's memory of tried states. It covers all keys at once, since a batch changes
//! all of its keys at one moment. It stays small because few calls overlap, and because a call that only reads is taken
//! as soon as it fits: that excludes no solution.

use super::history::{Call, Shape};
use super::values::{Id, Values};
use std::collections::HashSet;

/// A call as the search sees it.
#[derive(Clone, Debug)]
pub struct Event<'h> {
    /// The operation.
    pub call: &'h Call,
    /// When it ended; `u64::MAX` when it did not.
    pub ended: u64,
    /// Whether it must have happened.
    pub required: bool,
}

/// The goal of the search.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'g> {
    /// Only that all calls can have happened.
    Any,
    /// This state at the end.
    Ends(&'g [Id]),
    /// This state at some moment not before the last commit.
    Passes(&'g [Id]),
    /// This state at the last commit.
    Committed(&'g [Id]),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Config {
    decided: Vec<u64>,
    state: Vec<Id>,
    /// [`Goal::Passes`]: whether the state occurred since the last commit. [`Goal::Committed`]: the state at the last
    /// commit.
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
    /// Changes of tables commit all earlier writes.
    tables_commit: bool,
    values: &'s mut Values,
    seen: HashSet<Config>,
    best: Option<Config>,
}

/// Checks that `events`, in the order in which they began, can have happened from `state` on and reach `goal`.
///
/// # Errors
/// The longest partial order, and the calls that contradict it.
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

    /// Calls that may be next: no remaining call ended before they began.
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
        // Any call that only reads and fits.
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
                // Before it returns, other threads may see its change, which is no more durable than a write that they
                // see.
                let has_returned = event.ended < u64::MAX;
                let is_change = self.tables_commit && event.call.act.commits() && next.state != config.state;
                if is_commit || is_change && has_returned {
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

    /// The longest order that the search found, and the call that did not fit.
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
        let shape = self.shape;
        let mut keys: Vec<usize> =
            stuck.iter().flat_map(|&at| self.events[at].call.act.cells(shape)).collect();
        if let Goal::Ends(goal) | Goal::Passes(goal) | Goal::Committed(goal) = self.goal {
            keys.extend((0..goal.len()).filter(|&key| goal[key] != best.state[key]));
        }
        let mut lines = Vec::new();
        for (at, event) in self.events.iter().enumerate() {
            let state = if best.is_decided(at) { "fits  " } else { "stuck " };
            let cells = event.call.act.cells(shape);
            let near = cells.iter().any(|cell| keys.contains(cell)) || stuck.contains(&at);
            if near || cells.is_empty() {
                let maybe = if event.required { "" } else { " (may not have happened)" };
                lines.push(format!("\n      {state}{}{maybe}", event.call.show()));
            }
        }
        let skipped = lines.len().saturating_sub(40);
        format!(
            "no order of the calls explains their replies\n    furthest state: {}{wanted}{}{}",
            show(&best.state),
            if skipped > 0 { format!("\n      ({skipped} earlier calls omitted)") } else { String::new() },
            lines[skipped..].concat()
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A panic here is a failed test.

    use super::super::history::Act;
    use super::super::section::{Places, Section, Write};
    use super::super::values::{ABSENT, ROOT_TAG};
    use super::*;

    fn call(thread: usize, begun: u64, ended: u64, act: Act) -> Call {
        let end = (ended < u64::MAX).then_some(ended);
        Call { thread, act, begun, ended: end, from: 0, to: end.map(|_| 0), group: None, void: false }
    }

    /// These calls, in the order in which they began.
    fn events_of(calls: &[Call]) -> Vec<Event<'_>> {
        let mut events: Vec<Event<'_>> = calls
            .iter()
            .map(|call| Event { call, ended: call.ended.unwrap_or(u64::MAX), required: call.ended.is_some() })
            .collect();
        events.sort_by_key(|event| event.call.begun);
        events
    }

    fn holds(calls: &[Call], goal: Goal<'_>) -> bool {
        let shape = Shape { keys: 2, ..Shape::default() };
        check(&events_of(calls), shape, &[ABSENT, ABSENT], goal, &mut Values::default()).is_ok()
    }

    const NEVER: u64 = u64::MAX;
    const fn put(value: Id) -> Act {
        Act::Put { key: 0, value }
    }
    const fn read(found: Id) -> Act {
        Act::Read { key: 0, found }
    }
    fn batch(first: Id, second: Id) -> Act {
        Act::Swap { expects: Vec::new(), writes: vec![(0, first), (1, second)], reported: Some(true) }
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_that_overlaps_it() {
        assert!(holds(&[call(1, 1, 2, put(1)), call(2, 3, 4, read(1))], Goal::Any));
        assert!(!holds(&[call(1, 1, 2, put(1)), call(2, 3, 4, read(ABSENT))], Goal::Any));
        assert!(holds(&[call(1, 1, 4, put(1)), call(2, 2, 3, read(ABSENT))], Goal::Any));
        assert!(holds(&[call(1, 1, 4, put(1)), call(2, 2, 3, read(1))], Goal::Any));
    }

    #[test]
    fn a_value_once_read_is_not_read_as_older_later() {
        let calls = [call(1, 1, NEVER, put(1)), call(2, 2, 3, read(1)), call(3, 4, 5, read(ABSENT))];
        assert!(!holds(&calls, Goal::Any));
        assert!(holds(&calls[..2], Goal::Any));
    }

    #[test]
    fn a_crash_may_undo_only_unread_writes() {
        let pending = call(1, 1, NEVER, put(1));
        assert!(holds(std::slice::from_ref(&pending), Goal::Ends(&[ABSENT, ABSENT])));
        assert!(holds(std::slice::from_ref(&pending), Goal::Ends(&[1, ABSENT])));
        let seen = [pending, call(2, 2, 3, read(1))];
        assert!(holds(&seen, Goal::Ends(&[1, ABSENT])));
        assert!(!holds(&seen, Goal::Ends(&[ABSENT, ABSENT])));
        assert!(!holds(&[call(1, 1, 2, put(1))], Goal::Ends(&[ABSENT, ABSENT])));
    }

    #[test]
    fn a_batch_is_read_whole_or_not_at_all() {
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
                Act::Swap { expects: vec![(0, seen)], writes: vec![(0, value)], reported: Some(true) },
            )
        };
        assert!(!holds(&[call(0, 1, 2, put(1)), add(3, 6, 1, 2), add(4, 5, 1, 3)], Goal::Any));
        assert!(holds(&[call(0, 1, 2, put(1)), add(3, 6, 1, 2), add(4, 5, 2, 3)], Goal::Any));
    }

    /// Of two places; a collection lies at the first, whose root is there as `root`, with what its elements hold.
    fn collected(calls: &[Call], goal: Option<&[Id]>, values: &mut Values) -> bool {
        let shape = Shape { keys: 1, tables: 0, places: Places { first: 1, count: 2 } };
        let state = vec![ABSENT; shape.cells()];
        check(&events_of(calls), shape, &state, goal.map_or(Goal::Any, Goal::Ends), values).is_ok()
    }

    #[test]
    fn elements_follow_their_root_and_a_transaction_is_read_whole() {
        let values = &mut Values::default();
        let root = |change: u8| [&[0][..], &7u64.to_le_bytes(), &[change; 8]].concat();
        let (made, moved) = (values.id(&root(1), ROOT_TAG), values.id(&root(2), ROOT_TAG));
        let (old, new) = (values.id(b"old", 0), values.id(b"new", 0));
        let step =
            |saw: &[(usize, Id)], writes: Vec<Write>| Act::Section(Section { saw: saw.to_vec(), writes });
        let element = |value| Write::Element { collection: 7, element: 0, value };
        let make = step(&[], vec![Write::Root { place: 0, value: made }, element(old)]);
        let make = call(1, 1, 2, make);
        let write = call(1, 3, 9, step(&[(1, made)], vec![element(new), Write::Key { cell: 0, value: new }]));
        let look = |begun, key, first| call(2, begun, begun + 1, step(&[(0, key), (2, first)], Vec::new()));
        let mut holds =
            |more: &[Call]| collected(&[&[make.clone(), write.clone()][..], more].concat(), None, values);
        assert!(holds(&[look(4, ABSENT, old), look(6, new, new)]));
        assert!(!holds(&[look(4, new, old)]) && !holds(&[look(4, ABSENT, new)]));
        assert!(!holds(&[look(4, new, new), look(6, ABSENT, old)]));
        let go = call(3, 10, 11, step(&[(1, made)], vec![Write::Move { from: 0, to: 1, value: moved }]));
        let shown = |found| call(2, 12, 13, Act::Element { collection: 7, element: 0, found });
        assert!(holds(&[go.clone(), shown(Some(new))]));
        assert!(!holds(&[go.clone(), shown(Some(old))]) && !holds(&[go.clone(), shown(None)]));
        let over = call(3, 10, 11, step(&[], vec![Write::Root { place: 0, value: old }]));
        assert!(holds(&[over.clone(), shown(None)]) && !holds(&[over, shown(Some(new))]));
        // What a crash leaves of a rename that was under way: all or nothing.
        let go = Call { ended: None, to: None, ..go };
        let place = |root: Id, first: Id| [root, first, ABSENT, ABSENT, ABSENT, ABSENT];
        let mut ends = |places: [[Id; 6]; 2]| {
            let goal = [&[new][..], &places.concat()].concat();
            collected(&[make.clone(), write.clone(), go.clone()], Some(&goal), values)
        };
        let nothing = place(ABSENT, ABSENT);
        assert!(ends([place(made, new), nothing]) && ends([nothing, place(moved, new)]));
        assert!(!ends([nothing, place(moved, ABSENT)]) && !ends([place(made, new), place(moved, new)]));
    }

    #[test]
    fn a_change_of_tables_is_durable_when_the_call_returns() {
        let shape = Shape { keys: 1, tables: 1, ..Shape::default() };
        let holds = |drop_ended: u64, shown: [Id; 3]| {
            let was = (drop_ended < NEVER).then_some(true);
            let calls = [
                call(1, 1, 2, Act::Make { table: 1, kind: 1 }),
                call(1, 3, 4, put(5)),
                call(1, 5, drop_ended, Act::Drop { table: 1, was }),
                call(2, 6, 7, Act::Gone { cells: vec![shape.of_table(1)] }),
            ];
            let goal = shape.whole(&shown);
            check(&events_of(&calls), shape, &shape.whole(&[]), Goal::Passes(&goal), &mut Values::default())
                .is_ok()
        };
        let (made, written, dropped) = ([ABSENT, ABSENT, 1], [5, ABSENT, 1], [5, ABSENT, ABSENT]);
        assert!(holds(NEVER, made) && holds(NEVER, written) && holds(NEVER, dropped));
        assert!(!holds(NEVER, [ABSENT; 3]));
        assert!(holds(8, dropped) && !holds(8, written) && !holds(8, made));
    }

    #[test]
    fn with_an_interval_a_prefix_after_the_last_commit_survives() {
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
