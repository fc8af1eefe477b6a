//! When fields end, as in Redis 7.4: HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT, HTTL, HPTTL, HEXPIRETIME, HPEXPIRETIME,
//! HPERSIST.
//!
//! A field that is over is not there: a new time does not bring it back, which in Redis it does until it is deleted.

use crate::observe::keyspace_events::HASH;
use crate::redis::command::{Args, Call, CommandError};
use duramen_structures::Edit;
use std::collections::HashSet;

/// The greatest time that Redis takes, in Unix milliseconds.
const TIME_MAX: u64 = (1 << 46) - 1;

/// Times beyond so many milliseconds have no timer: the store finds them, some later.
const TIMED_AHEAD: u64 = 600_000;
/// Fields that are looked up together.
const AHEAD: usize = 16;

const NEGATIVE: CommandError = CommandError::new("ERR invalid expire time, must be >= 0");
const NO_FIELDS: CommandError =
    CommandError::new("ERR Mandatory argument FIELDS is missing or not at the right position");
const NONE_TO_EXPIRE: CommandError = CommandError::new("ERR Parameter `numFields` should be greater than 0");
const NONE_TO_SHOW: CommandError = CommandError::new("ERR Number of fields must be a positive integer");
const OTHER_COUNT: CommandError =
    CommandError::new("ERR The `numfields` parameter must match the number of arguments");

/// The reply for a field that is not there.
const NO_FIELD: i64 = -2;
/// The reply for a field without a time.
const NO_TIME: i64 = -1;
/// The reply where the condition was not met.
const NOT_SET: i64 = 0;
/// The reply where it was done.
const DONE: i64 = 1;
/// The reply for a field that was deleted, since its time has passed.
const DELETED: i64 = 2;

/// HEXPIRE key seconds [NX | XX | GT | LT] FIELDS count field …: when fields end.
pub fn hexpire(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, 1000, call.now)
}

/// HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS count field …: when fields end.
pub fn hpexpire(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, 1, call.now)
}

/// HEXPIREAT key unix-seconds [NX | XX | GT | LT] FIELDS count field …: when fields end.
pub fn hexpireat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, 1000, 0)
}

/// HPEXPIREAT key unix-milliseconds [NX | XX | GT | LT] FIELDS count field …: when fields end.
pub fn hpexpireat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    expire_at(call, 1, 0)
}

/// HTTL key FIELDS count field …: seconds until fields end.
pub fn httl(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_ends(call, |at, now| at.saturating_sub(now).div_ceil(1000))
}

/// HPTTL key FIELDS count field …: milliseconds until fields end.
pub fn hpttl(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_ends(call, u64::saturating_sub)
}

/// HEXPIRETIME key FIELDS count field …: when fields end, in Unix seconds.
pub fn hexpiretime(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_ends(call, |at, _| at.div_ceil(1000))
}

/// HPEXPIRETIME key FIELDS count field …: when fields end, in Unix milliseconds.
pub fn hpexpiretime(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_ends(call, |at, _| at)
}

/// HPERSIST key FIELDS count field …: fields never end.
pub fn hpersist(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    call.edits_one();
    let mut hash = call.txn.edit_hash(db, args.at(1))?;
    let fields = fields_from(args, 2, NONE_TO_SHOW)?;
    let count = args.len() - fields;
    let mut codes = Vec::with_capacity(count);
    let mut done = Written::default();
    for_each_field(args, fields, |some| {
        hash.prefetch(some);
        for &field in some {
            codes.push(match hash.expiry(field)? {
                None => NO_FIELD,
                Some(None) => NO_TIME,
                Some(Some(_)) if !done.add(field) => NO_TIME,
                Some(Some(_)) => DONE,
            });
        }
        Ok(())
    })?;
    hash.set_expiry(&done.fields, None)?;
    if codes.contains(&DONE) {
        hash.save()?;
        call.notify(HASH, "hpersist", args.at(1));
    }
    reply_codes(call, &codes);
    Ok(())
}

/// Deletes those of these fields that are over, for a command that writes them; how many. The caller reports it
/// ([`notify_over`]) once the hash is saved.
pub fn remove_over<'a>(
    hash: &mut Edit<'_, '_>,
    fields: impl Iterator<Item = &'a [u8]>,
) -> Result<usize, CommandError> {
    Ok(hash.remove_over(fields)?)
}

/// Reports fields that were over and that [`remove_over`] has deleted.
pub fn notify_over(call: &mut Call<'_, '_>, removed: usize) {
    if removed > 0 {
        call.stats.expired_fields.add(removed as u64);
        call.notify(HASH, "hexpired", call.args.at(1));
    }
}

/// Under which condition a field gets a time.
#[derive(Clone, Copy)]
enum Condition {
    Always,
    Without,
    With,
    Later,
    Earlier,
}

impl Condition {
    /// The condition before the fields, and the position after it.
    fn parse(args: Args<'_>) -> (Self, usize) {
        let words = [("nx", Self::Without), ("xx", Self::With), ("gt", Self::Later), ("lt", Self::Earlier)];
        let found = words.into_iter().find(|(word, _)| args.is(3, word));
        found.map_or((Self::Always, 3), |(_, condition)| (condition, 4))
    }

    /// Whether a field that ends at `current` may end at `time`. Never ending counts as the latest end.
    fn allows(self, current: Option<u64>, time: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Without => current.is_none(),
            Self::With => current.is_some(),
            Self::Later => current.is_some_and(|current| time > current),
            Self::Earlier => current.is_none_or(|current| time < current),
        }
    }
}

