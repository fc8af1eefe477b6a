//! COMMAND: the list of commands, and the positions of their keys.

use crate::redis::command::docs::write_docs;
use crate::redis::command::spec::keys_of_sort;
use crate::redis::command::{
    Args, Begin, Call, Categories, Command, CommandError, Entry, Find, Flags, Key, KeySpec, Table, errors,
};
use crate::redis::resp::Reply;
use duramen_structures::glob;

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("command|count", count),
    Command::new("command|info", info),
    Command::new("command|docs", docs),
    Command::new("command|list", list),
    Command::new("command|getkeys", get_keys),
    Command::new("command|getkeysandflags", get_keys_and_flags),
    Command::new("command|help", help),
];

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
    call.reply.count(call.table.commands().count());
    Ok(())
}

/// COMMAND: details about all of them.
pub fn all(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let commands = call.table.commands();
    call.reply.array(commands.clone().count());
    for entry in commands {
        write_info(&mut call.reply, entry);
    }
    Ok(())
}

fn info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() == 2 {
        return all(call);
    }
    call.reply.array(call.args.len() - 2);
    for name in call.args.from(2) {
        match call.table.full_name(name) {
            Some(entry) => write_info(&mut call.reply, entry),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// The ten fields that describe one command.
fn write_info(reply: &mut Reply<'_>, entry: &Entry) {
    let (spec, description) = (&entry.spec, &entry.spec.description);
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(i64::from(spec.arity));
    write_names(reply, description.flags.names());
    for position in description.key_range {
        reply.integer(position);
    }
    reply.set(description.categories.names().count());
    for category in description.categories.names() {
        reply.simple(&format!("@{category}"));
    }
    reply.set(description.tips.len());
    for tip in &description.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(description.key_specs.len());
    for key_spec in &description.key_specs {
        write_key_spec(reply, key_spec);
    }
    reply.set(entry.subcommands.len());
    for subcommand in &entry.subcommands {
        write_info(reply, subcommand);
    }
}

fn write_names(reply: &mut Reply<'_>, names: impl Iterator<Item = &'static str>) {
    let names: Vec<&str> = names.collect();
    reply.set(names.len());
    for name in names {
        reply.simple(name);
    }
}

fn write_key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = &spec.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_names(reply, spec.flags.names());
    reply.bulk(b"begin_search");
    match &spec.begin {
        Begin::Index(index) => write_search(reply, "index", &[("index", *index)]),
        Begin::Keyword(word, from) => {
            write_search_head(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            write_number(reply, "startfrom", *from);
        }
        Begin::Unknown => write_search(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            write_search(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", limit)]);
        }
        Find::Number { number, first, step } => {
            write_search(reply, "keynum", &[("keynumidx", number), ("firstkey", first), ("keystep", step)]);
        }
        Find::Unknown => write_search(reply, "unknown", &[]),
    }
}

fn write_search(reply: &mut Reply<'_>, kind: &str, numbers: &[(&str, i64)]) {
    write_search_head(reply, kind, numbers.len());
    for (name, number) in numbers {
        write_number(reply, name, *number);
    }
}

fn write_search_head(reply: &mut Reply<'_>, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

fn write_number(reply: &mut Reply<'_>, name: &str, number: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(number);
}

fn docs(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let table = call.table;
    let wanted: Vec<&Entry> = if call.args.len() == 2 {
        table.commands().collect()
    } else {
        call.args.from(2).filter_map(|name| table.full_name(name)).collect()
    };
    call.reply.map(wanted.len());
    for entry in wanted {
        call.reply.bulk(entry.spec.name.as_bytes());
        write_docs(&mut call.reply, entry);
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
                let category = Categories::of_name(pattern);
                Box::new(move |entry| {
                    category.is_some_and(|category| entry.spec.description.categories.has(category))
                })
            } else if args.is(3, "module") {
                Box::new(|_| false)
            } else {
                return Err(errors::SYNTAX);
            }
        }
        _ => return Err(errors::SYNTAX),
    };
    let all = call.table.commands().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands));
    let found: Vec<&Entry> = all.filter(|entry| filter(entry)).collect();
    call.reply.array(found.len());
    for entry in found {
        call.reply.bulk(entry.spec.name.as_bytes());
    }
    Ok(())
}

fn get_keys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (entry, args) = called(call.table, call.args)?;
    let keys = found_keys(entry, args)?;
    call.reply.array(keys.len());
    for key in keys {
        call.reply.bulk(args.at(key.index));
    }
    Ok(())
}

fn get_keys_and_flags(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (entry, args) = called(call.table, call.args)?;
    let keys = found_keys(entry, args)?;
    call.reply.array(keys.len());
    for key in keys {
        call.reply.array(2);
        call.reply.bulk(args.at(key.index));
        write_names(&mut call.reply, key.flags.names());
    }
    Ok(())
}

/// The command that is called by the arguments after the subcommand's name.
fn called<'a>(table: &Table, args: Args<'a>) -> Result<(&'static Entry, Args<'a>), CommandError> {
    let args = args.skip(2);
    let entry = table.find(args);
    let entry = entry
        .filter(|entry| entry.subcommands.is_empty() || entry.spec.name == "command" && args.len() == 1)
        .ok_or(CommandError::new("ERR Invalid command specified"))?;
    Ok((entry, args))
}

fn found_keys(entry: &Entry, args: Args<'_>) -> Result<Vec<Key>, CommandError> {
    if !entry.spec.has_keys() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    if !entry.spec.arity_allows(args.len()) {
        return Err(CommandError::new("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<Key> = match entry.spec.name {
        "sort" | "sort_ro" => keys_of_sort(args, entry.spec.name == "sort"),
        _ => entry.spec.keys(args).into_iter().flatten().collect(),
    };
    if keys.is_empty() && !entry.spec.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err(CommandError::new("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}
