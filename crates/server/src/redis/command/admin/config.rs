//! CONFIG: reads and changes directives; `config::directives` describes them.

use crate::config::directives::{Directive, Known, directives, find};
use crate::config::inert::{self, INERT};
use crate::config::{Config, rewrite};
use crate::net::open_files;
use crate::observe::log;
use crate::redis::command::{Args, Call, Command, CommandError, errors};
use duramen_structures::glob;
use std::collections::HashMap;

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("config|get", get),
    Command::new("config|set", set),
    Command::new("config|rewrite", rewrite_file),
    Command::new("config|resetstat", resetstat),
    Command::new("config|help", help),
];

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

fn get(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let config = call.server.config();
    let asked = Asked::of(call.args);
    let found: Vec<_> =
        directives().filter_map(|directive| Some((asked.shown(directive.name)?, directive))).collect();
    let inert = || INERT.iter().enumerate();
    let inert: Vec<_> = inert().filter_map(|(at, (name, ..))| Some((asked.shown(name)?, at))).collect();
    call.reply.map(found.len() + inert.len());
    for (name, at) in inert {
        call.reply.bulk(name);
        call.reply.bulk(inert::get(&config, at).as_bytes());
    }
    for (name, directive) in found {
        call.reply.bulk(name);
        call.reply.bulk((directive.get)(&config).as_bytes());
    }
    Ok(())
}

/// The requested names and patterns; plain names are in a map, so that each takes constant time.
struct Asked<'a> {
    /// By the name in lower case, with its place among all.
    plain: HashMap<Vec<u8>, (usize, &'a [u8])>,
    patterns: Vec<(usize, &'a [u8])>,
}

impl<'a> Asked<'a> {
    fn of(args: Args<'a>) -> Self {
        let (mut plain, mut patterns) = (HashMap::new(), Vec::new());
        for (at, asked) in args.from(2).enumerate() {
            match is_pattern(asked) {
                true => patterns.push((at, asked)),
                false => drop(plain.entry(asked.to_ascii_lowercase()).or_insert((at, asked))),
            }
        }
        Self { plain, patterns }
    }

    /// The name to show for a directive, as the first that asks for it has it; `None`: none does.
    fn shown(&self, name: &'static str) -> Option<&'a [u8]> {
        let plain = self.plain.get(name.as_bytes()).copied();
        let before = |at: &usize| plain.is_none_or(|(plain, _)| *at < plain);
        let mut patterns = self.patterns.iter().take_while(|(at, _)| before(at));
        let pattern = patterns.find_map(|(_, asked)| shown(asked, name));
        pattern.or(plain.map(|(_, asked)| asked))
    }
}

/// Whether it has a special character before its first zero byte.
fn is_pattern(asked: &[u8]) -> bool {
    asked.iter().take_while(|byte| **byte != 0).any(|byte| b"[*?".contains(byte))
}

/// The name to show for a directive that was asked for so; `None` for another one. As in Redis a plain name is shown as
/// it came, and a pattern ends at a zero byte.
fn shown<'a>(asked: &'a [u8], name: &'static str) -> Option<&'a [u8]> {
    let name = name.as_bytes();
    let pattern = asked.split(|byte| *byte == 0).next().unwrap_or_default();
    if is_pattern(asked) {
        return glob::matches_ignore_case(pattern, name).then_some(name);
    }
    name.eq_ignore_ascii_case(asked).then_some(asked)
}

fn set(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !call.args.len().is_multiple_of(2) {
        return Err(errors::SYNTAX);
    }
    let changes = changes(call.args)?;
    let server = call.server;
    server.config_change(|config| {
        let before = config.clone();
        for (directive, value) in &changes {
            let name = directive.name();
            match directive {
                Change::Directive(directive) => (directive.set)(config, &[value]),
                Change::Inert(at) => inert::set(config, *at, value),
            }
            .map_err(|why| failed(name, &why))?;
        }
        // As at a start.
        for notice in config.notices.drain(before.notices.len()..) {
            log::warning(format_args!("CONFIG SET by {}: {notice}", call.session.client.address));
        }
        effect(call, &changes, &before, config)
    })?;
    call.reply.ok();
    Ok(())
}

/// A directive to set.
#[derive(Clone, Copy)]
enum Change {
    Directive(&'static Directive),
    /// One of [`INERT`].
    Inert(usize),
}

impl Change {
    const fn name(self) -> &'static str {
        match self {
            Self::Directive(directive) => directive.name,
            Self::Inert(at) => INERT[at].0,
        }
    }
}

/// Reads names and values. All names are checked before any value is set.
fn changes(args: Args<'_>) -> Result<Vec<(Change, &str)>, CommandError> {
    let mut changes: Vec<(Change, &str)> = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let name = String::from_utf8_lossy(args.at(at));
        let change = match (find(&name), inert::find(&name)) {
            (Known::Directive(directive), _) => Change::Directive(directive),
            (_, Some(at)) => Change::Inert(at),
            _ => {
                return Err(CommandError::with(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                )));
            }
        };
        let name = change.name();
        if let Change::Directive(Directive { mutable: false, .. }) = change {
            return Err(failed(name, "can't set immutable config"));
        }
        if changes.iter().any(|(other, _)| other.name() == name) {
            return Err(failed(name, "duplicate parameter"));
        }
        let value =
            std::str::from_utf8(args.at(at + 1)).map_err(|_| failed(name, "argument must be UTF-8"))?;
        changes.push((change, value));
    }
    Ok(changes)
}

