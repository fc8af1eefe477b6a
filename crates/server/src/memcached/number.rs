//! Numbers as memcached reads and writes them.
//!
//! Parses as C's `strtoul` does, with leading blanks and signs, up to a blank or the end of the text. A number that is
//! too large for its field loses its upper bits; only one that does not fit into 64 bits is refused.

/// An unsigned number; `None` for none, and for one that is negative as a signed one and was written with a sign.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let text = until_zero(text);
    let (is_negative, size) = parts(text)?;
    let value = if is_negative { size.wrapping_neg() } else { size };
    if (value as i64) < 0 && text.contains(&b'-') {
        return None;
    }
    Some(value)
}

/// The lower 32 bits of an unsigned number.
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|value| value as u32)
}

/// The lower 32 bits of a signed number.
pub fn signed_32(text: &[u8]) -> Option<i32> {
    let (is_negative, size) = parts(until_zero(text))?;
    let value = match is_negative {
        true => 0i64.checked_sub_unsigned(size)?,
        false => i64::try_from(size).ok()?,
    };
    Some(value as i32)
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || (9..=13).contains(&byte)
}

/// Whether there is a minus, and the digits.
fn parts(text: &[u8]) -> Option<(bool, u64)> {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let text = &text[blanks..];
    let (is_negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let mut size = 0u64;
    let mut count = 0;
    for byte in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        size = size.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        count += 1;
    }
    let ends = digits.get(count).is_none_or(|byte| is_blank(*byte));
    (count > 0 && ends).then_some((is_negative, size))
}

/// Appends a number in decimal.
pub fn push(into: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("+5", Some(5)),
            (" \t5", Some(5)),
            ("5 6", Some(5)),
            ("5\t", Some(5)),
            ("5\0x", Some(5)),
            ("5x", None),
            ("x", None),
            ("", None),
            ("-", None),
            ("-1", None),
            ("-0", Some(0)),
            ("-18446744073709551615", Some(1)),
            ("18446744073709551615 -", None),
        ] {
            assert_eq!(unsigned(text.as_bytes()), wanted, "{text:?}");
        }
        for (text, wanted) in [
            ("-1", Some(-1)),
            ("2147483648", Some(i32::MIN)),
            ("4294967297", Some(1)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(0)),
            ("1.5", None),
        ] {
            assert_eq!(signed_32(text.as_bytes()), wanted, "{text:?}");
        }
        assert_eq!(unsigned_32(b"4294967296"), Some(0));
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for value in [0, 9, 10, 12_345, u64::MAX] {
            let mut text = Vec::new();
            push(&mut text, value);
            assert_eq!(text, value.to_string().as_bytes());
        }
    }
}
