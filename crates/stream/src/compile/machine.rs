//! The state that compiled code works on, and the functions that it calls by address.
//!
//! # Invariants
//!
//! 1. Slots, breakers and sinks lie in boxes that live as long as the machine; tables lie in boxes that live as long as
//!    their window. So the addresses that code was compiled with, or was given, stay valid.
//! 2. No reference into the machine is held while compiled code runs. Code and the functions here reach the machine
//!    through the one pointer that each of them is given, one after the other, on one thread.
//! 3. A text that compiled code has in registers lies in the batch, in the arena, in a constant, or in a table. None of
//!    these frees bytes before [`Machine::end_batch`], which runs between two batches.

use std::collections::BTreeSet;

use crate::batch::Shape;
use crate::error::{Error, Result};
use crate::expr::{Expr, eval};
use crate::function::Clock;
use crate::plan::changelog::RowKind;
use crate::plan::{self, window_time};
use crate::state::{Get, MemoryLimit, Numbers, Put, Reader, Sessions, State, Table, Window, write_word};
use crate::types::{DataType, Scalar, Value};

use super::texts::{Texts, text_at};

/// A scan's event time.
#[derive(Debug)]
#[repr(C)]
pub struct ScanSlot {
    /// The greatest watermark seen.
    pub watermark: i64,
    /// When the watermark reaches this, something may close: `duramen_advance` is called.
    pub deadline: i64,
    /// Whether no rows came for so long that this scan no longer holds back the watermark.
    pub idle: bool,
}

/// The window that a breaker used last, for compiled code. An empty one, `start >= end`, means none.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Pane {
    /// Start of the window.
    pub start: i64,
    /// End of the window, exclusive.
    pub end: i64,
    /// Its table's address.
    pub table: usize,
}

/// The words of a row: header words, then fields.
///
/// The header's first word is the kind of change in a sink's rows; then come words with a bit for each NULL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowLayout {
    /// Shape of each field, whether it may be NULL, and its first word.
    pub fields: Vec<(Shape, bool, usize)>,
    /// Words before the NULL bits.
    pub head: usize,
    /// Words of a row.
    pub words: usize,
}

impl RowLayout {
    /// The layout of these fields after `head` words.
    pub fn new(head: usize, fields: &[(Shape, bool)]) -> RowLayout {
        let mut word = head + fields.len().div_ceil(64);
        let mut placed = Vec::new();
        for (shape, nullable) in fields {
            placed.push((*shape, *nullable, word));
            word += shape.words();
        }
        RowLayout { fields: placed, head, words: word }
    }

    /// Words at which texts begin.
    pub fn texts(&self) -> Vec<usize> {
        self.fields.iter().filter(|(shape, ..)| *shape == Shape::Text).map(|(.., word)| *word).collect()
    }

    /// Whether a field of a row is NULL.
    pub fn is_null(&self, row: &[u64], field: usize) -> bool {
        self.fields[field].1 && row[self.head + field / 64] >> (field % 64) & 1 != 0
    }
}

/// The receiver of a sink's rows.
pub trait Output {
    /// Takes rows; their texts are gone afterwards.
    fn take(&mut self, rows: &Rows<'_>) -> Result<()>;
}

/// Rows on their way to a sink.
#[derive(Debug)]
pub struct Rows<'r> {
    words: &'r [u64],
    layout: &'r RowLayout,
    types: &'r [DataType],
}