/// Applies a change beyond recording it.
fn effect(
    call: &Call<'_, '_>,
    changes: &[(Change, &str)],
    before: &Config,
    after: &Config,
) -> Result<(), CommandError> {
    if after.maxclients > before.maxclients {
        let possible = open_files::raise(after.maxclients);
        if possible < after.maxclients {
            return Err(failed(
                "maxclients",
                &format!(
                    "The operating system is not able to handle the specified number of clients, try with {possible}"
                ),
            ));
        }
    }
    let is_tls = |name: &str| name.starts_with("tls-") || name == "duramen-tls-sni";
    let settings = match changes.iter().find(|(change, _)| is_tls(change.name())) {
        Some((change, _)) if call.server.tls.is_on() => Some(after.tls().map_err(|why| {
            log::warning(format_args!("CONFIG SET by {}: {why}", call.session.client.address));
            failed(change.name(), "Unable to update TLS configuration. Check server logs.")
        })?),
        _ => None,
    };
    // Last: nothing can fail any more after the store has taken it.
    if after.durability != before.durability {
        let changed = call.server.keyspace.store().set_durability(after.durability);
        let durability = |name: &&str| matches!(*name, "appendfsync" | "duramen-durability");
        let name = changes.iter().map(|(change, _)| change.name()).find(durability).unwrap_or("appendfsync");
        changed.map_err(|error| failed(name, &error.to_string()))?;
    }
    let store = call.server.keyspace.store();
    if after.maxmemory != before.maxmemory {
        store.set_limit(after.maxmemory);
        if store.limit() > after.maxmemory {
            // Refused at a start; here tests of others set it to 1.
            log::warning(format_args!(
                "maxmemory {}: the store takes {} bytes at least, which are its limit now",
                after.maxmemory,
                store.limit()
            ));
        }
    }
    if after.policy() != before.policy() {
        store.set_eviction(after.policy().eviction());
    }
    if after.maxmemory != before.maxmemory || after.policy() != before.policy() {
        call.server.note_full();
    }
    if let Some(settings) = settings {
        call.server.tls.set(settings);
    }
    if changes.iter().any(|(change, _)| change.name() == "requirepass") {
        call.server.users.set_default_password(&after.requirepass);
    }
    call.server.keyspace.set_thresholds(after.thresholds);
    if after.loglevel != before.loglevel {
        log::set_level(after.loglevel);
    }
    log::set_format(after.log_format);
    Ok(())
}

fn failed(name: &str, why: &str) -> CommandError {
    CommandError::with(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

fn rewrite_file(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let config = call.server.config();
    let file =
        config.file.as_ref().ok_or(CommandError::new("ERR The server is running without a config file"))?;
    rewrite(&config, &call.server.users.directives(&config.requirepass), file)
        .map_err(|error| CommandError::with(format!("ERR Rewriting config file: {error}")))?;
    call.reply.ok();
    Ok(())
}

fn resetstat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.server.totals_reset();
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_ends_at_a_zero_byte_and_a_plain_name_is_all_of_it() {
        assert_eq!(shown(b"timeou?\0x", "timeout"), Some(&b"timeout"[..]));
        assert_eq!(shown(b"TimeOut", "timeout"), Some(&b"TimeOut"[..]));
        for other in [&b"timeout\0x"[..], b"timeout\0*", b"timeou", b""] {
            assert_eq!(shown(other, "timeout"), None, "{}", other.escape_ascii());
        }
    }
}
