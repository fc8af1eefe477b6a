//! The expiry options of SET, GETEX, SETEX and PSETEX.

use crate::redis::command::{Args, CommandError, errors, integer};

/// The unit and kind of an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// EX
    SecondsFromNow,
    /// PX
    MillisFromNow,
    /// EXAT
    UnixSeconds,
    /// PXAT
    UnixMillis,
}

/// How the expiry time changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry<'a> {
    /// Nothing was said.
    None,
    /// KEEPTTL
    Keep,
    /// PERSIST
    Persist,
    /// EX, PX, EXAT or PXAT with its argument, not yet looked at.
    At(Clock, &'a [u8]),
}

const CLOCKS: [(&str, Clock); 4] = [
    ("ex", Clock::SecondsFromNow),
    ("px", Clock::MillisFromNow),
    ("exat", Clock::UnixSeconds),
    ("pxat", Clock::UnixMillis),
];

impl<'a> Expiry<'a> {
    /// Reads EX, PX, EXAT or PXAT at `at` and moves `at` to its argument. The same option may come
    /// again, the last one counting; two different ones do not fit together.
    pub fn parse(self, args: Args<'a>, at: &mut usize) -> Result<Self, CommandError> {
        let clock = CLOCKS.iter().find(|(name, _)| args.is(*at, name)).map(|(_, clock)| *clock);
        let argument = args.get(*at + 1);
        let (Some(clock), Some(argument)) = (clock, argument) else { return Err(errors::SYNTAX) };
        match self {
            Self::None => {}
            Self::At(before, _) if before == clock => {}
            _ => return Err(errors::SYNTAX),
        }
        *at += 1;
        Ok(Self::At(clock, argument))
    }

    /// The time meant, in Unix milliseconds; `command` is named in the error.
    pub fn deadline(self, now: u64, command: &str) -> Result<Option<u64>, CommandError> {
        let Self::At(clock, argument) = self else { return Ok(None) };
        let value = integer(argument).ok_or(errors::NOT_INTEGER)?;
        let unit = match clock {
            Clock::SecondsFromNow | Clock::UnixSeconds => 1000,
            Clock::MillisFromNow | Clock::UnixMillis => 1,
        };
        let base = match clock {
            Clock::SecondsFromNow | Clock::MillisFromNow => now as i64,
            Clock::UnixSeconds | Clock::UnixMillis => 0,
        };
        let time = Some(value)
            .filter(|&value| value > 0)
            .and_then(|value| value.checked_mul(unit)?.checked_add(base))
            .ok_or_else(|| CommandError::expire_time(command))?;
        Ok(Some(time as u64))
    }
}
