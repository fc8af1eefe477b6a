//! DECIMAL: integers in units of a power of ten. Results that do not fit are `None`, which becomes NULL in SQL.

use super::PRECISION_MAX;

/// 10^power; `None` above 38.
pub fn power_of_ten(power: u32) -> Option<i128> {
    10i128.checked_pow(power)
}

/// Whether `value` has at most `precision` digits.
pub fn fits(value: i128, precision: u8) -> bool {
    power_of_ten(precision.min(PRECISION_MAX).into())
        .is_some_and(|limit| value.unsigned_abs() < limit.unsigned_abs())
}

/// `value` at `from` in units of `to`, rounded half away from zero.
pub fn rescale(value: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from {
        value.checked_mul(power_of_ten((to - from).into())?)
    } else {
        // A unit above 38 digits rounds every i128 to zero, or nearly.
        power_of_ten((from - to).into()).map_or(Some(0), |unit| Some(divide_rounded(value, unit)))
    }
}

/// The nearest integer to `a / b`, halves away from zero. `b` is not zero.
fn divide_rounded(a: i128, b: i128) -> i128 {
    let (quotient, rest) = (a / b, a % b);
    // |rest| < |b| <= 10^38, so twice it fits 128 bits without a sign.
    if rest.unsigned_abs() * 2 >= b.unsigned_abs() {
        quotient + if (a < 0) == (b < 0) { 1 } else { -1 }
    } else {
        quotient
    }
}

/// `a * b`, in units of `scale`, where the factors' units are `scale_a` and `scale_b`.
pub fn multiply(a: i128, scale_a: u8, b: i128, scale_b: u8, scale: u8) -> Option<i128> {
    match a.checked_mul(b) {
        Some(product) => rescale(product, scale_a + scale_b, scale),
        None => {
            // The exact product needs more than 127 bits: long multiplication, then division by a power of ten.
            let drop = u32::from((scale_a + scale_b).checked_sub(scale)?);
            let negative = (a < 0) != (b < 0);
            let mut digits = wide_multiply(a.unsigned_abs(), b.unsigned_abs());
            let mut last = 0;
            for _ in 0..drop {
                last = divide_by_ten(&mut digits);
            }
            let mut value = narrow(digits)?;
            if last >= 5 {
                value = value.checked_add(1)?;
            }
            Some(if negative { -value } else { value })
        }
    }
}

/// `a / b` in units of `scale`; `None` if `b` is zero or the quotient does not fit.
pub fn divide(a: i128, scale_a: u8, b: i128, scale_b: u8, scale: u8) -> Option<i128> {
    if b == 0 {
        return None;
    }
    // a/10^sa ÷ b/10^sb × 10^s = a × 10^(s + sb − sa) ÷ b
    let shift = i32::from(scale) + i32::from(scale_b) - i32::from(scale_a);
    if shift < 0 {
        let divisor = b.checked_mul(power_of_ten(shift.unsigned_abs())?)?;
        return Some(divide_rounded(a, divisor));
    }
    if let Some(dividend) = power_of_ten(shift.unsigned_abs()).and_then(|unit| a.checked_mul(unit)) {
        return Some(divide_rounded(dividend, b));
    }
    // Long division, digit by digit.
    let (mut quotient, mut rest) = (a.unsigned_abs() / b.unsigned_abs(), a.unsigned_abs() % b.unsigned_abs());
    for _ in 0..shift {
        // rest < b <= 10^38 < 2^127, so ten times it may need 131 bits: multiply in two steps of at most b each.
        let mut digit = 0;
        let mut sum = 0u128;
        for _ in 0..10 {
            sum += rest;
            if sum >= b.unsigned_abs() {
                sum -= b.unsigned_abs();
                digit += 1;
            }
        }
        rest = sum;
        quotient = quotient.checked_mul(10)?.checked_add(digit)?;
    }
    if rest * 2 >= b.unsigned_abs() {
        quotient = quotient.checked_add(1)?;
    }
    let value = i128::try_from(quotient).ok()?;
    Some(if (a < 0) == (b < 0) { value } else { -value })
}

/// Product in four limbs of 64 bits, the lowest first.
fn wide_multiply(a: u128, b: u128) -> [u64; 4] {
    let limbs = |value: u128| [value as u64, (value >> 64) as u64];
    let mut product = [0u64; 4];
    for (i, x) in limbs(a).into_iter().enumerate() {
        let mut carry = 0u128;
        for (j, y) in limbs(b).into_iter().enumerate() {
            let sum = u128::from(x) * u128::from(y) + u128::from(product[i + j]) + carry;
            product[i + j] = sum as u64;
            carry = sum >> 64;
        }
        product[i + 2] = carry as u64;
    }
    product
}

