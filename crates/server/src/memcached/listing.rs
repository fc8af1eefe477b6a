//! Lists items: `stats cachedump` and `lru_crawler metadump`, which other tools and tests use. All items are in class
//! 1, as in `stats items`.

use super::clock::deadline_of;
use super::connection_state::ConnectionState;
use super::items::Items;
use super::line::Words;
use super::number;
use super::request::{BAD_FORMAT, Request};
use duramen_structures::{Error, Result};
use std::io::Write as _;

/// The only class that has items.
const CLASS: u32 = 1;
/// Classes that memcached could have.
const CLASSES_MAX: u32 = 63;
/// As in memcached: the maximum output of `stats cachedump`.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;
/// Keys that are looked for at once.
const SCAN_KEYS: usize = 256;

/// `stats cachedump CLASS [LIMIT]`: some items, 0: as many as fit.
pub fn cachedump(request: &mut Request<'_>, words: &Words<'_>) {
    if words.len() < 3 {
        return request.line(b"CLIENT_ERROR bad command line");
    }
    let numbers = (number::unsigned_32(words.at(2)), number::unsigned_32(words.at(3)));
    let (class, limit) = match (numbers, words.len()) {
        ((Some(class), _), 3) => (class, 0),
        ((Some(class), Some(limit)), _) => (class, limit),
        _ => return request.line(BAD_FORMAT),
    };
    if class > CLASSES_MAX {
        return request.line(b"CLIENT_ERROR Illegal slab id");
    }
    let (start, mut cursor, mut left) = (request.out.len(), 0, if limit == 0 { u32::MAX } else { limit });
    while class == CLASS && left > 0 && request.out.len() - start < CACHEDUMP_BYTES_MAX {
        let told = part(request, &mut cursor, |request, key| {
            let Some(item) = request.items.find(key)?.filter(|_| left > 0) else { return Ok(()) };
            left -= 1;
            let out = &mut request.out.bytes;
            out.extend_from_slice(b"ITEM ");
            out.extend_from_slice(key);
            // Writing to a vector cannot fail.
            let _ = write!(out, " [{} b; {} s]\r\n", item.len(), deadline_of(item.expires_at()).unwrap_or(0));
            Ok(())
        });
        if let Err(error) = told {
            return request.refuse(start, error);
        }
        if cursor == 0 {
            break;
        }
    }
    request.line(b"END");
}

/// `lru_crawler metadump all|hash|CLASS[,CLASS…]`: lists the next part of all items. If there are more, the line stays
/// and is executed again when the client has read this part.
pub fn metadump(request: &mut Request<'_>, connection: &mut ConnectionState, words: &Words<'_>) {
    let mut is_wanted = matches!(words.at(2), b"all" | b"hash");
    if !is_wanted {
        for class in words.at(2).split(|byte| *byte == b',') {
            match number::unsigned_32(class) {
                Some(class @ 1..=CLASSES_MAX) => is_wanted |= class == CLASS,
                _ => return request.line(b"BADCLASS invalid class id"),
            }
        }
    }
    let (start, mut cursor) = (request.out.len(), connection.dumps_from.take().unwrap_or(0));
    if is_wanted {
        let now = request.items.now;
        let told = part(request, &mut cursor, |request, key| {
            let used = request.items.shared.last_used.of(key, now.seconds);
            let Some(item) = request.items.find(key)? else { return Ok(()) };
            let bytes = Items::bytes_of(key.len(), item.head.flags, item.len() as u64);
            let expires = deadline_of(item.expires_at()).map_or(-1, |at| at as i64);
            let out = &mut request.out.bytes;
            out.extend_from_slice(b"key=");
            for byte in key {
                let _ = match byte {
                    b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                        out.write(&[*byte])
                    }
                    _ => write!(out, "%{byte:02X}").map(|()| 3),
                };
            }
            let _ = writeln!(
                out,
                " exp={expires} la={} cas={} fetch={} cls={CLASS} size={bytes}",
                now.seconds.saturating_sub(used.seconds),
                item.head.cas,
                if used.is_fetched { "yes" } else { "no" },
            );
            Ok(())
        });
        match told {
            Ok(()) if cursor != 0 => {
                connection.dumps_from = Some(cursor);
                return;
            }
            Ok(()) => {}
            Err(error) => return request.refuse(start, error),
        }
    }
    request.line(b"END");
}

/// Lists some keys, from the cursor on; the cursor is 0 after the last one. Keys that are no items are skipped.
fn part(
    request: &mut Request<'_>,
    cursor: &mut u64,
    mut tell: impl FnMut(&mut Request<'_>, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut keys, db, now) = (Vec::with_capacity(SCAN_KEYS), request.items.shared.db, request.items.now);
    let mut txn = request.items.worker.begin(now.millis);
    *cursor = txn.scan(db, *cursor, SCAN_KEYS, |key, _| keys.push(key.to_vec()))?;
    drop(txn);
    keys.iter().try_for_each(|key| match tell(request, key) {
        Err(Error::WrongType) => Ok(()),
        told => told,
    })
}
