//! ACL: users and their rights, which [`acl`](crate::acl) holds.

use crate::acl::log::Entry as Event;
use crate::acl::selector::Selector;
use crate::acl::{Denied, User};
use crate::clients::unix_millis;
use crate::observe::log;
use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Call, Categories, Command, CommandError, Entry, errors};
use crate::redis::resp::Reply;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::Arc;

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("acl|cat", cat),
    Command::new("acl|deluser", deluser),
    Command::new("acl|dryrun", dryrun),
    Command::new("acl|genpass", genpass),
    Command::new("acl|getuser", getuser),
    Command::new("acl|list", list),
    Command::new("acl|load", load),
    Command::new("acl|log", show_log),
    Command::new("acl|save", save),
    Command::new("acl|setuser", setuser),
    Command::new("acl|users", users),
    Command::new("acl|whoami", whoami),
    Command::new("acl|help", help),
];

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
    "HELP",
    "    Prints this help.",
];

const NO_FILE: CommandError = CommandError::new(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and \
     then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis \
     configuration.",
);
const NOT_SAVED: CommandError = CommandError::new(
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
);
const BITS_MAX: i64 = 4096;
const BAD_BITS: CommandError = CommandError::new(
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
);

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
        return Err(subcommand_arguments_error(call.entry, call.args));
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

/// The rights of a user have changed. Its clients are closed that hear what it may no longer: channels, MONITOR, keys by
/// their prefix.
fn notify_clients(call: &mut Call<'_, '_>, user: &Arc<User>) {
    let monitor = call.server.users.commands().find(b"monitor");
    let may_monitor = monitor.is_some_and(|index| user.rules().may(index, None));
    call.session.closing |= call.session.hears_beyond(user, may_monitor);
    call.worker_state.rights_changed(call.server, &call.session.client, user, may_monitor);
}

/// ACL SETUSER name [word …]: makes or changes a user.
fn setuser(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let words: Vec<&[u8]> = call.args.from(3).collect();
    let all_channels = call.server.config().acl_pubsub_default;
    let changed = call.server.users.set(call.args.at(2), &words, all_channels);
    let changed = changed.map_err(|why| CommandError::showing("ERR ", &why, ""))?;
    if changed.before.is_some() {
        notify_clients(call, &changed.user);
    }
    call.reply.ok();
    Ok(())
}

fn close_all(call: &mut Call<'_, '_>, users: &[Arc<User>]) {
    for user in users {
        call.session.closing |= call.server.kill_user(user, &call.session.client);
    }
}

/// ACL DELUSER name [name …]: their clients are closed.
fn deluser(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let names: Vec<&[u8]> = call.args.from(2).collect();
    if names.contains(&crate::acl::users::DEFAULT) {
        return Err(CommandError::new("ERR The 'default' user cannot be removed"));
    }
    let deleted = call.server.users.delete(&names);
    close_all(call, &deleted);
    call.reply.count(deleted.len());
    Ok(())
}

/// ACL GETUSER name.
fn getuser(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let Some(user) = call.server.users.find(call.args.at(2)) else {
        call.reply.null();
        return Ok(());
    };
    let rules = user.rules();
    let reply = &mut call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags: Vec<&str> = rules.flags().collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(rules.passwords().len());
    rules.passwords().iter().for_each(|hash| reply.bulk(hash.hex().as_bytes()));
    write_selector(reply, rules.root());
    reply.bulk(b"selectors");
    reply.array(rules.selectors().len());
    for selector in rules.selectors() {
        reply.map(3);
        write_selector(reply, selector);
    }
    Ok(())
}

