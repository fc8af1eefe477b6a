//! The process that is killed: threads that write through the `duramen` crate, and record that in journals.
//!
//! After opening the store each thread first reads everything that it owns and records what it found; the parent checks
//! it. Then it writes until the process is killed, or until its standard input ends; in that case the store is closed.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use duramen::{Batch, Meta, Options, Stamp, Store, Swap, Update, Writer};

use super::content::{self, Content};
use super::history::{Event, History, Promise, Window, now_ms};
use super::journal::Journal;
use super::own_bytes::OwnBytes;
use super::workload::{self, Act, Door, Operation, SHARED_COUNTERS, shared_key};
use super::{Durability, Medium};
use crate::failure::{Attempt, Failure, Result};
use crate::random::Random;

/// Options from the parent.
#[derive(clap::Args)]
pub struct Settings {
    #[arg(long)]
    pub store: PathBuf,
    #[arg(long)]
    pub medium: Medium,
    #[arg(long)]
    pub durability: Durability,
    #[arg(long)]
    pub index: duramen::IndexKind,
    #[arg(long)]
    pub residence: duramen::Residence,
    #[arg(long)]
    pub writers: usize,
    #[arg(long)]
    pub seed: u64,
    /// The directory for the journals
    #[arg(long)]
    pub journals: PathBuf,
    /// The number for the first operation
    #[arg(long)]
    pub first_op: u64,
}

/// The journal of one writer.
pub fn journal_path(journals: &Path, writer: usize) -> PathBuf {
    journals.join(format!("writer-{writer}"))
}

/// Bytes between two checkpoints of the index: few enough for several checkpoints between two kills.
pub const CHECKPOINT_BYTES: u64 = 1 << 20;

/// The options with which both parent and child open the store.
pub fn options(
    medium: Medium,
    durability: Durability,
    index: duramen::IndexKind,
    residence: duramen::Residence,
) -> Options {
    Options {
        medium: medium.kind(),
        durability: durability.of_store(),
        index,
        residence,
        checkpoint_bytes: CHECKPOINT_BYTES,
        ..Options::default()
    }
}

/// Opens the store.
pub fn open(
    path: &Path,
    medium: Medium,
    durability: Durability,
    index: duramen::IndexKind,
    residence: duramen::Residence,
) -> Result<Store> {
    let options = options(medium, durability, index, residence);
    options.open(path).attempt(|| format!("open the store {}", path.display()))
}

/// Writes until standard input ends.
pub fn run(settings: &Settings) -> Result<bool> {
    let Settings { medium, durability, index, residence, .. } = *settings;
    let store = open(&settings.store, medium, durability, index, residence)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        // This ends only when the parent closes its end; then the writers end.
        scope.spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
        let mut threads = Vec::new();
        for number in 0..settings.writers {
            let (store, stop) = (&store, &stop);
            threads.push(scope.spawn(move || write(settings, number, store, stop)));
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err(Failure::new("a writer panicked")),
        })
    })?;
    // The writers have ended: check the counts that they and the compactor made together.
    let differences = store.audit();
    if !differences.is_empty() {
        return Err(Failure::new(format!("counts differ from the blocks: {}", differences.join("; "))));
    }
    store.close_discarding().attempt(|| "close the store".to_owned())?;
    Ok(true)
}

struct Scribe {
    history: History,
    journal: Journal,
}

impl Scribe {
    fn add(&mut self, event: Event) -> Result<()> {
        self.journal.add(&event).attempt(|| "write the journal".to_owned())?;
        self.history.apply(&event);
        Ok(())
    }
}

