//! All of a hash, at once or in parts: HKEYS, HVALS, HGETALL, HSCAN.

use crate::redis::command::scan::{self, Gathered, Options};
use crate::redis::command::{Call, CommandError};
use crate::redis::resp::Reply;
use std::ops::ControlFlow;

/// HKEYS key: all fields.
pub fn hkeys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_all(call, |reply, count| reply.array(count), |reply, field, _| reply.bulk(field))
}

/// HVALS key: all values.
pub fn hvals(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_all(call, |reply, count| reply.array(count), |reply, _, value| reply.bulk(value))
}

/// HGETALL key: all fields, each with its value.
pub fn hgetall(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply_all(
        call,
        |reply, count| reply.map(count),
        |reply, field, value| {
            reply.bulk(field);
            reply.bulk(value);
        },
    )
}

/// HSCAN key cursor [MATCH pattern] [COUNT count]: fields with their values, a few at a time.
pub fn hscan(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut cursor = scan::cursor(call.args.at(2))?;
    let mut pairs = Gathered::default();
    match call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?) {
        // For a missing key the options are not checked, as in Redis.
        None => cursor = 0,
        Some(hash) => {
            let options = Options::parse_of_hash(call.args, 3)?;
            cursor = hash.scan(cursor, options.count, |field, value| {
                if options.wants(field) {
                    pairs.push(field);
                    if !options.no_values {
                        pairs.push(value);
                    }
                }
            })?;
        }
    }
    pairs.reply_part(&mut call.reply, cursor);
    Ok(())
}

fn reply_all(
    call: &mut Call<'_, '_>,
    head: fn(&mut Reply<'_>, usize),
    mut write: impl FnMut(&mut Reply<'_>, &[u8], &[u8]),
) -> Result<(), CommandError> {
    let Some(hash) = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?) else {
        head(&mut call.reply, 0);
        return Ok(());
    };
    head(&mut call.reply, hash.shown()?);
    hash.visit(|field, value| {
        write(&mut call.reply, field, value);
        ControlFlow::Continue(())
    })?;
    Ok(())
}
