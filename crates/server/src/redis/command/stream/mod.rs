//! Commands on streams.

mod add;
mod change;
mod claim;
mod group;
mod info;
mod parse;
mod pending;
mod range;
mod read;

use super::Command;
use crate::redis::resp::Reply;
use duramen_resp::number::{INTEGER_BYTES_MAX, digits};
use duramen_structures::stream::{Entry, StreamId};

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("xadd", add::xadd).merged(5),
    Command::new("xlen", range::xlen),
    Command::new("xrange", range::xrange),
    Command::new("xrevrange", range::xrevrange),
    Command::new("xread", read::xread),
    Command::new("xreadgroup", read::xreadgroup),
    Command::new("xdel", change::xdel).removes(),
    Command::new("xtrim", change::xtrim).removes(),
    Command::new("xsetid", change::xsetid),
    Command::container("xgroup", group::SUBCOMMANDS),
    Command::new("xack", pending::xack).removes(),
    Command::new("xpending", pending::xpending),
    Command::new("xclaim", claim::xclaim),
    Command::new("xautoclaim", claim::xautoclaim),
    Command::container("xinfo", info::SUBCOMMANDS),
];

/// The event of a consumer that its first request creates.
const CREATED: &str = "xgroup-createconsumer";

/// Replies with an id.
fn reply_id(reply: &mut Reply<'_>, id: StreamId) {
    const BYTES_MAX: usize = 2 * INTEGER_BYTES_MAX + 1;
    let (mut ms, mut seq, mut text) = ([0; INTEGER_BYTES_MAX], [0; INTEGER_BYTES_MAX], [0; BYTES_MAX]);
    let mut end = 0;
    for part in [digits(id.ms, &mut ms), b"-", digits(id.seq, &mut seq)] {
        text[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    reply.bulk(&text[..end]);
}

/// Replies with an entry: its id, and its fields and values.
fn reply_entry(reply: &mut Reply<'_>, entry: &Entry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(entry.count() * 2);
    for (field, value) in entry.pairs() {
        reply.bulk(&field);
        reply.bulk(&value);
    }
}

/// Replies with entries.
fn reply_entries(reply: &mut Reply<'_>, entries: &[Entry<'_>]) {
    reply.array(entries.len());
    entries.iter().for_each(|entry| reply_entry(reply, entry));
}
