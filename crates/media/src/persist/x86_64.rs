//! The persist steps of x86-64 (Intel SDM volume 1 section 10.4.6.2, volume 2 `CLWB`, `CLFLUSHOPT`,
//! `MOVDIR64B`; AMD APM volume 2 section 7.3.2 for atomic 16-byte accesses).
//!
//! `clwb`, `clflushopt`, non-temporal and direct stores are ordered only by `sfence`; each of them
//! is ordered after older stores of the same thread to the same line. Instructions that have no
//! stable intrinsic are written as inline assembly without `nomem`, so the compiler neither drops
//! them nor moves a store across them.
//!
//! Invariant:
//!
//! 1. A function of this file that needs a CPU flag is called only with a `Flush`, `Wide` or promise
//!    that came from `flush_of`, `wide_of` and the like after [`missing_flag`] found the flag present. (Asserted in
//!    `Persist::checked`. Where it is used no line checks it: asking the CPU takes longer than the flush.)

use super::FlushInstruction;
use crate::LINE_BYTES;
use std::arch::asm;
use std::arch::x86_64::{
    __cpuid, __cpuid_count, __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence,
    _mm_storeu_si128, _mm_stream_si64, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256,
    _mm512_loadu_si512, _mm512_stream_si512,
};

/// An instruction that starts the write-back of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    Clwb,
    Clflushopt,
    Clflush,
}

/// Stores that bring whole lines to memory past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {
    Avx512,
    Avx2,
    Sse2,
    Movdir64b,
}

/// The flag, as /proc/cpuinfo calls it, that this CPU lacks for `step`.
pub(crate) fn missing_flag(step: FlushInstruction) -> Option<&'static str> {
    let leaf_7 = || {
        // `__cpuid` became a safe function after the oldest compiler supported here.
        #[allow(unused_unsafe)]
        // SAFETY: every x86-64 CPU has CPUID.
        let leaf_max = unsafe { __cpuid(0) }.eax;
        (leaf_max >= 7).then(|| {
            #[allow(unused_unsafe)]
            // SAFETY: as above, and leaf 7 exists.
            unsafe {
                __cpuid_count(7, 0)
            }
        })
    };
    let (flag, present) = match step {
        FlushInstruction::OrderOnly => return None,
        // CPUID leaf 7 subleaf 0: EBX bit 24, EBX bit 23, ECX bit 28.
        FlushInstruction::Clwb => ("clwb", leaf_7().is_some_and(|leaf| leaf.ebx & 1 << 24 != 0)),
        FlushInstruction::Clflushopt => ("clflushopt", leaf_7().is_some_and(|leaf| leaf.ebx & 1 << 23 != 0)),
        FlushInstruction::Movdir64b => ("movdir64b", leaf_7().is_some_and(|leaf| leaf.ecx & 1 << 28 != 0)),
        // Part of SSE2, which every x86-64 CPU has.
        FlushInstruction::Clflush => ("clflush", true),
        FlushInstruction::NonTemporalSse2 => ("sse2", true),
        FlushInstruction::NonTemporalAvx2 => ("avx2", is_x86_feature_detected!("avx2")),
        FlushInstruction::NonTemporalAvx512 => ("avx512f", is_x86_feature_detected!("avx512f")),
        FlushInstruction::DcCvap | FlushInstruction::DcCvac => ("an AArch64 CPU", false),
    };
    (!present).then_some(flag)
}

/// Why this CPU cannot be used at all, where its caches are not what `LINE_BYTES` says.
pub(crate) fn unfit() -> Option<String> {
    None
}

/// The flush that `step` is, or for steps that store whole lines, the best one for the rest.
pub(crate) fn flush_of(step: FlushInstruction) -> Option<Flush> {
    match step {
        FlushInstruction::Clwb => Some(Flush::Clwb),
        FlushInstruction::Clflushopt => Some(Flush::Clflushopt),
        FlushInstruction::Clflush => Some(Flush::Clflush),
        FlushInstruction::OrderOnly | FlushInstruction::DcCvap | FlushInstruction::DcCvac => None,
        _ => flush_of(flush_best()),
    }
}

/// Whether this CPU has `flush`.
pub(crate) fn has_flush(flush: Flush) -> bool {
    let step = match flush {
        Flush::Clwb => FlushInstruction::Clwb,
        Flush::Clflushopt => FlushInstruction::Clflushopt,
        Flush::Clflush => FlushInstruction::Clflush,
    };
    missing_flag(step).is_none()
}

