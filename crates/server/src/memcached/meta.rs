//! The meta commands: `mg`, `ms`, `md`, `ma`, `me`, with flags of one letter each; replies follow the order of the
//! flags.

use super::base64;
use super::clock::{Deadline, deadline_of, millis_of};
use super::connection_state::ConnectionState;
use super::counters::Count;
use super::items::{
    Counted, Deleted, Delta, Items, KEY_BYTES_MAX, Mode, Old, Outcome, Put, look, next_number,
};
use super::last_used::Use;
use super::line::{Data, Words, data};
use super::number;
use super::request::{BAD_FORMAT, NOT_NUMERIC, Request, TOO_LARGE};
use super::stats::slab_class;
use crate::net::Output;
use duramen_structures::{Error, ItemHead, Locks};
use std::borrow::Cow;
use std::io::Write as _;

// The command and the key among them.
const WORDS_MAX: usize = 19;
const OPAQUE_BYTES_MAX: usize = 32;
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format";
const LONG_OPAQUE: &[u8] = b"CLIENT_ERROR opaque token too long";
const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag";
const DATA_BYTES_MAX: i64 = i32::MAX as i64 - 2;

/// The flags of a command.
struct Flags<'a> {
    /// As they came, for the reply.
    words: &'a [&'a [u8]],
    key: Cow<'a, [u8]>,
    binary_key: bool,
    /// `q`
    is_quiet: bool,
    /// `u`
    is_unmarked: bool,
    /// `v`
    with_value: bool,
    /// `I`
    stale: bool,
    /// `N`
    vivify: Option<Deadline>,
    /// `T`
    deadline: Option<Deadline>,
    /// `R`
    recache: Option<Deadline>,
    /// `F`
    client_flags: u32,
    /// `C`
    cas: Option<u64>,
    /// `M`
    mode: u8,
    /// `J`
    initial: u64,
    /// `D`
    by: u64,
}

impl<'a> Flags<'a> {
    fn parse(request: &Request<'_>, key: &'a [u8], words: &'a [&'a [u8]]) -> Result<Self, &'static [u8]> {
        let mut flags = Self {
            words,
            key: Cow::Borrowed(key),
            binary_key: false,
            is_quiet: false,
            is_unmarked: false,
            with_value: false,
            stale: false,
            vivify: None,
            deadline: None,
            recache: None,
            client_flags: 0,
            cas: None,
            mode: 0,
            initial: 0,
            by: 1,
        };
        let mut seen = 0u128;
        // The last error is reported.
        let mut error: Option<&'static [u8]> = None;
        let now = request.items.now;
        for word in words {
            let (letter, value) = (word[0], &word[1..]);
            if letter >= 127 || seen & 1 << letter != 0 {
                return Err(b"CLIENT_ERROR duplicate flag");
            }
            seen |= 1 << letter;
            let mut deadline = || match number::signed_32(value) {
                Some(asked) => Some(now.deadline(asked.into())),
                None => {
                    error = Some(BAD_TOKEN);
                    None
                }
            };
            match letter {
                b'b' => {
                    flags.binary_key = true;
                    match base64::decode(key) {
                        Some(bytes) => flags.key = Cow::Owned(bytes),
                        None => error = Some(b"CLIENT_ERROR error decoding key"),
                    }
                }
                b'N' => flags.vivify = deadline(),
                b'T' => flags.deadline = deadline(),
                b'R' => flags.recache = deadline(),
                b'v' => flags.with_value = true,
                b'u' => flags.is_unmarked = true,
                b'q' => flags.is_quiet = true,
                b'I' => flags.stale = true,
                b'F' => match number::unsigned_32(value) {
                    Some(number) => flags.client_flags = number,
                    None => error = error.or(Some(BAD_FORMAT)),
                },
                b'C' => match number::unsigned(value) {
                    Some(number) => flags.cas = Some(number),
                    None => error = Some(BAD_TOKEN),
                },
                b'M' => match value {
                    [mode] => flags.mode = *mode,
                    _ => error = Some(b"CLIENT_ERROR incorrect length for M token"),
                },
                b'J' => match number::unsigned(value) {
                    Some(number) => flags.initial = number,
                    None => error = Some(b"CLIENT_ERROR invalid numeric initial value"),
                },
                b'D' => match number::unsigned(value) {
                    Some(number) => flags.by = number,
                    None => error = Some(b"CLIENT_ERROR invalid numeric delta value"),
                },
                b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' => {}
                _ => return Err(b"CLIENT_ERROR invalid flag"),
            }
        }
        match error {
            Some(error) => Err(error),
            None => Ok(flags),
        }
    }

    /// The item's deadline when the flag with this letter was processed: flags are processed in their order.
    fn deadline_after(&self, letter: u8, is_new: bool, before: Deadline) -> Deadline {
        match letter {
            b'T' => self.deadline.unwrap_or(before),
            b'N' if is_new => self.vivify.unwrap_or(before),
            _ => before,
        }
    }

    /// The deadline of an item that the command makes.
    fn deadline_of_new(&self) -> Deadline {
        self.words.iter().fold(None, |deadline, word| self.deadline_after(word[0], true, deadline))
    }

    fn has_long_opaque(&self) -> bool {
        self.words.iter().any(|word| word[0] == b'O' && word.len() > OPAQUE_BYTES_MAX)
    }

    /// Appends the parts of the request that the reply repeats: opaque and key.
    fn echo(&self, out: &mut Output) {
        for word in self.words {
            match word[0] {
                b'O' => opaque(out, word),
                b'k' => key(out, &self.key, self.binary_key),
                _ => {}
            }
        }
    }
}

