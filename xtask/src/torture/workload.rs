//! The writers' work: which keys, which operations, and how large the values.
//!
//! Each writer owns its units; all share the shared counters. An operation is made from the expected state in the
//! writer's history, so that its outcome is known before it is sent.

use super::content::{self, Collection, Content, Form};
use super::history::{Expiry, History, State, Unit};
use super::own_bytes::OwnBytes;
use crate::random::Random;

/// Counters that all writers add to.
pub const SHARED_COUNTERS: usize = 3;

// Units of each kind that a writer owns. Few enough that keys are overwritten and deleted many times between two
// crashes; many enough that blocks and buckets hold several.
const VALUES: usize = 48;
const BATCHES: usize = 12;
const BATCH_KEYS: usize = 4;
const COUNTERS: usize = 6;
const APPENDED: usize = 6;
/// A value of this many chunks is sooner or later deleted.
const CHUNKS_MAX: u32 = 300;
// Units of each type of collection, and of pairs of keys that change together.
const COLLECTIONS: usize = 3;
const PAIRS: usize = 1;
/// Units of one key of each type, which only scripts change.
const SCRIPTED: usize = 4;
/// Above this many entries a collection loses more than it gains: some 13 KB. Servers keep collections up to about that
/// size in one piece, so collections become large again and again.
const ENTRIES_MAX: u32 = 400;

/// The two interfaces differ in the form of counters and of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Counters are decimal text; an expiry is relative to the server's clock.
    Sockets,
    /// Counters are words updated in place; expiry is a point in time.
    Library,
}

/// The key of a shared counter.
pub fn shared_key(counter: usize) -> Vec<u8> {
    format!("shared:{counter}").into_bytes()
}

/// The units of one writer.
pub fn units(writer: usize, door: Door) -> Vec<Unit> {
    let key = |kind: &str, number: usize| format!("w{writer}:{kind}{number}").into_bytes();
    let mut units = Vec::new();
    units.extend((0..VALUES).map(|n| Unit { form: Form::Stamped, keys: vec![key("value", n)] }));
    units.extend((0..BATCHES).map(|n| {
        let keys = (0..BATCH_KEYS).map(|member| key(&format!("batch{n}:"), member)).collect();
        Unit { form: Form::Stamped, keys }
    }));
    let form = if door == Door::Sockets { Form::Decimal } else { Form::Word };
    units.extend((0..COUNTERS).map(|n| Unit { form, keys: vec![key("counter", n)] }));
    units.extend((0..APPENDED).map(|n| Unit { form: Form::Chunks, keys: vec![key("appended", n)] }));
    if door == Door::Sockets {
        for (kind, collection) in [
            ("hash", Collection::Hash),
            ("list", Collection::List),
            ("set", Collection::Set),
            ("sorted", Collection::SortedSet),
        ] {
            let form = Form::Entries(collection);
            units.extend((0..COLLECTIONS).map(|n| Unit { form, keys: vec![key(kind, n)] }));
            let pair = |n| (0..2).map(|member| key(&format!("{kind}-pair{n}:"), member)).collect();
            units.extend((0..PAIRS).map(|n| Unit { form, keys: pair(n) }));
        }
        units.extend((0..SCRIPTED).map(|n| {
            let keys = (0..Form::EACH.len()).map(|member| key(&format!("scripted{n}:"), member)).collect();
            Unit { form: Form::OneEach, keys }
        }));
    }
    units
}

/// The effect of an operation on its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes the value.
    Put,
    /// Writes the value with an expiry, this many milliseconds from now.
    PutExpiring { after_ms: u64 },
    /// Sets an expiry for the existing value.
    Expire { after_ms: u64 },
    /// Deletes the key.
    Delete,
    /// Writes and deletes several keys, all or nothing.
    Together,
    /// Adds to the counter.
    Add(i64),
    /// Appends the chunk with this index.
    Append { base: u64, index: u32 },
    /// Adds chunks to the collection, or to each of the two.
    Enter { base: u64, first: u32, count: u32 },
    /// Removes the first chunks.
    Leave { base: u64, first: u32, count: u32 },
    /// Changes one key after the other, as [`Operation::steps`] says.
    Each,
}

/// How the script of an operation ends, once it has executed all commands of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// It returns the replies.
    Returns,
    /// It raises an error.
    Raises,
    /// It executes a command that fails.
    Fails,
}