impl<'r> Rows<'r> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.words.len() / self.layout.words
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Types of the columns.
    pub fn types(&self) -> &'r [DataType] {
        self.types
    }

    /// Runs `each` for the fields of each row if all of them are integers or times that are never NULL; else for no
    /// row.
    pub fn each_ints(&self, each: &mut dyn FnMut(&[i64])) {
        let Some((.., first)) = self.layout.fields.first() else { return };
        if self.layout.fields.iter().any(|(shape, nullable, _)| *shape != Shape::Int || *nullable) {
            return;
        }
        let mut fields = vec![0; self.layout.fields.len()];
        for row in self.words.chunks_exact(self.layout.words) {
            for (field, word) in fields.iter_mut().zip(&row[*first..]) {
                *field = *word as i64;
            }
            each(&fields);
        }
    }

    /// The first row that has a NULL in one of these columns, and that column.
    pub fn find_null(&self, columns: &[usize]) -> Option<(Vec<Value>, usize)> {
        // Most types have no NULL: then the rows are not scanned.
        let columns: Vec<usize> =
            columns.iter().copied().filter(|column| self.layout.fields[*column].1).collect();
        if columns.is_empty() {
            return None;
        }
        self.words.chunks_exact(self.layout.words).enumerate().find_map(|(number, row)| {
            let column = columns.iter().find(|column| self.layout.is_null(row, **column))?;
            Some((self.iter().nth(number)?.1, *column))
        })
    }

    /// Each row with its kind.
    pub fn iter(&self) -> impl Iterator<Item = (RowKind, Vec<Value>)> + '_ {
        self.borrowed().map(|row| (row.kind(), row.fields().map(|(value, ty)| value.to_value(ty)).collect()))
    }

    /// Each row, without memory of its own.
    pub fn borrowed(&self) -> impl Iterator<Item = RowRef<'_>> + '_ {
        let row = |words| RowRef { words, layout: self.layout, types: self.types };
        self.words.chunks_exact(self.layout.words).map(row)
    }
}

/// One of [`Rows`].
#[derive(Debug, Clone, Copy)]
pub struct RowRef<'r> {
    words: &'r [u64],
    layout: &'r RowLayout,
    types: &'r [DataType],
}

impl<'r> RowRef<'r> {
    /// Its kind.
    pub fn kind(&self) -> RowKind {
        match self.words[0] {
            0 => RowKind::Insert,
            1 => RowKind::UpdateBefore,
            2 => RowKind::UpdateAfter,
            _ => RowKind::Delete,
        }
    }

    /// Its fields with their types, in order.
    pub fn fields(self) -> impl Iterator<Item = (Scalar<'r>, &'r DataType)> {
        (0..self.types.len()).map(move |field| self.field(field))
    }

    /// A field and its type.
    pub fn field(&self, field: usize) -> (Scalar<'r>, &'r DataType) {
        let (shape, _, word) = self.layout.fields[field];
        let value = match self.layout.is_null(self.words, field) {
            true => Scalar::Null,
            false => scalar_at(shape, &self.words[word..]),
        };
        (value, &self.types[field])
    }
}

/// The word of a kind of change.
pub fn kind_word(kind: RowKind) -> i64 {
    match kind {
        RowKind::Insert => 0,
        RowKind::UpdateBefore => 1,
        RowKind::UpdateAfter => 2,
        RowKind::Delete => 3,
    }
}

fn scalar_at(shape: Shape, words: &[u64]) -> Scalar<'_> {
    match shape {
        Shape::Boolean => Scalar::Boolean(words[0] & 1 != 0),
        Shape::Int => Scalar::Int(words[0] as i64),
        Shape::Float => Scalar::Float(f32::from_bits(words[0] as u32)),
        Shape::Double => Scalar::Double(f64::from_bits(words[0])),
        Shape::Decimal => Scalar::Decimal((u128::from(words[0]) | u128::from(words[1]) << 64) as i128),
        Shape::Text => Scalar::Text(text_at(words[0], words[1])),
    }
}

/// Rows that compiled code wrote for a sink and that the sink has not taken yet. A row and the row that replaces it are
/// taken together.
#[derive(Debug)]
#[repr(C)]
pub struct SinkSlot {
    /// Address of the next row.
    pub next: usize,
    /// Address after the last word.
    pub end: usize,
    buffer: Vec<u64>,
    layout: RowLayout,
    types: Vec<DataType>,
}

impl SinkSlot {
    /// A buffer for rows of this layout.
    pub fn new(layout: RowLayout, types: Vec<DataType>) -> SinkSlot {
        // 512 rows: 16 KiB for rows of four fields, half of the nearest cache.
        let mut buffer = vec![0; layout.words * 512];
        let next = buffer.as_mut_ptr() as usize;
        SinkSlot { next, end: next + buffer.len() * 8, buffer, layout, types }
    }

    /// Its rows' layout.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Words in use.
    fn words(&self) -> usize {
        (self.next - self.buffer.as_ptr() as usize) / 8
    }

