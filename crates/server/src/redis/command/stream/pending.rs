//! What was delivered and is not acknowledged: XACK, XPENDING.

use super::{parse, reply_id};
use crate::redis::command::{Args, Call, CommandError, errors};
use crate::redis::resp::Reply;
use duramen_structures::StoredStream;
use duramen_structures::stream::{Consumer, Group, Pending, StreamId};

/// XACK key group id [id …]: these entries were dealt with; how many were pending.
pub fn xack(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let mut stream = call.txn.edit_stream(db, args.at(1))?;
    call.stats.read_key(!stream.is_new());
    // Without a group nobody looks at the ids, as in the reference.
    let Some(mut group) = stream.group(args.at(2))? else {
        call.reply.integer(0);
        return Ok(());
    };
    let mut acknowledged = 0;
    for id in parse::ids(args, 3)? {
        acknowledged += usize::from(stream.acknowledge(&mut group, id)?);
    }
    if acknowledged > 0 {
        stream.set_group(&group)?;
        stream.save()?;
    }
    call.reply.count(acknowledged);
    Ok(())
}

/// The error for a missing key or group.
pub fn no_key_or_group(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::showing("NOGROUP No such key '", key, "' or consumer group '").and_showing("", group, "'")
}

/// XPENDING key group [[IDLE milliseconds] start end count [consumer]]: how much is pending, or what.
pub fn xpending(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let range = match args.len() {
        3 => None,
        6..=9 => Some(Range::parse(args)?),
        _ => return Err(errors::SYNTAX),
    };
    let stream = call.stats.read(call.txn.stream(call.session.db, args.at(1))?);
    let no_group = || no_key_or_group(args.at(1), args.at(2));
    let stream = stream.ok_or_else(no_group)?;
    let mut group = stream.group(args.at(2))?.ok_or_else(no_group)?;
    match range {
        None => {
            stream.know_consumers(&mut group)?;
            summary(&mut call.reply, &group, stream.pending_ends(&group)?);
        }
        Some(range) => {
            let now = i64::try_from(call.now).unwrap_or(i64::MAX);
            let found = range.find(&stream, &mut group, now)?;
            for (_, pending) in &found {
                stream.consumer(&mut group, pending.consumer)?;
            }
            reply_entries(&mut call.reply, now, &group, &found);
        }
    }
    Ok(())
}

fn summary(reply: &mut Reply<'_>, group: &Group, ends: Option<(StreamId, StreamId)>) {
    reply.array(4);
    reply.count(group.pending_len());
    let Some((first, last)) = ends else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(reply, first);
    reply_id(reply, last);
    let mut consumers = group.consumers();
    consumers.retain(|(_, consumer)| consumer.pending_len() > 0);
    reply.array(consumers.len());
    for (_, consumer) in consumers {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending_len() as i64);
    }
}

/// What of the pending entries is asked for.
struct Range<'a> {
    idle: i64,
    from: StreamId,
    to: StreamId,
    most: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let (mut at, mut idle) = (3, 0);
        if args.is(3, "idle") {
            idle = args.integer(4)?;
            if args.len() < 8 {
                return Err(errors::SYNTAX);
            }
            at = 5;
        }
        let most = usize::try_from(args.integer(at + 2)?).unwrap_or(0);
        let (from, to) = (parse::start(args.at(at))?, parse::end(args.at(at + 1))?);
        Ok(Self { idle, from, to, most, consumer: args.get(at + 3) })
    }

    fn find(
        &self,
        stream: &StoredStream<'_, '_>,
        group: &mut Group,
        now: i64,
    ) -> Result<Vec<(StreamId, Pending)>, CommandError> {
        let mut found = Vec::new();
        let consumer = self.consumer.map(|name| stream.find_consumer(group, name)).transpose()?;
        if consumer == Some(None) || self.most == 0 {
            return Ok(found);
        }
        stream.visit_pending(group, self.from, consumer.flatten(), |id, pending| {
            let is_idle = self.idle == 0 || now.wrapping_sub(pending.delivered_at) >= self.idle;
            if id <= self.to && is_idle {
                found.push((id, pending));
            }
            id <= self.to && found.len() < self.most
        })?;
        Ok(found)
    }
}

fn reply_entries(reply: &mut Reply<'_>, now: i64, group: &Group, found: &[(StreamId, Pending)]) {
    reply.array(found.len());
    for &(id, pending) in found {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).map_or(&[], Consumer::name));
        reply.integer(now.wrapping_sub(pending.delivered_at).max(0));
        reply.integer(pending.deliveries as i64);
    }
}