/// A script that executes the commands of an operation. As in Redis, an error does not undo what the script wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Whether the keys are declared.
    pub declares: bool,
    /// Whether the script is called as a function of a library.
    pub is_function: bool,
    pub end: ScriptEnd,
}

impl Script {
    fn any(random: &mut Random) -> Script {
        let end = match random.below(6) {
            0 => ScriptEnd::Raises,
            1 => ScriptEnd::Fails,
            _ => ScriptEnd::Returns,
        };
        Script { declares: random.one_in(2), is_function: random.one_in(3), end }
    }
}

/// One operation, not yet sent.
#[derive(Clone, Debug)]
pub struct Operation {
    pub op: u64,
    pub unit: usize,
    pub act: Act,
    /// For [`Act::Each`]: the changes of the first keys, one for each. The other keys stay as they are.
    pub steps: Vec<Act>,
    /// The script that executes the operation.
    pub script: Option<Script>,
    /// The state of the unit's keys after the operation.
    pub states: Vec<State>,
}

impl Operation {
    /// The bytes of the unit's keys after the operation.
    pub fn values(&self, unit: &Unit, own: &mut OwnBytes) -> Vec<Option<Vec<u8>>> {
        let all = unit.keys.iter().zip(&self.states);
        all.enumerate()
            .map(|(at, (key, state))| content::encode(unit.form_of(at), key, &state.content, own))
            .collect()
    }
}

/// Makes the next operation of a writer.
pub fn next(random: &mut Random, history: &History, door: Door) -> Operation {
    let op = history.next_op();
    let count = history.units().count();
    let unit = random.below(count as u64) as usize;
    let latest = history.latest(unit);
    let form = history.unit(unit).map_or(Form::Stamped, |unit| unit.form);
    let mut steps = Vec::new();
    let (act, states) = match (form, latest) {
        (Form::Decimal | Form::Word, [state]) => {
            let (act, content) = counter(random, &state.content);
            (act, vec![State::lasting(content)])
        }
        (Form::OneEach, all) => {
            let mut states = all.to_vec();
            // Some scripts stop before they have changed every key, and some change none.
            let reached =
                if random.one_in(3) { random.below(all.len() as u64 + 1) } else { all.len() as u64 };
            for (form, state) in Form::EACH.iter().zip(&mut states).take(reached as usize) {
                let (act, content) = step(random, op, *form, &state.content);
                steps.push(act);
                *state = State::lasting(content);
            }
            (Act::Each, states)
        }
        (Form::Chunks, [state]) => match state.content {
            Content::Chunks { count, .. } if count >= CHUNKS_MAX || random.one_in(30) => {
                (Act::Delete, gone(1))
            }
            Content::Chunks { base, count } => (
                Act::Append { base, index: count },
                vec![State::lasting(Content::Chunks { base, count: count + 1 })],
            ),
            _ => (
                Act::Append { base: op, index: 0 },
                vec![State::lasting(Content::Chunks { base: op, count: 1 })],
            ),
        },
        (Form::Entries(_), [state, ..]) => {
            let (act, content) = entries(random, op, &state.content);
            (act, vec![State::lasting(content); latest.len()])
        }
        (_, [state]) => single(random, op, history.now(), state, door),
        (_, several) => {
            let states = several.iter().map(|_| {
                let content = match random.below(5) {
                    0 => Content::Absent,
                    _ => Content::Stamped { seq: op, len: value_bytes(random) },
                };
                State::lasting(content)
            });
            (Act::Together, states.collect())
        }
    };
    let is_scripted = door == Door::Sockets && (act == Act::Each || random.one_in(6));
    let script = is_scripted.then(|| Script::any(random));
    Operation { op, unit, act, steps, script, states }
}

/// The next change of a counter.
fn counter(random: &mut Random, before: &Content) -> (Act, Content) {
    match before {
        Content::Number(_) if random.one_in(12) => (Act::Delete, Content::Absent),
        content => {
            let before = if let Content::Number(number) = content { *number } else { 0 };
            let add = if random.one_in(2) { 1 } else { random.below(200) as i64 - 100 };
            (Act::Add(add), Content::Number(before + add))
        }
    }
}

/// The change of one key by a script.
fn step(random: &mut Random, op: u64, form: Form, before: &Content) -> (Act, Content) {
    match form {
        Form::Entries(_) => entries(random, op, before),
        Form::Decimal => counter(random, before),
        _ if random.one_in(5) => (Act::Delete, Content::Absent),
        _ => (Act::Put, Content::Stamped { seq: op, len: value_bytes(random) }),
    }
}

