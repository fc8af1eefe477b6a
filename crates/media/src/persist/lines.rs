//! Scattered parts to whole lines: what the wide stores of a CPU can take.
//!
//! A record is written as parts (header, key, value). Its first and last line are usually shared with neighbours; the
//! lines between are whole, and go to memory past the cache. A line that several parts share is first assembled on the
//! stack. Whole aligned words of the first and the last line also go past the cache where the CPU has such stores of
//! one word; other bytes are stored one by one and flushed.
//!
//! Invariants:
//!
//! 1. Exactly the bytes of the parts are stored; a line is stored whole only if the parts cover it.
//! 2. Every line touched has been flushed or stored past the cache when the function returns.

use super::arch::{self, Flush, Wide};
use crate::{LINE_BYTES, lines_of};

const LINE: usize = LINE_BYTES as usize;
const WORD: usize = 8;

// 512: storing eight lines past the cache takes about as long as the miss to be hidden. Measured as in
// `super`: 1 KiB 270 -> 252 ns, 2 KiB 346 -> 312, 4 KiB 407 -> 306, but 136 bytes 229 -> 275.
const TAIL_PREFETCH_FROM: usize = 512;

/// Stores `parts` one after the other from `to`.
///
/// # Safety
/// `to` is writable for all parts together, and overlaps none of them.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, parts: &[&[u8]]) {
    let mut to = to;
    for part in parts {
        // SAFETY: room for all parts, without overlap (promised by the caller).
        unsafe { copy(part.as_ptr(), to, part.len()) };
        to = to.wrapping_add(part.len());
    }
}

/// Copies `bytes` bytes. Headers and keys are short, and then calling a function costs more than to copy them does.
///
/// By words, since a header was stored so just before: a wider load would wait until all stores before have left the CPU.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let ends: &[usize] = match bytes {
        0 => &[],
        8..=16 => &[0, bytes - WORD],
        17..=32 => &[0, WORD, bytes - 2 * WORD, bytes - WORD],
        _ => {
            // SAFETY: promised by the caller.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            return;
        }
    };
    for &at in ends {
        // SAFETY: a word at `at` lies within the bytes (promised by the caller).
        let word = unsafe { from.wrapping_add(at).cast::<u64>().read_unaligned() };
        // SAFETY: the same.
        unsafe { to.wrapping_add(at).cast::<u64>().write_unaligned(word) };
    }
}

/// Flushes the lines of `bytes` bytes from `at`.
///
/// # Safety
/// The range is mapped, and the CPU has `flush`.
#[inline]
pub(crate) unsafe fn flush(flush: Flush, at: *const u8, bytes: u64) {
    let lines = lines_of(at as u64, bytes);
    debug_assert!(
        bytes == 0 || lines.start <= at as u64 && at as u64 + bytes <= lines.end,
        "the lines {lines:#x?} hold all {bytes} bytes at {at:?} (invariant 2)"
    );
    let first = at.wrapping_sub((at as u64 - lines.start) as usize);
    // SAFETY: lines of a mapped range are mapped, since a page is a multiple of a line; `lines_of`
    // aligned them; the CPU has `flush` (promised by the caller).
    unsafe { arch::flush_lines(flush, first, (lines.end - lines.start) / LINE_BYTES) };
}

