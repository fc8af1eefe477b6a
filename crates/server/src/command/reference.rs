//! What is only told about commands: documentation, categories, key specifications.
//!
//! `reference.jsonl` has one command on each line. It was made from the answers of Redis 7.0.15 to
//! `COMMAND` and `COMMAND DOCS` (`redis-cli --json`), joined by name; CLIENT SETINFO and NO-TOUCH, which
//! are younger, were added by hand. Read when the first client asks.

use super::{Args, Entry, integer};
use crate::resp::Reply;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

type Object = Map<String, Value>;

static BY_NAME: LazyLock<HashMap<String, Object>> = LazyLock::new(|| {
    let mut by_name = HashMap::new();
    for line in include_str!("reference.jsonl").lines() {
        // The file is part of the program, and a test reads all of it.
        if let Ok(Value::Object(object)) = serde_json::from_str(line) {
            enter(&mut by_name, object);
        }
    }
    by_name
});

fn enter(by_name: &mut HashMap<String, Object>, mut object: Object) {
    if let Some(Value::Array(subcommands)) = object.remove("subcommands") {
        for subcommand in subcommands {
            if let Value::Object(subcommand) = subcommand {
                enter(by_name, subcommand);
            }
        }
    }
    if let Some(Value::String(name)) = object.get("name") {
        by_name.insert(name.clone(), object);
    }
}

fn field<'a>(entry: &Entry, name: &str) -> Option<&'a Value> {
    BY_NAME.get(entry.spec.name)?.get(name)
}

fn list<'a>(entry: &Entry, name: &str) -> &'a [Value] {
    field(entry, name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The ten fields of COMMAND INFO.
pub fn info(reply: &mut Reply<'_>, entry: &Entry) {
    let spec = &entry.spec;
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(i64::from(spec.arity));
    let flags: Vec<_> =
        super::Flags::NAMES.iter().filter(|(flag, _)| spec.flags.has(*flag)).map(|(_, name)| *name).collect();
    reply.set(flags.len());
    for name in flags {
        reply.simple(name);
    }
    for position in [spec.keys.first, spec.keys.last, spec.keys.step] {
        reply.integer(i64::from(position));
    }
    words(reply, list(entry, "acl"));
    let tips = list(entry, "tips");
    reply.set(tips.len());
    for tip in tips {
        reply.bulk(tip.as_str().unwrap_or_default().as_bytes());
    }
    let key_specs = list(entry, "key_specs");
    reply.set(key_specs.len());
    for key_spec in key_specs {
        value(reply, "", key_spec);
    }
    reply.set(entry.subcommands.len());
    for subcommand in &entry.subcommands {
        info(reply, subcommand);
    }
}

/// The map of COMMAND DOCS for one command.
pub fn docs(reply: &mut Reply<'_>, entry: &Entry) {
    let empty = Object::new();
    let docs = field(entry, "docs").and_then(Value::as_object).unwrap_or(&empty);
    reply.map(docs.len() + usize::from(!entry.subcommands.is_empty()));
    for (name, content) in docs {
        reply.bulk(name.as_bytes());
        value(reply, name, content);
    }
    if !entry.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(entry.subcommands.len());
        for subcommand in &entry.subcommands {
            reply.bulk(subcommand.spec.name.as_bytes());
            self::docs(reply, subcommand);
        }
    }
}

/// Writes a value as Redis does: flags are sets of statuses, the history is a set, everything else what it is.
fn value(reply: &mut Reply<'_>, name: &str, content: &Value) {
    match content {
        Value::Object(object) => {
            reply.map(object.len());
            for (name, content) in object {
                reply.bulk(name.as_bytes());
                value(reply, name, content);
            }
        }
        Value::Array(all) if matches!(name, "flags" | "doc_flags") => words(reply, all),
        Value::Array(all) => {
            if name == "history" {
                reply.set(all.len());
            } else {
                reply.array(all.len());
            }
            for content in all {
                value(reply, "", content);
            }
        }
        Value::Number(number) => reply.integer(number.as_i64().unwrap_or_default()),
        other => reply.bulk(other.as_str().unwrap_or_default().as_bytes()),
    }
}

fn words(reply: &mut Reply<'_>, all: &[Value]) {
    reply.set(all.len());
    for word in all {
        reply.simple(word.as_str().unwrap_or_default());
    }
}

/// Whether the command is in an ACL category, named without its `@`.
pub fn has_category(entry: &Entry, name: &[u8]) -> bool {
    list(entry, "acl")
        .iter()
        .filter_map(|category| category.as_str()?.strip_prefix('@'))
        .any(|category| category.as_bytes().eq_ignore_ascii_case(name))
}

/// A key among the arguments of a command.
pub struct Key {
    /// Which argument.
    pub index: usize,
    /// What is done with it: `RO`, `access`…
    pub flags: Vec<&'static str>,
}

/// Whether the command has keys at all.
pub fn has_keys(entry: &Entry) -> bool {
    !list(entry, "key_specs").is_empty()
}

/// The keys among `args`, by the command's key specifications.
pub fn keys(entry: &Entry, args: Args<'_>) -> Vec<Key> {
    list(entry, "key_specs").iter().flat_map(|spec| keys_of(spec, entry, args)).collect()
}

fn keys_of(spec: &'static Value, entry: &Entry, args: Args<'_>) -> Vec<Key> {
    let count = args.len() as i64;
    let number = |path: &str| spec.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let begin = number("/begin_search/spec/index");
    let (first, last, step) = match spec.pointer("/find_keys/type").and_then(Value::as_str) {
        Some("range") => {
            let last = number("/find_keys/spec/lastkey");
            let last = if last >= 0 { begin + last } else { count + last };
            (begin, last, number("/find_keys/spec/keystep"))
        }
        Some("keynum") => {
            let keys = args.get((begin + number("/find_keys/spec/keynumidx")) as usize).and_then(integer);
            let first = begin + number("/find_keys/spec/firstkey");
            let step = number("/find_keys/spec/keystep");
            // No more keys than there are arguments, whatever the number says.
            let keys = keys.filter(|keys| (0..=count).contains(keys)).unwrap_or_default();
            (first, first + (keys - 1) * step, step)
        }
        _ => return Vec::new(),
    };
    if begin <= 0 || last >= count || step <= 0 {
        return Vec::new();
    }
    let flags: Vec<&str> = spec
        .pointer("/flags")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |flags| flags.iter().filter_map(Value::as_str).collect());
    let flags = if flags.contains(&"variable_flags") { variable_flags(entry, args) } else { flags };
    (first..=last)
        .step_by(step as usize)
        .map(|index| Key { index: index as usize, flags: flags.clone() })
        .collect()
}

