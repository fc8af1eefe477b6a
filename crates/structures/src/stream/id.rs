//! The id of a stream's entry: a time in Unix milliseconds and a number within it.

use std::fmt;

/// See the module. Ids are ordered by time, then by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Unix milliseconds, or a client's value.
    pub ms: u64,
    /// The number of the entry within that millisecond.
    pub seq: u64,
}

/// A parsed id: it may leave the number to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedId {
    /// The id; without a number, with 0 in its place.
    pub id: StreamId,
    /// It was `ms-*`.
    pub any_seq: bool,
}

impl StreamId {
    /// The least.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The greatest.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 16;

    /// The next id.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id before this one.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// As Redis keeps it: bytes whose order is that of the ids.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The id of these bytes.
    pub fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { ms: (both >> 64) as u64, seq: both as u64 }
    }

    /// `ms` or `ms-seq` as Redis reads it: without a number it is `missing_seq`. `ms-*` is one only if `any_seq`.
    pub fn parse(text: &[u8], missing_seq: u64, any_seq: bool) -> Option<ParsedId> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        // As in Redis the text ends at a zero byte.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let dash = text.iter().position(|byte| *byte == b'-');
        let Some(dash) = dash else {
            return Some(ParsedId { id: Self { ms: unsigned(text)?, seq: missing_seq }, any_seq: false });
        };
        let (ms, seq) = (unsigned(&text[..dash])?, &text[dash + 1..]);
        match seq {
            b"*" if any_seq => Some(ParsedId { id: Self { ms, seq: 0 }, any_seq: true }),
            seq => Some(ParsedId { id: Self { ms, seq: unsigned(seq)? }, any_seq: false }),
        }
    }
}

// Redis accepts no longer text.
const TEXT_BYTES_MAX: usize = 127;

/// Parses as the C library's `strtoull` does, except that a number with a minus is accepted only with a zero after it,
/// which Redis does not find to be negative.
fn unsigned(text: &[u8]) -> Option<u64> {
    if crate::string::integer::parse(text).is_some_and(|value| value < 0) {
        return None;
    }
    // The blanks of the C library.
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, seq| Some(ParsedId { id: StreamId { ms, seq }, any_seq: false });
        let any = |ms| Some(ParsedId { id: StreamId { ms, seq: 0 }, any_seq: true });
        for (text, wanted) in [
            (&b"5"[..], id(5, 7)),
            (b"5-3", id(5, 3)),
            (b"5-*", any(5)),
            (b"18446744073709551615-18446744073709551615", id(u64::MAX, u64::MAX)),
            (b"18446744073709551616", None),
            (b"05-03", id(5, 3)),
            (b" +5-\t3", id(5, 3)),
            (b"5-3\0x", id(5, 3)),
            (b"5-05", id(5, 5)),
            (b"5--05", id(5, 5u64.wrapping_neg())),
            (b"5--5", None),
            (b"-5", None),
            (b"5-", None),
            (b"-", None),
            (b"", None),
            (b"5-3 ", None),
            (b"5-3-1", None),
            (b"*", None),
            (b"5-**", None),
        ] {
            assert_eq!(StreamId::parse(text, 7, true), wanted, "{}", text.escape_ascii());
        }
        assert_eq!(StreamId::parse(b"5-*", 0, false), None);
        assert_eq!(StreamId::parse(&[b'1'; 128], 0, false), None);
    }

    #[test]
    fn neighbours_and_bytes_have_the_order_of_ids() {
        let id = |ms, seq| StreamId { ms, seq };
        for (one, next) in
            [(id(0, 0), Some(id(0, 1))), (id(1, u64::MAX), Some(id(2, 0))), (StreamId::MAX, None)]
        {
            assert_eq!(one.next(), next);
            if let Some(next) = next {
                assert_eq!(next.previous(), Some(one));
                assert!(one.to_bytes() < next.to_bytes());
            }
            assert_eq!(StreamId::of_bytes(one.to_bytes()), one);
        }
        assert_eq!(StreamId::MIN.previous(), None);
        assert_eq!(id(12, 3).to_string(), "12-3");
    }
}
