//! The text protocol: a line, for some commands data after it, and a reply. Error lines are those of memcached 1.6.18.
//!
//! `noreply` drops the reply of a command, errors of its arguments included, as there.

use super::connection_state::ConnectionState;
use super::counters::Count;
use super::items::{Counted, Deleted, Delta, KEY_BYTES_MAX, Mode, Outcome, Put};
use super::line::{Data, Words, data};
use super::listing;
use super::meta;
use super::number;
use super::request::{BAD_FORMAT, NOT_NUMERIC, Request, TOO_LARGE, VERSION};
use super::rights;
use super::stats;
use duramen_structures::{AHEAD_MAX, Item};
use std::sync::atomic::Ordering::Relaxed;

// A line may be longer than this without an end, if it is of a get.
const LINE_BYTES_MAX: usize = 2048;
const BLANKS_MAX: usize = 100;
const DATA_BYTES_MAX: i64 = i32::MAX as i64 - 2;
const VERBOSITY_MAX: u32 = 2;

/// Executes the command at the beginning of `input`; how many bytes it took, or `None` when it does not end yet.
pub fn next(request: &mut Request<'_>, connection: &mut ConnectionState, input: &[u8]) -> Option<usize> {
    let from = connection.scanned.min(input.len());
    let Some(end) = input[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at) else {
        connection.scanned = input.len();
        if input.len() > LINE_BYTES_MAX && !is_get(input) {
            connection.closing = true;
            return Some(input.len());
        }
        return None;
    };
    connection.scanned = 0;
    let mut line = &input[..end];
    if line.len() > 1 {
        line = line.strip_suffix(b"\r").unwrap_or(line);
    }
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let rest = &input[end + 1..];
    if !connection.authenticated {
        return authenticate(request, connection, line, rest).map(|more| end + 1 + more);
    }
    if !connection.login.is_unlimited(&request.server.users)
        && !rights::may_run(&mut connection.login, &request.server.users, line)
    {
        refuse(request, connection, line);
        return Some(end + 1);
    }
    let taken = command(request, connection, line, rest).map(|more| end + 1 + more);
    // It is executed again while there are more items.
    if connection.dumps_from.is_some() { Some(0) } else { taken }
}

/// Answers a command that the user may not run; the data after its line are skipped.
#[cold]
fn refuse(request: &mut Request<'_>, connection: &mut ConnectionState, line: &[u8]) {
    let words = Words::of(line);
    let bytes = match words.at(0) {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => words.at(4),
        b"ms" => words.at(2),
        _ => b"",
    };
    if let Some(bytes) = number::unsigned_32(bytes).filter(|bytes| i64::from(*bytes) <= DATA_BYTES_MAX) {
        connection.swallow = u64::from(bytes) + 2;
    }
    request.line_unless(words.is_quiet(), rights::DENIED);
}

/// Whether an endless line may be one of many keys.
fn is_get(input: &[u8]) -> bool {
    let blanks = input.iter().take_while(|byte| **byte == b' ').count();
    let line = &input[blanks..];
    blanks <= BLANKS_MAX && (line.starts_with(b"get ") || line.starts_with(b"gets "))
}

/// `set KEY FLAGS TIME BYTES`, and a name and the password as data.
fn authenticate(
    request: &mut Request<'_>,
    connection: &mut ConnectionState,
    line: &[u8],
    rest: &[u8],
) -> Option<usize> {
    let words = Words::of(line);
    let bytes = number::unsigned_32(words.at(4)).map(|bytes| bytes as usize);
    // A name and a password are no longer.
    let bytes = bytes.filter(|bytes| words.len() >= 5 && words.at(0) == b"set" && *bytes <= LINE_BYTES_MAX);
    let Some(bytes) = bytes else {
        request.line(b"CLIENT_ERROR unauthenticated");
        return Some(0);
    };
    let said = match data(rest, bytes) {
        Data::Missing => return None,
        Data::Unended => {
            request.line(b"CLIENT_ERROR bad command line termination");
            return Some(bytes + 2);
        }
        Data::Whole(said) => Words::of(said),
    };
    if said.len() < 2 {
        request.line(b"CLIENT_ERROR bad authentication token format");
        return Some(bytes + 2);
    }
    request.items.counters.add(Count::AuthCmds);
    if request.log_in(connection, said.at(0), said.at(1)) {
        request.line(b"STORED");
    } else {
        request.items.counters.add(Count::AuthErrors);
        request.line(b"CLIENT_ERROR authentication failure");
    }
    Some(bytes + 2)
}

