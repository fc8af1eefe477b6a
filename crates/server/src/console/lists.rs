//! The slow log, and clients.

use super::keys::{text_of, texts};
use super::link::{Failed, Link, bytes, items};
use super::query::Query;
use super::text::shown;
use serde_json::{Map, Value, json};

/// Entries of the slow log in one answer.
const ENTRIES_MAX: &[u8] = b"128";
/// Clients in one answer.
const CLIENTS_MAX: usize = 500;
/// Bytes of an argument, and of a name, that are shown.
const TEXT_BYTES_MAX: usize = 256;

/// The fields of CLIENT LIST that are shown.
const FIELDS: [&str; 12] =
    ["id", "addr", "name", "user", "db", "cmd", "age", "idle", "flags", "tot-mem", "omem", "lib-name"];

/// `/api/slowlog`: its newest entries.
pub fn slow_log(link: &mut Link, _query: &Query) -> Result<Value, Failed> {
    let reply = link.call(&[b"slowlog", b"get", ENTRIES_MAX])?;
    let mut entries = Vec::new();
    for entry in items(&reply)? {
        let [id, at, micros, args, address, name] = items(entry)? else { return Err(Failed::Ended) };
        entries.push(json!({
            "id": id.integer(),
            "at": at.integer(),
            "micros": micros.integer(),
            "args": texts(args, TEXT_BYTES_MAX)?,
            "client": text_of(address),
            "name": shown(bytes(name), TEXT_BYTES_MAX),
        }));
    }
    Ok(json!({"entries": entries}))
}

/// `/api/clients`: those with the smallest numbers, and how many there are.
pub fn clients(link: &mut Link, _query: &Query) -> Result<Value, Failed> {
    let reply = link.call(&[b"client", b"list"])?;
    let lines: Vec<&[u8]> =
        bytes(&reply).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let clients: Vec<Value> = lines.iter().take(CLIENTS_MAX).map(|line| client(line)).collect();
    Ok(json!({"clients": clients, "total": lines.len()}))
}

/// A line of `name=value` with blanks between; no value has a blank.
fn client(line: &[u8]) -> Value {
    let mut fields = Map::new();
    for part in line.split(|byte| *byte == b' ') {
        let Some(at) = part.iter().position(|byte| *byte == b'=') else { continue };
        let name = String::from_utf8_lossy(&part[..at]);
        if FIELDS.contains(&&*name) {
            fields.insert(name.into_owned(), shown(&part[at + 1..], TEXT_BYTES_MAX)["text"].take());
        }
    }
    Value::Object(fields)
}
