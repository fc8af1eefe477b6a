//! One key: what is known of it, and a part of its value.

use super::keys::{KEY_BYTES_IN_PATH, named, text_of};
use super::link::{Failed, Link, bytes, items, scanned};
use super::query::Query;
use super::text::shown;
use duramen_resp::Reply;
use serde_json::{Value, json};

/// Bytes of a string in one answer.
const STRING_BYTES: u64 = 64 << 10;
/// Elements of a collection in one answer.
const ELEMENTS: u64 = 100;
/// Bytes of an element that are shown.
const ELEMENT_BYTES: usize = 1024;
/// Bytes of the elements of one answer, as far as their average tells.
const PAGE_BYTES: u64 = 8 << 20;

/// `/api/value`: a key, and its value from a cursor on.
pub fn read(link: &mut Link, query: &Query) -> Result<Value, Failed> {
    let key = query.get("key").ok_or_else(|| "key: it is missing".to_owned())?;
    link.select(query.digits("db")?)?;
    let kind = text_of(&link.call(&[b"type", key])?);
    let length_of: &[u8] = match kind.as_str() {
        "string" => b"strlen",
        "hash" => b"hlen",
        "list" => b"llen",
        "set" => b"scard",
        "zset" => b"zcard",
        "stream" => b"xlen",
        _ => return Err(Failed::Refused("there is no such key any more".to_owned())),
    };
    let length = link.call(&[length_of, key])?.integer().unwrap_or(0);
    let length = u64::try_from(length).unwrap_or(0);
    let more =
        link.all(&[vec![b"pttl", key], vec![b"memory", b"usage", key], vec![b"object", b"encoding", key]])?;
    let [ttl, size, encoding] = more.as_slice() else { return Err(Failed::Ended) };
    let size = size.integer();
    let average = size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0) / length.max(1);
    let count = (PAGE_BYTES / average.max(1)).clamp(1, ELEMENTS);
    let mut answer = named(key, KEY_BYTES_IN_PATH);
    answer["type"] = json!(kind);
    answer["ttl"] = json!(ttl.integer());
    answer["size"] = json!(size);
    answer["length"] = json!(length);
    answer["encoding"] =
        json!(encoding.text().filter(|_| encoding.error().is_none()).map(String::from_utf8_lossy));
    let part = match kind.as_str() {
        "string" => string(link, key, length, query.digits("cursor")?)?,
        "hash" => scan(link, key, (b"hscan", &["field", "value"]), query, count)?,
        "set" => scan(link, key, (b"sscan", &["member"]), query, count)?,
        "list" => by_position(link, key, (b"lrange", &["position", "value"]), query, count, length)?,
        "zset" => by_position(link, key, (b"zrange", &["rank", "member", "score"]), query, count, length)?,
        _ => entries(link, key, query, count)?,
    };
    if let (Value::Object(answer), Value::Object(part)) = (&mut answer, part) {
        answer.extend(part);
    }
    Ok(answer)
}

fn string(link: &mut Link, key: &[u8], length: u64, from: u64) -> Result<Value, Failed> {
    let to = from.saturating_add(STRING_BYTES - 1);
    let reply = link.call(&[b"getrange", key, from.to_string().as_bytes(), to.to_string().as_bytes()])?;
    let found = bytes(&reply);
    let end = from + found.len() as u64;
    let next = (end < length && !found.is_empty()).then(|| end.to_string());
    Ok(json!({"value": shown(found, STRING_BYTES as usize), "from": from, "next": next}))
}

/// Rows of cells, under these titles.
fn rows(columns: &[&str], rows: Vec<Vec<Value>>, next: Option<String>) -> Value {
    json!({"columns": columns, "rows": rows, "next": next})
}

fn cell(reply: &Reply) -> Value {
    shown(bytes(reply), ELEMENT_BYTES)
}

fn scan(
    link: &mut Link,
    key: &[u8],
    (command, columns): (&[u8], &[&str]),
    query: &Query,
    count: u64,
) -> Result<Value, Failed> {
    let cursor = query.digits("cursor")?.to_string();
    let reply = link.call(&[command, key, cursor.as_bytes(), b"count", count.to_string().as_bytes()])?;
    let (next, members) = scanned(&reply)?;
    let found = members.chunks(columns.len()).map(|row| row.iter().map(cell).collect()).collect();
    Ok(rows(columns, found, (next != "0").then_some(next)))
}

fn by_position(
    link: &mut Link,
    key: &[u8],
    (command, columns): (&[u8], &[&str]),
    query: &Query,
    count: u64,
    length: u64,
) -> Result<Value, Failed> {
    let from = query.digits("cursor")?;
    let (first, last) = (from.to_string(), from.saturating_add(count - 1).to_string());
    let mut words: Vec<&[u8]> = vec![command, key, first.as_bytes(), last.as_bytes()];
    if command == b"zrange" {
        words.push(b"withscores");
    }
    let reply = link.call(&words)?;
    let found: Vec<Vec<Value>> = items(&reply)?
        .chunks(columns.len() - 1)
        .zip(from..)
        .map(|(row, at)| {
            let position = shown(at.to_string().as_bytes(), ELEMENT_BYTES);
            std::iter::once(position).chain(row.iter().map(cell)).collect()
        })
        .collect();
    let end = from + found.len() as u64;
    let next = (end < length && !found.is_empty()).then(|| end.to_string());
    Ok(rows(columns, found, next))
}

/// Entries of a stream; the cursor is the last ID of the page before.
fn entries(link: &mut Link, key: &[u8], query: &Query, count: u64) -> Result<Value, Failed> {
    let start = match query.get("cursor") {
        None => b"-".to_vec(),
        Some(last) => {
            let is_id = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
            if last.is_empty() || !last.iter().all(is_id) {
                return Err(Failed::Parameter("cursor: wanted an ID".to_owned()));
            }
            [b"(", last].concat()
        }
    };
    let count_text = count.to_string();
    let reply = link.call(&[b"xrange", key, &start, b"+", b"count", count_text.as_bytes()])?;
    let found = items(&reply)?;
    let mut all = Vec::new();
    let mut last = None;
    for entry in found {
        let [id, fields] = items(entry)? else { return Err(Failed::Ended) };
        let pairs: Vec<u8> = items(fields)?
            .chunks(2)
            .map(|pair| pair.iter().map(bytes).collect::<Vec<_>>().join(&b" = "[..]))
            .collect::<Vec<_>>()
            .join(&b'\n');
        last = Some(text_of(id));
        all.push(vec![cell(id), shown(&pairs, ELEMENT_BYTES)]);
    }
    let next = last.filter(|_| found.len() as u64 == count);
    Ok(rows(&["ID", "fields"], all, next))
}
