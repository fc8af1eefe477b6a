//! The computations of the string commands, as pure functions on bytes.
//!
//! A string is any bytes. Redis keeps some strings as integers in memory and shows that in OBJECT ENCODING. Here all
//! are stored as bytes, and [`encoding`] returns Redis's choice for a value just SET. (Redis also remembers that a
//! string was edited in place and then says `raw`.)

pub mod double;
pub mod integer;
pub(crate) mod large;
pub mod lcs;
pub mod long_double;

use std::ops::Range;

use crate::error::{Error, Result};

// sizeof(robj) 16 + sdshdr8 3 + terminator 1 leave 44 of the 64 bytes that jemalloc hands out.
const EMBSTR_BYTES_MAX: usize = 44;

/// How Redis would keep this string in memory: `int`, `embstr` or `raw`.
pub fn encoding(bytes: &[u8]) -> &'static str {
    if integer::parse(bytes).is_some() {
        "int"
    } else if bytes.len() <= EMBSTR_BYTES_MAX {
        "embstr"
    } else {
        "raw"
    }
}

/// The bytes that GETRANGE's inclusive `start` and `end` mean in a string of `len` bytes; negative
/// ones count from the end.
pub fn range(len: usize, start: i64, end: i64) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// The sum of two lengths, if a string may be that long. `bytes_max` is `proto-max-bulk-len`.
///
/// # Errors
/// `TooLong`.
pub fn checked_len(len: usize, more: usize, bytes_max: u64) -> Result<usize> {
    // A string that the engine cannot hold is too long with any configuration.
    let bytes_max = bytes_max.min(duramen::VALUE_BYTES_MAX as u64);
    len.checked_add(more).filter(|&sum| sum as u64 <= bytes_max).ok_or(Error::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: u64 = 512 << 20;

    #[test]
    fn encoding_follows_value_and_length() {
        assert_eq!(encoding(b"-12"), "int");
        assert_eq!(encoding(b"012"), "embstr");
        assert_eq!(encoding(b"9223372036854775808"), "embstr");
        assert_eq!(encoding(&[b'x'; 44]), "embstr");
        assert_eq!(encoding(&[b'x'; 45]), "raw");
    }

    #[test]
    fn ranges_are_those_of_redis() {
        assert_eq!(range(16, 0, 3), 0..4);
        assert_eq!(range(16, -3, -1), 13..16);
        assert_eq!(range(16, 0, -1), 0..16);
        assert_eq!(range(16, 10, 100), 10..16);
        assert_eq!(range(16, -1, -3), 0..0);
        assert_eq!(range(16, 5, 2), 0..0);
        assert_eq!(range(0, 0, -1), 0..0);
        assert_eq!(range(4, i64::MIN, i64::MAX), 0..4);
        assert_eq!(range(4, -100, -50), 0..1);
    }

    #[test]
    fn a_string_longer_than_the_limit_is_refused() {
        assert_eq!(checked_len(1, 4, 5).unwrap(), 5);
        assert_eq!(checked_len(512 << 20, 0, MAX).unwrap(), 512 << 20);
        for (len, more, bytes_max) in
            [(5, 1, 5), (512 << 20, 1, MAX), (usize::MAX, 1, u64::MAX), (1 << 40, 1, u64::MAX)]
        {
            assert!(matches!(checked_len(len, more, bytes_max), Err(Error::TooLong)));
        }
    }

    proptest! {
        #[test]
        fn a_range_lies_within_its_string(len in 0usize..100, start: i64, end: i64, s in -120i64..120, e in -120i64..120) {
            for (start, end) in [(start, end), (s, e)] {
                let range = range(len, start, end);
                prop_assert!(range.start <= range.end && range.end <= len);
            }
        }
    }
}
