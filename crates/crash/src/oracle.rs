//! The allowed content of a store after a crash.
//!
//! A [`History`] records the operations and their positions in the medium's log. [`History::allowed`] derives the
//! states that a crash at a position may leave.

use crate::entry::Entry;
use crate::phases::{Inside, Span};
use crate::setup::{Case, Promise};
use std::sync::Arc;

/// The content of each key.
pub type State = Vec<Option<Arc<Entry>>>;

/// The effects of a step on keys.
pub type Effects = Vec<(usize, Option<Arc<Entry>>)>;

/// Whether two cells read alike at `now`.
fn same(found: Option<&Entry>, wanted: Option<&Entry>, now: u64) -> bool {
    match (found, wanted.filter(|entry| entry.is_visible(now))) {
        (None, None) => true,
        (Some(found), Some(wanted)) => std::ptr::eq(found, wanted) || found.reads_as(wanted),
        _ => false,
    }
}

/// The effect of a step on durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A write, or nothing at all.
    Write,
    /// A write in a group: acknowledged by the step that flushes the group.
    Grouped,
    /// A change of tables within a group: durable on its own, independent of the group's writes.
    Table,
    /// The end of a group.
    FlushGroup,
    /// Everything before it is durable once it returned.
    Commit,
}

/// One thing that was done.
#[derive(Clone, Debug)]
pub struct Step {
    /// Position of the log when it began.
    pub start: usize,
    /// ... and when it had returned.
    pub end: usize,
    /// What it did.
    pub effects: Effects,
    /// What it means.
    pub means: Means,
    /// The time of day then.
    pub now: u64,
    /// A description.
    pub what: String,
    /// The phases that contain a crash during it.
    pub inside: Vec<Inside>,
}

/// The states that are allowed.
#[derive(Clone, Debug)]
pub enum Allowed {
    /// One of these, each for all keys together.
    OneOf(Vec<State>),
    /// Of each key one of these.
    EachOf(Vec<Vec<Option<Arc<Entry>>>>),
}

impl Allowed {
    /// Exactly this.
    #[must_use]
    pub fn exactly(state: State) -> Self {
        Self::OneOf(vec![state])
    }

    /// The most likely content of `key`.
    #[must_use]
    pub fn likely(&self, key: usize) -> Option<&Arc<Entry>> {
        match self {
            Self::OneOf(states) => states.last()?[key].as_ref(),
            Self::EachOf(keys) => keys[key].last()?.as_ref(),
        }
    }