/// Whether this CPU has `wide`.
pub(crate) fn has_wide(wide: Wide) -> bool {
    let step = match wide {
        Wide::Avx512 => FlushInstruction::NonTemporalAvx512,
        Wide::Avx2 => FlushInstruction::NonTemporalAvx2,
        Wide::Sse2 => FlushInstruction::NonTemporalSse2,
        Wide::Movdir64b => FlushInstruction::Movdir64b,
    };
    missing_flag(step).is_none()
}

/// The stores of whole lines that `step` is.
pub(crate) fn wide_of(step: FlushInstruction) -> Option<Wide> {
    match step {
        FlushInstruction::NonTemporalAvx512 => Some(Wide::Avx512),
        FlushInstruction::NonTemporalAvx2 => Some(Wide::Avx2),
        FlushInstruction::NonTemporalSse2 => Some(Wide::Sse2),
        FlushInstruction::Movdir64b => Some(Wide::Movdir64b),
        _ => None,
    }
}

/// The best flush of this CPU: `clwb` keeps the line for the next reader, `clflushopt` at least lets
/// several flushes overlap.
pub(crate) fn flush_best() -> FlushInstruction {
    [FlushInstruction::Clwb, FlushInstruction::Clflushopt]
        .into_iter()
        .find(|step| missing_flag(*step).is_none())
        .unwrap_or(FlushInstruction::Clflush)
}

/// The widest non-temporal store of this CPU.
pub(crate) fn wide_best() -> Option<Wide> {
    [
        FlushInstruction::NonTemporalAvx512,
        FlushInstruction::NonTemporalAvx2,
        FlushInstruction::NonTemporalSse2,
    ]
    .into_iter()
    .find(|step| missing_flag(*step).is_none())
    .and_then(wide_of)
}

/// Starts the write-back of `lines` lines from `first`.
///
/// # Safety
/// `first` is aligned to a line, all lines are mapped, and the CPU has `flush` (invariant 1).
#[inline]
pub(crate) unsafe fn flush_lines(flush: Flush, first: *const u8, lines: u64) {
    let mut line = first;
    let end = first.wrapping_add((lines * LINE_BYTES) as usize);
    match flush {
        Flush::Clwb => {
            while line != end {
                // SAFETY: a mapped line, and the CPU has `clwb` (both promised by the caller).
                unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(LINE_BYTES as usize);
            }
        }
        Flush::Clflushopt => {
            while line != end {
                // SAFETY: a mapped line, and the CPU has `clflushopt` (both promised by the caller).
                unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(LINE_BYTES as usize);
            }
        }
        Flush::Clflush => {
            while line != end {
                // SAFETY: a mapped line (promised by the caller); every x86-64 CPU has `clflush`.
                unsafe { asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(LINE_BYTES as usize);
            }
        }
    }
}

/// Copies `lines` whole lines past the cache. Other threads may be shown them only after [`drain`].
///
/// # Safety
/// `to` is aligned to a line and writable, `from` is readable, for `lines` lines, they do not
/// overlap, and the CPU has `wide` (invariant 1).
#[inline]
pub(crate) unsafe fn copy_lines(wide: Wide, to: *mut u8, from: *const u8, lines: u64) {
    let bytes = (lines * LINE_BYTES) as usize;
    match wide {
        // SAFETY: everything the callee asks for is promised by the caller, in this and the others.
        Wide::Avx512 => unsafe { copy_avx512(to, from, bytes) },
        // SAFETY: as above.
        Wide::Avx2 => unsafe { copy_avx2(to, from, bytes) },
        // SAFETY: as above.
        Wide::Sse2 => unsafe { copy_sse2(to, from, bytes) },
        // SAFETY: as above.
        Wide::Movdir64b => unsafe { copy_movdir64b(to, from, bytes) },
    }
}

/// Whether there is [`store_word_past_cache`].
pub(crate) const HAS_WORDS_PAST_CACHE: bool = true;

/// Stores one word past the cache. Other threads may be shown it only after [`drain`].
///
/// # Safety
/// 8 writable bytes at `to`, aligned to 8.
#[inline]
pub(crate) unsafe fn store_word_past_cache(to: *mut u8, word: [u8; 8]) {
    // SAFETY: aligned and writable (promised by the caller); every x86-64 CPU has SSE2.
    unsafe { _mm_stream_si64(to.cast(), i64::from_le_bytes(word)) };
}

#[target_feature(enable = "avx512f")]
unsafe fn copy_avx512(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(64) {
        // SAFETY: 64 readable bytes, unaligned (promised to `copy_lines`).
        let line = unsafe { _mm512_loadu_si512(from.wrapping_add(at).cast()) };
        // SAFETY: 64 writable bytes, aligned to 64 (promised to `copy_lines`).
        unsafe { _mm512_stream_si512(to.wrapping_add(at).cast(), line) };
    }
}

#[target_feature(enable = "avx2")]
unsafe fn copy_avx2(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(32) {
        // SAFETY: 32 readable bytes, unaligned (promised to `copy_lines`).
        let half = unsafe { _mm256_loadu_si256(from.wrapping_add(at).cast()) };
        // SAFETY: 32 writable bytes, aligned to 32 (promised to `copy_lines`).
        unsafe { _mm256_stream_si256(to.wrapping_add(at).cast(), half) };
    }
}

unsafe fn copy_sse2(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(16) {
        // SAFETY: 16 readable bytes, unaligned (promised to `copy_lines`).
        let quarter = unsafe { _mm_loadu_si128(from.wrapping_add(at).cast()) };
        // SAFETY: 16 writable bytes, aligned to 16 (promised to `copy_lines`).
        unsafe { _mm_stream_si128(to.wrapping_add(at).cast(), quarter) };
    }
}

unsafe fn copy_movdir64b(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(64) {
        // SAFETY: 64 readable bytes, and 64 writable ones aligned to 64 (promised to `copy_lines`).
        unsafe { movdir64b(to.wrapping_add(at), from.wrapping_add(at)) };
    }
}

/// # Safety
/// 64 readable bytes at `from`, 64 writable ones at `to`, aligned to 64, and a CPU with `movdir64b`.
#[inline]
unsafe fn movdir64b(to: *mut u8, from: *const u8) {
    // SAFETY: all promised by the caller.
    unsafe { asm!("movdir64b {}, [{}]", in(reg) to, in(reg) from, options(nostack, preserves_flags)) };
}

/// Completes this thread's earlier flushes and stores past the cache, and orders them before every
/// later store.
#[inline]
pub(crate) fn drain() {
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        _mm_sfence();
    }
}

