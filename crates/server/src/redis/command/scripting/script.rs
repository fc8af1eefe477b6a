//! SCRIPT: the texts of scripts, and an end to one that runs too long.

use super::eval::{compile, header_of};
use crate::redis::command::{Args, Call, Command, CommandError};
use crate::scripts::{Busy, NotKilled, digest_of, digest_of_text};
use crate::server::Server;

const NOT_BUSY: CommandError = CommandError::new("NOTBUSY No scripts in execution right now.");
const HAS_WRITTEN: CommandError = CommandError::new(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
     termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
const BUSY_SCRIPT: CommandError = CommandError::new(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);
const BUSY_FUNCTION: CommandError = CommandError::new(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);

/// The reply to others while a script runs too long.
pub const fn busy_error(busy: &Busy) -> CommandError {
    if busy.is_function { BUSY_FUNCTION } else { BUSY_SCRIPT }
}

/// The subcommands of SCRIPT.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("script|debug", debug),
    Command::new("script|exists", exists),
    Command::new("script|flush", flush),
    Command::new("script|kill", |call| kill(call, false)),
    Command::new("script|load", load),
    Command::new("script|help", |call| {
        call.reply.lines(HELP);
        Ok(())
    }),
];

const HELP: &[&str] = &[
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

/// SCRIPT LOAD script
fn load(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let text = call.args.at(2);
    let digest = digest_of_text(text);
    let scripts = &call.server.scripts;
    if scripts.find(&digest).is_none() {
        let header = header_of(text)?;
        let mut own = call.worker_state.interpreters.take().unwrap_or_default();
        own.look_at_generation(scripts);
        let function = compile(&mut own, text, header);
        let added = function.map(|function| own.keep(scripts.add(digest, text, header, true), function));
        call.worker_state.interpreters = Some(own);
        added?;
    } else {
        let header = header_of(text)?;
        scripts.add(digest, text, header, true);
    }
    call.reply.bulk(&digest);
    Ok(())
}

/// SCRIPT EXISTS digest [digest …]
fn exists(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(call.args.len() - 2);
    for argument in call.args.from(2) {
        let is_known = digest_of(argument).is_some_and(|digest| call.server.scripts.find(&digest).is_some());
        call.reply.integer(i64::from(is_known));
    }
    Ok(())
}

/// SCRIPT FLUSH [SYNC|ASYNC]
fn flush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let is_mode = |args: Args<'_>| args.is(2, "sync") || args.is(2, "async");
    match call.args.len() {
        2 => {}
        3 if is_mode(call.args) => {}
        _ => return Err(CommandError::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    call.server.scripts.flush();
    call.reply.ok();
    Ok(())
}

/// SCRIPT KILL, FUNCTION KILL: ends scripts, or functions, that run too long and have written nothing.
pub fn kill(call: &mut Call<'_, '_>, functions: bool) -> Result<(), CommandError> {
    kill_running(call.server, functions)?;
    call.reply.ok();
    Ok(())
}

/// The same without the reply.
///
/// # Errors
/// When none is killed.
pub fn kill_running(server: &Server, functions: bool) -> Result<(), CommandError> {
    server.running_scripts.kill(functions).map_err(|why| match why {
        NotKilled::NotBusy => NOT_BUSY,
        NotKilled::HasWritten => HAS_WRITTEN,
        NotKilled::OtherKind if functions => BUSY_SCRIPT,
        NotKilled::OtherKind => BUSY_FUNCTION,
    })
}

/// SCRIPT DEBUG YES|SYNC|NO: there is no debugger, and a script that was sent for it runs at once.
fn debug(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !["yes", "sync", "no"].iter().any(|word| call.args.is(2, word)) {
        return Err(CommandError::new("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    }
    call.reply.ok();
    Ok(())
}