fn write(settings: &Settings, number: usize, store: &Store, stop: &AtomicBool) -> Result<()> {
    // The parent checks; here the history only determines the next operation.
    let promise = Promise { on_acknowledge: true, prefix: false };
    let mut history = History::new(promise, workload::units(number, Door::Library), SHARED_COUNTERS);
    history.skip_to(settings.first_op.saturating_sub(1));
    let path = journal_path(&settings.journals, number);
    let journal = Journal::create(&path).attempt(|| format!("write the journal {}", path.display()))?;
    let mut scribe = Scribe { history, journal };
    let mut random = Random::new(settings.seed ^ (number as u64) << 32);
    let mut own = OwnBytes::new(Some(&settings.store), random.any());
    let mut writer = store.writer().attempt(|| "get a writer".to_owned())?;

    for unit in 0..scribe.history.units().count() {
        let (window, found) = read_unit(&writer, &scribe.history, unit)?;
        scribe.history.adopt(unit, &found);
        scribe.add(Event::Recovered { unit, window, found })?;
    }
    while !stop.load(Ordering::Relaxed) {
        let done = step(settings, &mut scribe, &mut writer, &mut random, &mut own, store);
        if let Err(failure) = done {
            scribe.add(Event::Refused { what: failure.to_string() })?;
            return Err(failure);
        }
    }
    Ok(())
}

fn step(
    settings: &Settings,
    scribe: &mut Scribe,
    writer: &mut Writer,
    random: &mut Random,
    own: &mut OwnBytes,
    store: &Store,
) -> Result<()> {
    match random.below(16) {
        0..3 => {
            let unit = random.below(scribe.history.units().count() as u64) as usize;
            let after = scribe.history.last_op();
            let (window, found) = read_unit(writer, &scribe.history, unit)?;
            scribe.add(Event::Read { unit, after, window, found })
        }
        3 => add_shared(scribe, writer, random.below(SHARED_COUNTERS as u64) as usize),
        4 if settings.durability == Durability::Manual && random.one_in(16) => {
            let op = scribe.history.last_op();
            store.commit().attempt(|| "commit".to_owned())?;
            scribe.add(Event::Committed { op })
        }
        5 => {
            // A group is durable, and acknowledged, as a whole.
            let count = 2 + random.below(7);
            writer.group();
            let mut sent = Vec::new();
            for _ in 0..count {
                sent.push(send(scribe, writer, random, own)?);
            }
            writer.flush_group().attempt(|| "flush a group".to_owned())?;
            sent.into_iter().try_for_each(|op| scribe.add(Event::Acked { op, at: now_ms() }))
        }
        _ => {
            let op = send(scribe, writer, random, own)?;
            scribe.add(Event::Acked { op, at: now_ms() })
        }
    }
}

/// Records and executes one operation; returns its number.
fn send(scribe: &mut Scribe, writer: &mut Writer, random: &mut Random, own: &mut OwnBytes) -> Result<u64> {
    let operation = workload::next(random, &scribe.history, Door::Library);
    let Operation { op, unit, ref states, .. } = operation;
    scribe.add(Event::Sent { op, unit, at: now_ms(), states: states.clone() })?;
    apply(writer, random, own, &scribe.history, &operation)
        .attempt(|| format!("do {:?} number {op}", operation.act))?;
    Ok(op)
}

