//! SCRIPT and FUNCTION without scripts: listing and removing succeed, running fails.

use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Args, Call, Command, CommandError};

const NO_SCRIPTS: CommandError = CommandError::new("ERR scripts are not supported");
const NOT_BUSY: CommandError = CommandError::new("NOTBUSY No scripts in execution right now.");

/// The subcommands of SCRIPT.
pub const SCRIPT: &[Command] = &[
    Command::new("script|debug", debug),
    Command::new("script|exists", exists),
    Command::new("script|flush", |call| flush(call, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    Command::new("script|kill", |_| Err(NOT_BUSY)),
    Command::new("script|load", |_| Err(NO_SCRIPTS)),
    Command::new("script|help", |call| {
        call.reply.lines(SCRIPT_HELP);
        Ok(())
    }),
];

/// The subcommands of FUNCTION.
pub const FUNCTION: &[Command] = &[
    Command::new("function|delete", |_| Err(CommandError::new("ERR Library not found"))),
    Command::new("function|dump", dump),
    Command::new("function|flush", |call| flush(call, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
    Command::new("function|kill", |_| Err(NOT_BUSY)),
    Command::new("function|list", list),
    Command::new("function|load", |_| Err(NO_SCRIPTS)),
    Command::new("function|restore", restore),
    Command::new("function|stats", stats),
    Command::new("function|help", |call| {
        call.reply.lines(FUNCTION_HELP);
        Ok(())
    }),
];

// An empty library in Redis's form: version 10 and its checksum.
const DUMP: &[u8] = b"\x0a\x00\x5d\x9b\x5c\x40\x0f\x7f\xa2\xda";

const SCRIPT_HELP: &[&str] = &[
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DEBUG (YES|SYNC|NO)",
    "    Set the debug mode for subsequent scripts executed.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache. Very dangerous on replicas.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the scripts cache.",
    "    * SYNC: Synchronously flush the scripts cache.",
    "KILL",
    "    Kill the currently executing Lua script.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
    "HELP",
    "    Prints this help.",
];

const FUNCTION_HELP: &[&str] = &[
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

fn exists(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(call.args.len() - 2);
    for _ in call.args.from(2) {
        call.reply.integer(0);
    }
    Ok(())
}

fn flush(call: &mut Call<'_, '_>, error: &'static str) -> Result<(), CommandError> {
    let is_mode = |args: Args<'_>| args.is(2, "sync") || args.is(2, "async");
    match call.args.len() {
        2 => {}
        3 if is_mode(call.args) => {}
        _ => return Err(CommandError::new(error)),
    }
    call.reply.ok();
    Ok(())
}

/// SCRIPT DEBUG YES|SYNC|NO: there is no script to be debugged.
fn debug(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !["yes", "sync", "no"].iter().any(|word| call.args.is(2, word)) {
        return Err(CommandError::new("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    }
    call.reply.ok();
    Ok(())
}

/// FUNCTION RESTORE payload [FLUSH|APPEND|REPLACE]: accepts only the output of FUNCTION DUMP, which is empty.
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
    if args.at(2) != DUMP {
        return Err(CommandError::new("ERR DUMP payload version or checksum are wrong"));
    }
    call.reply.ok();
    Ok(())
}

fn dump(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.bulk(DUMP);
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (mut code, mut name) = (false, false);
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "withcode") && !code {
            code = true;
        } else if args.is(at, "libraryname") && !name {
            at += 1;
            if at == args.len() {
                return Err(CommandError::new("ERR library name argument was not given"));
            }
            name = true;
        } else {
            return Err(CommandError::ending("ERR Unknown argument ", args.at(at)));
        }
        at += 1;
    }
    call.reply.array(0);
    Ok(())
}

fn stats(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let reply = &mut call.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    reply.null();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    for name in ["libraries_count", "functions_count"] {
        reply.bulk(name.as_bytes());
        reply.integer(0);
    }
    Ok(())
}