    /// The rows in the first `words` words.
    fn rows(&self, words: usize) -> Rows<'_> {
        Rows { words: &self.buffer[..words], layout: &self.layout, types: &self.types }
    }

    /// Drops the rows in the first `words` words and moves the others to the front.
    fn drop_rows(&mut self, words: usize) {
        let left = self.words() - words;
        self.buffer.copy_within(words..words + left, 0);
        self.next = self.buffer.as_mut_ptr() as usize + left * 8;
    }
}

/// An expression whose arguments compiled code has computed.
#[derive(Debug)]
pub struct Generic {
    /// The function, with its arguments as columns.
    pub expr: Expr,
    /// Shapes, types and words of the arguments.
    pub args: Vec<(Shape, DataType, usize)>,
    /// The result's shape.
    pub shape: Shape,
}

/// Code that emits the rows of a closed window: machine, table or tables, start, end; not zero if it failed.
pub type CloseCode = extern "C" fn(*mut Machine, usize, i64, i64) -> i64;
/// Code that merges the entries of one table into those of another.
pub type MergeCode = extern "C" fn(*mut Machine, usize, usize) -> i64;

/// How a breaker keeps windows and closes them.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Kind {
    /// Never closes.
    Always,
    /// Records of slices, from which windows are merged.
    Slices { width: i64 },
    /// Records or rows of whole windows.
    Windows,
    /// Rows of two sides by whole windows.
    Sides,
    /// Rows of two sides, kept for as long as a row of the other side may join them. `kept` is the number of rows that
    /// the last sweep kept.
    Interval { needed: [Option<Needed>; 2], kept: usize },
    /// Records of sessions: the gap, and the word of a group's entry that names its list.
    Sessions { gap: i64, word: usize, sessions: Sessions },
}

/// How long a side of a join needs its rows.
#[derive(Debug, Clone)]
pub struct Needed {
    /// The layout of the rows.
    pub row: RowLayout,
    /// The field with their time. A row without a time is not needed.
    pub time: usize,
    /// A row is needed until the watermark is this far beyond its time.
    pub keep: i64,
}

/// One breaker.
pub struct Breaker {
    /// The last window used, for compiled code; one of each side.
    pub panes: [Pane; 2],
    /// Its name, for errors and progress.
    pub name: String,
    /// How it closes.
    pub kind: Kind,
    /// The windows, if it has any.
    pub window: Option<plan::Window>,
    /// Whether the windows use processing time.
    pub proctime: bool,
    /// State; a join has one for each side.
    pub states: Vec<Box<dyn State>>,
    /// Scans whose rows reach this breaker.
    pub scans: BTreeSet<usize>,
    /// The least of their watermarks, as of the last time something could close.
    pub watermark: i64,
    /// Rows that arrived after their windows had closed.
    pub late: u64,
    /// Code that emits the rows of a closing window.
    pub close: Option<CloseCode>,
    /// Code that merges slices.
    pub merge: Option<MergeCode>,
    /// The layout of records in its states, for comparing with a checkpoint's.
    pub layout: String,
    /// Whether its state does not belong to the job: rows of a lookup table.
    pub borrowed: bool,
    /// Windows of slices that end here or before have emitted their rows.
    slices_closed: i64,
}

impl Breaker {
    /// A breaker without state and code yet.
    pub fn new(name: String, kind: Kind) -> Breaker {
        Breaker {
            panes: [Pane::default(); 2],
            name,
            kind,
            window: None,
            proctime: false,
            states: Vec::new(),
            scans: BTreeSet::new(),
            watermark: i64::MIN,
            late: 0,
            close: None,
            merge: None,
            layout: String::new(),
            borrowed: false,
            slices_closed: i64::MIN,
        }
    }

    /// Bytes of pages that were copied for a checkpoint and wait to be written out.
    pub fn copies(&self) -> usize {
        let lists = if let Kind::Sessions { sessions, .. } = &self.kind { sessions.copies() } else { 0 };
        lists + self.states.iter().map(|state| state.copies()).sum::<usize>()
    }