/// What SET and BITFIELD do with their key depends on their options.
fn variable_flags(entry: &Entry, args: Args<'_>) -> Vec<&'static str> {
    let has = |word| (2..args.len()).any(|index| args.is(index, word));
    match entry.spec.name {
        "set" if !has("get") => vec!["OW", "update"],
        "bitfield" if !has("set") && !has("incrby") => vec!["RO", "access"],
        _ => vec!["RW", "access", "update"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Flags, Table};

    #[test]
    fn every_command_agrees_with_the_reference() {
        for entry in Table::get().commands().iter().flat_map(|e| std::iter::once(e).chain(&e.subcommands)) {
            let spec = &entry.spec;
            let name = spec.name;
            assert!(BY_NAME.contains_key(name), "{name} is not in reference.jsonl");
            assert_eq!(field(entry, "arity").unwrap().as_i64(), Some(i64::from(spec.arity)), "{name}: arity");
            let flags: Vec<_> = Flags::NAMES
                .iter()
                .filter(|(flag, _)| spec.flags.has(*flag))
                .map(|(_, flag)| *flag)
                .collect();
            let wanted: Vec<_> = list(entry, "flags").iter().map(|flag| flag.as_str().unwrap()).collect();
            assert_eq!(flags, wanted, "{name}: flags");
            let keys = [spec.keys.first, spec.keys.last, spec.keys.step].map(i64::from);
            let wanted = ["first", "last", "step"].map(|part| field(entry, part).unwrap().as_i64().unwrap());
            assert_eq!(keys, wanted, "{name}: keys");
        }
    }

    #[test]
    fn every_line_of_the_reference_is_read() {
        let lines = include_str!("reference.jsonl").lines().count();
        assert!(BY_NAME.len() > lines && lines > 70);
    }
}
