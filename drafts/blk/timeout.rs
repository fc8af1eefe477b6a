//! How long a command waits, as it is told: seconds, with decimals; 0 is for ever.

use super::CommandError;
use std::time::{Duration, Instant};

const NOT_A_FLOAT: CommandError = CommandError::new("ERR timeout is not a float or out of range");

/// When a wait of this time-out is over; `None`: never.
///
/// # Errors
/// Redis's texts.
pub fn timeout(text: &[u8]) -> Result<Option<Instant>, CommandError> {
    let seconds = duramen_structures::strings::long_double::parse(text).ok_or(NOT_A_FLOAT)?;
    let seconds: f64 = seconds.text().parse().map_err(|_| NOT_A_FLOAT)?;
    if !seconds.is_finite() || seconds > i64::MAX as f64 / 1000.0 {
        return Err(CommandError::new("ERR timeout is out of range"));
    }
    if seconds < 0.0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    // Redis counts in whole milliseconds, of which it takes no fewer than one.
    let wait = Duration::from_millis((seconds * 1000.0).ceil() as u64);
    Ok(Instant::now().checked_add(wait))
}