    /// Windows that end here or before are closed.
    fn bound(&self) -> i64 {
        if self.proctime { self.watermark } else { self.watermark.saturating_add(-window_time(0)) }
    }

    pub(super) fn slice(&mut self, moment: i64) -> usize {
        let (Kind::Slices { width }, Some(window)) = (&self.kind, self.window) else { return 0 };
        // As in `plan::Window::assign`.
        let moment = moment.clamp(-(1 << 60), 1 << 60);
        let start = (moment - window.offset()).div_euclid(*width) * *width + window.offset();
        let slice = Window { start, end: start + *width };
        let last = window.assign(start).iter().map(|(_, end)| *end).max();
        if last.is_none_or(|last| last <= self.bound()) {
            self.late += 1;
            return 0;
        }
        self.open(0, slice)
    }

    pub(super) fn whole(&mut self, side: usize, start: i64, end: i64) -> usize {
        if end <= self.bound() {
            self.late += 1;
            return 0;
        }
        self.open(side, Window { start, end })
    }

    fn open(&mut self, side: usize, window: Window) -> usize {
        let table = std::ptr::from_mut(self.states[side].table(window)) as usize;
        self.panes[side] = Pane { start: window.start, end: window.end, table };
        table
    }

    /// Drops rows of a join that no row can join any more, once there are more than twice as many as the last sweep
    /// kept.
    fn sweep(&mut self) {
        // 4,096: some hundred KiB stay in a cache, and copying the remaining rows costs little compared with the
        // dropped ones.
        const LEAST: usize = 4096;
        let Kind::Interval { needed, kept } = &mut self.kind else { return };
        let rows = |states: &mut Vec<Box<dyn State>>| -> usize {
            states.iter_mut().map(|state| state.table(Window::ALWAYS).rows()).sum()
        };
        if rows(&mut self.states) < *kept * 2 + LEAST {
            return;
        }
        for (state, needed) in self.states.iter_mut().zip(needed) {
            let Some(Needed { row: layout, time, keep }) = needed else { continue };
            let (word, watermark) = (layout.fields[*time].2, self.watermark);
            state.table(Window::ALWAYS).keep_rows(|row| {
                !layout.is_null(row, *time) && (row[word] as i64).saturating_add(*keep) >= watermark
            });
        }
        *kept = rows(&mut self.states);
    }

    /// Freezes its states for a checkpoint, and writes to `out` where to find them.
    pub(super) fn freeze(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        let kept = if let Kind::Interval { kept, .. } = &self.kind { *kept as u64 } else { 0 };
        for word in [self.watermark as u64, self.slices_closed as u64, self.late, kept] {
            write_word(out, word);
        }
        if self.borrowed {
            return;
        }
        self.states.iter_mut().for_each(|state| state.freeze(numbers, out));
        if let Kind::Sessions { sessions, .. } = &mut self.kind {
            sessions.freeze(numbers, out);
        }
    }

    /// Writes out frozen states until `budget` bytes are used up; returns whether everything is written.
    pub(super) fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool {
        if self.borrowed {
            return true;
        }
        let saved = self.states.iter_mut().all(|state| state.save(put, budget));
        match &mut self.kind {
            Kind::Sessions { sessions, .. } => saved && sessions.save(put, budget),
            _ => saved,
        }
    }

    /// Restores the frozen states.
    pub(super) fn restore(
        &mut self,
        reader: &mut Reader<'_>,
        get: &mut Get<'_>,
        named: &mut Vec<u64>,
    ) -> Result<()> {
        self.watermark = reader.word()? as i64;
        self.slices_closed = reader.word()? as i64;
        self.late = reader.word()?;
        let rows = reader.word()? as usize;
        if let Kind::Interval { kept, .. } = &mut self.kind {
            *kept = rows;
        }
        if self.borrowed {
            return Ok(());
        }
        let is_one_table = self.is_one_table();
        for (side, state) in self.states.iter_mut().enumerate() {
            state.restore(reader, get, named)?;
            self.panes[side] = Pane::default();
            if is_one_table {
                self.panes[side].table = std::ptr::from_mut(state.table(Window::ALWAYS)) as usize;
            }
        }
        if let Kind::Sessions { sessions, word, .. } = &mut self.kind {
            let table = self.states[0].table(Window::ALWAYS);
            let lists = table.entries().filter_map(|entry| (entry[*word] as usize).checked_sub(1)).collect();
            let words = table.layout().stride;
            sessions.restore(reader, words, &lists, get, named)?;
        }
        Ok(())
    }

