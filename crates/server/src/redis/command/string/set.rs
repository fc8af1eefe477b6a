//! Writes a whole string: SET, SETNX, SETEX, PSETEX, GETSET.

use super::expiry::{Clock, Expiry};
use crate::observe::keyspace_events::{GENERIC, STRING};
use crate::redis::command::{Args, Call, CommandError, KeyFlags};
use duramen_structures::string_until;

/// SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]: a key becomes a string.
pub fn set(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.merged > 1 {
        set_each(call);
        return Ok(());
    }
    let (db, key, value) = (call.session.db, call.args.at(1), call.args.at(2));
    let options = Options::parse(call.args)?;
    let mut expires_at = options.expiry.deadline(call.now, call.entry.spec.name)?;
    if options.get || options.condition.is_some() || options.expiry == Expiry::Keep {
        let old = call.txn.look(db, key)?;
        let exists = old.is_some();
        if options.expiry == Expiry::Keep {
            expires_at = old.and_then(|old| old.expires_at);
        }
        if options.get {
            match call.stats.read(call.txn.get_string(db, key)?) {
                Some(old) => call.reply.bulk(&old),
                None => call.reply.null(),
            }
        }
        if options.condition.is_some_and(|condition| exists != (condition == Condition::Exists)) {
            if !options.get {
                call.reply.null();
            }
            return Ok(());
        }
    }
    let meta = string_until(expires_at);
    // If a client watches the key, the transaction checks it. The same holds if a client waits for a stream entry there
    // or is notified of the write: the key's lock gives the event its place.
    if !is_looked_at(call) && call.txn.put_at_once(db, key, value, meta)? {
        call.stats.changes.add(1);
    } else {
        call.txn.put_with(db, key, value, meta)?;
    }
    if !options.get {
        call.reply.ok();
    }
    call.notify(STRING, "set", key);
    if matches!(options.expiry, Expiry::At(..)) {
        call.notify(GENERIC, "expire", key);
    }
    Ok(())
}

/// A batch with a key and a value each. Stops before the first that cannot be done at once.
fn set_each(call: &mut Call<'_, '_>) {
    let (db, meta, mut done) = (call.session.db, string_until(None), 0);
    while done < call.merged {
        let (key, value) = (call.args.at(1 + 2 * done), call.args.at(2 + 2 * done));
        if is_looked_at(call) || !matches!(call.txn.put_at_once(db, key, value, meta), Ok(true)) {
            break;
        }
        call.reply.ok();
        call.stats.changes.add(1);
        call.notify(STRING, "set", key);
        done += 1;
    }
    call.worker_state.undone = call.merged - done;
}

/// Whether somebody needs to know of a write what a transaction does.
fn is_looked_at(call: &Call<'_, '_>) -> bool {
    let server = call.server;
    call.in_transaction
        || server.waiting.count() > 0
        || server.tracking.is_any()
        || server.notifications() != 0
        || server.expiry_timers.is_any()
}

/// What SET does with its key: with GET it reads it too.
pub fn key_flags(args: Args<'_>) -> KeyFlags {
    if (3..args.len()).any(|index| args.is(index, "get")) {
        KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE)
    } else {
        KeyFlags::OW.with(KeyFlags::UPDATE)
    }
}

/// SETNX key value: SET if the key is not there; 1 or 0.
pub fn setnx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let absent = !call.txn.exists(db, key)?;
    if absent {
        call.txn.put(db, key, call.args.at(2))?;
        call.notify(STRING, "set", key);
    }
    call.reply.integer(i64::from(absent));
    Ok(())
}

/// SETEX key seconds value: SET with an expiry time.
pub fn setex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    set_for(call, Clock::SecondsFromNow)
}

/// PSETEX key milliseconds value: SET with an expiry time.
pub fn psetex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    set_for(call, Clock::MillisFromNow)
}

fn set_for(call: &mut Call<'_, '_>, clock: Clock) -> Result<(), CommandError> {
    let expiry = Expiry::At(clock, call.args.at(2));
    let expires_at = expiry.deadline(call.now, call.entry.spec.name)?;
    call.txn.put_with(call.session.db, call.args.at(1), call.args.at(3), string_until(expires_at))?;
    call.notify(STRING, "set", call.args.at(1));
    call.notify(GENERIC, "expire", call.args.at(1));
    call.reply.ok();
    Ok(())
}

/// GETSET key value: SET that returns the old value.
pub fn getset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    match call.stats.read(call.txn.get_string(db, key)?) {
        Some(value) => call.reply.bulk(&value),
        None => call.reply.null(),
    }
    call.txn.put(db, key, call.args.at(2))?;
    call.notify(STRING, "set", key);
    Ok(())
}

/// When SET writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Exists,
    Absent,
}

struct Options<'a> {
    condition: Option<Condition>,
    get: bool,
    expiry: Expiry<'a>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self { condition: None, get: false, expiry: Expiry::None };
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "nx") && options.condition != Some(Condition::Exists) {
                options.condition = Some(Condition::Absent);
            } else if args.is(at, "xx") && options.condition != Some(Condition::Absent) {
                options.condition = Some(Condition::Exists);
            } else if args.is(at, "get") {
                options.get = true;
            } else if args.is(at, "keepttl") && matches!(options.expiry, Expiry::None | Expiry::Keep) {
                options.expiry = Expiry::Keep;
            } else {
                options.expiry = options.expiry.parse(args, &mut at)?;
            }
            at += 1;
        }
        Ok(options)
    }
}
