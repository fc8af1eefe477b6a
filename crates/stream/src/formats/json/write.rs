//! Values as JSON.

use std::fmt::Write;

use super::Json;
use crate::types::{DataType, Scalar, decimal, shown, write_int};

/// Appends a text in quotes.
pub fn write_string(text: &str, out: &mut String) {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

impl Json {
    /// Appends a value.
    pub fn write(&self, value: Scalar<'_>, ty: &DataType, out: &mut String) {
        match value {
            Scalar::Null => out.push_str("null"),
            Scalar::Boolean(value) => out.push_str(if value { "true" } else { "false" }),
            Scalar::Int(value) if ty.is_integer() => write_int(value, out),
            // As in Flink: JSON has no notation for NaN and infinity. Writing to a string cannot fail.
            Scalar::Float(number) if number.is_finite() => {
                let _ = write!(out, "{number:?}");
            }
            Scalar::Double(number) if number.is_finite() => {
                let _ = write!(out, "{number:?}");
            }
            Scalar::Decimal(_) if self.plain => value.write_text(ty, out),
            Scalar::Decimal(units) => {
                out.push_str(&exponent_text(units, ty.as_decimal().map_or(0, |(_, scale)| scale)));
            }
            Scalar::Text(text) if ty.is_character() => write_string(&shown(text), out),
            // Base64, dates and times have no characters to escape.
            value => {
                out.push('"');
                let start = out.len();
                crate::formats::texts::write(value, ty, out);
                if self.iso && ty.is_timestamp() {
                    let text = out.split_off(start).replacen(' ', "T", 1);
                    out.push_str(&text);
                }
                out.push('"');
            }
        }
    }
}

/// As Java writes a `BigDecimal` without trailing zeros: `1E+2`, `2.7E-8`.
fn exponent_text(units: i128, scale: u8) -> String {
    let digits = units.unsigned_abs().to_string();
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    // Digits after the point; negative if zeros are missing before it.
    let behind = i64::from(scale) - (digits.len() - significant.len()) as i64;
    let power = significant.len() as i64 - 1 - behind;
    if behind >= 0 && power >= -6 {
        let short = units / 10i128.pow((digits.len() - significant.len()) as u32);
        return decimal::text(short, behind as u8);
    }
    let (first, rest) = significant.split_at(1);
    let (sign, point) = (if units < 0 { "-" } else { "" }, if rest.is_empty() { "" } else { "." });
    format!("{sign}{first}{point}{rest}E{power:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_with_exponents_are_written_as_in_java() {
        for (units, scale, text) in [
            (1250, 2, "12.5"),
            (10_000, 2, "1E+2"),
            (27, 9, "2.7E-8"),
            (-27, 9, "-2.7E-8"),
            (1, 6, "0.000001"),
            (0, 5, "0"),
            (12, 0, "12"),
        ] {
            assert_eq!(exponent_text(units, scale), text);
        }
    }
}