fn write_selector(reply: &mut Reply<'_>, selector: &Selector) {
    for (name, text) in [
        ("commands", selector.commands_text().into_bytes()),
        ("keys", selector.keys_text()),
        ("channels", selector.channels_text()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
}

fn list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let all = call.server.users.all();
    call.reply.array(all.len());
    all.iter().for_each(|user| call.reply.bulk(&user.describe()));
    Ok(())
}

fn users(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let all = call.server.users.all();
    call.reply.array(all.len());
    all.iter().for_each(|user| call.reply.bulk(&user.name));
    Ok(())
}

fn whoami(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.session.login.name() {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    Ok(())
}

/// ACL LOAD: the clients of all users but the default one are closed, as their users may have changed.
fn load(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.server.users.file().is_none() {
        return Err(NO_FILE);
    }
    let config = call.server.config();
    let before = call.server.users.load(&config.requirepass, config.acl_pubsub_default);
    let before = before.map_err(|why| CommandError::with(format!("ERR {why}")))?;
    close_all(call, &before);
    let default = Arc::clone(call.server.users.default_user());
    notify_clients(call, &default);
    call.reply.ok();
    Ok(())
}

fn save(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let Some(file) = call.server.users.file() else { return Err(NO_FILE) };
    if let Err(error) = call.server.users.save() {
        log::warning(format_args!("cannot save the ACL file {}: {error}", file.display()));
        return Err(NOT_SAVED);
    }
    call.reply.ok();
    Ok(())
}

/// ACL GENPASS [bits]: random hexadecimal digits.
fn genpass(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let bits = match call.args.len() {
        2 => 256,
        3 => call.args.integer(2)?,
        _ => return Err(subcommand_arguments_error(call.entry, call.args)),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(BAD_BITS);
    }
    let digits = bits.cast_unsigned().div_ceil(4) as usize;
    let mut random = vec![0; digits.div_ceil(2)];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| CommandError::new("ERR the system has no random numbers"))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    call.reply.bulk(&text.as_bytes()[..digits]);
    Ok(())
}

/// ACL LOG [count | RESET].
fn show_log(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let count = match call.args.len() {
        2 => 10,
        3 if call.args.is(2, "reset") => {
            call.server.users.clear_log();
            call.reply.ok();
            return Ok(());
        }
        3 => usize::try_from(call.args.integer(2)?).unwrap_or_default(),
        _ => return Err(subcommand_arguments_error(call.entry, call.args)),
    };
    let events = call.server.users.logged(count);
    call.reply.array(events.len());
    let now = unix_millis();
    events.iter().for_each(|event| write_event(&mut call.reply, event, now));
    Ok(())
}

fn write_event(reply: &mut Reply<'_>, event: &Event, now: u64) {
    reply.map(10);
    reply.bulk(b"count");
    reply.integer(event.count as i64);
    for (name, value) in [
        ("reason", event.reason.name().as_bytes()),
        ("context", event.context.name().as_bytes()),
        ("object", &event.object),
        ("username", &event.user),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value);
    }
    reply.bulk(b"age-seconds");
    let millis = now.saturating_sub(event.updated);
    reply.double(&(millis as f64 / 1000.0).to_string());
    reply.bulk(b"client-info");
    reply.bulk(event.client.as_bytes());
    for (name, value) in [
        ("entry-id", event.id),
        ("timestamp-created", event.created),
        ("timestamp-last-updated", event.updated),
    ] {
        reply.bulk(name.as_bytes());
        reply.integer(value as i64);
    }
}

/// ACL DRYRUN name command [argument …]: whether the user may run it.
fn dryrun(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let name = call.args.at(2);
    let user = call.server.users.find(name);
    let user = user.ok_or_else(|| CommandError::showing("ERR User '", name, "' not found"))?;
    let args = call.args.skip(3);
    let entry = call.table.find(args);
    // An unknown subcommand gives its container.
    let entry =
        entry.filter(|entry| entry.subcommands.is_empty() || args.len() < 2 || entry.spec.arity == -1);
    let entry = entry.ok_or_else(|| CommandError::showing("ERR Command '", args.at(0), "' not found"))?;
    if !entry.spec.arity_allows(args.len()) {
        return Err(CommandError::arity(entry.spec.name));
    }
    let (what, kind) = match user.rules().check(&entry.spec, entry.index, args) {
        Ok(()) => {
            call.reply.ok();
            return Ok(());
        }
        Err(Denied::Command) => {
            let name = entry.spec.name;
            let text = format!("This user has no permissions to run the '{name}' command");
            call.reply.bulk(text.as_bytes());
            return Ok(());
        }
        Err(Denied::Key(at)) => (args.at(at), "key"),
        Err(Denied::Channel(at)) => (args.at(at), "channel"),
    };
    let text = [b"This user has no permissions to access the '", what, b"' ", kind.as_bytes()].concat();
    call.reply.bulk(&text);
    Ok(())
}
