//! Values in Redis's own payload format: DUMP, RESTORE.

use crate::command::string::string_bytes_max;
use crate::command::{Args, Call, CommandError, errors};
use duramen_structures::dump::{self, Restored};
use duramen_structures::{Encoding, Type, string_until};

/// DUMP key: the value in Redis's own payload format, for RESTORE here or there.
pub fn dump_command(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let Some(found) = call.stats.read(call.txn.get(db, key)?) else {
        call.reply.null();
        return Ok(());
    };
    match Type::of_tag(found.tag()) {
        Some(Type::String) => call.reply.bulk(&dump::string(&found)),
        Some(Type::Hash) => {
            let Some(hash) = call.txn.hash(db, key)? else { return Err(errors::NO_SUCH_KEY) };
            call.reply.bulk(&dump::hash(&hash.pairs()?, hash.encoding() == Encoding::Listpack));
        }
        Some(Type::List) => {
            let Some(list) = call.txn.list(db, key)? else { return Err(errors::NO_SUCH_KEY) };
            call.reply.bulk(&dump::list(&list.list()?));
        }
        Some(Type::Set) => {
            let Some(set) = call.txn.set(db, key)? else { return Err(errors::NO_SUCH_KEY) };
            call.reply.bulk(&dump::set(&set.list()?, set.encoding() == Encoding::Intset));
        }
        Some(Type::SortedSet) => {
            let Some(set) = call.txn.sorted_set(db, key)? else { return Err(errors::NO_SUCH_KEY) };
            call.reply.bulk(&dump::sorted_set(&set.scored()?, set.encoding() == Encoding::Listpack));
        }
        Some(Type::Stream) => {
            let Some(stream) = call.txn.stream(db, key)? else { return Err(errors::NO_SUCH_KEY) };
            call.reply.bulk(&stream.dumped()?);
        }
        _ => return Err(errors::WRONG_TYPE),
    }
    Ok(())
}

/// RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]: the value that DUMP told.
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
        // A time beyond what is counted in has passed, as in the reference.
        ttl => Some(call.now.checked_add(ttl).filter(|&time| i64::try_from(time).is_ok()).unwrap_or(0)),
    };
    if expires_at.is_some_and(|time| time <= call.now) {
        // As the reference has it, nothing is written, unlike by SET with such a time.
        call.txn.delete(db, key)?;
    } else {
        put(call, value, expires_at)?;
    }
    call.reply.ok();
    Ok(())
}

fn put(call: &mut Call<'_, '_>, value: Restored, expires_at: Option<u64>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    match value {
        Restored::String(value) => return Ok(call.txn.put_vec(db, key, value, string_until(expires_at))?),
        Restored::Hash(strings) => {
            let pairs: Vec<_> = strings.chunks_exact(2).map(|pair| (&pair[0][..], &pair[1][..])).collect();
            call.txn.put_hash(db, key, &pairs)?;
        }
        Restored::List(elements) => {
            let elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
            call.txn.put_list(db, key, &elements)?;
        }
        Restored::SortedSet(members) => {
            let members = members.iter().map(|(member, score)| (&member[..], *score)).collect();
            call.txn.put_sorted_set(db, key, members)?;
        }
        Restored::Stream(run) => call.txn.put_stream(db, key, run)?,
        Restored::Set(members) => {
            call.txn.put_set(db, key, members.iter().map(Vec::as_slice).collect())?;
        }
    }
    if expires_at.is_some() {
        call.txn.set_expiry(db, key, expires_at)?;
    }
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
        let (mut idle, mut frequency) = (false, false);
        let mut at = 4;
        while at < args.len() {
            let more = at + 1 < args.len();
            if args.is(at, "replace") {
                options.replace = true;
            } else if args.is(at, "absttl") {
                options.absolute = true;
            } else if args.is(at, "idletime") && more && !frequency {
                // Checked, and of no effect: nothing is evicted here.
                at += 1;
                if args.integer(at)? < 0 {
                    return Err(CommandError::new("ERR Invalid IDLETIME value, must be >= 0"));
                }
                idle = true;
            } else if args.is(at, "freq") && more && !idle {
                at += 1;
                if !(0..=255).contains(&args.integer(at)?) {
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