/// Executes a line; returns how many of the bytes after it it took.
fn command(
    request: &mut Request<'_>,
    connection: &mut ConnectionState,
    line: &[u8],
    rest: &[u8],
) -> Option<usize> {
    if let Some(keys) = line.strip_prefix(b"get ") {
        get(request, keys, false);
        return Some(0);
    }
    let words = Words::of(line);
    match words.at(0) {
        b"set" => return storage(request, connection, &words, Mode::Set, rest),
        b"add" => return storage(request, connection, &words, Mode::Add, rest),
        b"replace" => return storage(request, connection, &words, Mode::Replace, rest),
        b"append" => return storage(request, connection, &words, Mode::Append, rest),
        b"prepend" => return storage(request, connection, &words, Mode::Prepend, rest),
        b"cas" => return storage(request, connection, &words, Mode::Cas, rest),
        b"ms" => return meta::set(request, connection, &words, rest),
        b"mg" => meta::get(request, &words),
        b"md" => meta::delete(request, &words),
        b"ma" => meta::arithmetic(request, &words),
        b"me" => meta::debug(request, &words),
        b"mn" => request.line(b"MN"),
        b"get" | b"bget" => get(request, after(line, 1), false),
        b"gets" => get(request, after(line, 1), true),
        b"gat" => get_and_touch(request, &words, line, false),
        b"gats" => get_and_touch(request, &words, line, true),
        b"incr" => count(request, &words, true),
        b"decr" => count(request, &words, false),
        b"touch" => touch(request, &words),
        b"delete" => delete(request, &words),
        b"flush_all" => flush_all(request, &words),
        b"stats" => stats::command(request, &words),
        b"version" => request.line(format!("VERSION {VERSION}").as_bytes()),
        b"verbosity" => verbosity(request, &words),
        b"quit" => connection.closing = true,
        b"shutdown" => shutdown(request, connection, &words),
        b"cache_memlimit" => memory_limit(request, &words),
        b"slabs" => slabs(request, &words),
        b"lru" => lru(request, &words),
        b"lru_crawler" if words.at(1) == b"metadump" && words.len() == 3 => {
            listing::metadump(request, connection, &words);
        }
        b"lru_crawler" => crawler(request, &words),
        b"refresh_certs" => request.line_unless(words.is_quiet(), b"Error TLS not enabled"),
        b"watch" => request.line_unless(words.is_quiet(), b"CLIENT_ERROR watch commands not allowed"),
        _ => unknown(request, connection, &words),
    }
    Some(0)
}

fn unknown(request: &mut Request<'_>, connection: &mut ConnectionState, words: &Words<'_>) {
    let first = words.at(0);
    let is_known_letter = matches!(first.first(), Some(b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't'));
    let is_http = words.all().last().is_some_and(|word| word.starts_with(b"HTTP/"));
    if first.len() >= 2 && !is_known_letter && is_http {
        connection.closing = true;
    } else {
        request.line(b"ERROR");
    }
}

/// The rest after this many words.
fn after(line: &[u8], words: usize) -> &[u8] {
    let mut rest = line;
    for _ in 0..words {
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        let word = rest[blanks..].iter().take_while(|byte| **byte != b' ').count();
        rest = &rest[blanks + word..];
    }
    rest
}

// --- reads

fn get(request: &mut Request<'_>, keys: &[u8], with_cas: bool) {
    let start = request.out.len();
    let keys = || keys.split(|byte| *byte == b' ').filter(|key| !key.is_empty());
    let mut count = 0;
    for (at, key) in keys().enumerate() {
        if key.len() > KEY_BYTES_MAX {
            request.out.truncate(start);
            return request.line(BAD_FORMAT);
        }
        // The lines of the next ones are fetched meanwhile. A single key has nothing to overlap with.
        if at % AHEAD_MAX == 1 {
            request.items.prefetch(keys().skip(at).take(AHEAD_MAX));
        }
        count += 1;
        let found = match request.items.find(key) {
            Ok(found) => found,
            Err(error) => return request.refuse(start, error),
        };
        request.items.fetched(key, found.is_some());
        if let Some(item) = found
            && request.out.takes()
        {
            value(&mut request.out.bytes, key, &item, with_cas);
        }
    }
    if count == 0 {
        return request.line(b"ERROR");
    }
    request.line(b"END");
}

