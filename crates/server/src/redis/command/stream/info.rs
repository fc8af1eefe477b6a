//! XINFO: what a stream, its groups and their consumers are like.

use super::group::no_group;
use super::{reply_entries, reply_entry, reply_id};
use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Call, Command, CommandError, errors};
use crate::redis::resp::Reply;
use duramen_structures::StoredStream;
use duramen_structures::stream::{Consumer, Entry, Group, StreamId};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("xinfo|stream", stream),
    Command::new("xinfo|groups", groups),
    Command::new("xinfo|consumers", consumers),
    Command::new("xinfo|help", help),
];

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Prints this help.",
];

const FULL_COUNT_DEFAULT: usize = 10;

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

/// How many entries FULL shows of each list; `None` without FULL.
fn full(call: &Call<'_, '_>) -> Result<Option<usize>, CommandError> {
    let args = call.args;
    let is_known = match args.len() {
        3 => return Ok(None),
        4 => args.is(3, "full"),
        6 => args.is(3, "full") && args.is(4, "count"),
        _ => false,
    };
    if !is_known {
        return Err(subcommand_arguments_error(call.entry, args));
    }
    if args.len() == 4 {
        return Ok(Some(FULL_COUNT_DEFAULT));
    }
    Ok(Some(match usize::try_from(args.integer(5)?) {
        Err(_) => FULL_COUNT_DEFAULT,
        Ok(0) => usize::MAX,
        Ok(count) => count,
    }))
}

fn stream(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(2));
    // Without a key nobody looks at the options, as in the reference.
    if !call.stats.read_key(call.txn.stream(db, key)?.is_some()) {
        return Err(errors::NO_SUCH_KEY);
    }
    let full = full(call)?;
    let Some(stream) = call.txn.stream(db, key)? else { return Err(errors::NO_SUCH_KEY) };
    let reply = &mut call.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    let (nodes, tree_nodes) = stream.node_counts()?;
    integer(reply, "length", stream.len() as i64);
    integer(reply, "radix-tree-keys", nodes as i64);
    integer(reply, "radix-tree-nodes", tree_nodes as i64);
    id(reply, "last-generated-id", stream.last_id());
    id(reply, "max-deleted-entry-id", stream.deleted_id());
    integer(reply, "entries-added", stream.added() as i64);
    id(reply, "recorded-first-entry-id", stream.first_id());
    let Some(most) = full else {
        integer(reply, "groups", stream.groups_len()? as i64);
        for (name, is_last) in [("first-entry", false), ("last-entry", true)] {
            let part = stream.part(StreamId::MIN, StreamId::MAX, is_last, 1)?;
            entry(reply, name, part.first()?.as_ref());
        }
        return Ok(());
    };
    reply.bulk(b"entries");
    let part = stream.part(StreamId::MIN, StreamId::MAX, false, most)?;
    reply_entries(reply, &part.entries()?);
    reply.bulk(b"groups");
    let groups = stream.groups()?;
    reply.array(groups.iter().len());
    for group in groups.iter() {
        group_in_full(reply, &stream, group, most)?;
    }
    Ok(())
}

fn integer(reply: &mut Reply<'_>, name: &str, value: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(value);
}

fn maybe(reply: &mut Reply<'_>, name: &str, value: Option<i64>) {
    reply.bulk(name.as_bytes());
    match value {
        Some(value) => reply.integer(value),
        None => reply.null(),
    }
}

fn id(reply: &mut Reply<'_>, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    reply_id(reply, id);
}

fn entry(reply: &mut Reply<'_>, name: &str, entry: Option<&Entry<'_>>) {
    reply.bulk(name.as_bytes());
    match entry {
        Some(entry) => reply_entry(reply, entry),
        None => reply.null(),
    }
}

fn group_in_full(
    reply: &mut Reply<'_>,
    stream: &StoredStream<'_, '_>,
    group: &Group,
    most: usize,
) -> Result<(), CommandError> {
    // The consumers of all groups are known here, so the counts are.
    let first_pending = |consumer, pending_len| match pending_len {
        0 => Ok(Vec::new()),
        _ => stream.pending_from(group, StreamId::MIN, consumer, most),
    };
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(group.name());
    id(reply, "last-delivered-id", group.last_id);
    maybe(reply, "entries-read", group.entries_read);
    maybe(reply, "lag", stream.lag(group));
    integer(reply, "pel-count", group.pending_len() as i64);
    reply.bulk(b"pending");
    let pending = first_pending(None, group.pending_len())?;
    reply.array(pending.len());
    for (id, pending) in pending {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).map_or(&[], Consumer::name));
        reply.integer(pending.delivered_at);
        reply.integer(pending.deliveries as i64);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers_len());
    for (number, consumer) in group.consumers() {
        reply.map(5);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        integer(reply, "seen-time", consumer.seen_at());
        integer(reply, "active-time", consumer.active_at().unwrap_or(-1));
        integer(reply, "pel-count", consumer.pending_len() as i64);
        reply.bulk(b"pending");
        let pending = first_pending(Some(number), consumer.pending_len())?;
        reply.array(pending.len());
        for (id, pending) in pending {
            reply.array(3);
            reply_id(reply, id);
            reply.integer(pending.delivered_at);
            reply.integer(pending.deliveries as i64);
        }
    }
    Ok(())
}

fn groups(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let stream = call.stats.read(call.txn.stream(call.session.db, call.args.at(2))?);
    let stream = stream.ok_or(errors::NO_SUCH_KEY)?;
    let groups = stream.groups()?;
    let reply = &mut call.reply;
    reply.array(groups.iter().len());
    for group in groups.iter() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(group.name());
        integer(reply, "consumers", group.consumers_len() as i64);
        integer(reply, "pending", group.pending_len() as i64);
        id(reply, "last-delivered-id", group.last_id);
        maybe(reply, "entries-read", group.entries_read);
        maybe(reply, "lag", stream.lag(group));
    }
    Ok(())
}

fn consumers(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (args, now) = (call.args, i64::try_from(call.now).unwrap_or(i64::MAX));
    let stream = call.stats.read(call.txn.stream(call.session.db, args.at(2))?);
    let stream = stream.ok_or(errors::NO_SUCH_KEY)?;
    let mut group = stream.group(args.at(3))?.ok_or_else(|| no_group(args.at(3), args.at(2)))?;
    stream.know_consumers(&mut group)?;
    let reply = &mut call.reply;
    reply.array(group.consumers_len());
    for (_, consumer) in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        integer(reply, "pending", consumer.pending_len() as i64);
        let since = |time: i64| now.wrapping_sub(time).max(0);
        integer(reply, "idle", since(consumer.seen_at()));
        integer(reply, "inactive", consumer.active_at().map_or(-1, since));
    }
    Ok(())
}
