//! Texts that live until the end of a batch, and prepared functions of texts with their last results.
//!
//! "Invariant 3" is the one in [`super::machine`].

use crate::error::Error;
use crate::expr::Expr;
use crate::function::{Answer, Prepared};
use crate::memory::headroom;
use crate::types::time::Pattern;

/// A function of a text whose other arguments are constants, and its last result in this batch.
#[derive(Debug)]
pub struct PreparedSlot {
    /// The call, with a column for the text.
    pub expr: Expr,
    function: Prepared,
    /// Address and length of the text.
    last: [usize; 2],
    answer: Answered,
}

/// The result of a function, as words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered {
    /// Whether it is NULL.
    pub null: bool,
    /// Whether it failed: then the error is in the machine.
    pub failed: bool,
    /// The value, or address and length of a text.
    pub words: [u64; 2],
}

/// The length of no text: the function was not called yet.
const UNASKED: [usize; 2] = [0, usize::MAX];

impl PreparedSlot {
    /// A function that was not called yet.
    pub fn new(expr: Expr, function: Prepared) -> PreparedSlot {
        PreparedSlot { expr, function, last: UNASKED, answer: Answered::default() }
    }
}

/// A timestamp formatted by a constant pattern: the last text made, for all timestamps with the same text.
#[derive(Debug)]
#[repr(C)]
pub struct FormatSlot {
    /// The first timestamp with this text.
    pub from: i64,
    /// The end of these timestamps, exclusive.
    pub to: i64,
    /// Address of the text, which lies in the arena.
    pub text: usize,
    /// Its length.
    pub bytes: usize,
    pattern: Pattern,
}

impl FormatSlot {
    /// A slot without a text.
    pub fn new(pattern: Pattern) -> FormatSlot {
        FormatSlot { from: 0, to: 0, text: 0, bytes: 0, pattern }
    }
}

/// The text at an address and length that compiled code passes.
pub(super) fn text_at<'t>(address: u64, bytes: u64) -> &'t [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: compiled code gives the address and length of a text that lives until the batch's end (invariant 3); the
    // slice is used before the function that was given it returns.
    unsafe { std::slice::from_raw_parts(address as usize as *const u8, bytes as usize) }
}

/// Texts that are kept until the end of a batch.
#[derive(Debug, Default)]
struct Arena(Vec<Vec<u8>>);

impl Arena {
    /// Keeps bytes; returns their address.
    fn keep(&mut self, bytes: &[u8]) -> u64 {
        // 64 KiB: the texts of some batches, in few pieces.
        const CHUNK: usize = 1 << 16;
        if self.0.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < bytes.len()) {
            let chunk = headroom::with_capacity(bytes.len().max(CHUNK));
            self.0.push(chunk.unwrap_or_else(|error| headroom::give_up(error)));
        }
        let Some(chunk) = self.0.last_mut() else { return 0 };
        let place = chunk.len();
        // Within the capacity, so the chunk does not move.
        chunk.extend_from_slice(bytes);
        chunk[place..].as_ptr() as u64
    }

    fn clear(&mut self) {
        self.0.truncate(1);
        self.0.iter_mut().for_each(Vec::clear);
    }
}

/// Prepared functions of texts, and the texts that they make.
#[derive(Debug)]
pub struct Texts {
    /// Calls of functions that are prepared.
    pub prepared: Vec<PreparedSlot>,
    /// Formatted timestamps.
    #[expect(clippy::vec_box, reason = "code has their addresses")]
    pub formats: Vec<Box<FormatSlot>>,
    arena: Arena,
    /// Where a prepared function writes its text.
    made: String,
    /// Address and length of the text last checked to be UTF-8.
    valid: [usize; 2],
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            prepared: Vec::new(),
            formats: Vec::new(),
            arena: Arena::default(),
            made: String::new(),
            valid: UNASKED,
        }
    }
}

impl Texts {
    /// Keeps bytes until the end of the batch; returns their address.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> u64 {
        self.arena.keep(bytes)
    }

    /// The result of a prepared function for a text. Bytes that are not UTF-8 are replaced as the interpreter replaces
    /// them.
    pub(super) fn ask(&mut self, number: usize, text: [usize; 2], error: &mut Option<Error>) -> Answered {
        let Texts { prepared, arena, made, valid, .. } = self;
        let slot = &mut prepared[number];
        // Nothing overwrites a text within a batch (invariant 3), so the same place has the same text.
        if slot.last == text {
            return slot.answer;
        }
        made.clear();
        let bytes = text_at(text[0] as u64, text[1] as u64);
        let whole = if *valid == text {
            // SAFETY: the same bytes were checked to be UTF-8 before in this batch, within which nothing overwrites a
            // text (invariant 3).
            Ok(unsafe { std::str::from_utf8_unchecked(bytes) })
        } else {
            std::str::from_utf8(bytes)
        };
        let answer = match whole {
            Ok(whole) => slot.function.answer(whole, made),
            Err(_) => {
                // The lossy copy does not outlive this block, so a part of it is copied.
                let whole = String::from_utf8_lossy(bytes);
                match slot.function.answer(&whole, made) {
                    Answer::Part(part) => {
                        made.push_str(part);
                        Answer::Made
                    }
                    Answer::Null => Answer::Null,
                    Answer::Int(value) => Answer::Int(value),
                    Answer::Boolean(value) => Answer::Boolean(value),
                    Answer::Made => Answer::Made,
                    Answer::Failed(error) => Answer::Failed(error),
                }
            }
        };
        let null = answer == Answer::Null;
        let words = match answer {
            Answer::Failed(why) => {
                *error = Some(why);
                return Answered { failed: true, ..Answered::default() };
            }
            Answer::Null => [0; 2],
            Answer::Int(value) => [value as u64, 0],
            Answer::Boolean(value) => [u64::from(value), 0],
            Answer::Part(part) => [part.as_ptr() as u64, part.len() as u64],
            Answer::Made => [arena.keep(made.as_bytes()), made.len() as u64],
        };
        *valid = if whole.is_ok() { text } else { UNASKED };
        slot.answer = Answered { null, failed: false, words };
        slot.last = text;
        slot.answer
    }

    /// Stores the text of a timestamp as the last one of its slot.
    pub(super) fn format(&mut self, number: usize, moment: i64) {
        let Texts { formats, arena, made, .. } = self;
        let slot = &mut formats[number];
        let unit = slot.pattern.unit();
        slot.from = moment.saturating_sub(moment.rem_euclid(unit));
        slot.to = slot.from.saturating_add(unit);
        made.clear();
        slot.pattern.write(moment, made);
        (slot.text, slot.bytes) = (arena.keep(made.as_bytes()) as usize, made.len());
    }

    /// Ends a batch: frees its texts and forgets the last results.
    pub(super) fn forget(&mut self) {
        self.arena.clear();
        self.valid = UNASKED;
        self.prepared.iter_mut().for_each(|slot| slot.last = UNASKED);
        for slot in &mut self.formats {
            (slot.from, slot.to) = (0, 0);
        }
    }
}