    /// Checks that `found` is allowed at `now`.
    ///
    /// # Errors
    /// The difference to the state that is nearest.
    pub fn check(&self, found: &State, now: u64) -> Result<(), String> {
        match self {
            Self::OneOf(states) => {
                let differences = |state: &State| -> Vec<usize> {
                    (0..found.len())
                        .filter(|&key| !same(found[key].as_deref(), state[key].as_deref(), now))
                        .collect()
                };
                let all: Vec<Vec<usize>> = states.iter().map(differences).collect();
                if all.iter().any(Vec::is_empty) {
                    return Ok(());
                }
                let nearest = (0..all.len()).min_by_key(|&i| all[i].len()).unwrap_or(0);
                let keys = all.get(nearest).cloned().unwrap_or_default();
                let lines: Vec<String> = keys
                    .iter()
                    .map(|&key| {
                        let wanted: Vec<String> =
                            states.iter().map(|state| show(state[key].as_deref(), now)).collect();
                        let mut wanted = wanted;
                        wanted.dedup();
                        format!(
                            "key {key} holds {}, allowed: {}",
                            show(found[key].as_deref(), now),
                            wanted.join(" or ")
                        )
                    })
                    .collect();
                Err(format!("none of {} allowed states: {}", states.len(), lines.join("; ")))
            }
            Self::EachOf(keys) => {
                for (key, allowed) in keys.iter().enumerate() {
                    let one =
                        |wanted: &Option<Arc<Entry>>| same(found[key].as_deref(), wanted.as_deref(), now);
                    if !allowed.iter().any(one) {
                        let wanted: Vec<String> =
                            allowed.iter().map(|wanted| show(wanted.as_deref(), now)).collect();
                        return Err(format!(
                            "key {key} holds {}, allowed: {}",
                            show(found[key].as_deref(), now),
                            wanted.join(" or ")
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

/// A cell in few words.
fn show(entry: Option<&Entry>, now: u64) -> String {
    match entry {
        None => "nothing".into(),
        Some(entry) => {
            let head: Vec<String> = entry.value.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!(
                "{} bytes {}{}{}",
                entry.value.len(),
                head.concat(),
                entry.expires_at.map_or(String::new(), |at| format!(" expiring at {at}")),
                if entry.is_visible(now) { "" } else { " (expired)" }
            )
        }
    }
}

/// How the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The power failed.
    Power,
    /// The process died; its stores to the medium remain.
    Process,
}

/// What was done since the store was opened, and what it may hold at each position.
#[derive(Clone, Debug)]
pub struct History {
    case: Case,
    /// Position when the open began.
    pub open_start: usize,
    /// Position when it had returned.
    pub open_end: usize,
    /// The time when it was opened.
    pub open_now: u64,
    /// What a crash before the open returned may leave.
    pub before: Allowed,
    /// What the store held when it was opened.
    pub opened: State,
    /// What was done.
    pub steps: Vec<Step>,
    /// Events that the engine reported.
    pub spans: Vec<Span>,
}

impl History {
    /// Of a store that was just opened.
    #[must_use]
    pub fn new(
        case: Case,
        open: std::ops::Range<usize>,
        open_now: u64,
        before: Allowed,
        opened: State,
    ) -> Self {
        Self {
            case,
            open_start: open.start,
            open_end: open.end,
            open_now,
            before,
            opened,
            steps: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// The state after all steps.
    #[must_use]
    pub fn last(&self) -> State {
        let mut state = self.opened.clone();
        self.steps.iter().for_each(|step| apply(&mut state, &step.effects));
        state
    }

    /// What a crash at `position` may leave, and the time then. Steps that begin before `reached` may have
    /// had an effect.
    #[must_use]
    pub fn allowed(&self, position: usize, reached: usize, crash: Crash) -> (Allowed, u64) {
        if position < self.open_end {
            return (self.before.clone(), self.open_now);
        }
        // Steps that have begun; one that begins right here has not done anything yet.
        let begun = self.steps.iter().take_while(|step| step.start < reached || step.end <= position).count();
        let now = self.steps[..begun].last().map_or(self.open_now, |step| step.now);
        let acknowledged = self.floor(position, begun, crash);
        let mut floor = self.opened.clone();
        for step in &self.steps[..acknowledged] {
            apply(&mut floor, &step.effects);
        }
        let flying = &self.steps[acknowledged..begun];
        if self.case.promise() == Promise::Uncommitted {
            let mut states = vec![floor.clone()];
            for step in flying {
                apply(&mut floor, &step.effects);
                if step.means == Means::Commit {
                    states.push(floor.clone());
                }
            }
            return (Allowed::OneOf(states), now);
        }
        if flying.len() > 1 && !self.case.keeps_order() {
            let mut keys: Vec<Vec<_>> = floor.into_iter().map(|entry| vec![entry]).collect();
            for step in flying {
                let is_certain = step.means == Means::Table && step.end <= position;
                for (key, entry) in &step.effects {
                    if is_certain {
                        keys[*key].clear();
                    }
                    keys[*key].push(entry.clone());
                }
            }
            return (Allowed::EachOf(keys), now);
        }
        let mut states = vec![floor.clone()];
        for step in flying {
            apply(&mut floor, &step.effects);
            if !step.effects.is_empty() {
                states.push(floor.clone());
            }
        }
        (Allowed::OneOf(states), now)
    }

    /// How many of the first `begun` steps are certain.
    fn floor(&self, position: usize, begun: usize, crash: Crash) -> usize {
        let returned = |step: &Step| step.end <= position;
        let commits = self.steps[..begun]
            .iter()
            .rposition(|step| step.means == Means::Commit && returned(step))
            .map_or(0, |at| at + 1);
        let by_commit = match (self.case.promise(), crash) {
            (Promise::Uncommitted, _) | (Promise::Suffix, Crash::Power) => return commits,
            _ => commits,
        };
        // Everything that returned, except for an unflushed group.
        let mut certain = by_commit;
        for (at, step) in self.steps[..begun].iter().enumerate().skip(by_commit) {
            match step.means {
                Means::Grouped | Means::Table => {}
                _ if returned(step) => certain = at + 1,
                _ => break,
            }
        }
        certain
    }
}

/// Applies what a step did.
pub fn apply(state: &mut State, effects: &Effects) {
    for (key, entry) in effects {
        state[*key].clone_from(entry);
    }
}
