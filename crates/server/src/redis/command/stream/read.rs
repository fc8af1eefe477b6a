//! Reads new entries of several streams: XREAD, and XREADGROUP for a consumer of a group.
//!
//! With BLOCK, they wait if there are none: for an entry after the id (`$` is the last one at the start), or for one
//! that the group has not read. Reading the consumer's pending entries never waits.

use super::{CREATED, parse, reply_entries, reply_entry, reply_id};
use crate::observe::keyspace_events::STREAM;
use crate::redis::blocking::after_millis;
use crate::redis::blocking::{Awaited, What};
use crate::redis::command::{Args, Call, CommandError, OwnedArgs, errors};
use crate::redis::resp::{Protocol, Reply};
use duramen_structures::EditStream;
use duramen_structures::stream::{Group, Pending, StreamId};

const GROUP_IN_XREAD: CommandError =
    CommandError::new("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
const NOACK_IN_XREAD: CommandError =
    CommandError::new("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
const LAST_IN_XREADGROUP: CommandError = CommandError::new(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
     specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
);
const GREATEST_IN_XREADGROUP: CommandError = CommandError::new(
    "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
     specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.",
);
const NEW_IN_XREAD: CommandError = CommandError::new(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);

/// XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key …] id [id …]: the entries of each stream after an id.
pub fn xread(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    read(call, false)
}

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key …] id [id …]: the
/// entries of each stream that the group has not read, or the consumer's pending entries after an id.
pub fn xreadgroup(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    read(call, true)
}

fn read(call: &mut Call<'_, '_>, by_group: bool) -> Result<(), CommandError> {
    let options = Options::parse(call.args, by_group, call.worker_state.is_in_script)?;
    let from = origins(call, &options)?;
    let is_done = wake(call, &options, &from)? || options.blocks && wait(call, &options, &from)?;
    if !is_done {
        call.reply.null_array();
    }
    Ok(())
}

/// Waits for an entry of one of the streams; false where that may not be.
fn wait(call: &mut Call<'_, '_>, options: &Options<'_>, from: &[StreamId]) -> Result<bool, CommandError> {
    let args = call.args;
    let until = after_millis(options.millis)?;
    let count = options.most.min(i64::MAX as usize).to_string();
    let awaited = |(key, from): (&[u8], &StreamId)| {
        let behind = from.to_string();
        let mut alone = vec![args.at(0)];
        if let Some((group, consumer)) = options.group {
            alone.extend([b"GROUP", group, consumer]);
        }
        if options.no_ack {
            alone.push(b"NOACK");
        }
        let id = if options.group.is_some() { &b">"[..] } else { behind.as_bytes() };
        alone.extend([&b"COUNT"[..], count.as_bytes(), b"STREAMS", key, id]);
        let what = match options.group {
            Some((group, _)) => What::Unread(group.into()),
            None => What::Entry(*from),
        };
        Awaited { key: key.into(), what, args: OwnedArgs::of(&alone) }
    };
    Ok(call.waits(until, options.keys(args).zip(from).map(awaited).collect()))
}

/// What a read is about, besides the ids.
struct Options<'a> {
    /// Group, consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    most: usize,
    no_ack: bool,
    blocks: bool,
    /// How long; 0 is for ever.
    millis: i64,
    /// The place of the first key, and how many there are; as many ids follow.
    first: usize,
    count: usize,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, by_group: bool, is_in_script: bool) -> Result<Self, CommandError> {
        let mut found = Self {
            group: None,
            most: usize::MAX,
            no_ack: false,
            blocks: false,
            millis: 0,
            first: 0,
            count: 0,
        };
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - at - 1;
            if args.is(at, "block") && more > 0 {
                if is_in_script {
                    let after = " command is not allowed with BLOCK option from scripts";
                    return Err(CommandError::showing("ERR ", args.at(0), after));
                }
                at += 1;
                let millis = args.integer(at).map_err(|_| TIMEOUT_NO_INTEGER)?;
                if millis < 0 {
                    return Err(CommandError::new("ERR timeout is negative"));
                }
                (found.blocks, found.millis) = (true, millis);
            } else if args.is(at, "count") && more > 0 {
                at += 1;
                // 0 means all, and so does a negative count.
                let count = usize::try_from(args.integer(at)?).unwrap_or(0);
                found.most = if count == 0 { usize::MAX } else { count };
            } else if args.is(at, "streams") && more > 0 {
                found.first = at + 1;
                if !more.is_multiple_of(2) {
                    return Err(UNBALANCED);
                }
                found.count = more / 2;
                break;
            } else if args.is(at, "group") && more >= 2 {
                if !by_group {
                    return Err(GROUP_IN_XREAD);
                }
                found.group = Some((args.at(at + 1), args.at(at + 2)));
                at += 2;
            } else if args.is(at, "noack") {
                if !by_group {
                    return Err(NOACK_IN_XREAD);
                }
                found.no_ack = true;
            } else {
                return Err(errors::SYNTAX);
            }
            at += 1;
        }
        if found.first == 0 {
            return Err(errors::SYNTAX);
        }
        if by_group && found.group.is_none() {
            return Err(CommandError::new("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(found)
    }

    fn keys(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        args.from(self.first).take(self.count)
    }
}

// Also of XREADGROUP, as in the reference.
const UNBALANCED: CommandError = CommandError::new(
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
);
const TIMEOUT_NO_INTEGER: CommandError = CommandError::new("ERR timeout is not an integer or out of range");

/// The id after which each stream is read; the greatest is `>`, the entries that the group has not read.
fn origins(call: &mut Call<'_, '_>, options: &Options<'_>) -> Result<Vec<StreamId>, CommandError> {
    let (db, args) = (call.session.db, call.args);
    let ids = args.from(options.first + options.count);
    let mut from = Vec::with_capacity(options.count);
    for (key, id) in options.keys(args).zip(ids) {
        let stream = call.stats.read(call.txn.stream(db, key)?);
        if let Some((group, _)) = options.group {
            let found = stream.as_ref().map(|stream| stream.group(group)).transpose()?;
            if found.flatten().is_none() {
                return Err(errors::no_group_to_read(key, group));
            }
        }
        from.push(match (id, options.group) {
            (b"$", Some(_)) => return Err(LAST_IN_XREADGROUP),
            (b"$", None) => stream.map_or(StreamId::MIN, |stream| stream.last_id()),
            (b"+", Some(_)) => return Err(GREATEST_IN_XREADGROUP),
            // From the last entry on, which is included, or the first one to come.
            (b"+", None) => match stream {
                None => StreamId::MIN,
                Some(stream) => match stream.last_entry_id()? {
                    Some(last) => last.previous().unwrap_or(StreamId::MIN),
                    None => stream.last_id(),
                },
            },
            (b">", Some(_)) => StreamId::MAX,
            (b">", None) => return Err(NEW_IN_XREAD),
            (id, _) => parse::id(id)?,
        });
    }
    Ok(from)
}

/// Replies with what there is of these streams. Without anything there is no reply.
fn wake(call: &mut Call<'_, '_>, options: &Options<'_>, from: &[StreamId]) -> Result<bool, CommandError> {
    let (db, args) = (call.session.db, call.args);
    let (begin, mut served) = (call.reply.mark(), 0);
    for (key, from) in options.keys(args).zip(from) {
        served += usize::from(match options.group {
            Some((group, consumer)) => {
                if !call.is_served {
                    call.stats.read_key(true);
                }
                let mut reader = Reader {
                    stream: call.txn.edit_stream(db, key)?,
                    reply: call.reply.reborrow(),
                    key,
                    group,
                    consumer,
                    options,
                    now: i64::try_from(call.now).unwrap_or(i64::MAX),
                    is_created: false,
                };
                let group = reader.wake(*from)?;
                let (is_served, is_created) = (group.is_some(), reader.is_created);
                if let Some(group) = group {
                    reader.stream.set_group(&group)?;
                    reader.stream.save()?;
                }
                if is_created {
                    call.notify(STREAM, CREATED, key);
                }
                is_served
            }
            None => serve_one(call, key, *from, options.most)?,
        });
    }
    match (served, call.reply.protocol) {
        (0, _) => {}
        (_, Protocol::Resp2) => call.reply.array_since(begin, served),
        (_, Protocol::Resp3) => call.reply.map_since(begin, served),
    }
    Ok(served > 0)
}

fn serve_one(call: &mut Call<'_, '_>, key: &[u8], from: StreamId, most: usize) -> Result<bool, CommandError> {
    let stream = call.txn.stream(call.session.db, key)?;
    // A second time, as in the reference, unless it had to wait.
    let stream = if call.is_served { stream } else { call.stats.read(stream) };
    let Some(stream) = stream else { return Ok(false) };
    let Some(from) = from.next() else { return Ok(false) };
    let part = stream.part(from, StreamId::MAX, false, most)?;
    let entries = part.entries()?;
    if !entries.is_empty() {
        reply_key(&mut call.reply, key);
        reply_entries(&mut call.reply, &entries);
    }
    Ok(!entries.is_empty())
}

/// The key before the entries of its stream.
fn reply_key(reply: &mut Reply<'_>, key: &[u8]) {
    if reply.protocol == Protocol::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

/// A consumer that reads one stream.
struct Reader<'c, 't, 'w> {
    stream: EditStream<'t, 'w>,
    reply: Reply<'c>,
    key: &'c [u8],
    group: &'c [u8],
    consumer: &'c [u8],
    options: &'c Options<'c>,
    now: i64,
    /// The group did not know it.
    is_created: bool,
}

impl Reader<'_, '_, '_> {
    /// The group as it is then, if there was something for the consumer.
    fn wake(&mut self, from: StreamId) -> Result<Option<Group>, CommandError> {
        let Some(mut group) = self.stream.group(self.group)? else { return Ok(None) };
        let is_new = from == StreamId::MAX;
        let has_new = self.stream.last_entry_id()?.is_some_and(|id| id > group.last_id);
        // A consumer that gets nothing is not recorded as seen, as in Redis.
        if is_new && !has_new {
            return Ok(None);
        }
        let (consumer, is_created) = self.stream.see_consumer(&mut group, self.consumer, self.now)?;
        self.is_created = is_created;
        reply_key(&mut self.reply, self.key);
        if is_new {
            self.serve_new(&mut group, consumer)?;
        } else {
            self.serve_pending(&mut group, consumer, from)?;
        }
        Ok(Some(group))
    }

    /// What the group has not read.
    fn serve_new(&mut self, group: &mut Group, consumer: u32) -> Result<(), CommandError> {
        let from = group.last_id.next().unwrap_or(StreamId::MAX);
        let part = self.stream.part(from, StreamId::MAX, false, self.options.most)?;
        let entries = part.entries()?;
        reply_entries(&mut self.reply, &entries);
        for entry in &entries {
            self.stream.read_by(group, entry.id);
            if !self.options.no_ack {
                // One that was pending before, since the group was set back, goes over to this consumer.
                let pending = Pending { consumer, delivered_at: self.now, deliveries: 1 };
                let old = self.stream.pending(group, entry.id)?;
                self.stream.set_pending(group, entry.id, old, pending)?;
            }
        }
        Ok(())
    }

    /// The consumer's pending entries. A deleted entry has no fields.
    fn serve_pending(
        &mut self,
        group: &mut Group,
        consumer: u32,
        from: StreamId,
    ) -> Result<(), CommandError> {
        // After the greatest id Redis starts again.
        let from = from.next().unwrap_or(StreamId::MIN);
        let pending = self.stream.pending_from(group, from, Some(consumer), self.options.most)?;
        let Self { stream, reply, now, .. } = self;
        reply.array(pending.len());
        let ids: Vec<StreamId> = pending.iter().map(|(id, _)| *id).collect();
        let mut pending = pending.into_iter();
        stream.visit_at(&ids, |id, entry| {
            let Some((_, old)) = pending.next() else { return Ok(false) };
            match entry {
                Some(entry) => {
                    reply_entry(reply, entry);
                    let deliveries = old.deliveries.wrapping_add(1);
                    let new = Pending { delivered_at: *now, deliveries, ..old };
                    stream.set_pending(group, id, Some(old), new)?;
                }
                None => {
                    reply.array(2);
                    reply_id(reply, id);
                    reply.null_array();
                }
            }
            Ok(true)
        })
    }
}
