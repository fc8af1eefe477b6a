//! Reads entries of one stream: XLEN, XRANGE, XREVRANGE.

use super::{parse, reply_entries};
use crate::redis::command::{Call, CommandError, errors};

/// XLEN key: how many entries there are.
pub fn xlen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let stream = call.stats.read(call.txn.stream(call.session.db, call.args.at(1))?);
    call.reply.integer(stream.map_or(0, |stream| stream.len() as i64));
    Ok(())
}

/// XRANGE key start end [COUNT count]: the entries from one id to another.
pub fn xrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, 2, 3, false)
}

/// XREVRANGE key end start [COUNT count]: the same, the last one first.
pub fn xrevrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    range(call, 3, 2, true)
}

fn range(call: &mut Call<'_, '_>, from: usize, to: usize, is_descending: bool) -> Result<(), CommandError> {
    let args = call.args;
    let (from, to) = (parse::start(args.at(from))?, parse::end(args.at(to))?);
    let mut most = usize::MAX;
    for at in (4..args.len()).step_by(2) {
        if !args.is(at, "count") || at + 1 == args.len() {
            return Err(errors::SYNTAX);
        }
        most = match args.integer(at + 1)? {
            count if count < 0 => 0,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        };
    }
    let Some(stream) = call.stats.read(call.txn.stream(call.session.db, args.at(1))?) else {
        call.reply.array(0);
        return Ok(());
    };
    if most == 0 {
        call.reply.null_array();
        return Ok(());
    }
    let part = stream.part(from, to, is_descending, most)?;
    reply_entries(&mut call.reply, &part.entries()?);
    Ok(())
}
