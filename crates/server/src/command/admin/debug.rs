//! DEBUG SLEEP seconds: delays this client. Redis stops for all of them; to a single client it is the same.
//!
//! DEBUG PANIC [WRITE]: a bug on purpose, in a command or within a write of the engine, to see what becomes of it. Redis ends by its
//! DEBUG PANIC. Only where `enable-debug-command` allows it; DEBUG SLEEP harms nobody else.

use crate::command::{Call, CommandError};
use crate::config::Allowed;
use std::time::{Duration, Instant};

// Whoever asks for more would wait for the next restart anyway.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "PANIC [WRITE]",
    "    Panic in this command; with WRITE within a write, which poisons the store.",
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
    let is_local = || client.unix || ["127.", "[::1]"].iter().any(|local| client.address.starts_with(local));
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
        // What is no number is 0, as to C's strtod.
        let seconds = std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let sleep = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(SLEEP_MAX);
        if !sleep.is_zero() {
            call.session.paused_until = Some(Instant::now() + sleep);
            call.local.slept = sleep;
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
    let name = String::from_utf8_lossy(args.at(1));
    Err(CommandError::with(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
    )))
}