    /// Whether it keeps all its groups in one table for as long as it runs.
    pub(super) fn is_one_table(&self) -> bool {
        matches!(self.kind, Kind::Always | Kind::Interval { .. } | Kind::Sessions { .. })
    }

    /// When the watermark of one of its scans reaches this, something may close.
    fn deadline(&self, watermark: i64) -> i64 {
        match (&self.kind, self.window) {
            _ if self.proctime => i64::MAX,
            (Kind::Always, _) => i64::MAX,
            // No result depends on this sweep: now and then is enough.
            (Kind::Interval { needed, .. }, _) => {
                let most = needed.iter().flatten().map(|needed| needed.keep).max().unwrap_or(0).max(0);
                watermark.saturating_add(most / 8).saturating_add(1_000_000)
            }
            (Kind::Sessions { sessions, .. }, _) => sessions.first_end().map_or(i64::MAX, window_time),
            _ if watermark == i64::MIN => i64::MIN,
            (_, Some(window)) => match window.slice() {
                Some(width) => {
                    let width = if let Kind::Slices { width } = &self.kind { *width } else { width };
                    let closed = watermark.saturating_add(-window_time(0));
                    let next = closed.saturating_sub(window.offset()).div_euclid(width).saturating_add(1);
                    window_time(next.saturating_mul(width).saturating_add(window.offset()))
                }
                None => i64::MIN,
            },
            (_, None) => i64::MIN,
        }
    }
}

/// Everything that the code of a job works on.
#[expect(clippy::vec_box, reason = "code knows the addresses of parts: they must not move")]
pub struct Machine {
    /// Scans.
    pub scans: Vec<Box<ScanSlot>>,
    /// Breakers, those nearer to the sources first.
    pub breakers: Vec<Box<Breaker>>,
    /// Sinks.
    pub sinks: Vec<Box<SinkSlot>>,
    /// The receivers of the sinks' rows.
    pub outputs: Vec<Box<dyn Output>>,
    /// Calls of functions for which no code is generated.
    pub generics: Vec<Generic>,
    /// Functions of texts, and the texts that they make.
    pub texts: Texts,
    /// Texts that code refers to.
    pub constants: Vec<Box<[u8]>>,
    /// The processing time.
    pub clock: Box<i64>,
    /// The error, if something failed.
    pub error: Option<Error>,
    /// Rows since the process began whose time is NULL, so that they are in no window.
    pub timeless: u64,
    /// Whether it processes only a part of each batch.
    pub routed: bool,
    /// Whether there are checkpoints.
    pub tracked: bool,
    /// Where state is kept.
    pub room: MemoryLimit,
    /// Closed tables whose texts may still be on their way to a sink.
    closed: Vec<(usize, usize, Box<Table>)>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machine({} scans, {} breakers)", self.scans.len(), self.breakers.len())
    }
}

impl Machine {
    /// A machine without parts.
    pub fn new() -> Box<Machine> {
        Box::new(Machine {
            scans: Vec::new(),
            breakers: Vec::new(),
            sinks: Vec::new(),
            outputs: Vec::new(),
            generics: Vec::new(),
            texts: Texts::default(),
            constants: Vec::new(),
            clock: Box::new(0),
            error: None,
            timeless: 0,
            routed: false,
            tracked: false,
            room: MemoryLimit::default(),
            closed: Vec::new(),
        })
    }

