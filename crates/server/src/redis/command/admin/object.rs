//! OBJECT: how a value is kept. Clients use it to look inside Redis. The answers are those that Redis would give for
//! such a value, because tools choose by them how to show it.

use crate::redis::command::{Call, Command, CommandError, integer};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("object|encoding", encoding),
    Command::new("object|refcount", refcount),
    Command::new("object|idletime", idletime),
    Command::new("object|freq", freq),
    Command::new("object|help", help),
];

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];

// Redis keeps a string up to this length together with its head.
pub const EMBEDDED_BYTES_MAX: usize = 44;
// Redis shares one object for each of these integers, and shows this count for it.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
const SHARED_REFCOUNT: i64 = i32::MAX as i64;

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

/// Reads the value; without one the reply is null.
fn with_value(
    call: &mut Call<'_, '_>,
    reply: impl FnOnce(&mut crate::redis::resp::Reply<'_>, &[u8]),
) -> Result<(), CommandError> {
    let (db, key) = (call.db(), call.args.at(2));
    match call.stats.read(call.txn.get(db, key)?) {
        None => call.reply.null(),
        Some(value) => reply(&mut call.reply, &value),
    }
    Ok(())
}

fn encoding(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if let Some(encoding) = call.txn.encoding(call.session.db, call.args.at(2))? {
        call.stats.read_key(true);
        call.reply.bulk(encoding.name().as_bytes());
        return Ok(());
    }
    with_value(call, |reply, value| {
        reply.bulk(match value.len() {
            _ if integer(value).is_some() => b"int",
            0..=EMBEDDED_BYTES_MAX => b"embstr",
            _ => b"raw",
        });
    })
}

fn refcount(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    // A value that is not a string has bytes too, which may spell a number.
    if call.txn.encoding(call.session.db, call.args.at(2))?.is_some() {
        call.stats.read_key(true);
        call.reply.integer(1);
        return Ok(());
    }
    with_value(call, |reply, value| {
        let shared = integer(value).is_some_and(|value| SHARED_INTEGERS.contains(&value));
        reply.integer(if shared { SHARED_REFCOUNT } else { 1 });
    })
}

/// The idle time of the key, as far as it is known; this does not count as a read. `None`: there is no key, and the
/// reply is null.
fn peek(call: &mut Call<'_, '_>) -> Result<Option<u64>, CommandError> {
    let (db, key) = (call.db(), call.args.at(2));
    let idle = call.server.keyspace.table(db).and_then(|table| table.idle_seconds(key).ok().flatten());
    if !call.stats.read_key(idle.is_some()) {
        call.reply.null();
    }
    Ok(idle)
}

/// Seconds since the key was written, or read if the eviction policy tracks reads. Otherwise reading a key leaves no
/// trace, so that readers share no cache line.
fn idletime(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let Some(idle) = peek(call)? else { return Ok(()) };
    if call.server.config().policy().is_lfu() {
        return Err(CommandError::new(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    call.reply.integer(i64::try_from(idle).unwrap_or(i64::MAX));
    Ok(())
}

fn freq(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if peek(call)?.is_none() {
        return Ok(());
    }
    if call.server.config().policy().is_lfu() {
        let reads = call.server.keyspace.store().reads_of(call.args.at(2));
        call.reply.integer(reads.into());
        return Ok(());
    }
    Err(CommandError::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))
}
