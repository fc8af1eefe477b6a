//! x87 long doubles in software, for INCRBYFLOAT.
//!
//! Redis adds in C's `long double` and prints `%.17Lf` with trailing zeros cut. On x86-64 that is the 80-bit format: a
//! significand of 64 bits, an exponent of 15. Its extra bits make 0.1 + 0.2 print as 0.3, which 64-bit floats do not.
//! Here the format is computed exactly, as glibc and the hardware do:
//!
//! 1. [`parse`] rounds the exact decimal or hexadecimal value once, to nearest, ties to even (`strtold`).
//! 2. [`LongDouble::add`] rounds the exact sum once, likewise.
//! 3. [`LongDouble::text`] rounds the exact value once to 17 decimals, likewise.
//!
//! (On other machines Redis has other long doubles and other last digits; Duramen has these everywhere.)

use num_bigint::BigUint;

use crate::error::{Error, Result};

// Text that Redis looks at has at most 5 * 1024 bytes with its terminator.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
// Beyond these powers of ten a number is surely infinite (10^4932 < 2^16384) or zero.
const DECIMAL_EXPONENT_MAX: i64 = 4934;
const DECIMAL_EXPONENT_MIN: i64 = -4953;
// Any larger exponent has the same result as this one, whatever the 5,119 digits before it.
const EXPONENT_CLAMP: i64 = 1 << 20;

/// A binary floating-point format.
pub(super) struct Format {
    /// Bits of the significand, at most 64.
    pub significand_bits: u64,
    /// The smallest denormal is 2 to this.
    pub exponent_min: i64,
    /// Everything finite is below 2 to this.
    pub bits_max: i64,
}

const LONG_DOUBLE: Format = Format { significand_bits: 64, exponent_min: -16445, bits_max: 16384 };

/// A number that a long double can hold, not NaN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LongDouble {
    /// Plus or minus infinity.
    Infinite {
        /// The sign.
        negative: bool,
    },
    /// `significand × 2^exponent`, not necessarily normalised.
    Finite {
        /// The sign; zero has one too.
        negative: bool,
        /// The significant bits.
        significand: u64,
        /// The power of two.
        exponent: i64,
    },
}

impl From<f64> for LongDouble {
    /// Exact. NaN is none, and taken for infinite.
    fn from(number: f64) -> Self {
        const FRACTION_BITS: i64 = 52;
        let (bits, negative) = (number.to_bits(), number.is_sign_negative());
        let (biased, fraction) = ((bits >> FRACTION_BITS & 0x7ff) as i64, bits & ((1 << FRACTION_BITS) - 1));
        match biased {
            0x7ff => Self::Infinite { negative },
            0 => Self::Finite { negative, significand: fraction, exponent: -1074 },
            _ => {
                let significand = fraction | 1 << FRACTION_BITS;
                Self::Finite { negative, significand, exponent: biased - 1023 - FRACTION_BITS }
            }
        }
    }
}

/// The number in `text`, as `strtold` reads it, if Redis accepts it.
pub fn parse(text: &[u8]) -> Option<LongDouble> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Some(LongDouble::Infinite { negative });
    }
    let parsed = match rest {
        [b'0', b'x' | b'X', hex @ ..] => {
            let (parsed, is_zero) = parse_hexadecimal(&LONG_DOUBLE, negative, hex)?;
            (is_zero || !parsed.is_zero()).then_some(parsed)
        }
        decimal => parse_decimal(negative, decimal),
    }?;
    // Out of range is refused; a denormal is not.
    (parsed != LongDouble::Infinite { negative }).then_some(parsed)
}

/// `parse` or the error that commands give.
pub fn parse_or_error(text: &[u8]) -> Result<LongDouble> {
    parse(text).ok_or(Error::NotFloat)
}

fn parse_decimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (digits, scale, exponent) = split(text, u8::is_ascii_digit, b'e')?;
    let significant = digits.iter().position(|&digit| digit != b'0').map_or(&[][..], |at| &digits[at..]);
    if significant.is_empty() {
        return Some(LongDouble::zero(negative));
    }
    let exponent = exponent - scale;
    let magnitude = significant.len() as i64 + exponent;
    if magnitude > DECIMAL_EXPONENT_MAX {
        return None;
    }
    if magnitude < DECIMAL_EXPONENT_MIN {
        return None;
    }
    let digits = BigUint::parse_bytes(significant, 10)?;
    let parsed = if exponent >= 0 {
        round(&LONG_DOUBLE, negative, &(digits * BigUint::from(10u8).pow(exponent as u32)), 0, false)
    } else {
        let divisor = BigUint::from(10u8).pow(exponent.unsigned_abs() as u32);
        // Two bits more than the significand has, so that the rest of the division only has to
        // say whether it is zero.
        let shift = (divisor.bits() + LONG_DOUBLE.significand_bits + 2).saturating_sub(digits.bits());
        let dividend = digits << shift;
        let quotient = &dividend / &divisor;
        let inexact = &quotient * &divisor != dividend;
        round(&LONG_DOUBLE, negative, &quotient, -(shift as i64), inexact)
    };
    (!parsed.is_zero()).then_some(parsed)
}