fn flag(out: &mut Output, letter: u8) {
    out.bytes.extend_from_slice(&[b' ', letter]);
}

fn flag_number(out: &mut Output, letter: u8, value: u64) {
    flag(out, letter);
    number::push(&mut out.bytes, value);
}

fn opaque(out: &mut Output, word: &[u8]) {
    out.bytes.push(b' ');
    out.bytes.extend_from_slice(word);
}

fn key(out: &mut Output, key: &[u8], is_binary: bool) {
    flag(out, b'k');
    if is_binary {
        base64::encode(key, &mut out.bytes);
        out.bytes.extend_from_slice(b" b");
    } else {
        out.bytes.extend_from_slice(key);
    }
}

fn ttl(out: &mut Output, request_now: super::clock::Now, deadline: Deadline) {
    match deadline {
        None => out.bytes.extend_from_slice(b" t-1"),
        Some(deadline) => flag_number(out, b't', request_now.until(deadline)),
    }
}

/// An item in the reply of `mg`.
struct Shown<'a> {
    head: ItemHead,
    deadline: Deadline,
    data: &'a [u8],
    used: Use,
    /// It was made by this command.
    is_new: bool,
}

/// The changes that `mg` makes to an item.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Changed {
    won: bool,
    deadline: Deadline,
}

impl Shown<'_> {
    /// The item's final state. Both flags use the deadline that the earlier ones left.
    fn changed(&self, flags: &Flags<'_>) -> Changed {
        let (mut deadline, mut wins) = (self.deadline, self.is_new);
        for word in flags.words {
            deadline = flags.deadline_after(word[0], self.is_new, deadline);
            if let (b'R', Some(recache)) = (word[0], flags.recache) {
                // A time of 0 is before all others.
                let is_due = deadline.is_some_and(|deadline| deadline < recache.unwrap_or(0));
                wins |= !self.head.won && !self.is_new && is_due;
            }
        }
        wins |= self.head.stale && !self.head.won;
        Changed { won: self.head.won || wins, deadline }
    }

    fn write(&self, request_now: super::clock::Now, flags: &Flags<'_>, changed: Changed, out: &mut Output) {
        if flags.with_value {
            out.bytes.extend_from_slice(b"VA ");
            number::push(&mut out.bytes, self.data.len() as u64);
        } else {
            out.bytes.extend_from_slice(b"HD");
        }
        let mut deadline = self.deadline;
        for word in flags.words {
            deadline = flags.deadline_after(word[0], self.is_new, deadline);
            match word[0] {
                b's' => flag_number(out, b's', self.data.len() as u64),
                b't' => ttl(out, request_now, deadline),
                b'c' => flag_number(out, b'c', self.head.cas),
                b'f' => flag_number(out, b'f', self.head.flags.into()),
                b'l' => flag_number(out, b'l', self.used.seconds),
                b'h' => flag_number(out, b'h', self.used.is_fetched.into()),
                b'O' => opaque(out, word),
                b'k' => key(out, &flags.key, self.head.binary_key),
                _ => {}
            }
        }
        if self.head.won {
            flag(out, b'Z');
        }
        if self.head.stale {
            flag(out, b'X');
        }
        if changed.won && !self.head.won {
            flag(out, b'W');
        }
        out.bytes.extend_from_slice(b"\r\n");
        if flags.with_value {
            out.bytes.extend_from_slice(self.data);
            out.bytes.extend_from_slice(b"\r\n");
        }
    }
}

