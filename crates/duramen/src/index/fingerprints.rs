//! All fingerprints of a bucket compared at once.
//!
//! Slot by slot, the branch that finds the right one depends on the line just fetched from memory: the CPU
//! guesses it wrong at almost every lookup, and what it had begun of the next lookups is lost. Compared at once, the
//! number of the right slot is data, not a branch, and the cache misses of neighbouring lookups overlap.
//!
//! The result is a hint about which slots to load: whoever uses it loads the slot again and compares it there.

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
use super::FINGERPRINT_SHIFT;
use super::hash::BUCKET_SLOTS;
use crate::sync::atomic::AtomicU64;

/// The slots, as bits, whose word equals `want` in the bits of `mask`, both of which have bits in the high half only.
/// Each slot is as it was at some moment during the call.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline]
pub(super) fn matching(slots: &[AtomicU64; BUCKET_SLOTS], want: u64, mask: u64) -> u32 {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { matching_sse2(slots, want, mask) }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline]
#[target_feature(enable = "sse2")]
fn matching_sse2(slots: &[AtomicU64; BUCKET_SLOTS], want: u64, mask: u64) -> u32 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_setzero_si128, _mm_shuffle_ps, _mm_xor_si128,
    };
    const _: () = assert!(BUCKET_SLOTS == 8 && FINGERPRINT_SHIFT >= 32);
    let [a, b, c, d]: [__m128i; 4];
    // In assembly, since others store to the slots meanwhile: one load each, whose halves the CPU reads whole.
    // SAFETY: 64 readable bytes, aligned to 16 since a bucket is one line.
    unsafe {
        asm!(
            "movdqa {a}, [{slots}]",
            "movdqa {b}, [{slots} + 16]",
            "movdqa {c}, [{slots} + 32]",
            "movdqa {d}, [{slots} + 48]",
            slots = in(reg) slots,
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            options(nostack, preserves_flags, readonly)
        );
    }
    let want = _mm_set1_epi32((want >> 32) as i32);
    let mask = _mm_set1_epi32((mask >> 32) as i32);
    // The high halves of four slots in one register.
    let [ab, cd] = [(a, b), (c, d)]
        .map(|(x, y)| _mm_castps_si128(_mm_shuffle_ps::<0xDD>(_mm_castsi128_ps(x), _mm_castsi128_ps(y))));
    let zero = _mm_setzero_si128();
    let [ab, cd] = [ab, cd].map(|x| _mm_cmpeq_epi32(_mm_and_si128(_mm_xor_si128(x, want), mask), zero));
    _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(ab, cd), zero)) as u32
}

/// The slots, as bits, whose word equals `want` in the bits of `mask`. Each slot is as it was at some moment
/// during the call.
#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
#[inline]
pub(super) fn matching(slots: &[AtomicU64; BUCKET_SLOTS], want: u64, mask: u64) -> u32 {
    use crate::sync::atomic::Ordering::Relaxed;
    (0..BUCKET_SLOTS).fold(0, |found, i| found | u32::from((slots[i].load(Relaxed) ^ want) & mask == 0) << i)
}