    /// Keeps bytes until the end of the batch; returns their address.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> u64 {
        self.texts.keep(bytes)
    }

    /// Delivers a sink's full buffer. A row that the next one replaces stays, to be delivered together with that one.
    pub(super) fn deliver(&mut self, sink: usize) -> Result<()> {
        let slot = &self.sinks[sink];
        let (words, row) = (slot.words(), slot.layout.words);
        let last = words.checked_sub(row).map(|last| slot.buffer[last] as i64);
        let waits = last == Some(kind_word(RowKind::UpdateBefore));
        self.give(sink, if waits { words - row } else { words })
    }

    fn give(&mut self, sink: usize, words: usize) -> Result<()> {
        if words == 0 {
            return Ok(());
        }
        let taken = self.outputs[sink].take(&self.sinks[sink].rows(words));
        self.sinks[sink].drop_rows(words);
        taken
    }

    /// Frees the texts that were kept until the end of the batch.
    pub fn forget_texts(&mut self) {
        self.texts.forget();
    }

    /// Ends a batch: sinks take their remaining rows, and the texts kept for the batch are freed.
    pub fn end_batch(&mut self) -> Result<()> {
        for sink in 0..self.sinks.len() {
            self.give(sink, self.sinks[sink].words())?;
        }
        self.forget_texts();
        for (breaker, side, table) in self.closed.drain(..) {
            self.breakers[breaker].states[side].give_back(table);
        }
        for breaker in &mut self.breakers {
            for state in &mut breaker.states {
                for window in state.windows() {
                    state.table(window).release();
                }
            }
            if let Kind::Sessions { word, sessions, .. } = &mut breaker.kind
                && sessions.is_sparse()
            {
                breaker.states[0].table(Window::ALWAYS).retain(|entry| sessions.keeps(entry, *word));
            }
        }
        Ok(())
    }

    /// Words of the arguments of a call.
    pub(super) fn generic_words(&self, generic: usize) -> usize {
        let args = &self.generics[generic].args;
        args.len().div_ceil(64) + args.iter().map(|(shape, ..)| shape.words()).sum::<usize>()
    }

    pub(super) fn call(&mut self, generic: usize, args: &[u64], out: &mut [u64; 2]) -> Result<bool> {
        let Generic { expr, args: places, shape } = &self.generics[generic];
        let row: Vec<Value> = places
            .iter()
            .enumerate()
            .map(|(field, (shape, ty, word))| {
                if args[field / 64] >> (field % 64) & 1 != 0 {
                    Value::Null
                } else {
                    scalar_at(*shape, &args[*word..]).to_value(ty)
                }
            })
            .collect();
        let (value, shape) = (eval(expr, &row, Clock { now: *self.clock })?, *shape);
        *out = match (shape, &value) {
            (_, Value::Null) => return Ok(true),
            (_, Value::Boolean(value)) => [u64::from(*value), 0],
            (_, Value::Int(value)) => [*value as u64, 0],
            (_, Value::Float(value)) => [u64::from(value.to_bits()), 0],
            (_, Value::Double(value)) => [value.to_bits(), 0],
            (_, Value::Decimal(value)) => [*value as u64, (*value >> 64) as u64],
            (_, Value::String(text)) => [self.keep(text.as_bytes()), text.len() as u64],
            (_, Value::Bytes(text)) => [self.keep(text), text.len() as u64],
            (_, other) => return Err(Error::evaluation(format!("{other:?} cannot be kept in registers"))),
        };
        Ok(false)
    }

    /// The least watermark of a breaker's scans that are not idle. If all are idle, the greatest watermark, as in
    /// Flink.
    fn least(&self, place: usize) -> i64 {
        let scans = || self.breakers[place].scans.iter().map(|scan| &self.scans[*scan]);
        let active = scans().filter(|scan| !scan.idle).map(|scan| scan.watermark).min();
        active.or_else(|| scans().map(|scan| scan.watermark).max()).unwrap_or(i64::MIN)
    }

    /// Sets each scan's deadline from its watermark.
    fn aim(&mut self) {
        for (scan, slot) in self.scans.iter_mut().enumerate() {
            let breakers = self.breakers.iter().filter(|breaker| breaker.scans.contains(&scan));
            slot.deadline =
                breakers.map(|breaker| breaker.deadline(slot.watermark)).min().unwrap_or(i64::MAX);
        }
    }

    /// The tables of closed windows of a breaker, in the order in which they close.
    fn ripe(&mut self, place: usize) -> Vec<Ripe> {
        let breaker = &mut self.breakers[place];
        let bound = breaker.bound();
        let mut ripe = Vec::new();
        match &breaker.kind {
            Kind::Always | Kind::Interval { .. } | Kind::Sessions { .. } => {}
            Kind::Windows | Kind::Sides => {
                breaker.panes = [Pane::default(); 2];
                let mut windows: BTreeSet<Window> = BTreeSet::new();
                for state in &breaker.states {
                    windows.extend(state.windows().into_iter().filter(|window| window.end <= bound));
                }
                for window in windows {
                    let tables = breaker.states.iter_mut().map(|state| state.take(window)).collect();
                    ripe.push(Ripe::Tables(window, tables));
                }
            }
            Kind::Slices { .. } => {
                breaker.panes = [Pane::default(); 2];
                let Some(window) = breaker.window else { return ripe };
                let slices = breaker.states[0].windows();
                let mut windows: BTreeSet<Window> = BTreeSet::new();
                for slice in &slices {
                    for (start, end) in window.assign(slice.start) {
                        windows.insert(Window { start, end });
                    }
                }
                // Windows that closed before had rows of these slices then; the bound says which windows are new.
                let before = breaker.slices_closed;
                windows.retain(|window| window.end <= bound && window.end > before);
                breaker.slices_closed = before.max(bound);
                for window in &windows {
                    let parts =
                        slices.iter().filter(|slice| slice.start >= window.start && slice.end <= window.end);
                    ripe.push(Ripe::Slices(*window, parts.copied().collect()));
                }
                for slice in slices {
                    let last = window.assign(slice.start).iter().map(|(_, end)| *end).max();
                    if last.is_none_or(|last| last <= bound) {
                        ripe.push(Ripe::Drop(slice));
                    }
                }
            }
        }
        ripe
    }
}

