//! DEBUG SLEEP seconds: delays this client. Redis stops for all of them; to a single client it is the same.

use crate::command::{Call, CommandError};
use std::time::{Duration, Instant};

// Whoever asks for more would wait for the next restart anyway.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "SLEEP <seconds>",
    "    Stop the server for <seconds>. Decimals allowed.",
    "HELP",
    "    Prints this help.",
];

/// DEBUG SLEEP seconds, and HELP.
pub fn debug(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    if args.is(1, "sleep") && args.len() == 3 {
        // What is no number is 0, as to C's strtod.
        let seconds = std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let sleep = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(SLEEP_MAX);
        if !sleep.is_zero() {
            call.session.paused_until = Some(Instant::now() + sleep);
        }
        call.reply.ok();
        return Ok(());
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
