//! Entries that are pending for one consumer go over to another: XCLAIM, XAUTOCLAIM.

use super::pending::no_key_or_group;
use super::{CREATED, parse, reply_entry, reply_id};
use crate::observe::keyspace_events::STREAM;
use crate::redis::command::{Args, Call, CommandError, errors};
use duramen_structures::stream::{Pending, StreamId};

// Redis's: how many entries are looked at for each that is claimed, and the most that COUNT may say.
const LOOKS_PER_CLAIM: usize = 10;
const COUNT_MAX: i64 = i64::MAX / 16;
const COUNT_DEFAULT: usize = 100;

/// XCLAIM key group consumer min-idle id [id …] [IDLE milliseconds] [TIME milliseconds] [RETRYCOUNT count] [FORCE]
/// [JUSTID] [LASTID id]: gives the consumer those entries that have been pending for at least `min-idle`, and replies
/// with them.
pub fn xclaim(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let now = i64::try_from(call.now).unwrap_or(i64::MAX);
    let mut stream = call.txn.edit_stream(db, args.at(1))?;
    call.stats.read_key(!stream.is_new());
    let group = stream.group(args.at(2))?;
    let mut group = group.ok_or_else(|| no_key_or_group(args.at(1), args.at(2)))?;
    let options = Options::parse(args, now)?;
    let mut is_changed = group.last_id < options.last_id;
    group.last_id = group.last_id.max(options.last_id);
    let (begin, mut count, mut consumer) = (call.reply.mark(), 0, None);
    stream.visit_at(&options.ids, |id, entry| -> Result<bool, CommandError> {
        let Some(entry) = entry else {
            // It was deleted: nobody can deal with it.
            is_changed |= stream.acknowledge(&mut group, id)?;
            return Ok(true);
        };
        let old = stream.pending(&group, id)?;
        if old.is_none() && !options.force {
            return Ok(true);
        }
        if old
            .is_some_and(|old| options.min_idle > 0 && now.wrapping_sub(old.delivered_at) < options.min_idle)
        {
            return Ok(true);
        }
        if consumer.is_none() {
            consumer = Some(stream.see_consumer(&mut group, args.at(3), now)?);
        }
        let Some((consumer, _)) = consumer else { return Ok(true) };
        // What is made here was delivered once.
        let deliveries = old.map_or(1, |old| old.deliveries);
        let deliveries = match options.retries {
            Some(retries) => retries,
            None if options.just_id => deliveries,
            None => deliveries.wrapping_add(1),
        };
        let pending = Pending { consumer, delivered_at: options.delivered_at, deliveries };
        stream.set_pending(&mut group, id, old, pending)?;
        if options.just_id {
            reply_id(&mut call.reply, id);
        } else {
            reply_entry(&mut call.reply, entry);
        }
        count += 1;
        Ok(true)
    })?;
    if is_changed || consumer.is_some() {
        stream.set_group(&group)?;
        stream.save()?;
    }
    call.reply.array_since(begin, count);
    if let Some((_, true)) = consumer {
        call.notify(STREAM, CREATED, args.at(1));
    }
    Ok(())
}

/// The options of XCLAIM.
struct Options {
    min_idle: i64,
    ids: Vec<StreamId>,
    delivered_at: i64,
    retries: Option<u64>,
    force: bool,
    just_id: bool,
    last_id: StreamId,
}