/// What to do for a closed window.
enum Ripe {
    /// Emit the rows of these tables.
    Tables(Window, Vec<Option<Box<Table>>>),
    /// Merge these slices and emit the rows.
    Slices(Window, Vec<Window>),
    /// Drop this slice, which is in no open window any more.
    Drop(Window),
}

/// Runs `run` on the machine that the pointer of compiled code points to.
pub(super) fn with<R>(machine: *mut Machine, run: impl FnOnce(&mut Machine) -> R) -> R {
    // SAFETY: the pointer is that of the boxed machine whose program runs (invariant 1), and no other reference into it
    // is held meanwhile (invariant 2): `run` is never given code to run.
    run(unsafe { &mut *machine })
}

/// Closes what the watermarks of scans allow. Returns nonzero if it failed.
pub(super) fn advance(machine: *mut Machine) -> i64 {
    for place in 0..with(machine, |machine| machine.breakers.len()) {
        let moved = with(machine, |machine| {
            let least = machine.least(place);
            let breaker = &mut machine.breakers[place];
            let moved = !breaker.proctime && least > breaker.watermark;
            if moved {
                breaker.watermark = least;
                breaker.sweep();
            }
            moved
        });
        if moved && close(machine, place) != 0 {
            return 1;
        }
    }
    with(machine, Machine::aim);
    0
}

/// Closes what the processing time allows. Returns nonzero if it failed.
pub(super) fn tick(machine: *mut Machine, now: i64) -> i64 {
    for place in 0..with(machine, |machine| machine.breakers.len()) {
        let moved = with(machine, |machine| {
            let breaker = &mut machine.breakers[place];
            let moved = breaker.proctime && now > breaker.watermark;
            if moved {
                breaker.watermark = now;
            }
            moved
        });
        if moved && close(machine, place) != 0 {
            return 1;
        }
    }
    0
}

