//! The persist steps of AArch64 (Arm Architecture Reference Manual: data cache maintenance
//! instructions, atomicity in the memory model; FEAT_DPB, FEAT_LSE2).
//!
//! `dc cvap` cleans a line to the point of persistence, and `dc cvac` to the point of coherency, which is as far on
//! machines without FEAT_DPB. Both are complete after a `dsb`. The barrier is for the whole system, as in Linux after
//! `dc cvap`: the point of persistence lies outside the inner domain.
//!
//! Invariant:
//!
//! 1. A function of this file that needs a CPU flag is called only with a `Flush` or promise
//!    that was made after [`missing_flag`] found the flag present. (Asserted in `Persist::checked`. Where it is used
//!    no line checks it: asking the CPU takes longer than the flush.)

use super::FlushInstruction;
use crate::LINE_BYTES;
use std::arch::asm;
use std::arch::is_aarch64_feature_detected;

/// An instruction that starts the write-back of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    Cvap,
    Cvac,
}

/// Stores that bring whole lines to memory past the cache: AArch64 has none that promise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {}

/// The flag, as /proc/cpuinfo calls it, that this CPU lacks for `step`.
pub(crate) fn missing_flag(step: FlushInstruction) -> Option<&'static str> {
    match step {
        FlushInstruction::OrderOnly | FlushInstruction::DcCvac => None,
        FlushInstruction::DcCvap => (!is_aarch64_feature_detected!("dpb")).then_some("dcpop"),
        _ => Some("an x86-64 CPU"),
    }
}

/// Why this CPU cannot be used at all, where its caches are not what `LINE_BYTES` says.
pub(crate) fn unfit() -> Option<String> {
    let ctr: u64;
    // SAFETY: Linux lets programs read CTR_EL0, or reads it for them.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    // DminLine, bits 16 to 19: log2 of the words of 4 bytes in the smallest line.
    let line_bytes = 4u64 << (ctr >> 16 & 0xf);
    (line_bytes < LINE_BYTES)
        .then(|| format!("cache lines of {line_bytes} bytes, wanted {LINE_BYTES} or more"))
}

/// The flush that `step` is.
pub(crate) fn flush_of(step: FlushInstruction) -> Option<Flush> {
    match step {
        FlushInstruction::DcCvap => Some(Flush::Cvap),
        FlushInstruction::DcCvac => Some(Flush::Cvac),
        _ => None,
    }
}

/// Whether this CPU has `flush`.
pub(crate) fn has_flush(flush: Flush) -> bool {
    let step = match flush {
        Flush::Cvap => FlushInstruction::DcCvap,
        Flush::Cvac => FlushInstruction::DcCvac,
    };
    missing_flag(step).is_none()
}

/// Never called: there is no `Wide` to call it with.
pub(crate) fn has_wide(wide: Wide) -> bool {
    match wide {}
}

/// The stores of whole lines that `step` is: none here.
pub(crate) fn wide_of(_step: FlushInstruction) -> Option<Wide> {
    None
}

/// The best flush of this CPU.
pub(crate) fn flush_best() -> FlushInstruction {
    if missing_flag(FlushInstruction::DcCvap).is_none() {
        FlushInstruction::DcCvap
    } else {
        FlushInstruction::DcCvac
    }
}

/// The widest store of whole lines of this CPU: none.
pub(crate) fn wide_best() -> Option<Wide> {
    None
}

/// Starts the write-back of `lines` lines from `first`.
///
/// # Safety
/// All lines are mapped, and the CPU has `flush` (invariant 1).
#[inline]
pub(crate) unsafe fn flush_lines(flush: Flush, first: *const u8, lines: u64) {
    for index in 0..lines {
        let line = first.wrapping_add((index * LINE_BYTES) as usize);
        match flush {
            // `sys #3, c7, c12, #1` is `dc cvap`, which assemblers know only with FEAT_DPB switched on.
            // SAFETY: a mapped line, and the CPU has `dc cvap` (both promised by the caller).
            Flush::Cvap => unsafe {
                asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: a mapped line (promised by the caller); Linux lets programs clean lines.
            Flush::Cvac => unsafe {
                asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags));
            },
        }
    }
}

/// Never called: there is no `Wide` to call it with.
///
/// # Safety
/// None is needed.
#[inline]
pub(crate) unsafe fn copy_lines(wide: Wide, _to: *mut u8, _from: *const u8, _lines: u64) {
    match wide {}
}

/// There are no stores past the cache.
pub(crate) const HAS_WORDS_PAST_CACHE: bool = false;

/// An ordinary store of a word. Never called: see [`HAS_WORDS_PAST_CACHE`].
///
/// # Safety
/// 8 writable bytes at `to`.
#[inline]
pub(crate) unsafe fn store_word_past_cache(to: *mut u8, word: [u8; 8]) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(word.as_ptr(), to, word.len()) };
}

/// Completes this thread's earlier flushes, and orders them before everything later.
#[inline]
pub(crate) fn drain() {
    // SAFETY: a barrier changes nothing.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Hints that the line at `pointer` is read soon. Any address may be given.
#[inline]
pub fn prefetch(pointer: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) pointer, options(readonly, nostack, preserves_flags)) };
}

/// Hints that the line at `pointer` is stored to soon. Any address may be given.
#[inline]
pub(crate) fn prefetch_for_store(pointer: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe { asm!("prfm pstl1keep, [{}]", in(reg) pointer, options(readonly, nostack, preserves_flags)) };
}

/// Whether aligned 16-byte pairs are loaded and stored atomically.
pub(crate) fn has_atomic_16() -> bool {
    is_aarch64_feature_detected!("lse2")
}

/// Whether aligned 64-byte stores are atomic: not to ordinary memory.
pub(crate) fn has_atomic_64() -> bool {
    false
}

/// One atomic 16-byte store (release).
///
/// # Safety
/// 16 writable bytes at `to`, aligned to 16, on a CPU with [`has_atomic_16`].
#[inline]
pub(crate) unsafe fn store_16(to: *mut u8, bytes: &[u8; 16]) {
    let both = u128::from_le_bytes(*bytes);
    let (low, high) = (both as u64, (both >> 64) as u64);
    // SAFETY: aligned and writable (promised by the caller).
    unsafe {
        asm!(
            "dmb ish",
            "stp {low}, {high}, [{to}]",
            low = in(reg) low,
            high = in(reg) high,
            to = in(reg) to,
            options(nostack, preserves_flags)
        );
    }
}

/// One atomic 16-byte load (acquire).
///
/// # Safety
/// 16 readable bytes at `from`, aligned to 16, on a CPU with [`has_atomic_16`].
#[inline]
pub(crate) unsafe fn load_16(from: *const u8, bytes: &mut [u8; 16]) {
    let (low, high): (u64, u64);
    // SAFETY: aligned and readable (promised by the caller).
    unsafe {
        asm!(
            "ldp {low}, {high}, [{from}]",
            "dmb ishld",
            low = out(reg) low,
            high = out(reg) high,
            from = in(reg) from,
            options(nostack, preserves_flags)
        );
    }
    *bytes = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
}

/// Never called, since [`has_atomic_64`] is false.
///
/// # Safety
/// As of `ptr::copy_nonoverlapping`.
#[inline]
pub(crate) unsafe fn store_64(to: *mut u8, bytes: &[u8; 64]) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}
