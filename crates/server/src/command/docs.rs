//! The answer of COMMAND DOCS: `docs.jsonl`, which was made as [`super::description`] says. Read when the first client
//! asks.

use super::Entry;
use crate::resp::Reply;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

type Object = Map<String, Value>;

static BY_NAME: LazyLock<HashMap<String, Object>> = LazyLock::new(|| {
    // The file is part of the program, and a test reads all of it.
    let lines = include_str!("docs.jsonl").lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.filter_map(|mut line: Object| Some((named(&mut line)?, documented(&mut line)?))).collect()
});

fn named(line: &mut Object) -> Option<String> {
    line.get("name")?.as_str().map(str::to_owned)
}

fn documented(line: &mut Object) -> Option<Object> {
    match line.remove("docs")? {
        Value::Object(docs) => Some(docs),
        _ => None,
    }
}

/// Writes the map for one command.
pub fn write_docs(reply: &mut Reply<'_>, entry: &Entry) {
    let empty = Object::new();
    let docs = BY_NAME.get(entry.spec.name).unwrap_or(&empty);
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
            write_docs(reply, subcommand);
        }
    }
}

/// Writes a value as Redis does: flags are sets of statuses, the history is a set, everything else keeps its type.
fn value(reply: &mut Reply<'_>, name: &str, content: &Value) {
    match content {
        Value::Object(object) => {
            reply.map(object.len());
            for (name, content) in object {
                reply.bulk(name.as_bytes());
                value(reply, name, content);
            }
        }
        Value::Array(all) if matches!(name, "flags" | "doc_flags") => {
            reply.set(all.len());
            for word in all {
                reply.simple(word.as_str().unwrap_or_default());
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;

    #[test]
    fn exactly_the_commands_are_documented() {
        for entry in table().all() {
            assert!(BY_NAME.contains_key(entry.spec.name), "{} is not in docs.jsonl", entry.spec.name);
        }
        assert_eq!(include_str!("docs.jsonl").lines().count(), table().count());
    }
}