/// Emits the rows of closed windows of one breaker.
fn close(machine: *mut Machine, place: usize) -> i64 {
    let (code, merge) = with(machine, |machine| {
        let breaker = &machine.breakers[place];
        (breaker.close, breaker.merge)
    });
    let Some(code) = code else { return 0 };
    if with(machine, |machine| matches!(machine.breakers[place].kind, Kind::Sessions { .. })) {
        return close_sessions(machine, place, code);
    }
    let steps = with(machine, |machine| machine.ripe(place));
    for step in steps {
        let failed = match step {
            Ripe::Tables(window, mut tables) => {
                let addresses: Vec<usize> = tables
                    .iter_mut()
                    .map(|table| table.as_deref_mut().map_or(0, |table| std::ptr::from_mut(table) as usize))
                    .collect();
                let given = if addresses.len() == 1 { addresses[0] } else { addresses.as_ptr() as usize };
                let failed = code(machine, given, window.start, window.end);
                with(machine, |machine| {
                    for (side, table) in tables.into_iter().enumerate() {
                        machine.closed.extend(table.map(|table| (place, side, table)));
                    }
                });
                failed
            }
            Ripe::Slices(window, parts) => {
                let address = |part: Window| {
                    with(machine, |machine| {
                        machine.breakers[place].states[0]
                            .get(part)
                            .map_or(0, |table| std::ptr::from_ref(table) as usize)
                    })
                };
                match (parts.as_slice(), merge) {
                    ([one], _) => code(machine, address(*one), window.start, window.end),
                    (_, None) => 1,
                    (parts, Some(merge)) => {
                        let mut whole = with(machine, |machine| machine.breakers[place].states[0].scratch());
                        let to = std::ptr::from_mut(&mut *whole) as usize;
                        let failed = parts.iter().any(|part| merge(machine, address(*part), to) != 0);
                        let failed = i64::from(failed) | code(machine, to, window.start, window.end);
                        with(machine, |machine| machine.closed.push((place, 0, whole)));
                        failed
                    }
                }
            }
            Ripe::Drop(slice) => with(machine, |machine| {
                let table = machine.breakers[place].states[0].take(slice);
                machine.closed.extend(table.map(|table| (place, 0, table)));
                0
            }),
        };
        if failed != 0 {
            return 1;
        }
    }
    0
}

/// Emits the closed sessions of one breaker.
fn close_sessions(machine: *mut Machine, place: usize, code: CloseCode) -> i64 {
    loop {
        let closed = with(machine, |machine| {
            let breaker = &mut machine.breakers[place];
            let bound = breaker.bound();
            match &mut breaker.kind {
                Kind::Sessions { sessions, .. } => sessions.take_closed(bound),
                _ => None,
            }
        });
        let Some(session) = closed else { return 0 };
        let record = session.record.as_ptr() as usize;
        if code(machine, record, session.start, session.end) != 0 {
            return 1;
        }
    }
}

/// The record of the session that a row of a group belongs to, at this moment; zero if the row is late. Closed sessions
/// are emitted first; sessions that the row links are merged. Lowest bit: an error is recorded.
pub(super) fn session(machine: *mut Machine, place: usize, entry: usize, moment: i64) -> usize {
    // Code compares with the watermark's deadline only: a session that has closed since must not be extended.
    let due = with(machine, |machine| {
        let least = machine.least(place);
        let breaker = &mut machine.breakers[place];
        if !breaker.proctime && least > breaker.watermark {
            breaker.watermark = least;
            return breaker.close;
        }
        None
    });
    if due.is_some_and(|code| close_sessions(machine, place, code) != 0) {
        return 1;
    }
    let placed = with(machine, |machine| {
        let Machine { breakers, scans, .. } = machine;
        let breaker = &mut breakers[place];
        let bound = breaker.bound();
        let Kind::Sessions { gap, word, sessions } = &mut breaker.kind else { return None };
        let moment = moment.clamp(-(1 << 60), 1 << 60);
        let end = moment + *gap;
        let entry = breaker.states[0].table(Window::ALWAYS).entry(entry);
        let placed = sessions.place(entry, *word, moment, end);
        let session = sessions.get(placed.session);
        // A session that is already closed when its first row comes; open sessions end later than that.
        if session.end <= bound {
            breaker.late += 1;
            sessions.take_closed(bound);
            return None;
        }
        let close_at = window_time(session.end);
        if !breaker.proctime {
            for scan in &breaker.scans {
                scans[*scan].deadline = scans[*scan].deadline.min(close_at);
            }
        }
        Some((session.record.as_mut_ptr() as usize, placed.linked, breaker.merge))
    });
    let Some((record, linked, merge)) = placed else { return 0 };
    for other in &linked {
        if merge.is_none_or(|merge| merge(machine, other.as_ptr() as usize, record) != 0) {
            return 1;
        }
    }
    record
}
