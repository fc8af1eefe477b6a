//! The keys of a database, by SCAN, and their types.

use super::link::{Failed, Link, bytes, items, scanned};
use super::query::{Query, encoded};
use super::text::shown;
use duramen_resp::Reply;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// COUNT of SCAN, which looks at up to ten times as many keys while few match.
const SCAN_COUNT: &[u8] = b"200";
/// SCANs of one request: it looks at some 40,000 keys at most.
const SCANS_MAX: usize = 20;
/// Keys after which a request scans no more.
const KEYS_ENOUGH: usize = 100;
/// Keys that one request of [`types`] samples.
const SAMPLE_COUNT: &[u8] = b"1000";
/// The largest keys of each type that it names.
const LARGEST: usize = 5;
/// Bytes of a key in a list that are shown.
const NAME_BYTES: usize = 256;
/// The longest key that a path can name: the head of a request has a bound.
pub const KEY_BYTES_IN_PATH: usize = 2048;

/// `/api/keys`: keys that match, from a cursor on, and the next cursor.
pub fn list(link: &mut Link, query: &Query) -> Result<Value, Failed> {
    let mut cursor = query.digits("cursor")?.to_string();
    let pattern = query.get("match").filter(|pattern| !pattern.is_empty()).unwrap_or(b"*");
    let kind = query.get("type").filter(|kind| !kind.is_empty());
    link.select(query.digits("db")?)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut scans = 0;
    while scans < SCANS_MAX && names.len() < KEYS_ENOUGH {
        let mut command: Vec<&[u8]> =
            vec![b"scan", cursor.as_bytes(), b"match", pattern, b"count", SCAN_COUNT];
        command.extend(kind.iter().flat_map(|kind| [&b"type"[..], kind]));
        let reply = link.call(&command)?;
        let (next, members) = scanned(&reply)?;
        names.extend(members.iter().map(|name| bytes(name).to_vec()));
        scans += 1;
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    let replies = link.all(&details(&names, true))?;
    let keys = names.iter().zip(replies.chunks(3)).map(|(name, found)| {
        let mut key = named(name, NAME_BYTES);
        key["type"] = found[0].error().map_or_else(|| json!(text_of(&found[0])), |_| Value::Null);
        key["ttl"] = json!(found[1].integer());
        key["size"] = json!(found[2].integer());
        key
    });
    let next = if cursor == "0" { Value::Null } else { json!(cursor) };
    Ok(json!({"keys": keys.collect::<Vec<_>>(), "next": next}))
}

/// `/api/types`: a part of the keys by type, with their bytes and the largest ones.
pub fn types(link: &mut Link, query: &Query) -> Result<Value, Failed> {
    let cursor = query.digits("cursor")?.to_string();
    link.select(query.digits("db")?)?;
    let total = link.call(&[b"dbsize"])?.integer();
    let reply = link.call(&[b"scan", cursor.as_bytes(), b"count", SAMPLE_COUNT])?;
    let (next, members) = scanned(&reply)?;
    let names: Vec<Vec<u8>> = members.iter().map(|name| bytes(name).to_vec()).collect();
    let replies = link.all(&details(&names, false))?;
    let mut by_type: BTreeMap<String, Vec<(u64, &[u8])>> = BTreeMap::new();
    let mut denied = 0;
    for (name, found) in names.iter().zip(replies.chunks(2)) {
        match text_of(&found[0]) {
            _ if found[0].error().is_some() => denied += 1,
            // It was deleted since.
            kind if kind == "none" => {}
            kind => {
                let size = found[1].integer().and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
                by_type.entry(kind).or_default().push((size, name));
            }
        }
    }
    let mut shown_types = Map::new();
    for (kind, mut found) in by_type {
        found.sort_unstable_by(|one, other| other.cmp(one));
        let largest: Vec<Value> = found
            .iter()
            .take(LARGEST)
            .map(|(size, name)| {
                let mut key = named(name, NAME_BYTES);
                key["size"] = json!(size);
                key
            })
            .collect();
        let size: u64 = found.iter().map(|(size, _)| size).sum();
        shown_types.insert(kind, json!({"count": found.len(), "size": size, "largest": largest}));
    }
    let next = if next == "0" { Value::Null } else { json!(next) };
    Ok(json!({"total": total, "sampled": names.len(), "denied": denied, "types": shown_types, "next": next}))
}

/// A key as text, so much of it as is to be shown, and as the parameter by which it is asked for; `null`: it is too long for that.
pub fn named(name: &[u8], most: usize) -> Value {
    let id = (name.len() <= KEY_BYTES_IN_PATH).then(|| encoded(name));
    json!({"name": shown(name, most), "id": id})
}

/// The commands for each key: TYPE, perhaps PTTL, and MEMORY USAGE. A user that may not read a key gets no details of it.
fn details(names: &[Vec<u8>], with_times: bool) -> Vec<Vec<&[u8]>> {
    let of = |name| {
        let mut commands: Vec<Vec<&[u8]>> = vec![vec![b"type", name]];
        if with_times {
            commands.push(vec![b"pttl", name]);
        }
        commands.push(vec![b"memory", b"usage", name]);
        commands
    };
    names.iter().flat_map(|name| of(name.as_slice())).collect()
}

/// A line of a reply.
pub fn text_of(reply: &Reply) -> String {
    String::from_utf8_lossy(bytes(reply)).into_owned()
}

/// The strings of an array, each cut.
///
/// # Errors
/// As [`items`].
pub fn texts(reply: &Reply, most: usize) -> Result<Vec<Value>, Failed> {
    Ok(items(reply)?.iter().map(|item| shown(bytes(item), most)).collect())
}
