//! What was delivered and is not acknowledged: XACK, XPENDING.

use super::{parse, reply_id};
use crate::command::{Args, Call, CommandError, errors};
use duramen_structures::stream::{Group, StreamId};

/// XACK key group id [id …]: these entries were dealt with; how many were pending.
pub fn xack(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let mut stream = call.txn.edit_stream(db, args.at(1))?;
    call.stats.read_key(!stream.is_new());
    let mut groups = stream.groups()?;
    // Without a group nobody looks at the ids, as in the reference.
    let Some(group) = groups.get_mut(args.at(2)) else {
        call.reply.integer(0);
        return Ok(());
    };
    let acknowledged = parse::ids(args, 3)?.into_iter().filter(|id| group.acknowledge(*id)).count();
    if acknowledged > 0 {
        stream.set_groups(&groups)?;
        stream.save()?;
    }
    call.reply.count(acknowledged);
    Ok(())
}

/// What is told where a key or a group is not there.
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
    let groups = stream.map(|stream| stream.groups()).transpose()?;
    let group = groups.as_ref().and_then(|groups| groups.get(args.at(2)));
    let group = group.ok_or_else(|| no_key_or_group(args.at(1), args.at(2)))?;
    match range {
        None => summary(call, group),
        Some(range) => range.reply(call, group),
    }
    Ok(())
}

fn summary(call: &mut Call<'_, '_>, group: &Group) {
    let reply = &mut call.reply;
    reply.array(4);
    reply.count(group.pending_len());
    let Some((first, last)) = group.pending_ends() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(reply, first);
    reply_id(reply, last);
    let counts = group.pending_counts();
    let mut consumers = group.consumers();
    consumers.retain(|(index, _)| counts[*index] > 0);
    reply.array(consumers.len());
    for (index, consumer) in consumers {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(counts[index] as i64);
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

    fn reply(&self, call: &mut Call<'_, '_>, group: &Group) {
        let now = i64::try_from(call.now).unwrap_or(i64::MAX);
        let consumer = self.consumer.map(|name| group.find_consumer(name));
        if consumer == Some(None) {
            call.reply.array(0);
            return;
        }
        let found: Vec<_> = group
            .pending_from(self.from, consumer.flatten())
            .take_while(|(id, _)| *id <= self.to)
            .filter(|(_, pending)| self.idle == 0 || now.wrapping_sub(pending.delivered_at) >= self.idle)
            .take(self.most)
            .collect();
        call.reply.array(found.len());
        for (id, pending) in found {
            call.reply.array(4);
            reply_id(&mut call.reply, id);
            call.reply.bulk(group.consumer_name(pending.consumer));
            call.reply.integer(now.wrapping_sub(pending.delivered_at).max(0));
            call.reply.integer(pending.deliveries as i64);
        }
    }
}
