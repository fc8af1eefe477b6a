//! Values in Redis's own payload format: DUMP, RESTORE.

use crate::observe::keyspace_events::GENERIC;
use crate::redis::command::string::string_bytes_max;
use crate::redis::command::{Args, Call, CommandError, errors};
use duramen_structures::dump;

/// DUMP key: the value in Redis's own payload format, for RESTORE here or there.
pub fn dump_command(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    match call.stats.read(call.txn.dumped(db, key)?) {
        Some((value, _)) => call.reply.bulk(&dump::signed(value)),
        None => call.reply.null(),
    }
    Ok(())
}

/// RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]: stores a value from DUMP.
pub fn restore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let options = Options::parse(call.args)?;
    if !options.replace && call.txn.exists(db, key)? {
        return Err(CommandError::new("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(call.args.integer(2)?)
        .map_err(|_| CommandError::new("ERR Invalid TTL value, must be >= 0"))?;
    let value = dump::restore(call.args.at(3), string_bytes_max(call.server, u64::MAX))?;
    let expires_at = match ttl {
        0 => None,
        ttl if options.absolute => Some(ttl),
        // A time that overflows counts as passed, as in Redis.
        ttl => Some(call.now.checked_add(ttl).filter(|&time| i64::try_from(time).is_ok()).unwrap_or(0)),
    };
    if expires_at.is_some_and(|time| time <= call.now) {
        // As the reference has it, nothing is written, unlike by SET with such a time.
        if call.txn.delete(db, key)? {
            call.notify(GENERIC, "del", key);
        }
    } else {
        call.txn.put_restored(db, key, &value, expires_at)?;
        call.notify_new(db, key);
        call.notify(GENERIC, "restore", key);
    }
    call.reply.ok();
    Ok(())
}

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        // Both are checked, and of no effect: a key is idle, and counts as unread, since it was written here.
        let (mut idle, mut frequency) = (false, false);
        let mut at = 4;
        while at < args.len() {
            let more = at + 1 < args.len();
            if args.is(at, "replace") {
                options.replace = true;
            } else if args.is(at, "absttl") {
                options.absolute = true;
            } else if args.is(at, "idletime") && more && !frequency {
                at += 1;
                if args.integer(at)? < 0 {
                    return Err(CommandError::new("ERR Invalid IDLETIME value, must be >= 0"));
                }
                idle = true;
            } else if args.is(at, "freq") && more && !idle {
                at += 1;
                if u8::try_from(args.integer(at)?).is_err() {
                    return Err(CommandError::new("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
                frequency = true;
            } else {
                return Err(errors::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}
