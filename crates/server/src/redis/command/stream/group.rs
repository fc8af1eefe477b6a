//! XGROUP: groups of a stream and their consumers.

use super::parse;
use crate::observe::keyspace_events::STREAM;
use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Call, Command, CommandError};
use duramen_structures::EditStream;
use duramen_structures::stream::Group;

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("xgroup|create", create),
    Command::new("xgroup|setid", setid),
    Command::new("xgroup|destroy", destroy).removes(),
    Command::new("xgroup|createconsumer", createconsumer),
    Command::new("xgroup|delconsumer", delconsumer).removes(),
    Command::new("xgroup|help", help),
];

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Prints this help.",
];

const NO_STREAM: CommandError = CommandError::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);

/// The options of CREATE and SETID after the id.
#[derive(Default)]
struct Options {
    make: bool,
    entries_read: Option<i64>,
    count: usize,
}

impl Options {
    fn parse(call: &Call<'_, '_>, may_make: bool) -> Result<Self, CommandError> {
        let (args, mut found) = (call.args, Self::default());
        let mut at = 5;
        while at < args.len() {
            if may_make && args.is(at, "mkstream") {
                found.make = true;
            } else if args.is(at, "entriesread") && at + 1 < args.len() {
                at += 1;
                found.entries_read = match args.integer(at)? {
                    -1 => None,
                    read if read < 0 => return Err(ENTRIES_READ),
                    read => Some(read),
                };
            } else {
                return Err(subcommand_arguments_error(call.entry, args));
            }
            at += 1;
        }
        found.count = args.len();
        Ok(found)
    }
}

const ENTRIES_READ: CommandError = CommandError::new("ERR value for ENTRIESREAD must be positive or -1");

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

/// The stream that is to be there.
fn stream<'t, 'w>(call: &'t mut Call<'_, 'w>) -> Result<EditStream<'t, 'w>, CommandError> {
    let stream = call.txn.edit_stream(call.session.db, call.args.at(2))?;
    if stream.is_new() { Err(NO_STREAM) } else { Ok(stream) }
}

/// The error for a missing group.
pub fn no_group(group: &[u8], key: &[u8]) -> CommandError {
    CommandError::showing("NOGROUP No such consumer group '", group, "' for key name '")
        .and_showing("", key, "'")
}

fn create(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let options = Options::parse(call, true)?;
    let mut stream = call.txn.edit_stream(call.session.db, args.at(2))?;
    if stream.is_new() && !options.make {
        return Err(NO_STREAM);
    }
    if options.count > 8 {
        return Err(subcommand_arguments_error(call.entry, args));
    }
    let id = match args.at(4) {
        b"$" => stream.last_id(),
        id => parse::id(id)?,
    };
    if !stream.create_group(args.at(3), id, options.entries_read)? {
        return Err(CommandError::new("BUSYGROUP Consumer Group name already exists"));
    }
    let has_leftovers = stream.has_leftovers()?;
    stream.save()?;
    if has_leftovers {
        // Of before a restart.
        call.server.leftovers.add(call.session.db, args.at(2));
    }
    call.notify(STREAM, "xgroup-create", args.at(2));
    call.reply.ok();
    Ok(())
}

fn setid(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let options = Options::parse(call, false)?;
    let entry = call.entry;
    let mut stream = stream(call)?;
    let mut group = stream.group(args.at(3))?.ok_or_else(|| no_group(args.at(3), args.at(2)))?;
    if !matches!(options.count, 5 | 7) {
        return Err(subcommand_arguments_error(entry, args));
    }
    group.last_id = match args.at(4) {
        b"$" => stream.last_id(),
        id => parse::id_or_end(id, 0)?,
    };
    group.entries_read = options.entries_read;
    stream.set_group(&group)?;
    stream.save()?;
    call.notify(STREAM, "xgroup-setid", args.at(2));
    call.reply.ok();
    Ok(())
}

fn destroy(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let mut stream = stream(call)?;
    let is_gone = stream.remove_group(args.at(3))?;
    let has_leftovers = stream.has_leftovers()?;
    if is_gone {
        stream.save()?;
    }
    if has_leftovers {
        call.server.leftovers.add(call.session.db, args.at(2));
    }
    if is_gone {
        call.notify(STREAM, "xgroup-destroy", args.at(2));
    }
    call.reply.integer(i64::from(is_gone));
    Ok(())
}

/// Changes an existing group, with `event`. `change` returns the reply; nothing is written if it says so.
fn with_group(
    call: &mut Call<'_, '_>,
    event: &str,
    change: impl FnOnce(&EditStream<'_, '_>, &mut Group, i64) -> Result<(i64, bool), CommandError>,
) -> Result<(), CommandError> {
    let (args, now) = (call.args, i64::try_from(call.now).unwrap_or(i64::MAX));
    let mut stream = stream(call)?;
    let mut group = stream.group(args.at(3))?.ok_or_else(|| no_group(args.at(3), args.at(2)))?;
    let (told, is_changed) = change(&stream, &mut group, now)?;
    if is_changed {
        stream.set_group(&group)?;
        let has_leftovers = stream.has_leftovers()?;
        stream.save()?;
        if has_leftovers {
            call.server.leftovers.add(call.session.db, args.at(2));
        }
        call.notify(STREAM, event, args.at(2));
    }
    call.reply.integer(told);
    Ok(())
}

fn createconsumer(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let consumer = call.args.at(4);
    with_group(call, "xgroup-createconsumer", |stream, group, now| {
        let is_new = stream.find_consumer(group, consumer)?.is_none();
        if is_new {
            let (number, _) = stream.see_consumer(group, consumer, now)?;
            group.set_active(number, None);
        }
        Ok((i64::from(is_new), is_new))
    })
}

fn delconsumer(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let consumer = call.args.at(4);
    with_group(call, "xgroup-delconsumer", |stream, group, _| {
        let is_there = stream.find_consumer(group, consumer)?.is_some();
        Ok((stream.remove_consumer(group, consumer)? as i64, is_there))
    })
}