fn value(out: &mut Vec<u8>, key: &[u8], item: &Item<'_>, with_cas: bool) {
    out.reserve(key.len() + item.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number::push(out, u64::from(item.head.flags));
    out.push(b' ');
    number::push(out, item.len() as u64);
    if with_cas {
        out.push(b' ');
        number::push(out, item.head.cas);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(item);
    out.extend_from_slice(b"\r\n");
}

fn get_and_touch(request: &mut Request<'_>, words: &Words<'_>, line: &[u8], with_cas: bool) {
    if words.len() < 2 {
        return request.line(b"ERROR");
    }
    let Some(asked) = number::signed_32(words.at(1)) else {
        return request.line(b"CLIENT_ERROR invalid exptime argument");
    };
    let deadline = request.items.now.deadline(asked.into());
    let start = request.out.len();
    for key in after(line, 2).split(|byte| *byte == b' ').filter(|key| !key.is_empty()) {
        if key.len() > KEY_BYTES_MAX {
            request.out.truncate(start);
            return request.line(BAD_FORMAT);
        }
        // Its replies touch the item: a deadline that has passed removes it.
        let appended = request.out.len();
        match request.items.find(key) {
            Ok(Some(item)) => {
                if request.out.takes() {
                    value(&mut request.out.bytes, key, &item, with_cas);
                }
            }
            Ok(None) => {}
            Err(error) => return request.refuse(start, error),
        }
        match request.items.touch(key, deadline) {
            Ok(true) => {}
            Ok(false) => request.out.truncate(appended),
            Err(error) => return request.refuse(start, error),
        }
    }
    request.line(b"END");
}

// --- writes

fn storage(
    request: &mut Request<'_>,
    connection: &mut ConnectionState,
    words: &Words<'_>,
    mode: Mode,
    rest: &[u8],
) -> Option<usize> {
    let wanted = if mode == Mode::Cas { 6 } else { 5 };
    if words.len() != wanted && words.len() != wanted + 1 {
        request.line(b"ERROR");
        return Some(0);
    }
    let is_quiet = words.is_quiet();
    let key = words.at(1);
    let numbers = (
        number::unsigned_32(words.at(2)),
        number::signed_32(words.at(3)),
        number::signed_32(words.at(4)),
        if mode == Mode::Cas { number::unsigned(words.at(5)) } else { Some(0) },
    );
    let (Some(flags), Some(asked), Some(bytes), Some(cas)) = numbers else {
        request.line_unless(is_quiet, BAD_FORMAT);
        return Some(0);
    };
    if key.len() > KEY_BYTES_MAX || !(0..=DATA_BYTES_MAX).contains(&i64::from(bytes)) {
        request.line_unless(is_quiet, BAD_FORMAT);
        return Some(0);
    }
    let bytes = bytes as usize;
    if !request.items.fits(key, flags, bytes as u64) {
        request.line_unless(is_quiet, TOO_LARGE);
        connection.swallow = bytes as u64 + 2;
        request.too_large(key, mode == Mode::Set);
        return Some(0);
    }
    let data = match data(rest, bytes) {
        Data::Missing => return None,
        Data::Unended => {
            request.items.counters.add(Count::CmdSet);
            request.line_unless(is_quiet, b"CLIENT_ERROR bad data chunk");
            return Some(bytes + 2);
        }
        Data::Whole(data) => data,
    };
    let deadline = request.items.now.deadline(asked.into());
    let put = Put { mode, key, flags, deadline, data, cas, takes_stale: false, binary_key: false };
    let text: &[u8] = match request.items.store(put) {
        Ok(Outcome::Stored(_)) => b"STORED",
        Ok(Outcome::Exists) => b"EXISTS",
        Ok(Outcome::NotFound) => b"NOT_FOUND",
        Ok(Outcome::NotStored) => b"NOT_STORED",
        Err(error) => {
            let text = request.refused(error).text;
            request.line_unless(is_quiet, &text);
            return Some(bytes + 2);
        }
    };
    request.line_unless(is_quiet, text);
    Some(bytes + 2)
}

fn count(request: &mut Request<'_>, words: &Words<'_>, up: bool) {
    if !(3..=4).contains(&words.len()) {
        return request.line(b"ERROR");
    }
    let is_quiet = words.is_quiet();
    let key = words.at(1);
    if key.len() > KEY_BYTES_MAX {
        return request.line_unless(is_quiet, BAD_FORMAT);
    }
    let Some(by) = number::unsigned(words.at(2)) else {
        return request.line_unless(is_quiet, b"CLIENT_ERROR invalid numeric delta argument");
    };
    match request.items.count(key, Delta { up, by, cas: 0, initial: None, deadline: None }) {
        Ok(Counted::Done { value, .. }) => {
            if !is_quiet {
                number::push(&mut request.out.bytes, value);
                request.line(b"");
            }
        }
        Ok(Counted::NotNumeric) => request.line_unless(is_quiet, NOT_NUMERIC),
        Ok(Counted::NotFound | Counted::Exists) => request.line_unless(is_quiet, b"NOT_FOUND"),
        Err(error) => {
            let text = request.refused(error).text;
            request.line_unless(is_quiet, &text);
        }
    }
}

fn touch(request: &mut Request<'_>, words: &Words<'_>) {
    if !(3..=4).contains(&words.len()) {
        return request.line(b"ERROR");
    }
    let is_quiet = words.is_quiet();
    if words.at(1).len() > KEY_BYTES_MAX {
        return request.line_unless(is_quiet, BAD_FORMAT);
    }
    let Some(asked) = number::signed_32(words.at(2)) else {
        return request.line_unless(is_quiet, b"CLIENT_ERROR invalid exptime argument");
    };
    let deadline = request.items.now.deadline(asked.into());
    match request.items.touch(words.at(1), deadline) {
        Ok(true) => request.line_unless(is_quiet, b"TOUCHED"),
        Ok(false) => request.line_unless(is_quiet, b"NOT_FOUND"),
        Err(error) => {
            let text = request.refused(error).text;
            request.line_unless(is_quiet, &text);
        }
    }
}

fn delete(request: &mut Request<'_>, words: &Words<'_>) {
    if !(2..=4).contains(&words.len()) {
        return request.line(b"ERROR");
    }
    let mut is_quiet = false;
    if words.len() > 2 {
        is_quiet = words.is_quiet();
        // Ancient clients give a time, which may only be 0.
        let holds_zero = words.at(2) == b"0";
        let is_valid = if words.len() == 3 { holds_zero || is_quiet } else { holds_zero && is_quiet };
        if !is_valid {
            let usage = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
            return request.line_unless(is_quiet, usage);
        }
    }
    if words.at(1).len() > KEY_BYTES_MAX {
        return request.line_unless(is_quiet, BAD_FORMAT);
    }
    match request.items.delete(words.at(1), None, None) {
        Ok(Deleted::Done) => request.line_unless(is_quiet, b"DELETED"),
        Ok(Deleted::NotFound | Deleted::Exists) => request.line_unless(is_quiet, b"NOT_FOUND"),
        Err(error) => {
            let text = request.refused(error).text;
            request.line_unless(is_quiet, &text);
        }
    }
}

fn flush_all(request: &mut Request<'_>, words: &Words<'_>) {
    if words.len() > 3 {
        return request.line(b"ERROR");
    }
    let is_quiet = words.is_quiet();
    let mut asked = 0;
    if words.len() != if is_quiet { 2 } else { 1 } {
        let Some(seconds) = number::signed_32(words.at(1)) else {
            return request.line_unless(is_quiet, b"CLIENT_ERROR invalid exptime argument");
        };
        asked = seconds;
    }
    match request.flush(asked.into()) {
        Ok(()) => request.line_unless(is_quiet, b"OK"),
        Err(error) => {
            let text = request.refused(error).text;
            request.line_unless(is_quiet, &text);
        }
    }
}

// --- the rest

fn verbosity(request: &mut Request<'_>, words: &Words<'_>) {
    if !(2..=3).contains(&words.len()) {
        return request.line(b"ERROR");
    }
    let is_quiet = words.is_quiet();
    let Some(level) = number::unsigned_32(words.at(1)) else {
        return request.line_unless(is_quiet, BAD_FORMAT);
    };
    request.items.shared.verbosity.store(level.min(VERBOSITY_MAX).into(), Relaxed);
    request.line_unless(is_quiet, b"OK");
}

fn shutdown(request: &mut Request<'_>, connection: &mut ConnectionState, words: &Words<'_>) {
    if !request.config.memcached_enable_shutdown {
        return request.line(b"ERROR: shutdown not enabled");
    }
    if words.len() == 1 || words.len() == 2 && words.at(1) == b"graceful" {
        connection.closing = true;
        request.server.stop.request();
    } else {
        request.line(b"CLIENT_ERROR invalid shutdown mode");
    }
}

fn memory_limit(request: &mut Request<'_>, words: &Words<'_>) {
    if !(2..=3).contains(&words.len()) {
        return request.line(b"ERROR");
    }
    let text: &[u8] = match number::unsigned_32(words.at(1)) {
        None => b"ERROR",
        Some(..8) => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
        Some(1_000_000_001..) => b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        Some(megabytes) => {
            let bytes = u64::from(megabytes) << 20;
            let changed: Result<(), std::convert::Infallible> = request.server.config_change(|config| {
                config.maxmemory = bytes;
                Ok(())
            });
            let Ok(()) = changed;
            request.server.keyspace.store().set_limit(bytes);
            request.server.note_full();
            b"OK"
        }
    };
    request.line_unless(words.is_quiet(), text);
}

fn slabs(request: &mut Request<'_>, words: &Words<'_>) {
    let is_quiet = words.len() >= 3 && words.is_quiet();
    let text: &[u8] = match (words.at(1), words.at(2)) {
        (b"reassign", _) if words.len() == 4 => b"CLIENT_ERROR slab reassignment disabled",
        (b"automove", b"ratio") if words.len() >= 3 => {
            let ratio = std::str::from_utf8(words.at(3)).ok().and_then(|text| text.parse::<f64>().ok());
            if ratio.is_some() { b"OK" } else { b"ERROR" }
        }
        (b"automove", level) if words.len() >= 3 => match number::unsigned_32(level) {
            None => BAD_FORMAT,
            Some(0..=2) => b"OK",
            Some(_) => b"ERROR",
        },
        _ => b"ERROR",
    };
    request.line_unless(is_quiet, text);
}

/// There is no LRU to tune: all of memcached's values are accepted.
fn lru(request: &mut Request<'_>, words: &Words<'_>) {
    if words.len() < 2 {
        return request.line(b"ERROR");
    }
    let float = |at| std::str::from_utf8(words.at(at)).ok().and_then(|text| text.parse::<f64>().ok());
    let text: &[u8] = match words.at(1) {
        b"tune" if words.len() >= 6 => {
            let percents = number::unsigned_32(words.at(2)).zip(number::unsigned_32(words.at(3)));
            match (percents, float(4), float(5)) {
                (Some((hot, warm)), Some(_), Some(_)) if hot.wrapping_add(warm) > 80 => {
                    b"ERROR hot and warm pcts must not exceed 80"
                }
                (Some(_), Some(hot), Some(warm)) if hot <= 0.0 || warm <= 0.0 => {
                    b"ERROR hot/warm age factors must be greater than 0"
                }
                (Some(_), Some(_), Some(_)) => b"OK",
                _ => b"ERROR",
            }
        }
        b"mode" if words.len() >= 3 && matches!(words.at(2), b"flat" | b"segmented") => b"OK",
        b"temp_ttl" if words.len() >= 3 && number::signed_32(words.at(2)).is_some() => b"OK",
        _ => b"ERROR",
    };
    request.line_unless(words.is_quiet(), text);
}

/// There is no crawler either.
fn crawler(request: &mut Request<'_>, words: &Words<'_>) {
    let text: &[u8] = match (words.at(1), words.len()) {
        (b"crawl", 3) => b"CLIENT_ERROR lru crawler disabled",
        (b"tocrawl", 3) if number::unsigned_32(words.at(2)).is_none() => BAD_FORMAT,
        (b"sleep", 3) => match number::unsigned_32(words.at(2)) {
            None => BAD_FORMAT,
            Some(1_000_001..) => b"CLIENT_ERROR sleep must be one second or less",
            Some(_) => b"OK",
        },
        (b"tocrawl", 3) | (b"disable", 2) => b"OK",
        (b"enable", 2) => b"ERROR failed to start lru crawler thread",
        _ => b"ERROR",
    };
    request.line(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_after_some_words_is_returned() {
        assert_eq!(after(b" gat  10 a b", 2), b" a b");
        assert_eq!(after(b"get", 1), b"");
    }

    #[test]
    fn only_a_get_may_be_long_without_an_end() {
        assert!(is_get(b"get a") && is_get(b"  gets a"));
        assert!(!is_get(b"set a") && !is_get(b"get") && !is_get(&[&b" ".repeat(101)[..], b"get a"].concat()));
    }
}