fn apply(
    writer: &mut Writer,
    random: &mut Random,
    own: &mut OwnBytes,
    history: &History,
    operation: &Operation,
) -> std::result::Result<(), String> {
    let Some(unit) = history.unit(operation.unit) else { return Err("no such unit".to_owned()) };
    let values = operation.values(unit, own);
    let value = |at: usize| values.get(at).cloned().flatten();
    let Some(key) = unit.keys.first() else { return Err("no key".to_owned()) };
    let expires_at = operation.states.first().and_then(|state| state.expires).map(|expiry| expiry.earliest);
    let meta = Meta { expires_at, ..Meta::default() };
    match operation.act {
        Act::Put if random.one_in(2) => writer.put(key, value(0).unwrap_or_default()).map_err(with_kind),
        Act::Put | Act::PutExpiring { .. } => {
            writer.put_with(key, value(0).unwrap_or_default(), meta).map_err(with_kind)
        }
        Act::Delete => writer.delete(key).map(|_| ()).map_err(with_kind),
        Act::Together => {
            let batch = || {
                let mut batch = Batch::new();
                for (at, key) in unit.keys.iter().enumerate() {
                    match value(at) {
                        Some(value) => batch.put(key, &value),
                        None => batch.delete(key),
                    };
                }
                batch
            };
            if random.one_in(2) {
                return match writer.apply(&batch()).map_err(with_kind)? {
                    Swap::Done => Ok(()),
                    Swap::Changed => Err("a batch without conditions was declined".to_owned()),
                };
            }
            unless_moved(writer, key, |writer, stamp, _| writer.apply(batch().expect(key, stamp)))
        }
        Act::Add(_) => {
            let word = value(0).unwrap_or_default();
            let present = writer.get(key).map_err(with_kind)?.is_some();
            if present && random.one_in(2) {
                return match writer.update(key, 0, &word).map_err(with_kind)? {
                    Update::InPlace | Update::NewVersion => Ok(()),
                    Update::Absent => Err("the key to update is gone".to_owned()),
                };
            }
            let meta = Meta { updatable: true, ..Meta::default() };
            unless_moved(writer, key, |writer, stamp, _| {
                writer.compare_and_swap(key, stamp, Some((&word, meta)))
            })
        }
        Act::Append { base, index } => {
            let chunk = content::chunk(key, base, index, own.chunk_filler());
            unless_moved(writer, key, |writer, stamp, before| {
                let bytes = [before.unwrap_or_default(), &chunk].concat();
                writer.compare_and_swap(key, stamp, Some((&bytes, Meta::default())))
            })
        }
        Act::Expire { .. } | Act::Enter { .. } | Act::Leave { .. } | Act::Each => {
            Err("the library does not have this operation".to_owned())
        }
    }
}

/// Writes on condition that the key, which no other client writes, is unchanged since it was read. A stamp may change
/// without a write, when a tombstone is swept or a cell is moved; then this reads and tries again.
fn unless_moved(
    writer: &mut Writer,
    key: &[u8],
    mut write: impl FnMut(&mut Writer, Stamp, Option<&[u8]>) -> duramen::Result<Swap>,
) -> std::result::Result<(), String> {
    // Compaction does not reach the same key this often within an instant.
    const TRIES: usize = 4;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let (stamp, before) = {
            let (stamp, before) = writer.get_stamped(key).map_err(with_kind)?;
            (stamp, before.map(|value| value.bytes().to_vec()))
        };
        match write(writer, stamp, before.as_deref()).map_err(with_kind)? {
            Swap::Done => return Ok(()),
            Swap::Changed => seen.push(format!("{stamp:?} of {:?} bytes", before.as_ref().map(Vec::len))),
        }
    }
    Err(format!("the key changed without a write of its only writer: {}", seen.join(", then ")))
}

fn with_kind(error: duramen::Error) -> String {
    error.to_string()
}

/// Adds 1 to a counter to which the other writers add as well.
fn add_shared(scribe: &mut Scribe, writer: &mut Writer, counter: usize) -> Result<()> {
    let key = shared_key(counter);
    loop {
        let (stamp, found) = {
            let (stamp, value) = writer.get_stamped(&key).attempt(|| "read a shared counter".to_owned())?;
            (stamp, content::decode(content::Form::Word, &key, value.as_ref().map(|value| value.bytes())))
        };
        let number = if let Content::Number(number) = found { number } else { 0 };
        scribe.add(Event::SharedSent { counter })?;
        let word = (number + 1).to_le_bytes();
        let meta = Meta { updatable: true, ..Meta::default() };
        let swap = writer
            .compare_and_swap(&key, stamp, Some((&word, meta)))
            .attempt(|| "add to a shared counter".to_owned())?;
        match swap {
            Swap::Done => return scribe.add(Event::SharedAcked { counter }),
            Swap::Changed => scribe.add(Event::SharedDeclined { counter })?,
        }
    }
}

fn read_unit(writer: &Writer, history: &History, unit: usize) -> Result<(Window, Vec<Content>)> {
    let Some(unit) = history.unit(unit) else { return Err(Failure::new("no such unit")) };
    let from = now_ms();
    let mut found = Vec::new();
    for (at, key) in unit.keys.iter().enumerate() {
        let value = writer.get(key).attempt(|| format!("read {}", key.escape_ascii()))?;
        found.push(content::decode(unit.form_of(at), key, value.as_ref().map(|value| value.bytes())));
    }
    Ok((Window { from, to: now_ms() }, found))
}
