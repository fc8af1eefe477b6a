//! The layout of the medium.
//!
//! | at | content |
//! |---|---|
//! | 0 | superblock: magic, shape, number of this open, chunks in use |
//! | 256 | the head: a node of all levels without a key |
//! | 4096 | log: a slot for each session |
//! | `heap_at` | chunks: a line that says how many lines its blocks have, then blocks |
//!
//! Words are little-endian; keys are padded with zeros to whole words, values to whole words too.

use duramen_media::LINE_BYTES;

/// The first word of the superblock; published last.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"hyperkv1");
pub(crate) const MAGIC_AT: u64 = 0;
/// Bytes of a chunk (32 bits), sessions (16 bits), kind of log (16 bits).
pub(crate) const SHAPE_AT: u64 = 8;
/// How often the store was opened: the upper half of lock words.
pub(crate) const GENERATION_AT: u64 = 16;
/// Chunks in use.
pub(crate) const CHUNKS_AT: u64 = 24;

/// The node at which every descent begins.
pub(crate) const HEAD: u64 = 256;
pub(crate) const LOG_AT: u64 = 4096;

// 24: at p = 1/2 enough for 2^24 keys; with more keys, operations are slower. p = 1/4 takes 5 bytes less for each key,
// but inserts and descents took 15 to 20 % longer at one million keys. A further level costs a step, a further node a
// miss.
pub(crate) const HEIGHT_MAX: usize = 24;

/// The largest size of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// Level (8 bits), bytes of the key (16 bits).
pub(crate) const HEADER: u64 = 0;
pub(crate) const LOCK: u64 = 8;
pub(crate) const STATE: u64 = 16;
pub(crate) const VALUE: u64 = 24;
/// One word for each level, then the key.
pub(crate) const NEXT: u64 = 32;

/// The state of a node in the list; the state of any other node is 0.
pub(crate) const PRESENT: u64 = 1;
pub(crate) const LINKED: u64 = 2;
pub(crate) const LIVE: u64 = PRESENT | LINKED;

/// Bytes before those of a value: its length.
pub(crate) const VALUE_HEAD_BYTES: u64 = 8;

/// The content of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// The action, to be redone: the published variant.
    Redo,
    /// A copy of the overwritten bytes.
    Undo,
}

/// The header word of a node.
pub(crate) const fn header(level: usize, key_bytes: usize) -> u64 {
    level as u64 | (key_bytes as u64) << 16
}

/// Level and bytes of the key.
pub(crate) const fn level_and_key_bytes(header: u64) -> (usize, usize) {
    ((header & 0xff) as usize, (header >> 16 & 0xffff) as usize)
}

/// Lines of a node.
pub(crate) const fn node_lines(level: usize, key_bytes: usize) -> u64 {
    (NEXT + 8 * level as u64 + key_bytes.next_multiple_of(8) as u64).div_ceil(LINE_BYTES)
}

/// Lines of a value.
pub(crate) const fn value_lines(bytes: u64) -> u64 {
    (VALUE_HEAD_BYTES + bytes).div_ceil(LINE_BYTES)
}

/// Bytes of the slot of one session in the log.
pub(crate) const fn slot_bytes(log: LogKind) -> u64 {
    match log {
        // Eight entries, so that one line is not written back again and again.
        LogKind::Redo => ENTRIES * ENTRY_BYTES,
        // One entry, which holds a copy of 8 KiB.
        LogKind::Undo => 8192 + 256,
    }
}

pub(crate) const ENTRIES: u64 = 8;
/// Four words and a predecessor for each level, in whole lines.
pub(crate) const ENTRY_BYTES: u64 = (8 * (4 + HEIGHT_MAX as u64)).next_multiple_of(LINE_BYTES);

/// The offset of slot `number`.
pub(crate) fn slot_at(log: LogKind, number: usize) -> u64 {
    LOG_AT + number as u64 * slot_bytes(log)
}

/// The first words of all entries of a log for `sessions` sessions.
pub(crate) fn entries(log: LogKind, sessions: usize) -> impl Iterator<Item = u64> {
    let each = if log == LogKind::Redo { ENTRIES } else { 1 };
    (0..sessions).flat_map(move |slot| (0..each).map(move |i| slot_at(log, slot) + i * ENTRY_BYTES))
}

const _: () = assert!(HEAD + LINE_BYTES * node_lines(HEIGHT_MAX, 0) <= LOG_AT);
const _: () = assert!(HEAD.is_multiple_of(LINE_BYTES) && HEAD > CHUNKS_AT);
const _: () = assert!(slot_bytes(LogKind::Undo).is_multiple_of(LINE_BYTES));
