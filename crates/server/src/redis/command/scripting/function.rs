//! FUNCTION, FCALL and FCALL_RO. A command that changes libraries runs alone, and writes all of them as one value.

use super::eval::{check_flags, key_count, run_function, show};
use super::script::{busy_error, kill};
use crate::redis::command::admin::REDIS_VERSION;
use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Args, Call, Command, CommandError};
use crate::redis::resp::Reply;
use crate::scripts::{Libraries, Library, Refused, Words, check, readers};
use crate::server::Server;
use duramen_lua::ScriptFlags;
use duramen_structures::dump::functions::{self, NotLibraries};
use duramen_structures::{dump, glob};

/// The longest code of a library.
const CODE_BYTES_MAX: u64 = 512 << 20;

/// The subcommands of FUNCTION.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("function|delete", delete),
    Command::new("function|dump", dump_all),
    Command::new("function|flush", flush),
    Command::new("function|kill", |call| kill(call, true)),
    Command::new("function|list", list),
    Command::new("function|load", load),
    Command::new("function|restore", restore),
    Command::new("function|stats", stats),
    Command::new("function|help", |call| {
        call.reply.lines(HELP);
        Ok(())
    }),
];

const HELP: &[&str] = &[
    "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries:",
    "    * Library name",
    "    * The engine used to run the Library",
    "    * Library description",
    "    * Functions list",
    "    * Library code (if WITHCODE is given)",
    "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
    "STATS",
    "    Return information about the current function running:",
    "    * Function name",
    "    * Command used to run the function",
    "    * Duration in MS that the function is running",
    "    If no function is running, return nil",
    "    In addition, returns a list of available engines.",
    "KILL",
    "    Kill the current running function.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the libraries.",
    "    * SYNC: Synchronously flush the libraries.",
    "DUMP",
    "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
    "    control how to handle existing libraries (default APPEND):",
    "    * FLUSH: delete all existing libraries.",
    "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
    "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
    "      libraries with the new libraries (notice that even on this option there is a chance of failure",
    "      in case of functions name collision with another library).",
    "HELP",
    "    Prints this help.",
];

impl From<Refused> for CommandError {
    fn from(refused: Refused) -> Self {
        Self::ending("ERR ", &refused.0)
    }
}

/// The libraries as they are for this command: those of the store, with what its transaction has changed. `None`: the
/// command begins again.
fn libraries(call: &mut Call<'_, '_>) -> Result<Option<Box<Libraries>>, CommandError> {
    let known = &call.server.libraries;
    let mut own = call.worker_state.libraries.take().unwrap_or_default();
    // Before the value is read: a change after it is seen the next time.
    let changes = known.changes();
    let has_changed = call.worker_state.changed_libraries.is_some();
    if has_changed || !own.are_of(changes) {
        let Some(body) = call.txn.libraries()? else {
            call.worker_state.libraries = Some(own);
            return Ok(None);
        };
        let codes = functions::read(&body, CODE_BYTES_MAX)
            .map_err(|_| CommandError::new("ERR the stored libraries of functions are malformed"))?;
        own.load(codes, (!has_changed).then_some(changes), REDIS_VERSION, known);
    }
    Ok(Some(own))
}

/// Calls `work` with them.
fn with_libraries<T: Default>(
    call: &mut Call<'_, '_>,
    work: impl FnOnce(&mut Call<'_, '_>, &mut Libraries) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let Some(mut own) = libraries(call)? else { return Ok(T::default()) };
    let done = work(call, &mut own);
    call.worker_state.libraries = Some(own);
    done
}

/// Writes the codes of all libraries.
fn put<'l>(
    call: &mut Call<'_, '_>,
    all: impl Iterator<Item = &'l Library> + Clone,
) -> Result<(), CommandError> {
    let body = functions::write(all.clone().map(|library| &library.code[..]));
    call.txn.put_libraries(&body)?;
    call.worker_state.changed_libraries = Some(readers(all));
    Ok(())
}

/// FCALL function numkeys [key …] [arg …]
pub fn fcall(call: &mut Call<'_, '_>, only_reads: bool) -> Result<(), CommandError> {
    show(call);
    with_libraries(call, |call, own| {
        let name = call.args.at(1);
        let Some((registered, function, lua)) = own.function(name) else {
            return Err(CommandError::new("ERR Function not found"));
        };
        call.args.integer(2).map_err(|_| CommandError::new("ERR Bad number of keys provided"))?;
        let keys = key_count(call)?;
        let flags = registered.flags;
        check_flags(flags, only_reads)?;
        let only_reads = only_reads || flags.has(ScriptFlags::NO_WRITES);
        let ran = run_function(call, lua, function, keys, only_reads, Some(name));
        ran.reply(call, name)
    })
}