impl Options {
    fn parse(args: Args<'_>, now: i64) -> Result<Self, CommandError> {
        let number = |at, error| args.integer(at).map_err(|_| CommandError::new(error));
        let min_idle = number(4, "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
        let ids: Vec<StreamId> = args.from(5).map_while(|text| parse::id(text).ok()).collect();
        let mut at = 5 + ids.len();
        let (retries, force, just_id, last_id) = (None, false, false, StreamId::MIN);
        let mut found = Self { min_idle, ids, delivered_at: -1, retries, force, just_id, last_id };
        while at < args.len() {
            let more = at + 1 < args.len();
            if args.is(at, "force") {
                found.force = true;
            } else if args.is(at, "justid") {
                found.just_id = true;
            } else if args.is(at, "idle") && more {
                at += 1;
                let idle = number(at, "ERR Invalid IDLE option argument for XCLAIM")?;
                found.delivered_at = now.wrapping_sub(idle);
            } else if args.is(at, "time") && more {
                at += 1;
                found.delivered_at = number(at, "ERR Invalid TIME option argument for XCLAIM")?;
            } else if args.is(at, "retrycount") && more {
                at += 1;
                let retries = number(at, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                found.retries = u64::try_from(retries).ok();
            } else if args.is(at, "lastid") && more {
                at += 1;
                found.last_id = parse::id(args.at(at))?;
            } else {
                return Err(CommandError::showing("ERR Unrecognized XCLAIM option '", args.at(at), "'"));
            }
            at += 1;
        }
        // A time that cannot be is now, as in the reference.
        if !(0..=now).contains(&found.delivered_at) {
            found.delivered_at = now;
        }
        Ok(found)
    }
}

/// XAUTOCLAIM key group consumer min-idle start [COUNT count] [JUSTID]: gives the consumer the entries from an id on
/// that have been pending for at least `min-idle`. Replies with where to continue, the entries, and the deleted ones
/// that are not pending any more.
pub fn xautoclaim(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let min_idle = args.integer(4);
    let min_idle =
        min_idle.map_err(|_| CommandError::new("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?.max(0);
    let from = parse::start(args.at(5))?;
    let (mut most, mut just_id) = (COUNT_DEFAULT, false);
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "count") && at + 1 < args.len() {
            at += 1;
            let count = args.integer(at).ok().filter(|count| (1..=COUNT_MAX).contains(count));
            most = count.ok_or(CommandError::new("ERR COUNT must be > 0"))? as usize;
        } else if args.is(at, "justid") {
            just_id = true;
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    let now = i64::try_from(call.now).unwrap_or(i64::MAX);
    AutoClaim { group: args.at(2), consumer: args.at(3), min_idle, from, most, just_id, now }.run(call)
}

/// The arguments of XAUTOCLAIM.
struct AutoClaim<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    min_idle: i64,
    from: StreamId,
    most: usize,
    just_id: bool,
    now: i64,
}

impl AutoClaim<'_> {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), CommandError> {
        let (db, key) = (call.session.db, call.args.at(1));
        let mut stream = call.txn.edit_stream(db, key)?;
        call.stats.read_key(!stream.is_new());
        let reply = &mut call.reply;
        let mut group = stream.group(self.group)?.ok_or_else(|| no_key_or_group(key, self.group))?;
        let looks = self.most.saturating_mul(LOOKS_PER_CLAIM);
        let candidates = stream.pending_from(&group, self.from, None, looks.saturating_add(1))?;
        let (mut left, mut consumer, mut looked) = (self.most, None, 0);
        let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
        let ids: Vec<StreamId> = candidates.iter().take(looks).map(|(id, _)| *id).collect();
        stream.visit_at(&ids, |id, entry| -> Result<bool, CommandError> {
            let (_, pending) = candidates[looked];
            looked += 1;
            if entry.is_none() {
                stream.acknowledge(&mut group, id)?;
                deleted.push(id);
                left -= 1;
                return Ok(left > 0);
            }
            if self.min_idle > 0 && self.now.wrapping_sub(pending.delivered_at) < self.min_idle {
                return Ok(true);
            }
            if consumer.is_none() {
                consumer = Some(stream.see_consumer(&mut group, self.consumer, self.now)?);
            }
            let Some((consumer, _)) = consumer else { return Ok(true) };
            let deliveries = pending.deliveries.wrapping_add(u64::from(!self.just_id));
            let new = Pending { consumer, delivered_at: self.now, deliveries };
            stream.set_pending(&mut group, id, Some(pending), new)?;
            claimed.push(id);
            left -= 1;
            Ok(left > 0)
        })?;
        reply.array(3);
        reply_id(reply, candidates.get(looked).map_or(StreamId::MIN, |(id, _)| *id));
        reply.array(claimed.len());
        stream.visit_at(&claimed, |id, entry| -> Result<bool, CommandError> {
            match entry {
                Some(entry) if !self.just_id => reply_entry(reply, entry),
                _ => reply_id(reply, id),
            }
            Ok(true)
        })?;
        reply.array(deleted.len());
        deleted.iter().for_each(|id| reply_id(reply, *id));
        if consumer.is_some() || !deleted.is_empty() {
            stream.set_group(&group)?;
            stream.save()?;
        }
        if let Some((_, true)) = consumer {
            call.notify(STREAM, CREATED, key);
        }
        Ok(())
    }
}
