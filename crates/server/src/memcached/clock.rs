//! Time in whole seconds, as memcached has it: an item that lives for a second may be gone at the next one.

/// Numbers of seconds up to this are from now on; larger ones are Unix time.
const RELATIVE_SECONDS_MAX: i64 = 30 * 24 * 60 * 60;

/// The time of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Unix milliseconds.
    pub millis: u64,
    /// Unix seconds.
    pub seconds: u64,
}

/// When an item expires, in Unix seconds; `None` for never.
pub type Deadline = Option<u64>;

impl Now {
    /// At so many Unix milliseconds.
    pub const fn at(millis: u64) -> Self {
        Self { millis, seconds: millis / 1000 }
    }

    /// The deadline that a client asks for. A negative time has passed.
    pub fn deadline(self, asked: i64) -> Deadline {
        match asked {
            0 => None,
            ..0 => Some(1),
            1..=RELATIVE_SECONDS_MAX => Some(self.seconds + asked as u64),
            _ => Some(asked as u64),
        }
    }

    /// Seconds until a deadline.
    pub const fn until(self, deadline: u64) -> u64 {
        deadline.saturating_sub(self.seconds)
    }

    /// Whether it has passed.
    pub fn is_over(self, deadline: Deadline) -> bool {
        deadline.is_some_and(|deadline| deadline <= self.seconds)
    }
}

/// As the store has it.
pub fn millis_of(deadline: Deadline) -> Option<u64> {
    deadline.map(|seconds| seconds.saturating_mul(1000))
}

/// The deadline of an entry by its expiry time in the store. Unless memcached's commands wrote it, the deadline may be
/// up to a second early, never late.
pub fn deadline_of(expires_at: Option<u64>) -> Deadline {
    expires_at.map(|millis| millis / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_up_to_thirty_days_and_negative_ones_have_passed() {
        let now = Now::at(1_700_000_000_999);
        assert_eq!(now.deadline(0), None);
        assert_eq!(now.deadline(1), Some(1_700_000_001));
        assert_eq!(now.deadline(2_592_000), Some(1_702_592_000));
        assert_eq!(now.deadline(2_592_001), Some(2_592_001));
        assert!(now.is_over(now.deadline(2_592_001)) && now.is_over(now.deadline(-1)));
        assert!(!now.is_over(None) && !now.is_over(now.deadline(1_700_000_001)));
        assert_eq!(deadline_of(millis_of(Some(7))), Some(7));
        assert_eq!(deadline_of(Some(7999)), Some(7));
    }
}