/// FUNCTION LOAD [REPLACE] code
fn load(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let last = args.len() - 1;
    let mut replaces = false;
    for at in 2..last {
        if !args.is(at, "replace") {
            return Err(CommandError::ending("ERR Unknown option given: ", args.at(at)));
        }
        replaces = true;
    }
    if last < 2 {
        return Err(CommandError::new("ERR Function code is missing"));
    }
    with_libraries(call, |call, own| {
        let exists = |name: &[u8]| !replaces && own.all().iter().any(|library| library.name == name);
        let library = check(args.at(last), REDIS_VERSION, exists)?;
        let new = [(library, replaces)];
        put(call, own.with(&new, Words::Load)?.into_iter())?;
        call.reply.bulk(&new[0].0.name);
        Ok(())
    })
}

/// FUNCTION DELETE library
fn delete(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    with_libraries(call, |call, own| {
        let name = call.args.at(2);
        if !own.all().iter().any(|library| library.name == name) {
            return Err(CommandError::new("ERR Library not found"));
        }
        put(call, own.all().iter().filter(|library| library.name != name))?;
        call.reply.ok();
        Ok(())
    })
}

/// FUNCTION FLUSH [SYNC|ASYNC]
fn flush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let is_mode = |args: Args<'_>| args.is(2, "sync") || args.is(2, "async");
    match call.args.len() {
        2 => {}
        3 if is_mode(call.args) => {}
        3 => return Err(CommandError::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(subcommand_arguments_error(call.entry, call.args)),
    }
    put(call, std::iter::empty())?;
    call.reply.ok();
    Ok(())
}

/// FUNCTION DUMP
fn dump_all(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if let Some(body) = call.txn.libraries()? {
        call.reply.bulk(&dump::signed(body));
    }
    Ok(())
}

/// FUNCTION RESTORE payload [FLUSH|APPEND|REPLACE]
fn restore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    match args.len() {
        3 => {}
        4 if ["flush", "append", "replace"].iter().any(|word| args.is(3, word)) => {}
        4 => {
            return Err(CommandError::new(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
        _ => return Err(subcommand_arguments_error(call.entry, args)),
    }
    let (flushes, replaces) = (args.is(3, "flush"), args.is(3, "replace"));
    let body = dump::unsigned(args.at(2))
        .map_err(|_| CommandError::new("ERR DUMP payload version or checksum are wrong"))?;
    let codes = functions::read(body, CODE_BYTES_MAX).map_err(|why| {
        CommandError::new(match why {
            NotLibraries::OtherType => "ERR given type is not a function",
            NotLibraries::Malformed => "ERR failed loading the given functions payload",
        })
    })?;
    with_libraries(call, |call, own| {
        let mut new: Vec<(Library, bool)> = Vec::new();
        for code in &codes {
            let library = check(code, REDIS_VERSION, |name| new.iter().any(|(other, _)| other.name == name))?;
            new.push((library, replaces));
        }
        let none = Libraries::default();
        let all = if flushes { &none } else { &*own }.with(&new, Words::Restore)?;
        put(call, all.into_iter())?;
        call.reply.ok();
        Ok(())
    })
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
fn list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (mut with_code, mut pattern) = (false, None);
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "withcode") && !with_code {
            with_code = true;
        } else if args.is(at, "libraryname") && pattern.is_none() {
            at += 1;
            if at == args.len() {
                return Err(CommandError::new("ERR library name argument was not given"));
            }
            pattern = Some(args.at(at));
        } else {
            return Err(CommandError::ending("ERR Unknown argument ", args.at(at)));
        }
        at += 1;
    }
    with_libraries(call, |call, own| {
        let is_wanted = |library: &&Library| {
            pattern.is_none_or(|pattern| glob::matches_ignore_case(pattern, &library.name))
        };
        call.reply.array(own.all().iter().filter(is_wanted).count());
        for library in own.all().iter().filter(is_wanted) {
            write_library(call, library, with_code);
        }
        Ok(())
    })
}

fn write_library(call: &mut Call<'_, '_>, library: &Library, with_code: bool) {
    let reply = &mut call.reply;
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for (function, _) in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        match &function.description {
            Some(description) => reply.bulk(description),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        function.flags.names().for_each(|name| reply.simple(name));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

/// FUNCTION STATS
fn stats(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let busy = call.server.running_scripts.first();
    if let Some(busy) = busy.as_ref().filter(|busy| !busy.is_function) {
        return Err(busy_error(busy));
    }
    // While a function runs too long, the last counts serve: it may have locked everything.
    if busy.is_none() {
        with_libraries(call, |_, _| Ok(()))?;
    }
    write_stats(call.server, &mut call.reply);
    Ok(())
}

/// The reply of FUNCTION STATS, with the counts of the last worker that loaded libraries.
pub fn write_stats(server: &Server, reply: &mut Reply<'_>) {
    let busy = server.running_scripts.first();
    let (libraries, functions) = server.libraries.counts();
    reply.map(2);
    reply.bulk(b"running_script");
    match busy {
        None => reply.null(),
        Some(busy) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&busy.name);
            reply.bulk(b"command");
            reply.array(busy.command.len());
            busy.command.iter().for_each(|argument| reply.bulk(argument));
            reply.bulk(b"duration_ms");
            reply.count(busy.since.elapsed().as_millis() as usize);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries);
    reply.bulk(b"functions_count");
    reply.count(functions);
}
