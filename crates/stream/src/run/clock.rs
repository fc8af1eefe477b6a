//! Moments and times.

use std::time::{Duration, SystemTime};

/// The machine's clock, in microseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A time as options have it: a number and its unit.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    Some(match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "ms" => Duration::from_millis(number),
        "s" | "sec" | "second" | "seconds" => Duration::from_secs(number),
        "m" | "min" | "minute" | "minutes" => Duration::from_secs(number.checked_mul(60)?),
        "h" | "hour" | "hours" => Duration::from_secs(number.checked_mul(3600)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, millis) in [("5", 5), ("10 ms", 10), ("2s", 2000), ("1 min", 60_000), ("1 h", 3_600_000)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "s", "1 fortnight", "-1 s", "99999999999999999999"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}
