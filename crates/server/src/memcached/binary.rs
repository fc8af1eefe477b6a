//! The binary protocol: packets of a header of 24 bytes, extras, a key and a value, as old clients speak it.
//!
//! | offset | bytes | request, reply |
//! |---|---|---|
//! | 0 | 1 | 0x80, 0x81 |
//! | 1 | 1 | opcode |
//! | 2 | 2 | bytes of the key |
//! | 4 | 1 | bytes of the extras |
//! | 5 | 1 | 0 |
//! | 6 | 2 | 0; status |
//! | 8 | 4 | bytes of all that follows |
//! | 12 | 4 | the client's |
//! | 16 | 8 | CAS number |
//!
//! All numbers are big-endian. A quiet form of a command has no reply when all went as it should.

use super::connection_state::ConnectionState;
use super::counters::Count;
use super::items::{Counted, Deleted, Delta, KEY_BYTES_MAX, Mode, Outcome, Put};
use super::request::{Request, VERSION};
use super::rights::{self, Act, Use};
use super::stats::{self, Subject};
use crate::net::Output;

/// The first byte of a request, by which the protocol is known.
pub const MAGIC: u8 = 0x80;

const MAGIC_REPLY: u8 = 0x81;
const HEADER_BYTES: usize = 24;
// More than the longest extras that a command has.
const SASL_BYTES_MAX: usize = 4096;

const OK: u16 = 0;
const NOT_FOUND: u16 = 1;
const EXISTS: u16 = 2;
const TOO_LARGE: u16 = 3;
const INVALID: u16 = 4;
const NOT_STORED: u16 = 5;
const NOT_NUMERIC: u16 = 6;
const AUTH_ERROR: u16 = 0x20;
const UNKNOWN: u16 = 0x81;
const NO_MEMORY: u16 = 0x82;
const INTERNAL: u16 = 0x84;

/// The request of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Get { with_key: bool, touches: bool },
    Touch,
    Store(Mode),
    Join(Mode),
    Delete,
    Count { up: bool },
    Quit,
    Flush,
    Noop,
    Version,
    Stat,
    SaslMechanisms,
    SaslAuth,
    Unknown,
}

impl Command {
    /// By its opcode, and whether it is quiet.
    const fn of(opcode: u8) -> (Self, bool) {
        match opcode {
            0x00 => (Self::Get { with_key: false, touches: false }, false),
            0x01 => (Self::Store(Mode::Set), false),
            0x02 => (Self::Store(Mode::Add), false),
            0x03 => (Self::Store(Mode::Replace), false),
            0x04 => (Self::Delete, false),
            0x05 => (Self::Count { up: true }, false),
            0x06 => (Self::Count { up: false }, false),
            0x07 => (Self::Quit, false),
            0x08 => (Self::Flush, false),
            0x09 => (Self::Get { with_key: false, touches: false }, true),
            0x0a => (Self::Noop, false),
            0x0b => (Self::Version, false),
            0x0c => (Self::Get { with_key: true, touches: false }, false),
            0x0d => (Self::Get { with_key: true, touches: false }, true),
            0x0e => (Self::Join(Mode::Append), false),
            0x0f => (Self::Join(Mode::Prepend), false),
            0x10 => (Self::Stat, false),
            0x11 => (Self::Store(Mode::Set), true),
            0x12 => (Self::Store(Mode::Add), true),
            0x13 => (Self::Store(Mode::Replace), true),
            0x14 => (Self::Delete, true),
            0x15 => (Self::Count { up: true }, true),
            0x16 => (Self::Count { up: false }, true),
            0x17 => (Self::Quit, true),
            0x18 => (Self::Flush, true),
            0x19 => (Self::Join(Mode::Append), true),
            0x1a => (Self::Join(Mode::Prepend), true),
            0x1c => (Self::Touch, false),
            0x1d => (Self::Get { with_key: false, touches: true }, false),
            0x1e => (Self::Get { with_key: false, touches: true }, true),
            0x20 => (Self::SaslMechanisms, false),
            0x21 | 0x22 => (Self::SaslAuth, false),
            0x23 => (Self::Get { with_key: true, touches: true }, false),
            0x24 => (Self::Get { with_key: true, touches: true }, true),
            _ => (Self::Unknown, false),
        }
    }

