//! Signed 64-bit integers as strings spell them.
//!
//! Redis accepts one spelling per number: no plus sign, no leading zeros, no `-0`, no blanks. So a parsed number prints
//! back to the same bytes.

use std::ops::Deref;

use crate::error::{Error, Result};

/// "-9223372036854775808"
pub(crate) const TEXT_BYTES_MAX: usize = 20;

/// Digits of `value`.
pub(crate) fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

/// The integer that `text` spells, if it is the spelling that Redis would print.
pub fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= TEXT_BYTES_MAX => {}
        _ => return None,
    }
    let mut value = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// `parse` or the error that commands give.
pub fn parse_or_error(text: &[u8]) -> Result<i64> {
    parse(text).ok_or(Error::NotInteger)
}

/// INCRBY: the sum, if it is one.
pub fn add(value: i64, increment: i64) -> Result<i64> {
    value.checked_add(increment).ok_or(Error::Overflow)
}

/// DECRBY's decrement as an increment.
pub fn negate(decrement: i64) -> Result<i64> {
    decrement.checked_neg().ok_or(Error::DecrementOverflow)
}

/// An integer's text, without allocation.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    start: usize,
}

impl Text {
    /// The decimal text of `value`.
    pub fn new(value: i64) -> Self {
        let mut text = Self { bytes: [0; TEXT_BYTES_MAX], start: TEXT_BYTES_MAX };
        let mut rest = value.unsigned_abs();
        loop {
            text.push(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            text.push(b'-');
        }
        text
    }

    /// The decimal text of `value`, padded with blanks to `width` bytes, at most 20.
    pub fn padded(value: u64, width: usize) -> Self {
        let (digits, width) = (digits(value), width.min(TEXT_BYTES_MAX));
        let mut text = Self { bytes: [0; TEXT_BYTES_MAX], start: TEXT_BYTES_MAX };
        (digits..width).for_each(|_| text.push(b' '));
        let mut rest = value;
        for _ in 0..digits {
            text.push(b'0' + (rest % 10) as u8);
            rest /= 10;
        }
        text
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_spelling_is_an_integer() {
        for text in ["", "-", "+1", " 1", "1 ", "01", "-0", "-01", "1.0", "1e3", "0x10", "--1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        for text in
            ["9223372036854775808", "-9223372036854775809", "18446744073709551616", "99999999999999999999"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse(b"0"), Some(0));
    }

    #[test]
    fn overflow_is_an_error() {
        assert!(matches!(add(i64::MAX, 1), Err(Error::Overflow)));
        assert!(matches!(add(i64::MIN, -1), Err(Error::Overflow)));
        assert!(matches!(negate(i64::MIN), Err(Error::DecrementOverflow)));
    }

    proptest! {
        #[test]
        fn an_integer_reads_back_from_its_text(value: i64) {
            let text = Text::new(value);
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), value.to_string());
            prop_assert_eq!(parse(&text), Some(value));
        }

        #[test]
        fn a_parsed_number_prints_back(text in "[-+0-9 ]{0,22}") {
            if let Some(value) = parse(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
