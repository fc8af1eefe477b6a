//! Integers as text.

/// The most bytes an `i64` takes in decimal: 19 digits and a sign. A `u64` takes as many, all digits.
pub const INTEGER_BYTES_MAX: usize = 20;

/// `value` in decimal, at the end of `room`.
#[inline]
pub fn format_integer(value: i64, room: &mut [u8; INTEGER_BYTES_MAX]) -> &[u8] {
    let mut at = INTEGER_BYTES_MAX - digits(value.unsigned_abs(), room).len();
    if value < 0 {
        at -= 1;
        room[at] = b'-';
    }
    &room[at..]
}

/// `value` in decimal, at the end of `room`.
#[inline]
pub fn digits(mut value: u64, room: &mut [u8; INTEGER_BYTES_MAX]) -> &[u8] {
    let mut at = INTEGER_BYTES_MAX;
    loop {
        at -= 1;
        room[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &room[at..];
        }
    }
}

/// `text` as Redis reads a signed 64-bit integer (`string2ll`): an optional minus, no plus, no spaces, no
/// leading zeros.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        // 19 digits hold every i64; one more could only overflow.
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 nines are below 2^64, so this cannot overflow.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_size_are_written() {
        for value in [0, 9, 10, -1, i64::MAX, i64::MIN, 1_000_000] {
            assert_eq!(format_integer(value, &mut [0; 20]), value.to_string().as_bytes());
        }
        assert_eq!(digits(u64::MAX, &mut [0; 20]), u64::MAX.to_string().as_bytes());
    }

    #[test]
    fn integers_are_read_as_redis_reads_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("+1", None),
            ("01", None),
            ("-0", None),
            ("-", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(integer(text.as_bytes()), wanted, "{text:?}");
        }
    }
}