/// Parses the hexadecimal text after `0x` into this format; also returns whether it is 0.
pub(super) fn parse_hexadecimal(format: &Format, negative: bool, text: &[u8]) -> Option<(LongDouble, bool)> {
    let (digits, scale, exponent) = split(text, u8::is_ascii_hexdigit, b'p')?;
    let significand = BigUint::parse_bytes(&digits, 16)?;
    if significand == BigUint::ZERO {
        return Some((LongDouble::zero(negative), true));
    }
    Some((round(format, negative, &significand, exponent - 4 * scale, false), false))
}

/// Splits `digits[.digits][marker[sign]digits]` into all digits, the number of those after the point, and the exponent.
fn split(text: &[u8], is_digit: fn(&u8) -> bool, marker: u8) -> Option<(Vec<u8>, i64, i64)> {
    let end = text.iter().position(|byte| byte.to_ascii_lowercase() == marker).unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at(end);
    let point = mantissa.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() || !whole.iter().chain(fraction).all(is_digit) {
        return None;
    }
    let exponent = match exponent {
        [] => 0,
        [_, b'-', digits @ ..] => -parse_exponent(digits)?,
        [_, b'+', digits @ ..] | [_, digits @ ..] => parse_exponent(digits)?,
    };
    Some(([whole, fraction].concat(), fraction.len() as i64, exponent))
}

fn parse_exponent(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |value, digit| (value * 10 + i64::from(digit - b'0')).min(EXPONENT_CLAMP)))
}

/// `magnitude × 2^exponent`, plus a little more if `inexact`, rounded to the nearest number of this format.
fn round(format: &Format, negative: bool, magnitude: &BigUint, exponent: i64, inexact: bool) -> LongDouble {
    let excess = magnitude.bits() as i64 - format.significand_bits as i64;
    let shift = excess.max(format.exponent_min - exponent).max(0);
    let bits = magnitude.bits() as i64 + exponent;
    if bits < format.exponent_min {
        return LongDouble::zero(negative);
    }
    if bits > format.bits_max {
        return LongDouble::Infinite { negative };
    }
    let kept = magnitude >> shift;
    let mut significand = u128::from(kept.iter_u64_digits().next().unwrap_or(0));
    if shift > 0 && magnitude.bit(shift as u64 - 1) {
        let tie = !inexact && magnitude.trailing_zeros() == Some(shift as u64 - 1);
        if !tie || significand & 1 == 1 {
            significand += 1;
        }
    }
    let mut exponent = exponent + shift;
    if significand >> format.significand_bits != 0 {
        significand >>= 1;
        exponent += 1;
    }
    let significand = significand as u64;
    if i64::from(u64::BITS - significand.leading_zeros()) + exponent > format.bits_max {
        return LongDouble::Infinite { negative };
    }
    LongDouble::Finite { negative, significand, exponent }
}

impl LongDouble {
    fn zero(negative: bool) -> Self {
        Self::Finite { negative, significand: 0, exponent: 0 }
    }

    fn is_zero(&self) -> bool {
        matches!(self, Self::Finite { significand: 0, .. })
    }

    /// The sum, if it is a number.
    pub fn add(&self, other: &Self) -> Result<Self> {
        let (
            &Self::Finite { negative: sign_a, significand: a, exponent: exponent_a },
            &Self::Finite { negative: sign_b, significand: b, exponent: exponent_b },
        ) = (self, other)
        else {
            return Err(Error::NanOrInfinity);
        };
        let exponent = match (a, b) {
            (0, _) => exponent_b,
            (_, 0) => exponent_a,
            _ => exponent_a.min(exponent_b),
        };
        let aligned = |significand: u64, from: i64| match significand {
            0 => BigUint::ZERO,
            _ => BigUint::from(significand) << (from - exponent),
        };
        let (a, b) = (aligned(a, exponent_a), aligned(b, exponent_b));
        let (negative, magnitude) = if sign_a == sign_b {
            (sign_a, a + b)
        } else if a >= b {
            (sign_a && a != b, a - b)
        } else {
            (sign_b, b - a)
        };
        match round(&LONG_DOUBLE, negative, &magnitude, exponent, false) {
            Self::Infinite { .. } => Err(Error::NanOrInfinity),
            sum => Ok(sum),
        }
    }

