//! LZF, the compression of long strings in RDB payloads.
//!
//! A block is a sequence of runs. A first byte below 32 is followed by one to 32 literal bytes; a higher one repeats 3
//! to 264 bytes from up to 8 KiB back:
//!
//! | first byte | then | meaning |
//! |---|---|---|
//! | `000lllll` | l + 1 bytes | these bytes |
//! | `lllooooo` | `oooooooo` | l + 2 bytes from o + 1 back, 1 ≤ l ≤ 6 |
//! | `111ooooo` | `llllllll` `oooooooo` | l + 9 bytes from o + 1 back |
//!
//! [`compress`] makes the same choices as liblzf 3.6 as Redis builds it (64 Ki slots, "very fast"), so payloads are
//! byte-equal; any other choice could be read as well.

const SLOT_BITS: u32 = 16;
const LITERALS_MAX: usize = 1 << 5;
const OFFSET_MAX: usize = 1 << 13;
const REPEAT_MAX: usize = (1 << 8) + (1 << 3);
const REPEAT_LONG: usize = 7;

/// `input` in at most `out_max` bytes, if it fits.
pub(super) fn compress(input: &[u8], out_max: usize) -> Option<Vec<u8>> {
    // Position + 1 where three bytes with this hash were last seen.
    let mut slots = vec![0u32; 1 << SLOT_BITS];
    let mut out = Output { bytes: Vec::with_capacity(out_max), literals: 0 };
    out.bytes.push(0);
    let mut at = 0;
    while at + 2 < input.len() {
        let slot = &mut slots[hash(&input[at..])];
        let seen = std::mem::replace(slot, at as u32 + 1) as usize;
        // As in liblzf, position 0 is never referred to.
        let matching = seen > 1 && at - seen < OFFSET_MAX && input[seen - 1..seen + 2] == input[at..at + 3];
        if !matching {
            if out.bytes.len() >= out_max {
                return None;
            }
            out.literal(input[at]);
            at += 1;
            continue;
        }
        let from = seen - 1;
        if out.bytes.len() - usize::from(out.literals == 0) + 4 >= out_max {
            return None;
        }
        let len = match_len(&input[from..], &input[at..]);
        out.repeat(at - from - 1, len);
        at += len;
        if at + 2 >= input.len() {
            break;
        }
        // Of the bytes repeated only the last two are entered.
        for behind in [at - 2, at - 1] {
            slots[hash(&input[behind..])] = behind as u32 + 1;
        }
    }
    if out.bytes.len() + 3 > out_max {
        return None;
    }
    input[at..].iter().for_each(|&byte| out.literal(byte));
    out.stop();
    Some(out.bytes)
}

/// The `len` bytes that `input` decompresses to, if it has exactly that length.
pub(super) fn decompress(mut input: &[u8], len: usize) -> Option<Vec<u8>> {
    // No byte of input gives more than 88 of output (three for 264): a greater length is refused before memory is
    // taken.
    if len / 88 > input.len() {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    while let Some((&first, rest)) = input.split_first() {
        let first = usize::from(first);
        if first < LITERALS_MAX {
            let (literals, rest) = rest.split_at_checked(first + 1)?;
            out.extend_from_slice(literals);
            input = rest;
        } else {
            let (more, rest) = if first >> 5 == REPEAT_LONG {
                let (&more, rest) = rest.split_first()?;
                (usize::from(more), rest)
            } else {
                (0, rest)
            };
            let (&low, rest) = rest.split_first()?;
            input = rest;
            let back = ((first & 0x1f) << 8 | usize::from(low)) + 1;
            let from = out.len().checked_sub(back)?;
            let repeat = (first >> 5) + more + 2;
            if repeat <= back {
                out.extend_from_within(from..from + repeat);
            } else {
                // The bytes to repeat are being written meanwhile.
                for k in 0..repeat {
                    out.push(out[from + k]);
                }
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// How long a repetition liblzf makes of two places that agree in three bytes. Its unrolled first
/// steps may go to the end of the input; otherwise it stops two bytes short.
fn match_len(from: &[u8], at: &[u8]) -> usize {
    const UNROLLED: usize = 16;
    let max = (at.len() - 2).min(REPEAT_MAX);
    let mut len = 2;
    if max > UNROLLED {
        for _ in 0..UNROLLED {
            len += 1;
            if from[len] != at[len] {
                return len;
            }
        }
    }
    loop {
        len += 1;
        if len >= max || from[len] != at[len] {
            return len;
        }
    }
}

/// The slot of the three bytes at the front.
fn hash(bytes: &[u8]) -> usize {
    let value = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    ((value >> (24 - SLOT_BITS)).wrapping_sub(value.wrapping_mul(5)) & ((1 << SLOT_BITS) - 1)) as usize
}

/// Runs as they are written. The byte before the literals at the end is kept free for their count.
struct Output {
    bytes: Vec<u8>,
    literals: usize,
}

impl Output {
    fn literal(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.stop();
            self.bytes.push(0);
        }
    }

    /// Ends the run of literals; takes its count byte back if there are none.
    fn stop(&mut self) {
        let count_at = self.bytes.len() - 1 - self.literals;
        match self.literals {
            0 => self.bytes.truncate(count_at),
            literals => self.bytes[count_at] = literals as u8 - 1,
        }
        self.literals = 0;
    }

    fn repeat(&mut self, offset: usize, len: usize) {
        self.stop();
        let len = len - 2;
        if len < REPEAT_LONG {
            self.bytes.push((len << 5 | offset >> 8) as u8);
        } else {
            self.bytes
                .extend_from_slice(&[(REPEAT_LONG << 5 | offset >> 8) as u8, (len - REPEAT_LONG) as u8]);
        }
        self.bytes.extend_from_slice(&[offset as u8, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_lzf_block_with_a_wrong_length_is_refused() {
        assert_eq!(decompress(b"\x02abc", 3).as_deref(), Some(&b"abc"[..]));
        assert_eq!(decompress(b"\x02abc", 4), None);
        assert_eq!(decompress(b"\x02abc", 2), None);
        assert_eq!(decompress(b"\x02ab", 3), None);
        assert_eq!(decompress(b"\x00a\x20\x01", 4), None);
        assert_eq!(decompress(b"\x00a\xe0", 9), None);
        assert_eq!(decompress(b"\x00a\xe0\x00\x00", 10).as_deref(), Some(&b"aaaaaaaaaa"[..]));
        assert_eq!(decompress(b"", usize::MAX), None);
    }

    #[test]
    fn bytes_that_do_not_shrink_are_not_compressed() {
        let bytes: Vec<u8> = (0..200).collect();
        assert_eq!(compress(&bytes, bytes.len() - 4), None);
    }

    proptest! {
        #[test]
        fn a_round_trip_changes_nothing(input in prop::collection::vec(0u8..3, 5..3000)) {
            if let Some(block) = compress(&input, input.len() - 4) {
                prop_assert!(block.len() <= input.len() - 4);
                prop_assert_eq!(decompress(&block, input.len()), Some(input));
            }
        }

        #[test]
        fn long_repeats_survive(unit in prop::collection::vec(any::<u8>(), 1..400), times in 2usize..100) {
            let input = unit.repeat(times);
            if let Some(block) = compress(&input, input.len().saturating_sub(4)) {
                prop_assert_eq!(decompress(&block, input.len()), Some(input));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(input: Vec<u8>, len in 0usize..10_000) {
            let _ = decompress(&input, len);
        }
    }
}
