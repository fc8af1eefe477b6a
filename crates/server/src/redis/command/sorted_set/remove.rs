//! Removes members: ZREM, ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZREMRANGEBYLEX.

use super::parse::{Bounds, By, rank_range};
use crate::observe::keyspace_events::SORTED_SET;
use crate::redis::command::{Call, CommandError};

/// ZREM key member [member …]: how many were there. Without members the key goes too.
pub fn zrem(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() == 3 {
        call.edits_one();
    }
    let mut set = call.txn.edit_sorted_set(db, args.at(1))?;
    let removed = set.remove_all(args.from(2))?;
    if removed > 0 {
        let is_gone = set.is_empty();
        set.save()?;
        call.notify_or_gone(SORTED_SET, "zrem", args.at(1), is_gone);
    }
    call.reply.count(removed);
    Ok(())
}

/// ZREMRANGEBYRANK key start stop: removes those from one position to another; how many.
pub fn zremrangebyrank(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    remove_range(call, By::Rank)
}

/// ZREMRANGEBYSCORE key min max: removes those with a score in a range; how many.
pub fn zremrangebyscore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    remove_range(call, By::Score)
}

/// ZREMRANGEBYLEX key min max: removes those in a range of members; how many.
pub fn zremrangebylex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    remove_range(call, By::Lex)
}

fn remove_range(call: &mut Call<'_, '_>, by: By) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let bounds = Bounds::parse(by, args, 2, 3)?;
    let mut set = call.txn.edit_sorted_set(db, args.at(1))?;
    let part = match (call.worker_state.share, bounds) {
        (None, bounds) => bounds.part(&set)?,
        // Ranks are of the set as it was.
        (Some(share), Bounds::Rank(start, end)) => {
            let all = rank_range(set.len() + share.removed, start, end);
            all.start..all.end.saturating_sub(share.removed).min(all.start + share.most)
        }
        (Some(share), bounds) => {
            let all = bounds.part(&set)?;
            all.start..all.end.min(all.start + share.most)
        }
    };
    let removed = set.remove_part(part)?;
    if removed > 0 {
        let is_gone = set.is_empty();
        set.save()?;
        call.notify_or_gone(SORTED_SET, call.entry.spec.name, args.at(1), is_gone);
    }
    call.reply.count(removed);
    Ok(())
}