/// Hints that the line at `pointer` is read soon. Any address may be given.
#[inline]
pub fn prefetch(pointer: *const u8) {
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has SSE, and a prefetch never faults.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(pointer.cast());
    }
}

/// Hints that the line at `pointer` is stored to soon. Any address may be given.
#[inline]
pub(crate) fn prefetch_for_store(pointer: *const u8) {
    // SAFETY: a prefetch never faults, and CPUs that lack this one do nothing.
    unsafe { asm!("prefetchw [{}]", in(reg) pointer, options(readonly, nostack, preserves_flags)) };
}

/// Whether aligned 16-byte vector accesses are atomic: Intel and AMD both promise it for CPUs with
/// AVX.
pub(crate) fn has_atomic_16() -> bool {
    is_x86_feature_detected!("avx")
}

/// Whether aligned 64-byte stores are atomic.
pub(crate) fn has_atomic_64() -> bool {
    missing_flag(FlushInstruction::Movdir64b).is_none()
}

/// One atomic 16-byte store. Release: x86-64 keeps stores in order.
///
/// # Safety
/// 16 writable bytes at `to`, aligned to 16, on a CPU with [`has_atomic_16`].
#[inline]
pub(crate) unsafe fn store_16(to: *mut u8, bytes: &[u8; 16]) {
    // SAFETY: an array has 16 readable bytes.
    let value: __m128i = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    // Assembly, so that the compiler cannot split the store.
    // SAFETY: aligned and writable (promised by the caller).
    unsafe {
        asm!("movdqa [{}], {}", in(reg) to, in(xmm_reg) value, options(nostack, preserves_flags));
    }
}

/// One atomic 16-byte load. Acquire: x86-64 keeps loads in order.
///
/// # Safety
/// 16 readable bytes at `from`, aligned to 16, on a CPU with [`has_atomic_16`].
#[inline]
pub(crate) unsafe fn load_16(from: *const u8, bytes: &mut [u8; 16]) {
    let value: __m128i;
    // SAFETY: aligned and readable (promised by the caller).
    unsafe {
        asm!("movdqa {}, [{}]", out(xmm_reg) value, in(reg) from, options(nostack, preserves_flags));
    }
    // SAFETY: an array has 16 writable bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), value) };
}

/// One atomic 64-byte store. Release: earlier stores are fenced off, since a direct store may
/// overtake them.
///
/// # Safety
/// 64 writable bytes at `to`, aligned to 64, on a CPU with [`has_atomic_64`].
#[inline]
pub(crate) unsafe fn store_64(to: *mut u8, bytes: &[u8; 64]) {
    drain();
    // SAFETY: promised by the caller; an array has 64 readable bytes.
    unsafe { movdir64b(to, bytes.as_ptr()) };
}
