//! COMMAND: what commands there are, and where their keys are.

use super::EARLY;
use crate::command::{Args, Call, CommandError, Entry, Flags, Spec, Table, errors, reference};
use duramen_structures::glob;

pub const SPEC: Spec = Spec {
    arity: -1,
    flags: EARLY,
    subcommands: &[
        Spec { arity: 2, flags: EARLY, ..Spec::new("command|count", count) },
        Spec { arity: -2, flags: EARLY, ..Spec::new("command|info", info) },
        Spec { arity: -2, flags: EARLY, ..Spec::new("command|docs", docs) },
        Spec { arity: -2, flags: EARLY, ..Spec::new("command|list", list) },
        Spec { arity: -4, flags: EARLY, ..Spec::new("command|getkeys", get_keys) },
        Spec { arity: -4, flags: EARLY, ..Spec::new("command|getkeysandflags", get_keys_and_flags) },
        Spec { arity: 2, flags: EARLY, ..Spec::new("command|help", help) },
    ],
    ..Spec::new("command", all)
};

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all Redis commands.",
    "COUNT",
    "    Return the total number of commands in this Redis server.",
    "LIST",
    "    Return a list of all commands in this Redis server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full Redis command.",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

fn count(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.count(Table::get().commands().len());
    Ok(())
}

fn all(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let commands = Table::get().commands();
    call.reply.array(commands.len());
    for entry in commands {
        reference::info(&mut call.reply, entry);
    }
    Ok(())
}

fn info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() == 2 {
        return all(call);
    }
    call.reply.array(call.args.len() - 2);
    for name in call.args.from(2) {
        match Table::get().full_name(name) {
            Some(entry) => reference::info(&mut call.reply, entry),
            None => call.reply.null(),
        }
    }
    Ok(())
}

fn docs(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let table = Table::get();
    let wanted: Vec<&Entry> = if call.args.len() == 2 {
        table.commands().iter().collect()
    } else {
        call.args.from(2).filter_map(|name| table.full_name(name)).collect()
    };
    call.reply.map(wanted.len());
    for entry in wanted {
        call.reply.bulk(entry.spec.name.as_bytes());
        reference::docs(&mut call.reply, entry);
    }
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let pattern = args.at(4);
    let filter: Box<dyn Fn(&Entry) -> bool> = match args.len() {
        2 => Box::new(|_| true),
        5 if args.is(2, "filterby") => {
            if args.is(3, "pattern") {
                Box::new(|entry| glob::matches_ignore_case(pattern, entry.spec.name.as_bytes()))
            } else if args.is(3, "aclcat") {
                Box::new(|entry| reference::has_category(entry, pattern))
            } else if args.is(3, "module") {
                Box::new(|_| false)
            } else {
                return Err(errors::SYNTAX);
            }
        }
        _ => return Err(errors::SYNTAX),
    };
    let commands = Table::get().commands().iter();
    let found: Vec<&Entry> = commands
        .flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands))
        .filter(|entry| filter(entry))
        .collect();
    call.reply.array(found.len());
    for entry in found {
        call.reply.bulk(entry.spec.name.as_bytes());
    }
    Ok(())
}

fn get_keys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (entry, args) = called(call.args)?;
    let keys = found_keys(entry, args)?;
    call.reply.array(keys.len());
    for key in keys {
        call.reply.bulk(args.at(key.index));
    }
    Ok(())
}

fn get_keys_and_flags(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (entry, args) = called(call.args)?;
    let keys = found_keys(entry, args)?;
    call.reply.array(keys.len());
    for key in keys {
        call.reply.array(2);
        call.reply.bulk(args.at(key.index));
        call.reply.set(key.flags.len());
        for flag in key.flags {
            call.reply.simple(flag);
        }
    }
    Ok(())
}

/// The command that the arguments behind the subcommand's name call.
fn called(args: Args<'_>) -> Result<(&'static Entry, Args<'_>), CommandError> {
    let args = args.skip(2);
    let entry = Table::get().find(args);
    let entry = entry
        .filter(|entry| entry.subcommands.is_empty() || entry.spec.name == "command" && args.len() == 1)
        .ok_or(CommandError::new("ERR Invalid command specified"))?;
    Ok((entry, args))
}

fn found_keys(entry: &Entry, args: Args<'_>) -> Result<Vec<reference::Key>, CommandError> {
    if !reference::has_keys(entry) {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    if !entry.spec.arity_allows(args.len()) {
        return Err(CommandError::new("ERR Invalid number of arguments specified for command"));
    }
    let keys = reference::keys(entry, args);
    if keys.is_empty() && !entry.spec.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err(CommandError::new("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}