/// The fields that a command writes, each once.
#[derive(Default)]
struct Written<'a> {
    fields: Vec<&'a [u8]>,
    seen: HashSet<&'a [u8]>,
}

impl<'a> Written<'a> {
    fn has(&self, field: &[u8]) -> bool {
        self.seen.contains(field)
    }

    /// Whether it is new.
    fn add(&mut self, field: &'a [u8]) -> bool {
        let is_new = self.seen.insert(field);
        if is_new {
            self.fields.push(field);
        }
        is_new
    }
}

/// Calls `each` for the fields from `at` on, some at once, so that their cache misses overlap.
fn for_each_field<'a>(
    args: Args<'a>,
    at: usize,
    each: impl FnMut(&[&'a [u8]]) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let fields: Vec<&[u8]> = args.from(at).collect();
    fields.chunks(AHEAD).try_for_each(each)
}

/// The position of the first field, where FIELDS and their number begin at `at`; `none` is the error for another
/// number.
fn fields_from(args: Args<'_>, at: usize, none: CommandError) -> Result<usize, CommandError> {
    if !args.is(at, "fields") {
        return Err(NO_FIELDS);
    }
    let count = args.integer(at + 1).ok().and_then(|count| usize::try_from(count).ok());
    match count.filter(|&count| count > 0 && i32::try_from(count).is_ok()) {
        None => Err(none),
        Some(count) if count != args.len().saturating_sub(at + 2) => Err(OTHER_COUNT),
        Some(_) => Ok(at + 2),
    }
}

/// HEXPIRE, HPEXPIRE, HEXPIREAT and HPEXPIREAT: the second argument is counted from `base` (Unix milliseconds). A time
/// that has passed deletes the field.
fn expire_at(call: &mut Call<'_, '_>, unit: u64, base: u64) -> Result<(), CommandError> {
    let (db, args, now) = (call.session.db, call.args, call.now);
    call.edits_one();
    let mut hash = call.txn.edit_hash(db, args.at(1))?;
    let time = u64::try_from(args.integer(2)?).map_err(|_| NEGATIVE)?;
    let time = time.checked_mul(unit).and_then(|time| time.checked_add(base));
    let time = time
        .filter(|&time| time <= TIME_MAX)
        .ok_or_else(|| CommandError::expire_time(call.entry.spec.name))?;
    let (condition, at) = Condition::parse(args);
    let fields = fields_from(args, at, NONE_TO_EXPIRE)?;
    let over = remove_over(&mut hash, args.from(fields))?;
    let mut codes = Vec::with_capacity(args.len() - fields);
    let is_past = time <= now;
    let mut done = Written::default();
    for_each_field(args, fields, |some| {
        hash.prefetch(some);
        for &field in some {
            // A field that is named again has its new time.
            let current = match hash.expiry(field)? {
                Some(_) if done.has(field) => (!is_past).then_some(Some(time)),
                current => current,
            };
            codes.push(match current {
                None => NO_FIELD,
                Some(current) if !condition.allows(current, time) => NOT_SET,
                Some(_) => {
                    done.add(field);
                    if is_past { DELETED } else { DONE }
                }
            });
        }
        Ok(())
    })?;
    if is_past {
        hash.remove_all(done.fields.iter().copied())?;
    } else if !done.fields.is_empty() {
        hash.set_expiry(&done.fields, Some(time))?;
        if time - now <= TIMED_AHEAD {
            for field in &done.fields {
                call.server.field_timers.note_field(db, args.at(1), field, time);
            }
        }
    }
    let (is_set, is_deleted) = (codes.contains(&DONE), codes.contains(&DELETED));
    let is_gone = hash.is_empty() && (over > 0 || is_deleted);
    if over > 0 || is_set || is_deleted {
        hash.save()?;
    }
    notify_over(call, over);
    if is_set {
        call.notify(HASH, "hexpire", args.at(1));
    }
    if is_deleted {
        call.notify(HASH, "hdel", args.at(1));
    }
    if is_gone {
        call.notify(crate::observe::keyspace_events::GENERIC, "del", args.at(1));
    }
    reply_codes(call, &codes);
    Ok(())
}

/// HTTL, HPTTL, HEXPIRETIME and HPEXPIRETIME: `show` makes the reply from the end of the field and the time now.
fn reply_ends(call: &mut Call<'_, '_>, show: fn(u64, u64) -> u64) -> Result<(), CommandError> {
    let (args, now) = (call.args, call.now);
    let hash = call.stats.read(call.txn.hash(call.session.db, args.at(1))?);
    let fields = fields_from(args, 2, NONE_TO_SHOW)?;
    call.reply.array(args.len() - fields);
    for_each_field(args, fields, |some| {
        if let Some(hash) = &hash {
            hash.prefetch(some);
        }
        for field in some {
            let end = match hash.as_ref().map(|hash| hash.expiry(field)).transpose()?.flatten() {
                None => NO_FIELD,
                Some(None) => NO_TIME,
                Some(Some(at)) => show(at, now) as i64,
            };
            call.reply.integer(end);
        }
        Ok(())
    })
}

fn reply_codes(call: &mut Call<'_, '_>, codes: &[i64]) {
    call.reply.array(codes.len());
    codes.iter().for_each(|code| call.reply.integer(*code));
}
