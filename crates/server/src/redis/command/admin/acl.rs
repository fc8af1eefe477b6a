//! ACL, as far as it applies to one user, `default`, who may run every command.

use crate::redis::command::{Call, Categories, Command, CommandError, Entry, errors};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("acl|cat", cat),
    Command::new("acl|log", log),
    Command::new("acl|users", users),
    Command::new("acl|whoami", whoami),
    Command::new("acl|help", help),
];

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
    "HELP",
    "    Prints this help.",
];

const USER: &[u8] = b"default";

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

/// ACL CAT [category].
fn cat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() == 2 {
        let names: Vec<&str> = Categories::all_names().collect();
        call.reply.array(names.len());
        names.iter().for_each(|name| call.reply.bulk(name.as_bytes()));
        return Ok(());
    }
    if call.args.len() > 3 {
        return Err(crate::redis::command::call::subcommand_arguments_error(call.entry, call.args));
    }
    let name = call.args.at(2);
    let category = Categories::of_name(name)
        .ok_or_else(|| CommandError::showing("ERR Unknown category '", errors::shown_of(name), "'"))?;
    let is_in = |entry: &&Entry| entry.spec.description.categories.has(category);
    let found: Vec<&Entry> = call.table.all().filter(is_in).collect();
    call.reply.array(found.len());
    found.iter().for_each(|entry| call.reply.bulk(entry.spec.name.as_bytes()));
    Ok(())
}

/// ACL LOG [count | RESET]: the only refusals are wrong passwords.
fn log(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        2 => call.reply.array(0),
        3 if call.args.is(2, "reset") => call.reply.ok(),
        3 if call.args.integer(2)? >= 0 => call.reply.array(0),
        3 => return Err(errors::NOT_POSITIVE),
        _ => return Err(crate::redis::command::call::subcommand_arguments_error(call.entry, call.args)),
    }
    Ok(())
}

fn users(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(1);
    call.reply.bulk(USER);
    Ok(())
}

fn whoami(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.bulk(USER);
    Ok(())
}
