//! Fields by chance: HRANDFIELD.

use crate::command::random::draws;
use crate::command::{Call, CommandError, errors};
use crate::resp::{Protocol, Reply};
use std::ops::ControlFlow;

/// HRANDFIELD key [count [WITHVALUES]]: a field; or so many, each once; or, with a negative count, just as many, of which
/// one may come again.
pub fn hrandfield(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() == 2 {
        match call.stats.read(call.txn.hash(db, args.at(1))?) {
            Some(hash) => hash.draw_one(|field, _| call.reply.bulk(field))?,
            None => call.reply.null(),
        }
        return Ok(());
    }
    let count = draws(args, 2)?;
    let with_values = args.len() == 4 && args.is(3, "withvalues");
    if args.len() > 3 && !with_values {
        return Err(errors::SYNTAX);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(errors::OUT_OF_RANGE);
    }
    let Some(hash) = call.stats.read(call.txn.hash(db, args.at(1))?) else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let head = |reply: &mut Reply<'_>, count: usize| {
        let flat = with_values && reply.protocol == Protocol::Resp2;
        reply.array(if flat { count * 2 } else { count });
    };
    let write = |reply: &mut Reply<'_>, field: &[u8], value: &[u8]| {
        if with_values && reply.protocol == Protocol::Resp3 {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    };
    if count >= 0 {
        let count = usize::try_from(count).map_or(hash.len(), |count| count.min(hash.len()));
        head(reply, count);
        hash.sample(count, |field, value| write(reply, field, value))?;
        return Ok(());
    }
    let mut left = count.unsigned_abs();
    head(reply, left as usize);
    hash.draw(|field, value| {
        write(reply, field, value);
        left -= 1;
        // What the client is not sent need not be drawn.
        if left == 0 || !reply.takes() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(())
}
