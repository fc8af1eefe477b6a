//! The answer of COMMAND DOCS: `docs` in the files of [`super::description`]. Read when the first client asks.

use super::Entry;
use super::description::FILES;
use crate::redis::resp::Reply;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

type Object = Map<String, Value>;

#[derive(Deserialize)]
struct Written {
    docs: Object,
}

static BY_NAME: LazyLock<HashMap<&str, Object>> = LazyLock::new(|| {
    // The files are part of the program, and a test reads all of them.
    let read = |text: &'static str| serde_json::from_str::<HashMap<&str, Written>>(text).unwrap_or_default();
    let written = FILES.iter().flat_map(|(_, text)| read(text));
    written.map(|(name, written)| (name, written.docs)).collect()
});

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
    use crate::redis::command::table;

    #[test]
    fn exactly_the_commands_are_documented() {
        for entry in table().all() {
            assert!(BY_NAME.contains_key(entry.spec.name), "{} has no docs", entry.spec.name);
        }
        assert_eq!(BY_NAME.len(), table().count());
    }
}
