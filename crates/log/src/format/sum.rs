//! CRC-32C of short pieces at any address, such as keys and values: some 200 bytes in half the time of an
//! implementation made for long aligned ranges.
//!
//! Each step of the CPU's instruction waits three cycles for the one before. So pieces are not aligned byte by byte
//! first, and a range of 104 bytes or more is summed in three lanes at once. The sums of the first two lanes are then
//! moved past the bytes that follow them, by a multiplication of polynomials (PCLMULQDQ), whose product goes through
//! the last step of the third lane. (Gopal and others, "Fast CRC computation for iSCSI polynomial using CRC32
//! instruction", Intel 2011.)

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the CPU was asked, and has the instructions used here. A separate flag: a lazily initialized one would keep
/// registers in each sum for the case that it is not initialized yet.
#[cfg(all(target_arch = "x86_64", not(miri)))]
static HAS_STEPS: AtomicBool = AtomicBool::new(false);

/// Continues a CRC-32C over `bytes`, like [`crc32c::crc32c_append`].
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if HAS_STEPS.load(Relaxed) {
        // SAFETY: the CPU has the instructions.
        return unsafe { by_cpu(crc, bytes) };
    }
    ask(crc, bytes)
}

/// Continues over the bytes of `first`, `words` and `last`, little-endian as everywhere on the medium. For values in
/// registers: summing bytes that were just stored in smaller pieces waits until all of them have left the CPU.
#[inline]
pub fn append_words(crc: u32, first: u32, words: [u64; 2], last: [Option<u64>; 2]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if HAS_STEPS.load(Relaxed) {
        // SAFETY: the CPU has the instructions.
        return unsafe { words_by_cpu(crc, first, words, last) };
    }
    let crc = ask(crc, &first.to_le_bytes());
    words.into_iter().chain(last.into_iter().flatten()).fold(crc, |crc, word| ask(crc, &word.to_le_bytes()))
}

/// Continues over the 8 bytes of `word`.
#[inline]
pub fn append_word(crc: u32, word: u64) -> u32 {
    append(crc, &word.to_le_bytes())
}

/// Continues over the 4 bytes of another checksum.
#[inline]
pub fn append_check(crc: u32, check: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if HAS_STEPS.load(Relaxed) {
        // SAFETY: the CPU has the instructions.
        return unsafe { check_by_cpu(crc, check) };
    }
    ask(crc, &check.to_le_bytes())
}

/// Checks once which instructions the CPU has.
#[cold]
fn ask(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    HAS_STEPS.store(is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq"), Relaxed);
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "sse4.2")]
fn check_by_cpu(crc: u32, check: u32) -> u32 {
    !std::arch::x86_64::_mm_crc32_u32(!crc, check)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "sse4.2")]
fn words_by_cpu(crc: u32, first: u32, words: [u64; 2], last: [Option<u64>; 2]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};

    let crc = u64::from(_mm_crc32_u32(!crc, first));
    let crc = _mm_crc32_u64(_mm_crc32_u64(crc, words[0]), words[1]);
    let crc = last[0].map_or(crc, |last| _mm_crc32_u64(crc, last));
    !last[1].map_or(crc, |last| _mm_crc32_u64(crc, last)) as u32
}

/// Bytes of one lane, for ranges of two lengths.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LANES: [usize; 2] = [64, 32];

/// Beyond this, longer lanes than these pay off.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BYTES_MAX: usize = 2048;

/// x^`n` modulo the polynomial, the highest power in the lowest bit as everywhere here.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const fn power(n: usize) -> u64 {
    let mut word: u32 = 1 << 31;
    let mut i = 0;
    while i < n {
        // 0x1EDC6F41, reflected.
        word = word >> 1 ^ if word & 1 != 0 { 0x82F6_3B78 } else { 0 };
        i += 1;
    }
    word as u64
}

