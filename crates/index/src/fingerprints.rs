//! Compares all fingerprints of a bucket at once.
//!
//! Slot by slot, the branch that finds the right one depends on the line just fetched from memory. The CPU mispredicts
//! it at almost every lookup, and discards the work begun for the next lookups. Compared at once, the number of the
//! right slot is data, not a branch, and the cache misses of neighbouring lookups overlap.
//!
//! A match is a hint about which slots to load: the caller loads the slot again and compares it there.

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
use super::FINGERPRINT_SHIFT;
use duramen_log::sync::atomic::AtomicU64;

// In a model of `crate::models` a handful of keys must fill a segment.
pub(super) const BUCKET_SLOTS: usize = if cfg!(loom) { 2 } else { 8 };
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
use std::arch::{
    asm,
    x86_64::{
        __m128i, _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_setzero_si128, _mm_shuffle_ps, _mm_xor_si128,
    },
};

/// The high halves of the words of a bucket, each as it was at some moment of [`High::of`].
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[derive(Clone, Copy)]
pub(super) struct High([__m128i; 2]);

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
impl High {
    #[inline]
    pub(super) fn of(slots: &[AtomicU64; BUCKET_SLOTS]) -> Self {
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
        // SAFETY: every x86-64 CPU has SSE2.
        Self([unsafe { halves(a, b) }, unsafe { halves(c, d) }])
    }

    /// The slots, as bits, whose word equals `want` in the bits of `mask`; both have bits in the high half only.
    #[inline]
    pub(super) fn matching(self, want: u64, mask: u64) -> u32 {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe { matching(self.0, (want >> 32) as i32, (mask >> 32) as i32) }
    }
}

/// The high halves of the words in two registers.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline]
#[target_feature(enable = "sse2")]
fn halves(first: __m128i, second: __m128i) -> __m128i {
    _mm_castps_si128(_mm_shuffle_ps::<0xDD>(_mm_castsi128_ps(first), _mm_castsi128_ps(second)))
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline]
#[target_feature(enable = "sse2")]
fn matching(high: [__m128i; 2], want: i32, mask: i32) -> u32 {
    let (want, mask, zero) = (_mm_set1_epi32(want), _mm_set1_epi32(mask), _mm_setzero_si128());
    let [ab, cd] = high.map(|x| _mm_cmpeq_epi32(_mm_and_si128(_mm_xor_si128(x, want), mask), zero));
    _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(ab, cd), zero)) as u32
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
#[derive(Clone, Copy)]
pub(super) struct High([u64; BUCKET_SLOTS]);

#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
impl High {
    #[inline]
    pub(super) fn of(slots: &[AtomicU64; BUCKET_SLOTS]) -> Self {
        Self(std::array::from_fn(|i| slots[i].load(duramen_log::sync::atomic::Ordering::Relaxed)))
    }

    /// The slots, as bits, whose word equals `want` in the bits of `mask`; both have bits in the high half only.
    #[inline]
    pub(super) fn matching(self, want: u64, mask: u64) -> u32 {
        (0..BUCKET_SLOTS).fold(0, |found, i| found | u32::from((self.0[i] ^ want) & mask == 0) << i)
    }
}