    /// Whether the lengths are those that the command has.
    fn allows(self, extras: usize, key: usize, value: usize) -> bool {
        match self {
            Self::Get { touches: false, .. } | Self::Delete => extras == 0 && key > 0 && value == 0,
            Self::Get { touches: true, .. } | Self::Touch => extras == 4 && key > 0,
            Self::Store(_) => extras == 8 && key > 0,
            Self::Join(_) => extras == 0 && key > 0,
            Self::Count { .. } => extras == 20 && key > 0 && value == 0,
            Self::Flush => matches!(extras, 0 | 4) && key == 0 && value == 0,
            Self::Noop | Self::Version | Self::Quit | Self::SaslMechanisms => {
                extras == 0 && key == 0 && value == 0
            }
            Self::Stat => extras == 0,
            Self::SaslAuth => extras == 0 && key > 0,
            Self::Unknown => true,
        }
    }
}

/// A packet.
struct Packet<'a> {
    opcode: u8,
    is_quiet: bool,
    extras: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
    opaque: [u8; 4],
    cas: u64,
}

impl Packet<'_> {
    /// The number of 4 bytes in the extras.
    fn number(&self, at: usize) -> u32 {
        self.extras
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn long_number(&self, at: usize) -> u64 {
        u64::from(self.number(at)) << 32 | u64::from(self.number(at + 4))
    }

    fn reply(&self, out: &mut Output, status: u16, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) {
        let out = &mut out.bytes;
        out.reserve(HEADER_BYTES + extras.len() + key.len() + value.len());
        out.extend_from_slice(&[MAGIC_REPLY, self.opcode]);
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(&[extras.len() as u8, 0]);
        out.extend_from_slice(&status.to_be_bytes());
        out.extend_from_slice(&((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
        out.extend_from_slice(&self.opaque);
        out.extend_from_slice(&cas.to_be_bytes());
        out.extend_from_slice(extras);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// Says that all went as it should, unless that is not to be said.
    fn done(&self, out: &mut Output, cas: u64, value: &[u8]) {
        if !self.is_quiet {
            self.reply(out, OK, cas, &[], &[], value);
        }
    }

    fn error(&self, out: &mut Output, status: u16) {
        let text: &[u8] = match status {
            NOT_FOUND => b"Not found",
            EXISTS => b"Data exists for key.",
            TOO_LARGE => b"Too large.",
            INVALID => b"Invalid arguments",
            NOT_STORED => b"Not stored.",
            NOT_NUMERIC => b"Non-numeric server-side value for incr or decr",
            AUTH_ERROR => b"Auth failure.",
            UNKNOWN => b"Unknown command",
            NO_MEMORY => b"Out of memory",
            _ => b"Internal error",
        };
        self.reply(out, status, 0, &[], &[], text);
    }
}

/// Executes the packet at the beginning of `input`; how many bytes it took, or `None` when it does not end yet.
pub fn next(request: &mut Request<'_>, connection: &mut ConnectionState, input: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER_BYTES] = input.first_chunk()?;
    if header[0] != MAGIC {
        connection.closing = true;
        return Some(input.len());
    }
    let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras_bytes = usize::from(header[4]);
    let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let (command, is_quiet) = Command::of(header[1]);
    let mut packet = Packet {
        opcode: header[1],
        is_quiet,
        extras: &[],
        key: &[],
        value: &[],
        opaque: [header[12], header[13], header[14], header[15]],
        cas: header[16..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)),
    };
    let head_bytes = extras_bytes + key_bytes;
    let body = &input[HEADER_BYTES..];
    if body.len() < head_bytes.min(body_bytes) {
        return None;
    }
    let out = &mut *request.out;
    let Some(value_bytes) = body_bytes.checked_sub(head_bytes) else {
        packet.error(out, UNKNOWN);
        connection.closing = true;
        return Some(input.len());
    };
    let is_free = matches!(command, Command::SaslMechanisms | Command::SaslAuth | Command::Version);
    if !connection.authenticated && !is_free {
        packet.error(out, AUTH_ERROR);
        connection.closing = true;
        return Some(input.len());
    }
    if key_bytes > KEY_BYTES_MAX || !command.allows(extras_bytes, key_bytes, value_bytes) {
        packet.error(out, INVALID);
        connection.closing = true;
        return Some(input.len());
    }
    packet.extras = &body[..extras_bytes];
    packet.key = &body[extras_bytes..head_bytes];
    // The rest of an unwanted value is skipped.
    let swallow = |connection: &mut ConnectionState| {
        connection.swallow = value_bytes as u64;
        Some(HEADER_BYTES + head_bytes)
    };
    match command {
        Command::Unknown => {
            packet.error(request.out, UNKNOWN);
            return swallow(connection);
        }
        Command::SaslMechanisms | Command::SaslAuth
            if request.server.users.is_open() && request.server.users.count() == 1 =>
        {
            packet.error(request.out, UNKNOWN);
            return swallow(connection);
        }
        _ if !may_run(request, connection, command, packet.key) => {
            packet.error(request.out, AUTH_ERROR);
            return swallow(connection);
        }
        Command::SaslAuth if value_bytes > SASL_BYTES_MAX => {
            packet.error(request.out, INVALID);
            return swallow(connection);
        }
        Command::Store(mode) | Command::Join(mode) => {
            let flags = if let Command::Store(_) = command { packet.number(0) } else { 0 };
            if !request.items.fits(packet.key, flags, value_bytes as u64) {
                packet.error(request.out, TOO_LARGE);
                request.too_large(packet.key, mode == Mode::Set);
                return swallow(connection);
            }
        }
        // Unused values are skipped without waiting for them.
        Command::Get { .. } | Command::Touch | Command::Stat if value_bytes > 0 => {
            execute(request, connection, command, &packet);
            return swallow(connection);
        }
        _ => {}
    }
    packet.value = body.get(head_bytes..body_bytes)?;
    execute(request, connection, command, &packet);
    Some(HEADER_BYTES + body_bytes)
}

/// Whether the user may run a command.
fn may_run(request: &Request<'_>, connection: &mut ConnectionState, command: Command, key: &[u8]) -> bool {
    let (login, users) = (&mut connection.login, &request.server.users);
    let used = match command {
        _ if login.is_unlimited(users) => return true,
        Command::Get { touches: true, .. } | Command::Touch => Use::Touch,
        Command::Get { .. } => Use::Read,
        Command::Store(_) | Command::Join(_) => Use::Store,
        Command::Delete => Use::Delete,
        Command::Count { .. } => Use::Count,
        Command::Flush => return rights::may_do(login, users, Act::Flush),
        Command::Stat => return rights::may_do(login, users, Act::Stats),
        Command::Quit
        | Command::Noop
        | Command::Version
        | Command::SaslMechanisms
        | Command::SaslAuth
        | Command::Unknown => return true,
    };
    rights::may_use(login, users, used, key)
}

fn execute(
    request: &mut Request<'_>,
    connection: &mut ConnectionState,
    command: Command,
    packet: &Packet<'_>,
) {
    let start = request.out.len();
    let done = match command {
        Command::Get { with_key, touches } => get(request, packet, with_key, touches),
        Command::Touch => touch(request, packet),
        Command::Store(mode) | Command::Join(mode) => store(request, packet, mode),
        Command::Delete => delete(request, packet),
        Command::Count { up } => count(request, packet, up),
        Command::Flush => request.flush(packet.number(0).into()).map(|()| packet.done(request.out, 0, &[])),
        Command::Quit => {
            packet.done(request.out, 0, &[]);
            connection.closing = true;
            Ok(())
        }
        Command::Noop => {
            packet.done(request.out, 0, &[]);
            Ok(())
        }
        Command::Version => {
            packet.done(request.out, 0, VERSION.as_bytes());
            Ok(())
        }
        Command::Stat => {
            stat(request, packet);
            Ok(())
        }
        Command::SaslMechanisms => {
            packet.done(request.out, 0, b"PLAIN");
            Ok(())
        }
        Command::SaslAuth => {
            sasl(request, connection, packet);
            Ok(())
        }
        Command::Unknown => Ok(()),
    };
    if let Err(error) = done {
        request.out.truncate(start);
        let refused = request.refused(error);
        if refused.is_full {
            packet.error(request.out, NO_MEMORY);
        } else {
            packet.reply(request.out, INTERNAL, 0, &[], &[], &refused.text);
        }
    }
}

type Done = duramen_structures::Result<()>;

fn get(request: &mut Request<'_>, packet: &Packet<'_>, with_key: bool, touches: bool) -> Done {
    let start = request.out.len();
    let shown_key = if with_key { packet.key } else { &[] };
    let mut is_there = false;
    if let Some(item) = request.items.find(packet.key)? {
        is_there = true;
        if request.out.takes() {
            let flags = item.head.flags.to_be_bytes();
            packet.reply(request.out, OK, item.head.cas, &flags, shown_key, &item);
        }
    }
    if touches {
        let deadline = request.items.now.deadline(packet.number(0).into());
        is_there = request.items.touch(packet.key, deadline)?;
    } else {
        request.items.fetched(packet.key, is_there);
    }
    if !is_there {
        request.out.truncate(start);
        match (packet.is_quiet, with_key) {
            (true, _) => {}
            (false, true) => packet.reply(request.out, NOT_FOUND, 0, &[], packet.key, &[]),
            (false, false) => packet.error(request.out, NOT_FOUND),
        }
    }
    Ok(())
}

fn touch(request: &mut Request<'_>, packet: &Packet<'_>) -> Done {
    let deadline = request.items.now.deadline(packet.number(0).into());
    let head = request.items.find(packet.key)?.map(|item| item.head);
    let is_there = request.items.touch(packet.key, deadline)?;
    match head.filter(|_| is_there) {
        Some(head) => packet.reply(request.out, OK, head.cas, &head.flags.to_be_bytes(), &[], &[]),
        None => packet.error(request.out, NOT_FOUND),
    }
    Ok(())
}

fn store(request: &mut Request<'_>, packet: &Packet<'_>, mode: Mode) -> Done {
    let joins = matches!(mode, Mode::Append | Mode::Prepend);
    let (flags, asked) = if joins { (0, 0) } else { (packet.number(0), packet.number(4)) };
    let put = Put {
        mode: if joins || packet.cas == 0 { mode } else { Mode::Cas },
        key: packet.key,
        flags,
        deadline: request.items.now.deadline(asked.into()),
        data: packet.value,
        cas: packet.cas,
        takes_stale: false,
        binary_key: false,
    };
    match request.items.store(put)? {
        Outcome::Stored(cas) => packet.done(request.out, cas, &[]),
        Outcome::Exists => packet.error(request.out, EXISTS),
        Outcome::NotFound => packet.error(request.out, NOT_FOUND),
        Outcome::NotStored => packet.error(
            request.out,
            match put.mode {
                Mode::Add => EXISTS,
                Mode::Replace => NOT_FOUND,
                _ => NOT_STORED,
            },
        ),
    }
    Ok(())
}

fn delete(request: &mut Request<'_>, packet: &Packet<'_>) -> Done {
    match request.items.delete(packet.key, Some(packet.cas).filter(|cas| *cas != 0), None)? {
        Deleted::Done => packet.done(request.out, 0, &[]),
        Deleted::NotFound => packet.error(request.out, NOT_FOUND),
        Deleted::Exists => packet.error(request.out, EXISTS),
    }
    Ok(())
}

fn count(request: &mut Request<'_>, packet: &Packet<'_>, up: bool) -> Done {
    let expiry = packet.number(16);
    // All bits set: nothing is made where nothing is.
    let initial =
        (expiry != u32::MAX).then(|| (packet.long_number(8), request.items.now.deadline(expiry.into())));
    let delta = Delta { up, by: packet.long_number(0), cas: packet.cas, initial, deadline: None };
    match request.items.count(packet.key, delta)? {
        Counted::Done { value, cas, .. } => packet.done(request.out, cas, &value.to_be_bytes()),
        Counted::NotNumeric => packet.error(request.out, NOT_NUMERIC),
        Counted::NotFound => packet.error(request.out, NOT_FOUND),
        Counted::Exists => packet.error(request.out, EXISTS),
    }
    Ok(())
}

fn stat(request: &mut Request<'_>, packet: &Packet<'_>) {
    if packet.key == b"reset" {
        request.items.shared.counters.reset();
    } else if let Some(subject) = Subject::of(packet.key) {
        for (name, value) in stats::stats_of(request, subject).0 {
            packet.reply(request.out, OK, 0, &[], name.as_bytes(), value.as_bytes());
        }
    } else {
        // Counts by prefix are not kept: see the text of `stats`.
        match packet.key {
            b"detail on" | b"detail off" => {}
            b"detail dump" => packet.reply(request.out, OK, 0, &[], b"detailed", b"END\r\n"),
            _ => return packet.error(request.out, NOT_FOUND),
        }
    }
    packet.reply(request.out, OK, 0, &[], &[], &[]);
}

/// PLAIN: the identity, the name and the password, separated by zeros.
fn sasl(request: &mut Request<'_>, connection: &mut ConnectionState, packet: &Packet<'_>) {
    request.items.counters.add(Count::AuthCmds);
    let mut parts = packet.value.split(|byte| *byte == 0).skip(1);
    let (name, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Another mechanism is none that was offered.
    connection.authenticated = false;
    if packet.key == b"PLAIN" && request.log_in(connection, name, password) {
        packet.done(request.out, 0, b"Authenticated");
    } else {
        request.items.counters.add(Count::AuthErrors);
        packet.error(request.out, AUTH_ERROR);
    }
}