fn single(random: &mut Random, op: u64, now: u64, state: &State, door: Door) -> (Act, Vec<State>) {
    let content = Content::Stamped { seq: op, len: value_bytes(random) };
    // From a few milliseconds, which elapse before the crash, to a few seconds, which elapse after it.
    let after_ms = 5 + random.below(1500);
    let until = |content: Content| {
        let earliest = now + after_ms;
        // For a relative expiry only its acknowledgement bounds the latest time.
        let latest = if door == Door::Sockets { earliest + 3_600_000 } else { earliest };
        vec![State { content, expires: Some(Expiry { earliest, latest }) }]
    };
    match random.below(10) {
        0 | 1 => (Act::Delete, gone(1)),
        2 => (Act::PutExpiring { after_ms }, until(content)),
        3 if door == Door::Sockets && state.expires.is_none() && state.content != Content::Absent => {
            (Act::Expire { after_ms }, until(state.content.clone()))
        }
        _ => (Act::Put, vec![State::lasting(content)]),
    }
}

/// The next change of a collection.
fn entries(random: &mut Random, op: u64, before: &Content) -> (Act, Content) {
    let few = |random: &mut Random| match random.below(8) {
        0 => 1 + random.below(120) as u32,
        1..4 => 1 + random.below(9) as u32,
        _ => 1,
    };
    let &Content::Entries { base, first, count } = before else {
        let count = few(random);
        return (Act::Enter { base: op, first: 0, count }, Content::Entries { base: op, first: 0, count });
    };
    if random.one_in(60) {
        return (Act::Delete, Content::Absent);
    }
    if random.below(u64::from(2 * ENTRIES_MAX)) < u64::from(count) || random.one_in(3) {
        let left = few(random).min(count);
        let act = Act::Leave { base, first, count: left };
        return match count - left {
            0 => (act, Content::Absent),
            count => (act, Content::Entries { base, first: first + left, count }),
        };
    }
    let more = few(random);
    (
        Act::Enter { base, first: first + count, count: more },
        Content::Entries { base, first, count: count + more },
    )
}

fn gone(keys: usize) -> Vec<State> {
    vec![State::lasting(Content::Absent); keys]
}

/// Mostly a few cache lines; now and then several blocks.
fn value_bytes(random: &mut Random) -> u32 {
    let most = match random.below(100) {
        0 => 256 << 10,
        1..10 => 32 << 10,
        10..30 => 4 << 10,
        _ => 400,
    };
    random.below(most) as u32
}

#[cfg(test)]
mod tests {
    use super::super::history::{Event, Promise};
    use super::*;

    #[test]
    fn operations_of_a_seed_repeat_and_fit_their_units() {
        for door in [Door::Sockets, Door::Library] {
            let run = || {
                let promise = Promise { on_acknowledge: true, prefix: false };
                let mut history = History::new(promise, units(0, door), SHARED_COUNTERS);
                let mut random = Random::new(9);
                let mut acts = Vec::new();
                for _ in 0..2000 {
                    let operation = next(&mut random, &history, door);
                    let unit = history.unit(operation.unit).unwrap();
                    assert_eq!(unit.keys.len(), operation.states.len());
                    let Operation { op, unit, act, steps, script, states } = operation;
                    assert!(steps.len() <= states.len());
                    acts.push((unit, act, script));
                    history.apply(&Event::Sent { op, unit, at: 0, states });
                    history.apply(&Event::Acked { op, at: 0 });
                }
                assert_eq!(history.counts().0, 2000);
                acts
            };
            let acts = run();
            assert_eq!(acts, run());
            for wanted in [Act::Put, Act::Delete, Act::Together] {
                assert!(acts.iter().any(|(_, act, _)| *act == wanted), "{wanted:?}");
            }
            let leave = acts.iter().any(|(_, act, _)| matches!(act, Act::Leave { .. }));
            assert_eq!(leave, door == Door::Sockets);
            for wanted in [ScriptEnd::Returns, ScriptEnd::Raises, ScriptEnd::Fails] {
                let ends =
                    acts.iter().any(|(_, _, script)| script.is_some_and(|script| script.end == wanted));
                assert_eq!(ends, door == Door::Sockets, "{wanted:?}");
            }
        }
    }
}