/// The key and the flags of a command.
type Line<'a> = (&'a [u8], &'a [&'a [u8]]);

/// The key and the flags of a command, or the error of its line.
fn line<'a>(words: &'a Words<'a>, long: &'static [u8]) -> Result<Line<'a>, &'static [u8]> {
    if words.len() < 2 {
        return Err(b"ERROR");
    }
    if words.at(1).len() > KEY_BYTES_MAX {
        return Err(BAD_FORMAT);
    }
    if words.len() > WORDS_MAX - 1 {
        return Err(long);
    }
    Ok((words.at(1), &words.all()[2..]))
}

/// `mg KEY FLAGS…`
pub fn get(request: &mut Request<'_>, words: &Words<'_>) {
    let flags = line(words, b"CLIENT_ERROR options flags are too long");
    let flags = flags.and_then(|(key, flags)| Flags::parse(request, key, flags));
    let flags = match flags {
        Ok(flags) if flags.has_long_opaque() => return request.line(LONG_OPAQUE),
        Ok(flags) => flags,
        Err(error) => return request.line(error),
    };
    let start = request.out.len();
    if let Err(error) = get_item(request, &flags) {
        request.refuse(start, error);
    }
}

fn get_item(request: &mut Request<'_>, flags: &Flags<'_>) -> Result<(), Error> {
    let key = &*flags.key;
    let now = request.items.now;
    let used = request.items.shared.last_used.of(key, now.seconds);
    let start = request.out.len();
    // Most change nothing, and need no lock.
    let is_there = match request.items.find(key)? {
        Some(item) => {
            let deadline = deadline_of(item.expires_at());
            let shown = Shown { head: item.head, deadline, data: &item, used, is_new: false };
            let changed = shown.changed(flags);
            let is_same = changed == Changed { won: item.head.won, deadline };
            if is_same && request.out.takes() {
                shown.write(now, flags, changed, request.out);
            }
            is_same.then_some(true)
        }
        None => flags.vivify.is_none().then_some(false),
    };
    let is_there = match is_there {
        Some(is_there) => is_there,
        None => change_item(request, flags, used)?,
    };
    if !is_there {
        request.out.truncate(start);
        if !flags.is_quiet {
            request.out.bytes.extend_from_slice(b"EN");
            flags.echo(request.out);
            request.line(b"");
        }
    } else if !flags.is_unmarked {
        request.items.shared.last_used.fetch(key, now.seconds);
    }
    let counters = request.items.counters;
    let (all, some) = match (flags.deadline, is_there) {
        (Some(_), true) => (Count::CmdTouch, Count::TouchHits),
        (_, true) => (Count::CmdGet, Count::GetHits),
        (_, false) => (Count::CmdGet, Count::GetMisses),
    };
    counters.add(all);
    counters.add(some);
    Ok(())
}

/// Fetches an item that is changed by it, or made; whether there is one.
fn change_item(request: &mut Request<'_>, flags: &Flags<'_>, used: Use) -> Result<bool, Error> {
    let Request { items, out, .. } = request;
    let Items { worker, shared, numbering, now, counters, .. } = items;
    let (db, key) = (shared.db, &*flags.key);
    let start = out.len();
    let mut is_new = false;
    let is_there = worker.run(now.millis, Locks::One(key), |txn| {
        out.truncate(start);
        is_new = false;
        let (head, deadline, data) = match look(txn, db, key, |item| item.to_vec())? {
            Old::Other => return Ok(false),
            Old::Item { head, deadline, taken, .. } => (head, deadline, taken),
            Old::Absent => {
                if flags.vivify.is_none() {
                    return Ok(false);
                }
                is_new = true;
                let cas = next_number(numbering, shared, None)?;
                (ItemHead { cas, ..ItemHead::default() }, None, Vec::new())
            }
        };
        let shown = Shown { head, deadline, data: &data, used, is_new };
        let changed = shown.changed(flags);
        if out.takes() {
            shown.write(*now, flags, changed, out);
        }
        let head = ItemHead { won: changed.won, ..head };
        if head == shown.head && !is_new {
            txn.set_expiry(db, key, millis_of(changed.deadline))?;
        } else {
            txn.put_item(db, key, &head, &[&data], millis_of(changed.deadline))?;
        }
        Ok::<_, Error>(true)
    })?;
    if is_new {
        counters.add(Count::TotalItems);
        shared.last_used.store(key, now.seconds);
    }
    Ok(is_there)
}