/// The factor that moves a sum past `bytes` more bytes. 33: the product of two reflected words is shifted by one bit,
/// and the instruction that it goes through multiplies by x^32 itself.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const fn behind(bytes: usize) -> u64 {
    power(8 * bytes - 33)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn by_cpu(crc: u32, mut bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    if bytes.len() > BYTES_MAX {
        return of_many(crc, bytes);
    }
    let mut crc = u64::from(!crc);
    while bytes.len() >= 3 * LANES[0] + 8 {
        (crc, bytes) = three_lanes::<{ LANES[0] }>(crc, bytes);
    }
    if bytes.len() >= 3 * LANES[1] + 8 {
        (crc, bytes) = three_lanes::<{ LANES[1] }>(crc, bytes);
    }
    let (words, rest) = bytes.as_chunks();
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    if rest.is_empty() {
        return !crc;
    }
    let (words, rest) = rest.as_chunks();
    for word in words {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
    }
    let (words, rest) = rest.as_chunks();
    for word in words {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*word));
    }
    for &byte in rest {
        crc = _mm_crc32_u8(crc, byte);
    }
    !crc
}

/// Separate, so that short pieces keep no registers for it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
fn of_many(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Sums the first three times `LANE` and 8 bytes; also returns the rest.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn three_lanes<const LANE: usize>(crc: u64, bytes: &[u8]) -> (u64, &[u8]) {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_xor_si128,
    };

    let (lanes, rest) = bytes.split_at(3 * LANE + 8);
    let word = |at: usize| super::u64_at(lanes, at);
    let (mut first, mut second, mut third) = (crc, 0, 0);
    for at in (0..LANE).step_by(8) {
        first = _mm_crc32_u64(first, word(at));
        second = _mm_crc32_u64(second, word(LANE + at));
        third = _mm_crc32_u64(third, word(2 * LANE + at));
    }
    let moved = |sum: u64, by: u64| {
        _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(sum as i64), _mm_cvtsi64_si128(by as i64))
    };
    let first = moved(first, const { behind(2 * LANE + 8) });
    let second = moved(second, const { behind(LANE + 8) });
    let both = _mm_cvtsi128_si64(_mm_xor_si128(first, second)) as u64;
    (_mm_crc32_u64(third, word(3 * LANE) ^ both), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c_at_every_length_and_address() {
        let bytes: Vec<u8> = (0..3 << 10).map(|i: u32| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
        // Miri takes a second for a dozen.
        let (step, far) = if cfg!(miri) { (97, 5) } else { (1, 1) };
        for from in (0..9).step_by(far) {
            for len in (0..700).step_by(step).chain([1023, 2047, 2048, 2049, 3000]) {
                let piece = &bytes[from..from + len];
                for crc in [0, 1, 0xDEAD_BEEF, u32::MAX] {
                    let expected = crc32c::crc32c_append(crc, piece);
                    assert_eq!(append(crc, piece), expected, "{len} bytes from {from}");
                    let (first, second) = piece.split_at(len / 3);
                    assert_eq!(append(append(crc, first), second), expected, "{len} bytes from {from}, cut");
                }
            }
        }
        let some = Some(0x0123_4567_89AB_CDEF);
        for last in [[None, None], [Some(0), None], [some, None], [None, some], [some, Some(5)]] {
            let (crc, first, words) = (0x1234_5678, 0x9ABC_DEF0_u32, [u64::MAX - 7, 1 << 63]);
            let mut bytes = first.to_le_bytes().to_vec();
            words
                .into_iter()
                .chain(last.into_iter().flatten())
                .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            assert_eq!(append_words(crc, first, words, last), crc32c::crc32c_append(crc, &bytes));
        }
        assert_eq!(append_check(7, 0x89AB_CDEF), crc32c::crc32c_append(7, &0x89AB_CDEF_u32.to_le_bytes()));
        assert_eq!(append_word(7, u64::MAX - 9), crc32c::crc32c_append(7, &(u64::MAX - 9).to_le_bytes()));
        // RFC 3720, B.4.
        assert_eq!(append(0, b"123456789"), 0xE306_9283);
    }
}
