//! DEBUG SLEEP seconds: delays this client. Redis stops for all of them; to a single client it is the same.
//!
//! DEBUG DIGEST, DIGEST-VALUE, POPULATE, PROTOCOL, OBJECT, SET-ACTIVE-EXPIRE, QUICKLIST-PACKED-THRESHOLD, ERROR, LOG,
//! RELOAD and LOADAOF: for the tests of clients and of Redis.
//!
//! DEBUG PANIC [WRITE]: a bug on purpose, in a command or within a write of the engine, to test its consequences. In
//! Redis DEBUG PANIC ends the server. Only where `enable-debug-command` allows it; DEBUG SLEEP affects no other client.

use super::digest;
use crate::config::{Allowed, value};
use crate::observe::log;
use crate::redis::command::string::string_bytes_max;
use crate::redis::command::{After, Apply, Call, CommandError, errors, integer};
use crate::redis::resp::Protocol;
use duramen_structures::string_until;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

// A longer sleep would last until the next restart anyway.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DIGEST",
    "    Output a hex signature representing the current DB content.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Output a hex signature of the values of all the specified keys.",
    "ERROR <string>",
    "    Return a Redis protocol error with <string> as message. Useful for clients",
    "    unit tests to simulate Redis errors.",
    "LOG <message>",
    "    Write <message> to the server log.",
    "LOADAOF",
    "    As RELOAD.",
    "OBJECT <key>",
    "    Show low level info about `key` and associated value.",
    "PANIC [WRITE]",
    "    Panic in this command; with WRITE within a write, which poisons the store.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> string keys named key:<num>. If <prefix> is specified then",
    "    it is used instead of the 'key' prefix.",
    "PROTOCOL <type>",
    "    Reply with a test value of the specified type. <type> can be: string,",
    "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
    "    true, false.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Of no effect: an element is packed or not by its list's size.",
    "RELOAD [option ...]",
    "    Save: the store is not read again before it is opened again.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Of no effect: a key that has expired is not there, swept or not.",
    "SLEEP <seconds>",
    "    Stop the server for <seconds>. Decimals allowed.",
    "HELP",
    "    Prints this help.",
];

const NOT_ALLOWED: CommandError = CommandError::new(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, \
     otherwise you need to set this option in the configuration file, and then restart the server.",
);

fn is_allowed(call: &Call<'_, '_>) -> bool {
    let client = &call.session.client;
    let is_local = || {
        client.unix || ["127.", "[::1]"].iter().any(|worker_state| client.address.starts_with(worker_state))
    };
    match call.server.config().enable_debug_command {
        Allowed::No => false,
        Allowed::Local => is_local(),
        Allowed::Yes => true,
    }
}

/// DEBUG SLEEP seconds, PANIC [WRITE], and HELP.
#[expect(clippy::panic, reason = "what DEBUG PANIC is for")]
pub fn debug(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    if args.is(1, "sleep") && args.len() == 3 {
        // An argument that is no number is 0, as for C's strtod.
        let seconds = std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let sleep = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(SLEEP_MAX);
        if !sleep.is_zero() {
            call.session.paused_until = Some(Instant::now() + sleep);
            call.worker_state.slept = sleep;
        }
        call.reply.ok();
        return Ok(());
    }
    if args.is(1, "panic") && (args.len() == 2 || args.len() == 3 && args.is(2, "write")) {
        if !is_allowed(call) {
            return Err(NOT_ALLOWED);
        }
        if args.len() == 3 {
            call.txn.panic_within_a_write();
        }
        std::panic::panic_any("DEBUG PANIC");
    }
    if args.is(1, "help") && args.len() == 2 {
        call.reply.lines(HELP);
        return Ok(());
    }
    let more: Option<(RangeInclusive<usize>, Apply)> = match args.at(1).to_ascii_lowercase().as_slice() {
        b"digest" => Some((2..=2, digest::all)),
        b"digest-value" => Some((2..=usize::MAX, digest::values)),
        b"populate" => Some((3..=5, populate)),
        b"protocol" => Some((3..=3, protocol)),
        b"object" => Some((3..=usize::MAX, object)),
        b"error" => Some((3..=3, |call| Err(CommandError::ending("", call.args.at(2))))),
        b"set-active-expire" => Some((3..=3, set_active_expire)),
        b"quicklist-packed-threshold" => Some((3..=3, packed_threshold)),
        b"log" => Some((3..=3, log_message)),
        b"loadaof" => Some((2..=2, save)),
        b"reload" => Some((2..=usize::MAX, reload)),
        _ => None,
    };
    if let Some((_, apply)) = more.filter(|(counts, _)| counts.contains(&args.len())) {
        return if is_allowed(call) { apply(call) } else { Err(NOT_ALLOWED) };
    }
    let name = String::from_utf8_lossy(args.at(1));
    Err(CommandError::with(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
    )))
}

