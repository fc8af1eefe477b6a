//! Reads one list: LLEN, LRANGE, LINDEX, LPOS.

use crate::redis::command::{Args, Call, CommandError, Done, errors};
use crate::redis::resp::Reply;
use duramen_structures::{EditList, End};
use std::ops::ControlFlow;

/// LLEN key: the number of elements.
pub fn llen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let list = call.stats.read(call.txn.list(call.session.db, call.args.at(1))?);
    call.reply.count(list.map_or(0, |list| list.len()));
    Ok(())
}

/// LLEN in a run.
pub fn llen_step(
    list: &mut EditList<'_, '_>,
    reply: &mut Reply<'_>,
    _: Args<'_>,
) -> Result<Done, CommandError> {
    reply.count(list.len());
    Ok(Done::Read(!list.is_empty()))
}

/// LRANGE key start stop: the elements from the one to the other.
pub fn lrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let Some(list) = call.stats.read(call.txn.list(call.session.db, args.at(1))?) else {
        call.reply.array(0);
        return Ok(());
    };
    let part = list.part(start, stop);
    call.reply.array(part.len());
    list.visit(part, |element| {
        call.reply.bulk(element);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// LINDEX key index: the element there.
pub fn lindex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    // For a missing key the index is not checked, as in Redis.
    let Some(list) = call.stats.read(call.txn.list(call.session.db, call.args.at(1))?) else {
        call.reply.null();
        return Ok(());
    };
    let index = call.args.integer(2)?;
    match list.position(index).map(|position| list.get(position)).transpose()?.flatten() {
        Some(element) => call.reply.bulk(&element),
        None => call.reply.null(),
    }
    Ok(())
}

/// LPOS key element [RANK rank] [COUNT count] [MAXLEN len]: where it is; or all of these places.
pub fn lpos(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let options = Search::parse(call.args)?;
    let list = call.stats.read(call.txn.list(call.session.db, call.args.at(1))?);
    let (mut found, mut places) = (0i64, Vec::new());
    if let Some(list) = list {
        list.find(call.args.at(2), options.from, options.within, |place| {
            found += 1;
            if found < options.rank {
                return ControlFlow::Continue(());
            }
            places.push(place);
            let wanted = options.count.unwrap_or(1);
            if wanted == places.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    match (options.count, places.first()) {
        (None, None) => call.reply.null(),
        (None, Some(place)) => call.reply.count(*place),
        (Some(_), _) => {
            call.reply.array(places.len());
            places.iter().for_each(|place| call.reply.count(*place));
        }
    }
    Ok(())
}

/// The arguments of LPOS.
struct Search {
    from: End,
    /// The first that counts, from 1.
    rank: i64,
    /// The number of matches; 0 is all, and `None` a single one.
    count: Option<usize>,
    /// The number of elements to compare.
    within: usize,
}

impl Search {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let (mut rank, mut count, mut within) = (1, None, 0);
        for at in (3..args.len()).step_by(2) {
            if at + 1 == args.len() {
                return Err(errors::SYNTAX);
            } else if args.is(at, "rank") {
                rank = args.integer(at + 1)?;
                if rank == 0 {
                    return Err(RANK_ZERO);
                }
            } else if args.is(at, "count") {
                let given = args.count(at + 1);
                count = Some(given.ok_or(CommandError::new("ERR COUNT can't be negative"))?);
            } else if args.is(at, "maxlen") {
                within = args.count(at + 1).ok_or(CommandError::new("ERR MAXLEN can't be negative"))?;
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(Self {
            from: if rank < 0 { End::Right } else { End::Left },
            // As the reference's, the least integer stays what it is, and every place counts.
            rank: rank.wrapping_abs(),
            count,
            within: if within == 0 { usize::MAX } else { within },
        })
    }
}

const RANK_ZERO: CommandError = CommandError::new(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from \
     the end of the list",
);
