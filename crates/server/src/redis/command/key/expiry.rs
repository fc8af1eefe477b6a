//! When keys end: EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, TTL, PTTL, EXPIRETIME, PEXPIRETIME, PERSIST.

use crate::observe::keyspace_events::GENERIC;
use crate::redis::command::{Args, Call, CommandError};

/// EXPIRE key seconds [NX | XX | GT | LT]: when a key ends; 1 if that was set.
pub fn expire(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, Unit::Seconds, call.now)
}

/// PEXPIRE key milliseconds [NX | XX | GT | LT]: when a key ends; 1 if that was set.
pub fn pexpire(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, Unit::Millis, call.now)
}

/// EXPIREAT key unix-seconds [NX | XX | GT | LT]: when a key ends; 1 if that was set.
pub fn expireat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, Unit::Seconds, 0)
}

/// PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]: when a key ends; 1 if that was set.
pub fn pexpireat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, Unit::Millis, 0)
}

/// PERSIST key: a key never ends; 1 if it would have.
pub fn persist(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let ends = call.txn.look(db, key)?.is_some_and(|found| found.expires_at.is_some());
    if ends {
        call.txn.set_expiry(db, key, None)?;
        call.notify(GENERIC, "persist", key);
    }
    call.reply.integer(i64::from(ends));
    Ok(())
}

/// TTL key: seconds until a key ends; -1 if it never does, -2 if it is not there.
pub fn ttl(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_end(call, |at, now| (at - now + 500) / 1000)
}

/// PTTL key: milliseconds until a key ends; -1 if it never does, -2 if it is not there.
pub fn pttl(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_end(call, |at, now| at - now)
}

/// EXPIRETIME key: when a key ends, in Unix seconds; -1 if it never does, -2 if it is not there.
pub fn expiretime(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_end(call, |at, _| (at + 500) / 1000)
}

/// PEXPIRETIME key: when a key ends, in Unix milliseconds; -1 if it never does, -2 if it is not there.
pub fn pexpiretime(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_end(call, |at, _| at)
}

/// The unit of a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Millis,
}

/// Under which conditions EXPIRE acts.
#[derive(Default)]
struct Conditions {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut found = Self::default();
        for (at, word) in args.iter().enumerate().skip(3) {
            if args.is(at, "nx") {
                found.without = true;
            } else if args.is(at, "xx") {
                found.with = true;
            } else if args.is(at, "gt") {
                found.later = true;
            } else if args.is(at, "lt") {
                found.earlier = true;
            } else {
                return Err(CommandError::ending("ERR Unsupported option ", word));
            }
        }
        if found.without && (found.with || found.later || found.earlier) {
            return Err(CommandError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if found.later && found.earlier {
            return Err(CommandError::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(found)
    }

    /// Whether a key that ends at `current` may end at `time`. Never ending counts as the latest end.
    fn allow(&self, current: Option<i64>, time: i64) -> bool {
        !(self.without && current.is_some()
            || self.with && current.is_none()
            || self.later && current.is_none_or(|current| time <= current)
            || self.earlier && current.is_some_and(|current| time >= current))
    }
}

/// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT: the second argument is counted from `base` (Unix
/// milliseconds). A time that has passed deletes the key.
fn expire_at(call: &mut Call<'_, '_>, unit: Unit, base: u64) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let conditions = Conditions::parse(call.args)?;
    let unit = if unit == Unit::Seconds { 1000 } else { 1 };
    let time = call
        .args
        .integer(2)?
        .checked_mul(unit)
        .and_then(|time| time.checked_add(base as i64))
        .ok_or_else(|| CommandError::expire_time(call.entry.spec.name))?;
    let set = match call.txn.look(db, key)? {
        None => false,
        Some(found) => conditions.allow(found.expires_at.map(|at| at as i64), time),
    };
    if set {
        call.txn.set_expiry(db, key, Some(u64::try_from(time).unwrap_or(0)))?;
        call.notify(GENERIC, if time <= call.now as i64 { "del" } else { "expire" }, key);
    }
    call.reply.integer(i64::from(set));
    Ok(())
}

/// TTL, PTTL, EXPIRETIME and PEXPIRETIME: `show` makes the reply from the end of the key and the time now.
fn reply_end(call: &mut Call<'_, '_>, show: fn(u64, u64) -> u64) -> Result<(), CommandError> {
    let found = call.stats.read(call.txn.look(call.session.db, call.args.at(1))?);
    let end = match found {
        None => -2,
        Some(found) => found.expires_at.map_or(-1, |at| show(at, call.now) as i64),
    };
    call.reply.integer(end);
    Ok(())
}