/// Accepts the same arguments as Redis.
fn packed_threshold(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let text = String::from_utf8_lossy(call.args.at(2));
    value::bytes(&text, 0, u64::from(u32::MAX)).map_err(|_| {
        CommandError::new("ERR argument must be a memory value bigger than 1 and smaller than 4gb")
    })?;
    call.reply.ok();
    Ok(())
}

/// Whether fields whose time has come are deleted. Keys are always: nobody sees them meanwhile.
fn set_active_expire(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.server.deletes_fields.store(call.args.at(2) != b"0", Ordering::Relaxed);
    ok(call)
}

fn ok(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.ok();
    Ok(())
}

fn log_message(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    log::warning(format_args!("DEBUG LOG: {}", String::from_utf8_lossy(call.args.at(2))));
    ok(call)
}

fn save(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    *call.after = After::Save;
    ok(call)
}

fn reload(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    if (2..args.len()).any(|at| !["merge", "noflush", "nosave"].iter().any(|word| args.is(at, word))) {
        return Err(CommandError::new(
            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
        ));
    }
    save(call)
}

/// DEBUG POPULATE count [prefix] [size]: adds that many strings, except existing ones.
fn populate(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.db(), call.args);
    let number = |at| {
        let given = if at < args.len() { integer(args.at(at)) } else { Some(0) };
        given.and_then(|number| usize::try_from(number).ok()).ok_or(errors::NOT_POSITIVE)
    };
    let (count, size) = (number(2)?, number(4)?);
    if size as u64 > string_bytes_max(call.server, u64::MAX) {
        return Err(errors::NOT_POSITIVE);
    }
    let prefix = if args.len() > 3 { args.at(3) } else { b"key" };
    for at in 0..count {
        let key = [prefix, format!(":{at}").as_bytes()].concat();
        if !call.txn.exists(db, &key)? {
            let mut value = format!("value:{at}").into_bytes();
            if size > 0 {
                value.resize(size, 0);
            }
            call.txn.forget_reads();
            if !call.txn.put_at_once(db, &key, &value, string_until(None))? {
                call.txn.put(db, &key, &value)?;
            }
            call.notify_new(db, &key);
        }
        call.txn.forget_reads();
    }
    call.reply.ok();
    Ok(())
}

/// DEBUG OBJECT key. Addresses in memory are not shown.
fn object(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.db(), call.args.at(2));
    let encoding = match call.txn.encoding(db, key)? {
        Some(encoding) => encoding.name(),
        None => "",
    };
    let value = call.txn.get(db, key)?.ok_or(errors::NO_SUCH_KEY)?;
    let length = value.len();
    let encoding = match encoding {
        "" if integer(&value).is_some() => "int",
        "" if length <= super::object::EMBEDDED_BYTES_MAX => "embstr",
        "" => "raw",
        encoding => encoding,
    };
    call.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{length} lru:0 lru_seconds_idle:0"
    ));
    Ok(())
}

/// DEBUG PROTOCOL type: a reply of this type.
fn protocol(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let is_new = call.reply.protocol == Protocol::Resp3;
    let reply = &mut call.reply;
    match call.args.at(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12_345),
        b"double" => reply.double("3.141"),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => {
            if is_new {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if !is_new => return Err(CommandError::new("ERR RESP2 is not supported by this command")),
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim("This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        _ => {
            return Err(CommandError::new(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
