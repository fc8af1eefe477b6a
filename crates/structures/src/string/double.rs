//! Doubles as text: scores of sorted sets, their bounds, weights.
//!
//! 1. [`parse`] and [`parse_bound`] round the exact value once, to nearest, ties to even (`strtod`).
//! 2. [`text`] is `%.17g`, which [`parse`] turns back into the same number.

use super::long_double::{self, Format, LongDouble};

const DOUBLE: Format = Format { significand_bits: 53, exponent_min: -1074, bits_max: 1024 };
// Beyond these a double is no integer to a listpack (`double2ll`).
const LISTPACK_INTEGER_MAX: f64 = (1u64 << 62) as f64;
// `%.17g`: this many digits, and an exponent where there would be more digits before the point or many zeros after it.
const DIGITS: i32 = 17;
const EXPONENT_PLAIN_MIN: i32 = -4;
// Integers below this have no more digits than are printed, and are doubles.
const INTEGER_END: f64 = 1e15;
const INTEGER_DIGITS: usize = 15;

/// Parses a score as Redis does: refuses infinite results, and numbers so small that they would become 0.
pub fn parse(text: &[u8]) -> Option<f64> {
    read(text).filter(|(_, is_in_range)| *is_in_range).map(|(number, _)| number)
}

/// Parses the bound of a range: as C does, up to a zero byte, with leading spaces; the empty text is 0.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    read_c(text).map(|(number, _)| number)
}

/// The number in `text` for SORT: parsed as a bound, if it is in range.
pub fn parse_weight(text: &[u8]) -> Option<f64> {
    read_c(text).filter(|(_, is_in_range)| *is_in_range).map(|(number, _)| number)
}

/// The nearest number to C's result, and whether that is in range.
fn read_c(text: &[u8]) -> Option<(f64, bool)> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some((0.0, true));
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    read(&text[start..])
}

/// The nearest number, and whether it is in range.
fn read(text: &[u8]) -> Option<(f64, bool)> {
    if (1..=INTEGER_DIGITS).contains(&text.len()) && text.iter().all(u8::is_ascii_digit) {
        let number = text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        return Some((number as f64, true));
    }
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (number, is_in_range) = if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity")
    {
        (f64::INFINITY, true)
    } else if let [b'0', b'x' | b'X', hexadecimal @ ..] = rest {
        let (parsed, is_zero) = long_double::parse_hexadecimal(&DOUBLE, negative, hexadecimal)?;
        let number = magnitude(&parsed);
        (number, is_zero || number != 0.0 && number.is_finite())
    } else {
        if !rest.iter().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(byte))
            || matches!(rest, [b'+' | b'-', ..])
        {
            return None;
        }
        let number: f64 = std::str::from_utf8(rest).ok()?.parse().ok()?;
        let digits = rest.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next().unwrap_or_default();
        let is_zero = !digits.iter().any(|digit| matches!(digit, b'1'..=b'9'));
        (number, is_zero || number != 0.0 && number.is_finite())
    };
    Some((if negative { -number } else { number }, is_in_range))
}

/// Without its sign; exact for a number that was rounded to a double.
fn magnitude(number: &LongDouble) -> f64 {
    match *number {
        LongDouble::Infinite { .. } => f64::INFINITY,
        LongDouble::Finite { significand, exponent, .. } => {
            let (mut number, mut exponent) = (significand as f64, exponent);
            // In steps whose factor is a double. No step rounds: the number has no more bits than a double has there.
            while exponent != 0 {
                let step = exponent.clamp(-1000, 1000);
                number *= 2f64.powi(step as i32);
                exponent -= step;
            }
            number
        }
    }
}

/// As Redis keeps it in a listpack: integers up to 2^62 with all their digits, and no -0.
pub fn listpack_text(number: f64) -> String {
    if number.abs() <= LISTPACK_INTEGER_MAX && number.trunc() == number {
        (number as i64).to_string()
    } else {
        text(number)
    }
}

/// As Redis prints it.
pub fn text(number: f64) -> String {
    // Numbers without digits after the point, which have all those before it.
    if number.abs() < INTEGER_END && number.trunc() == number && (number != 0.0 || number.is_sign_positive())
    {
        return (number as i64).to_string();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{:.1$e}", number.abs(), DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let joined = |whole: &str, fraction: &str| match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    };
    match exponent {
        0..DIGITS => {
            let (whole, fraction) = digits.split_at(exponent as usize + 1);
            joined(whole, fraction)
        }
        EXPONENT_PLAIN_MIN..0 => joined("0", &format!("{}{digits}", "0".repeat(-exponent as usize - 1))),
        _ => {
            let (whole, fraction) = digits.split_at(1);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", joined(whole, fraction), exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_that_of_the_reference() {
        for (number, wanted) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.1, "1.1000000000000001"),
            (-3.5, "-3.5"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(number), wanted);
        }
    }

    #[test]
    fn a_number_in_a_listpack_has_all_its_digits() {
        for (number, wanted) in [
            (-0.0, "0"),
            (1e17, "100000000000000000"),
            (-4_611_686_018_427_387_904.0, "-4611686018427387904"),
            (4_611_686_018_427_388_928.0, "4.6116860184273889e+18"),
            (0.5, "0.5"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(listpack_text(number), wanted);
        }
    }

    #[test]
    fn the_accepted_scores_are_those_of_redis() {
        for (spelt, wanted) in [
            ("1", Some(1.0)),
            ("+1", Some(1.0)),
            ("-.5e1", Some(-5.0)),
            ("5.", Some(5.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1.8p1", Some(3.0)),
            ("-0x10", Some(-16.0)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1p-1076", None),
            ("0x0p0", Some(0.0)),
            ("INF", Some(f64::INFINITY)),
            ("-infinity", Some(f64::NEG_INFINITY)),
            ("1e309", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("+-1", None),
            ("e1", None),
            (".", None),
            ("0x", None),
        ] {
            assert_eq!(parse(spelt.as_bytes()), wanted, "{spelt:?}");
        }
        assert_eq!(parse_bound(b" \t1"), Some(1.0));
        assert_eq!(parse_bound(b"1\0x"), Some(1.0));
        assert_eq!(parse_bound(b""), Some(0.0));
        assert_eq!(parse_bound(b"1e999"), Some(f64::INFINITY));
        assert_eq!(parse_bound(b"-1e-999"), Some(-0.0));
        assert_eq!(parse_bound(b"1 "), None);
        assert_eq!(parse_bound(b"nan"), None);
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_the_number_that_it_was_made_of(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(!number.is_nan());
            prop_assert_eq!(parse(text(number).as_bytes()).map(f64::to_bits), Some(bits));
        }

        #[test]
        fn hexadecimal_is_exact(bits: u64) {
            let number = f64::from_bits(bits >> 1);
            prop_assume!(number.is_finite());
            let (significand, exponent) = ((bits >> 1) & ((1 << 52) - 1), (bits >> 53) as i64);
            let spelt = if exponent == 0 {
                format!("0x{significand:x}p-1074")
            } else {
                format!("0x{:x}p{}", significand | 1 << 52, exponent - 1075)
            };
            prop_assert_eq!(parse(spelt.as_bytes()).map(f64::to_bits), Some(bits >> 1));
        }
    }
}