/// `ms KEY BYTES FLAGS…`, and data; how many bytes of `rest` it took.
pub fn set(
    request: &mut Request<'_>,
    connection: &mut ConnectionState,
    words: &Words<'_>,
    rest: &[u8],
) -> Option<usize> {
    let split = match line(words, b"CLIENT_ERROR options flags too long") {
        Ok((_, [])) => Err(BAD_FORMAT),
        line => line,
    };
    let (key, flags) = match split {
        Ok(split) => split,
        Err(error) => {
            request.line(error);
            return Some(0);
        }
    };
    let bytes = number::signed_32(flags[0]).filter(|bytes| (0..=DATA_BYTES_MAX).contains(&i64::from(*bytes)));
    let Some(bytes) = bytes.map(|bytes| bytes as usize) else {
        request.line(BAD_FORMAT);
        return Some(0);
    };
    let parsed = Flags::parse(request, key, &flags[1..]).and_then(|flags| {
        let mode = match flags.mode {
            0 | b'S' => Mode::Set,
            b'E' => Mode::Add,
            b'A' => Mode::Append,
            b'P' => Mode::Prepend,
            b'R' => Mode::Replace,
            _ => return Err(&b"CLIENT_ERROR invalid mode for ms M token"[..]),
        };
        if flags.has_long_opaque() {
            return Err(LONG_OPAQUE);
        }
        let asks = flags.cas.is_some() && matches!(mode, Mode::Set | Mode::Replace);
        Ok((flags, if asks { Mode::Cas } else { mode }))
    });
    let (flags, mode) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            request.line(error);
            connection.swallow = bytes as u64 + 2;
            return Some(0);
        }
    };
    let key = &*flags.key;
    if !request.items.fits(key, flags.client_flags, bytes as u64) {
        request.line(TOO_LARGE);
        connection.swallow = bytes as u64 + 2;
        request.too_large(key, true);
        return Some(0);
    }
    let data = match data(rest, bytes) {
        Data::Missing => return None,
        Data::Unended => {
            request.items.counters.add(Count::CmdSet);
            request.line(b"CLIENT_ERROR bad data chunk");
            return Some(bytes + 2);
        }
        Data::Whole(data) => data,
    };
    let put = Put {
        mode,
        key,
        flags: flags.client_flags,
        deadline: flags.deadline.unwrap_or(None),
        data,
        cas: flags.cas.unwrap_or(0),
        takes_stale: flags.stale && mode == Mode::Cas,
        binary_key: flags.binary_key,
    };
    let (status, cas) = match request.items.store(put) {
        Ok(Outcome::Stored(cas)) => (b"HD", cas),
        Ok(Outcome::Exists) => (b"EX", 0),
        Ok(Outcome::NotFound) => (b"NF", 0),
        Ok(Outcome::NotStored) => (b"NS", 0),
        Err(error) => {
            request.refuse(request.out.len(), error);
            return Some(bytes + 2);
        }
    };
    if status == b"HD" && flags.is_quiet {
        return Some(bytes + 2);
    }
    request.out.bytes.extend_from_slice(status);
    for word in flags.words {
        match word[0] {
            b'O' => opaque(request.out, word),
            b'k' => self::key(request.out, key, flags.binary_key),
            b'c' => flag_number(request.out, b'c', cas),
            _ => {}
        }
    }
    request.line(b"");
    Some(bytes + 2)
}

/// `md KEY FLAGS…`
pub fn delete(request: &mut Request<'_>, words: &Words<'_>) {
    let flags = line(words, b"CLIENT_ERROR options flags too long");
    let flags = flags.and_then(|(key, flags)| Flags::parse(request, key, flags).map_err(|_| BAD_FLAG));
    let flags = match flags {
        Ok(flags) if flags.has_long_opaque() => return request.line(LONG_OPAQUE),
        Ok(flags) => flags,
        Err(error) => return request.line(error),
    };
    let stale = flags.stale.then_some(flags.deadline);
    let status = match request.items.delete(&flags.key, flags.cas, stale) {
        Ok(Deleted::Done) if flags.is_quiet => return,
        Ok(Deleted::Done) => b"HD",
        Ok(Deleted::NotFound) => b"NF",
        Ok(Deleted::Exists) => b"EX",
        Err(error) => return request.refuse(request.out.len(), error),
    };
    request.out.bytes.extend_from_slice(status);
    flags.echo(request.out);
    request.line(b"");
}

