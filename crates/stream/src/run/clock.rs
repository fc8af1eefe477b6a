//! Moments and times.

use std::time::SystemTime;

pub use crate::catalog::options::duration;

/// The machine's clock, in microseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