/// Stores `parts`, `total` bytes together, from `to`: whole lines by `wide`, the rest by stores and
/// `flush`.
///
/// If the first and the last line are flushed, it is at the end, so that their write-back does not delay the stores between. The
/// last line, which is usually not in the cache, is prefetched at the beginning.
///
/// # Safety
/// As [`store`], and the CPU has `wide` and `flush`.
pub(crate) unsafe fn write_wide(wide: Wide, flush: Flush, to: *mut u8, parts: &[&[u8]], total: usize) {
    let mut cursor = Cursor { parts, at: 0 };
    let head = ((to as usize).wrapping_neg() % LINE).min(total);
    let tail = (total - head) % LINE;
    let mut middle = to.wrapping_add(head);
    let middle_end = to.wrapping_add(total - tail);
    let words = are_words(to, total);
    debug_assert!(
        head + tail <= total && (middle == middle_end || (middle as usize).is_multiple_of(LINE)),
        "a line that is stored whole has all its bytes in the parts (invariant 1)"
    );
    if tail > 0 && total >= TAIL_PREFETCH_FROM && !words {
        arch::prefetch_for_store(middle_end);
    }

    // SAFETY: `head` is at most `total`, for which there is room (promised by the caller).
    unsafe { store_some(&mut cursor, to, head, words) };
    while middle != middle_end {
        let left = middle_end as usize - middle as usize;
        let run = cursor.run();
        let whole = run.len().min(left) / LINE * LINE;
        if whole > 0 {
            // SAFETY: `middle` is aligned and has room for `left` bytes; `run` has `whole` ones.
            unsafe { arch::copy_lines(wide, middle, run.as_ptr(), whole as u64 / LINE_BYTES) };
            cursor.skip(whole);
            middle = middle.wrapping_add(whole);
        } else {
            let mut line = [0u8; LINE];
            cursor.take(&mut line);
            // SAFETY: `middle` is aligned and has room for `left` bytes, which is at least one line.
            unsafe { arch::copy_lines(wide, middle, line.as_ptr(), 1) };
            middle = middle.wrapping_add(LINE);
        }
    }
    // SAFETY: the last `tail` bytes of `total`.
    unsafe { store_some(&mut cursor, middle_end, tail, words) };

    debug_assert!(cursor.run().is_empty(), "all parts are stored (invariant 1)");
    if words {
        debug_assert!(head.is_multiple_of(WORD) && tail.is_multiple_of(WORD), "past the cache (invariant 2)");
        return;
    }
    // SAFETY: what was just stored to; the CPU has `flush` (promised by the caller).
    unsafe { self::flush(flush, to, head as u64) };
    // SAFETY: as above.
    unsafe { self::flush(flush, middle_end, tail as u64) };
}

/// Whether this CPU can store the range past the cache whatever lines it begins and ends in.
#[inline]
pub(crate) fn are_words(to: *const u8, total: usize) -> bool {
    arch::HAS_WORDS_PAST_CACHE && (to as usize | total).is_multiple_of(WORD)
}

/// Stores the next `bytes` bytes, less than a line; by aligned words past the cache where these are `words`.
///
/// # Safety
/// As [`store`], for `bytes` bytes.
#[inline]
unsafe fn store_some(cursor: &mut Cursor<'_>, to: *mut u8, bytes: usize, words: bool) {
    let mut line = [0u8; LINE];
    let some = line.get_mut(..bytes).unwrap_or_default();
    cursor.take(some);
    if words {
        for (i, word) in some.as_chunks().0.iter().enumerate() {
            // SAFETY: aligned, since `to` is, and within the room for `bytes` bytes (promised by the caller).
            unsafe { arch::store_word_past_cache(to.wrapping_add(i * WORD), *word) };
        }
        return;
    }
    // SAFETY: room for `bytes` bytes (promised by the caller), and the stack is not on the medium.
    unsafe { std::ptr::copy_nonoverlapping(some.as_ptr(), to, some.len()) };
}

/// A place in a sequence of parts.
struct Cursor<'a> {
    /// The parts from the current one on.
    parts: &'a [&'a [u8]],
    /// Bytes of the current part that are already taken.
    at: usize,
}

impl Cursor<'_> {
    /// The bytes ahead that lie together: empty only at the end.
    fn run(&mut self) -> &[u8] {
        while let Some((part, rest)) = self.parts.split_first() {
            match part.get(self.at..) {
                Some(run) if !run.is_empty() => return run,
                _ => {
                    self.parts = rest;
                    self.at = 0;
                }
            }
        }
        &[]
    }

    /// Goes `bytes` further, inside the current run.
    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Fills `out` with the next bytes, of which there are enough, and moves past them.
    fn take(&mut self, out: &mut [u8]) {
        let mut out = out;
        while !out.is_empty() {
            let run = self.run();
            let count = run.len().min(out.len());
            assert!(count > 0, "parts end {} bytes before their total", out.len());
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(run.split_at(count).0);
            self.skip(count);
            out = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_gives_all_bytes_in_order(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..6),
            pieces in prop::collection::vec(1usize..70, 1..40),
        ) {
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let whole = parts.concat();
            let mut cursor = Cursor { parts: &slices, at: 0 };
            let mut at = 0;
            for piece in pieces {
                let bytes = piece.min(whole.len() - at);
                let mut out = vec![0; bytes];
                cursor.take(&mut out);
                prop_assert_eq!(&out[..], &whole[at..at + bytes]);
                at += bytes;
            }
        }
    }
}
