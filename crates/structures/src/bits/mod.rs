//! Bitmaps: strings as arrays of bits, the highest bit of the first byte being bit 0.

mod bitmap;
mod field;
mod operation;

pub use bitmap::Bitmap;
pub use field::{Field, Overflow, Width};
pub use operation::Operation;

use std::ops::{Range, RangeInclusive};

/// The bit at `offset`; 0 beyond the end.
pub fn get(bytes: &[u8], offset: u64) -> bool {
    bytes.get((offset >> 3) as usize).is_some_and(|byte| byte & mask(offset) != 0)
}

/// The byte in which the bit at `offset` lies, once that is `on`.
pub fn with(byte: u8, offset: u64, on: bool) -> u8 {
    if on { byte | mask(offset) } else { byte & !mask(offset) }
}

fn mask(offset: u64) -> u8 {
    0x80 >> (offset & 7)
}

/// The bits between the inclusive `start` and `end` of BITCOUNT or BITPOS in a string of `len` bytes. Both count `unit`
/// bits each (1 or 8), negative ones from the end. `None` when there are none.
pub fn range(len: usize, start: i64, end: i64, unit: u64) -> Option<RangeInclusive<u64>> {
    let unit = unit as i64;
    // At most 2^29 bytes, so 2^32 bits.
    let total = len as i64 * 8 / unit;
    let from_end = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(total - 1));
    (start <= end).then(|| (start * unit) as u64..=(end * unit + unit - 1) as u64)
}

/// Those of these bits that lie in the `len` bytes from byte `at` on, as bits of those; some must.
pub fn within(bits: &RangeInclusive<u64>, at: usize, len: usize) -> RangeInclusive<u64> {
    let (first, end) = (at as u64 * 8, (at + len) as u64 * 8);
    (*bits.start()).max(first) - first..=(*bits.end()).min(end - 1) - first
}

/// The bytes in which these bits lie.
pub fn bytes_of(bits: &RangeInclusive<u64>) -> Range<usize> {
    (*bits.start() >> 3) as usize..(*bits.end() >> 3) as usize + 1
}

/// How many of these bits are set. They must lie within `bytes`.
pub fn count(bytes: &[u8], bits: &RangeInclusive<u64>) -> u64 {
    let (first, last) = ((*bits.start() >> 3) as usize, (*bits.end() >> 3) as usize);
    let (head, tail) = edges(bits);
    if first == last {
        return u64::from((bytes[first] & head & tail).count_ones());
    }
    let inner = &bytes[first + 1..last];
    let (words, rest) = inner.as_chunks::<8>();
    let inner = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum::<u64>()
        + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    u64::from((bytes[first] & head).count_ones()) + inner + u64::from((bytes[last] & tail).count_ones())
}

/// The first of these bits that is `on`. They must lie within `bytes`.
pub fn position(bytes: &[u8], bits: &RangeInclusive<u64>, on: bool) -> Option<u64> {
    let (first, last) = ((*bits.start() >> 3) as usize, (*bits.end() >> 3) as usize);
    let (head, tail) = edges(bits);
    // Bits looked for as ones, bits outside of the range as zeros.
    let wanted = |index: usize| {
        let byte = if on { bytes[index] } else { !bytes[index] };
        let byte = if index == first { byte & head } else { byte };
        if index == last { byte & tail } else { byte }
    };
    let found = |index: usize| {
        let byte = wanted(index);
        (byte != 0).then(|| (index as u64) * 8 + u64::from(byte.leading_zeros()))
    };
    if let Some(at) = found(first) {
        return Some(at);
    }
    let mut index = first + 1;
    let skip = if on { 0 } else { u64::MAX };
    while index + 8 < last
        && let Some(word) = bytes[index..].first_chunk::<8>()
        && u64::from_ne_bytes(*word) == skip
    {
        index += 8;
    }
    (index..=last).find_map(found)
}

/// Masks of the bits of a range in its first and its last byte.
fn edges(bits: &RangeInclusive<u64>) -> (u8, u8) {
    (0xff >> (bits.start() & 7), 0xff << (7 - (bits.end() & 7)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all_bits(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte << bit & 0x80 != 0)).collect()
    }

    #[test]
    fn bits_count_from_the_high_end_of_the_first_byte() {
        assert_eq!((with(0, 7, true), with(1, 7, false), with(0, 16, true)), (1, 0, 0x80));
        let bytes = [0, 0, 0x80];
        assert!(get(&bytes, 16) && !get(&bytes, 17) && !get(&bytes, u64::MAX));
    }

    #[test]
    fn ranges_count_bytes_or_bits_from_either_end() {
        assert_eq!(range(6, 0, -1, 8), Some(0..=47));
        assert_eq!(range(6, 1, 1, 8), Some(8..=15));
        assert_eq!(range(6, 5, 30, 1), Some(5..=30));
        assert_eq!(range(6, -2, -1, 1), Some(46..=47));
        assert_eq!(range(6, 3, 2, 8), None);
        assert_eq!(range(0, 0, -1, 8), None);
        assert_eq!(range(1, i64::MIN, i64::MAX, 1), Some(0..=7));
    }

    proptest! {
        #[test]
        fn counting_and_searching_agree_with_single_bits(
            mut bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 1..80),
            fill in prop::option::of(any::<bool>()),
            start: u64,
            len: u64,
        ) {
            if let Some(fill) = fill {
                let end = bytes.len() - 1;
                bytes[..end].fill(if fill { 0xff } else { 0 });
            }
            let bits = all_bits(&bytes);
            let start = start % bits.len() as u64;
            let end = start + len % (bits.len() as u64 - start);
            let slice = &bits[start as usize..=end as usize];
            prop_assert_eq!(count(&bytes, &(start..=end)), slice.iter().filter(|&&bit| bit).count() as u64);
            for on in [false, true] {
                let naive = slice.iter().position(|&bit| bit == on).map(|at| at as u64 + start);
                prop_assert_eq!(position(&bytes, &(start..=end), on), naive);
            }
        }

        #[test]
        fn a_bit_set_is_the_only_one_changed(mut bytes: Vec<u8>, offset in 0u64..400, on: bool) {
            let at = offset as usize;
            if bytes.len() <= at / 8 {
                bytes.resize(at / 8 + 1, 0);
            }
            let mut model = all_bits(&bytes);
            model[at] = on;
            bytes[at / 8] = with(bytes[at / 8], offset, on);
            prop_assert_eq!(get(&bytes, offset), on);
            prop_assert_eq!(all_bits(&bytes), model);
        }
    }
}
