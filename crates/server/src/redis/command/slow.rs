//! The record of a slow command.

use super::flags::Flags;
use super::spec::Spec;
use super::{Args, redacted};
use crate::clients::{Client, unix_seconds};
use crate::server::Server;

/// Notes how long a command took, if that is long.
pub fn note(server: &Server, spec: &Spec, args: Args<'_>, client: &Client, micros: u64) {
    let times = &server.times;
    if !times.is_notable(micros) {
        return;
    }
    if times.is_slow(micros) && !spec.flags.has(Flags::SKIP_SLOWLOG) {
        let shown = redacted::arguments(spec, args);
        times.slow_log.push(unix_seconds(), micros, &shown, client.address.clone(), client.names().name);
    }
    times.spike(if spec.flags.has(Flags::FAST) { "fast-command" } else { "command" }, micros);
}