    /// As Redis prints it: at most 17 decimals, no trailing zeros, no `-0`.
    pub fn text(&self) -> String {
        match *self {
            Self::Infinite { negative } => if negative { "-inf" } else { "inf" }.to_owned(),
            Self::Finite { negative, significand, exponent } => {
                let digits = if exponent >= 0 {
                    (BigUint::from(significand) << exponent).to_string()
                } else {
                    decimals(significand, exponent.unsigned_abs())
                };
                if negative && digits != "0" { format!("-{digits}") } else { digits }
            }
        }
    }
}

/// `significand / 2^shift` with at most 17 decimals.
fn decimals(significand: u64, shift: u64) -> String {
    const UNIT: u128 = 100_000_000_000_000_000;
    // Below 2^64 * 10^17 < 2^121.
    let scaled = u128::from(significand) * UNIT;
    let rounded = if shift > 122 {
        0
    } else {
        let (quotient, rest, half) = (scaled >> shift, scaled & ((1 << shift) - 1), 1 << (shift - 1));
        quotient + u128::from(rest > half || rest == half && quotient & 1 == 1)
    };
    let fraction = format!("{:017}", rounded % UNIT);
    match fraction.trim_end_matches('0') {
        "" => (rounded / UNIT).to_string(),
        fraction => format!("{}.{fraction}", rounded / UNIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(a: &str, b: &str) -> String {
        let (a, b) = (parse(a.as_bytes()).unwrap(), parse(b.as_bytes()).unwrap());
        a.add(&b).map_or_else(|error| error.to_string(), |sum| sum.text())
    }

    #[test]
    fn sums_print_as_redis_prints_them() {
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("5.0e3", "0"), "5000");
        assert_eq!(sum("10.50", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "2.0e2"), "5200");
        assert_eq!(sum("3.0", "1.0"), "4");
        assert_eq!(sum("1", "-1"), "0");
        assert_eq!(sum("-0", "-0"), "0");
        assert_eq!(sum("-1e-30", "0"), "0");
        assert_eq!(sum("0x1p4", "0x.8"), "16.5");
        assert_eq!(sum("1e4932", "1e4932"), "ERR increment would produce NaN or Infinity");
        assert_eq!(sum("inf", "1"), "ERR increment would produce NaN or Infinity");
    }

    #[test]
    fn texts_that_strtold_or_redis_refuses_are_refused() {
        for text in [
            "", ".", "-", "+", "e5", "1e", "1e+", " 1", "1 ", "1x", "nan", "-nan", "0x", "0x.", "1e5000",
            "1e-5000", "infi", "--1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(&[b'1'; 5120]), None);
        assert!(parse(b"1e-4950").is_some());
    }

    #[test]
    fn an_exponent_of_any_length_is_read() {
        assert_eq!(sum("0e99999999999999999999999", "0"), "0");
        assert_eq!(parse(b"1e99999999999999999999999"), None);
        assert_eq!(parse(b"1e-99999999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[-+]?(0x)?[0-9a-f.]{0,30}([ep][-+]?[0-9]{0,6})?") {
            if let Some(number) = parse(text.as_bytes()) {
                let text = number.text();
                prop_assert!(!text.is_empty());
            }
        }

        #[test]
        fn a_double_survives_print_and_parse(value in -1e15f64..1e15) {
            // 64 bits hold any 53; up to 17 decimals are printed, so compare after the same rounding.
            let ours = parse(format!("{value}").as_bytes()).unwrap().text();
            let back: f64 = ours.parse().unwrap();
            prop_assert!((back - value).abs() <= value.abs() * 1e-15 + 1e-17);
        }

        #[test]
        fn integers_add_exactly(a in -(1i64 << 62)..(1 << 62), b in -(1i64 << 62)..(1 << 62)) {
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), (a + b).to_string());
        }

        #[test]
        fn decimals_of_a_few_digits_add_exactly(a in -8_000i64..8_000, b in -8_000i64..8_000) {
            let text = |n: i64| format!("{}{}.{:03}", if n < 0 { "-" } else { "" }, n.abs() / 1000, n.abs() % 1000);
            let expected = text(a + b);
            let expected = expected.trim_end_matches('0').trim_end_matches('.');
            prop_assert_eq!(sum(&text(a), &text(b)), expected);
        }
    }
}
