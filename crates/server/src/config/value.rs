//! Values of directives, parsed and formatted as in redis.conf. Errors are Redis's texts, which CONFIG SET returns.

use duramen::Durability;
use std::str::FromStr;
use std::time::Duration;

/// `yes` or `no`.
///
/// # Errors
/// Redis's text.
pub fn yes_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

/// `yes` or `no`.
pub fn yes_no_text(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// An integer within bounds.
///
/// # Errors
/// Redis's texts.
pub fn integer(text: &str, least: u64, most: u64) -> Result<u64, String> {
    within(parsed(text)?.into(), least, most)
}

/// A signed integer within bounds.
///
/// # Errors
/// Redis's texts.
pub fn signed(text: &str, least: i64, most: i64) -> Result<i64, String> {
    let value = parsed(text)?;
    let within = (least..=most).contains(&value);
    within.then_some(value).ok_or_else(|| format!("argument must be between {least} and {most} inclusive"))
}

fn parsed(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())
}

/// Numbers between 0 and 100.
///
/// # Errors
/// Redis's texts.
pub fn percentiles(words: &[&str]) -> Result<Vec<f64>, String> {
    let words = words.iter().flat_map(|word| word.split_whitespace());
    let number = |word: &str| {
        word.parse::<f64>().map_err(|_| "Invalid latency-tracking-info-percentiles parameters".to_owned())
    };
    let all: Vec<f64> = words.map(number).collect::<Result<_, _>>()?;
    if all.iter().all(|percent| (0.0..=100.0).contains(percent)) {
        return Ok(all);
    }
    Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".to_owned())
}

/// Bytes: a number with an optional unit, `k m g` of 1000 or `kb mb gb` of 1024.
///
/// # Errors
/// Redis's texts.
pub fn bytes(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let refused = || "argument must be a memory value".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let unit: i128 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err(refused()),
    };
    let number: i128 = digits.parse().map_err(|_| refused())?;
    within(number.checked_mul(unit).ok_or_else(refused)?, least, most)
}

fn within(value: i128, least: u64, most: u64) -> Result<u64, String> {
    u64::try_from(value)
        .ok()
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| format!("argument must be between {least} and {most} inclusive"))
}

/// The position of a word in `words`.
///
/// # Errors
/// Redis's text.
pub fn one_of(text: &str, words: &[&str]) -> Result<usize, String> {
    words
        .iter()
        .position(|word| word.eq_ignore_ascii_case(text))
        .ok_or_else(|| format!("argument(s) must be one of the following: {}", words.join(", ")))
}

// With `no`, Redis leaves write-back to the kernel, which by default writes within 30 seconds.
const KERNEL_WRITE_BACK: Duration = Duration::from_secs(30);

/// `appendfsync`'s words.
pub const APPENDFSYNC: [&str; 3] = ["everysec", "always", "no"];

/// The durability that keeps the promise of an `appendfsync` word.
///
/// # Errors
/// Redis's text.
pub fn appendfsync(text: &str) -> Result<Durability, String> {
    Ok(match one_of(text, &APPENDFSYNC)? {
        0 => Durability::Interval(Duration::from_secs(1)),
        1 => Durability::EveryWrite,
        _ => Durability::Interval(KERNEL_WRITE_BACK),
    })
}

/// The strongest word of `appendfsync` that `durability` keeps.
pub fn appendfsync_text(durability: Durability) -> String {
    match durability {
        Durability::EveryWrite => "always",
        Durability::Interval(interval) if interval <= Duration::from_secs(1) => "everysec",
        Durability::Interval(_) | Durability::Manual => "no",
    }
    .to_owned()
}

/// `every-write`, `manual`, or an interval such as `1s` or `250ms` (also `interval 1s`, `interval(1s)`).
///
/// # Errors
/// The allowed values.
pub fn durability(words: &[&str]) -> Result<Durability, String> {
    let text = words.join(" ").to_ascii_lowercase();
    match text.as_str() {
        "every-write" => return Ok(Durability::EveryWrite),
        "manual" => return Ok(Durability::Manual),
        _ => {}
    }
    let interval =
        text.strip_prefix("interval").map_or(text.as_str(), |rest| rest.trim_matches([' ', ':', '(', ')']));
    let interval = duration(interval)
        .ok_or("argument must be every-write, manual, or an interval such as 1s or 250ms")?;
    Ok(Durability::Interval(interval))
}

/// The text that [`durability`] parses.
pub fn durability_text(durability: Durability) -> String {
    match durability {
        Durability::EveryWrite => "every-write".to_owned(),
        Durability::Manual => "manual".to_owned(),
        Durability::Interval(interval) if interval.subsec_millis() == 0 => {
            format!("interval {}s", interval.as_secs())
        }
        Durability::Interval(interval) => format!("interval {}ms", interval.as_millis()),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// A word that the engine knows.
///
/// # Errors
/// The known words.
pub fn word<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.to_ascii_lowercase().parse().map_err(|error: T::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_values_have_redis_units() {
        for (text, wanted) in
            [("1k", 1000), ("1kb", 1024), ("512MB", 512 << 20), ("2g", 2_000_000_000), ("7", 7), ("0", 0)]
        {
            assert_eq!(bytes(text, 0, u64::MAX), Ok(wanted), "{text}");
        }
        for text in ["", "kb", "1x", "-1", "1.5gb", "99999999999999999999999999999999999gb"] {
            assert!(bytes(text, 0, u64::MAX).is_err(), "{text}");
        }
    }

    #[test]
    fn a_durability_reads_as_it_is_written() {
        for durability in [
            Durability::EveryWrite,
            Durability::Manual,
            Durability::Interval(Duration::from_secs(30)),
            Durability::Interval(Duration::from_millis(1500)),
        ] {
            let text = durability_text(durability);
            assert_eq!(super::durability(&text.split(' ').collect::<Vec<_>>()), Ok(durability), "{text}");
        }
        assert_eq!(super::durability(&["interval(5s)"]), Ok(Durability::Interval(Duration::from_secs(5))));
        assert_eq!(super::durability(&["250ms"]), Ok(Durability::Interval(Duration::from_millis(250))));
        assert!(super::durability(&["0s"]).is_err() && super::durability(&["often"]).is_err());
    }

    #[test]
    fn appendfsync_never_claims_more_than_is_promised() {
        for word in APPENDFSYNC {
            assert_eq!(appendfsync_text(appendfsync(word).unwrap()), word);
        }
        assert_eq!(appendfsync_text(Durability::Manual), "no");
    }
}
