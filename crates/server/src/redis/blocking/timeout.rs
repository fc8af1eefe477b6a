//! The timeout argument of a command: seconds, with decimals; 0 is forever.

use crate::command_error::CommandError;
use duramen_structures::string::long_double;
use std::time::{Duration, Instant};

const NOT_A_FLOAT: CommandError = CommandError::new("ERR timeout is not a float or out of range");

/// When a wait of this time-out is over; `None`: never.
///
/// # Errors
/// Redis's texts.
pub fn timeout(text: &[u8]) -> Result<Option<Instant>, CommandError> {
    let seconds = long_double::parse(text).ok_or(NOT_A_FLOAT)?;
    let seconds: f64 = seconds.text().parse().map_err(|_| NOT_A_FLOAT)?;
    // Redis counts in whole milliseconds; an overflow becomes negative.
    let millis = (seconds * 1000.0).ceil();
    after_millis(if millis < i64::MAX as f64 { millis as i64 } else { i64::MIN })
}

/// The same for milliseconds.
///
/// # Errors
/// Redis's texts.
pub fn after_millis(millis: i64) -> Result<Option<Instant>, CommandError> {
    match u64::try_from(millis) {
        Err(_) => Err(CommandError::new("ERR timeout is negative")),
        Ok(0) => Ok(None),
        // What no clock can show is never.
        Ok(millis) => Ok(Instant::now().checked_add(Duration::from_millis(millis))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_redis_reads_them() {
        let told = |text: &str| timeout(text.as_bytes()).map_err(|error| error.text().to_vec());
        for text in ["0", "0.0", "-0"] {
            assert_eq!(told(text), Ok(None), "{text}");
        }
        let before = Instant::now();
        let until = told("0.0001").unwrap().unwrap();
        assert!(
            until >= before + Duration::from_millis(1) && until <= Instant::now() + Duration::from_millis(1)
        );
        for (text, error) in [
            ("-1", "ERR timeout is negative"),
            ("x", "ERR timeout is not a float or out of range"),
            ("", "ERR timeout is not a float or out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
            ("inf", "ERR timeout is negative"),
            ("1e16", "ERR timeout is negative"),
        ] {
            assert_eq!(told(text), Err(error.as_bytes().to_vec()), "{text}");
        }
    }
}
