//! CLIENT: this connection, and the others.

mod kill;
mod list;
mod pause;
mod tracking;
mod unblock;

use crate::clients::Names;
use crate::redis::command::{Call, Command, CommandError, errors};
use crate::redis::session::ReplyMode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("client|id", id),
    Command::new("client|getname", get_name),
    Command::new("client|setname", set_name_command),
    Command::new("client|setinfo", set_info),
    Command::new("client|info", list::info),
    Command::new("client|list", list::list),
    Command::new("client|kill", kill::kill),
    Command::new("client|unblock", unblock::unblock),
    Command::new("client|no-evict", no_evict),
    Command::new("client|no-touch", no_touch),
    Command::new("client|pause", pause::pause),
    Command::new("client|unpause", pause::unpause),
    Command::new("client|reply", reply),
    Command::new("client|tracking", tracking::tracking),
    Command::new("client|caching", tracking::caching),
    Command::new("client|trackinginfo", tracking::info),
    Command::new("client|getredir", tracking::get_redirect),
    Command::new("client|help", help),
];

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Will not touch LRU/LFU stats when this mode is on.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

fn id(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.integer(call.session.client.id as i64);
    Ok(())
}

fn get_name(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let name = call.session.client.names().name;
    if name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(&name);
    }
    Ok(())
}

fn set_name_command(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let name = check_name(call.args.at(2))?;
    set_name(call, name);
    call.reply.ok();
    Ok(())
}

/// Names stand in lines with blanks between the fields, so they must have none.
pub fn check_name(name: &[u8]) -> Result<&[u8], CommandError> {
    if is_printable(name) {
        Ok(name)
    } else {
        Err(CommandError::new("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

/// Sets the connection's name; an empty one removes it.
pub fn set_name(call: &Call<'_, '_>, name: &[u8]) {
    call.session.client.rename(|names| names.name = name.to_vec());
}

fn set_info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (option, value) = (call.args.at(2), call.args.at(3));
    let field: fn(&mut Names) -> &mut Vec<u8> = if call.args.is(2, "lib-name") {
        |names| &mut names.library
    } else if call.args.is(2, "lib-ver") {
        |names| &mut names.library_version
    } else {
        let option = String::from_utf8_lossy(option);
        return Err(CommandError::with(format!("ERR Unrecognized option '{option}'")));
    };
    if !is_printable(value) {
        let option = String::from_utf8_lossy(option);
        return Err(CommandError::with(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        )));
    }
    call.session.client.rename(|names| *field(names) = value.to_vec());
    call.reply.ok();
    Ok(())
}

fn no_evict(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    switch(call, |call| &call.session.client.no_evict)
}

fn no_touch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    switch(call, |call| &call.session.client.no_touch)
}

fn switch(
    call: &mut Call<'_, '_>,
    which: for<'a> fn(&'a Call<'_, '_>) -> &'a AtomicBool,
) -> Result<(), CommandError> {
    let on = match (call.args.is(2, "on"), call.args.is(2, "off")) {
        (true, _) => true,
        (_, true) => false,
        _ => return Err(errors::SYNTAX),
    };
    which(call).store(on, Ordering::Relaxed);
    call.reply.ok();
    Ok(())
}

fn reply(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.is(2, "on") {
        call.session.reply_mode = ReplyMode::On;
        call.reply.ok();
    } else if call.args.is(2, "off") {
        call.session.reply_mode = ReplyMode::Off;
    } else if call.args.is(2, "skip") {
        // OFF is stronger.
        if call.session.reply_mode == ReplyMode::On {
            call.session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(errors::SYNTAX);
    }
    Ok(())
}