/// Divides in place; returns the remainder.
fn divide_by_ten(digits: &mut [u64; 4]) -> u64 {
    let mut rest = 0u128;
    for digit in digits.iter_mut().rev() {
        let value = (rest << 64) | u128::from(*digit);
        *digit = (value / 10) as u64;
        rest = value % 10;
    }
    rest as u64
}

fn narrow(digits: [u64; 4]) -> Option<i128> {
    if digits[2] != 0 || digits[3] != 0 {
        return None;
    }
    i128::try_from(u128::from(digits[0]) | u128::from(digits[1]) << 64).ok()
}

/// Decimal text with exactly `scale` digits after the point.
pub fn text(value: i128, scale: u8) -> String {
    let mut text = String::new();
    write_text(value, scale, &mut text);
    text
}

/// Appends the same.
pub fn write_text(value: i128, scale: u8, out: &mut String) {
    if value < 0 {
        out.push('-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value.unsigned_abs());
    let scale = usize::from(scale);
    let Some(whole) = digits.len().checked_sub(scale).filter(|whole| *whole > 0) else {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', scale - digits.len()));
        out.push_str(digits);
        return;
    };
    out.push_str(&digits[..whole]);
    if scale > 0 {
        out.push('.');
        out.push_str(&digits[whole..]);
    }
}

/// Reads `[+-]digits[.digits][e[+-]digits]` in units of `scale`, rounded half away from zero.
pub fn parse(text: &str, scale: u8) -> Option<i128> {
    let text = text.trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty())
        || !(whole.bytes().chain(fraction.bytes())).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let mut value = 0i128;
    // Digits beyond this place are read for rounding alone.
    let mut place = i32::try_from(whole.len()).ok()?.checked_add(exponent)?.checked_add(i32::from(scale))?;
    for digit in whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0')) {
        place -= 1;
        if place >= 0 {
            value = value.checked_mul(10)?.checked_add(digit)?;
        } else {
            if place == -1 && digit >= 5 {
                value += 1;
            }
            break;
        }
    }
    if value != 0 && place > 0 {
        value = value.checked_mul(power_of_ten(place.unsigned_abs())?)?;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_reads_back_from_its_text() {
        for (value, scale, shown) in
            [(0, 0, "0"), (5, 2, "0.05"), (-5, 2, "-0.05"), (12345, 2, "123.45"), (7, 0, "7")]
        {
            assert_eq!(text(value, scale), shown);
            assert_eq!(parse(shown, scale), Some(value));
        }
        assert_eq!(parse("1.005", 2), Some(101));
        assert_eq!(parse("-1.005", 2), Some(-101));
        assert_eq!(parse("1.2e3", 1), Some(12000));
        assert_eq!(parse("12e-1", 1), Some(12));
        assert_eq!(parse("0.004", 2), Some(0));
        for wrong in ["", ".", "-", "1x", "--1", "1.2.3", "1e"] {
            assert_eq!(parse(wrong, 2), None, "{wrong}");
        }
    }

    #[test]
    fn rounding_is_half_away_from_zero() {
        assert_eq!(rescale(25, 1, 0), Some(3));
        assert_eq!(rescale(-25, 1, 0), Some(-3));
        assert_eq!(rescale(24, 1, 0), Some(2));
        assert_eq!(divide(1, 0, 3, 0, 6), Some(333_333));
        assert_eq!(divide(-2, 0, 3, 0, 6), Some(-666_667));
        assert_eq!(divide(1, 0, 0, 0, 6), None);
    }

    #[test]
    fn wide_products_and_quotients_are_exact() {
        let big = 10i128.pow(37);
        // 10^37 × 10^30 in units of 10^-30 and 0 is 10^37.
        assert_eq!(multiply(big, 0, 10i128.pow(30), 30, 0), Some(big));
        assert_eq!(multiply(-big, 0, 10i128.pow(30), 30, 0), Some(-big));
        assert_eq!(multiply(big, 0, big, 0, 0), None);
        assert_eq!(divide(big, 0, 3, 0, 0), Some(big / 3));
        assert_eq!(divide(10i128.pow(36), 10, 4, 0, 12), Some(25 * 10i128.pow(36)));
    }
}