/// `ma KEY FLAGS…`
pub fn arithmetic(request: &mut Request<'_>, words: &Words<'_>) {
    let flags = line(words, b"CLIENT_ERROR options flags too long");
    let flags = flags.and_then(|(key, flags)| Flags::parse(request, key, flags).map_err(|_| BAD_FLAG));
    let flags = match flags {
        Ok(flags) => flags,
        Err(error) => return request.line(error),
    };
    let up = match flags.mode {
        0 | b'I' | b'+' => true,
        b'D' | b'-' => false,
        _ => return request.line(b"CLIENT_ERROR invalid mode for ma M token"),
    };
    if flags.has_long_opaque() {
        return request.line(LONG_OPAQUE);
    }
    let initial = flags.vivify.map(|_| (flags.initial, flags.deadline_of_new()));
    let delta = Delta { up, by: flags.by, cas: flags.cas.unwrap_or(0), initial, deadline: flags.deadline };
    let start = request.out.len();
    let (value, cas, mut deadline, is_new) = match request.items.count(&flags.key, delta) {
        Ok(Counted::Done { value, cas, before, is_new }) => (value, cas, before, is_new),
        Ok(Counted::NotNumeric) => return request.line(NOT_NUMERIC),
        Ok(status @ (Counted::NotFound | Counted::Exists)) => {
            let text = if status == Counted::NotFound { b"NF" } else { b"EX" };
            request.out.bytes.extend_from_slice(text);
            flags.echo(request.out);
            return request.line(b"");
        }
        Err(error) => return request.refuse(start, error),
    };
    if flags.is_quiet && !is_new {
        return;
    }
    let mut digits = Vec::with_capacity(20);
    number::push(&mut digits, value);
    let now = request.items.now;
    let out = &mut *request.out;
    if flags.with_value {
        out.bytes.extend_from_slice(b"VA ");
        number::push(&mut out.bytes, digits.len() as u64);
    } else {
        out.bytes.extend_from_slice(b"HD");
    }
    for word in flags.words {
        deadline = flags.deadline_after(word[0], is_new, deadline);
        match word[0] {
            b'c' => flag_number(out, b'c', cas),
            b't' => ttl(out, now, deadline),
            b'O' => opaque(out, word),
            b'k' => key(out, &flags.key, flags.binary_key),
            _ => {}
        }
    }
    out.bytes.extend_from_slice(b"\r\n");
    if flags.with_value {
        out.bytes.extend_from_slice(&digits);
        out.bytes.extend_from_slice(b"\r\n");
    }
}

/// `me KEY [b]`
pub fn debug(request: &mut Request<'_>, words: &Words<'_>) {
    let name = words.at(1);
    if words.len() < 2 || name.len() > KEY_BYTES_MAX {
        return request.line(BAD_FORMAT);
    }
    let name = match words.at(2) {
        b"b" => match base64::decode(name) {
            Some(bytes) => Cow::Owned(bytes),
            None => return request.line(BAD_FORMAT),
        },
        _ => Cow::Borrowed(name),
    };
    request.items.counters.add(Count::CmdMeta);
    let now = request.items.now;
    let used = request.items.shared.last_used.of(&name, now.seconds);
    let start = request.out.len();
    let item = match request.items.find(&name) {
        Ok(Some(item)) => item,
        Ok(None) => return request.line(b"EN"),
        Err(error) => return request.refuse(start, error),
    };
    let out = &mut request.out.bytes;
    out.extend_from_slice(b"ME ");
    if item.head.binary_key {
        base64::encode(&name, out);
    } else {
        out.extend_from_slice(&name);
    }
    let bytes = Items::bytes_of(name.len(), item.head.flags, item.len() as u64);
    let expires = deadline_of(item.expires_at()).map_or(-1, |at| now.seconds as i64 - at as i64);
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        " exp={expires} la={} cas={} fetch={} cls={} size={bytes}\r\n",
        used.seconds,
        item.head.cas,
        if used.is_fetched { "yes" } else { "no" },
        slab_class(bytes, request.items.bytes_max),
    );
}
