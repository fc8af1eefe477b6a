//! Members by chance: SPOP, SRANDMEMBER.

use crate::observe::keyspace_events::SET;
use crate::redis::command::random::draws;
use crate::redis::command::scan::Gathered;
use crate::redis::command::{Args, Call, CommandError, Done, errors};
use crate::redis::resp::Reply;
use duramen_structures::Edit;
use std::ops::ControlFlow;

/// SPOP key [count]: a member, which is removed; or so many.
pub fn spop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() > 3 {
        return Err(errors::SYNTAX);
    }
    let count = match args.get(2) {
        None => None,
        // Every error of the count has this text.
        Some(_) => Some(args.count(2).ok_or(errors::NOT_POSITIVE)?),
    };
    let mut popped = Gathered::default();
    if count.is_none() {
        call.edits_one();
    }
    let mut set = call.txn.edit_set(db, args.at(1))?;
    if !set.is_empty() && count != Some(0) {
        set.pop(count.unwrap_or(1), |member| popped.push(member))?;
        let is_gone = set.is_empty();
        set.save()?;
        call.notify_or_gone(SET, "spop", args.at(1), is_gone);
    }
    match count {
        None if popped.len() == 0 => call.reply.null(),
        None => popped.reply_bare(&mut call.reply),
        Some(_) => {
            call.reply.set(popped.len());
            popped.reply_bare(&mut call.reply);
        }
    }
    Ok(())
}

/// SPOP in a run, of one member.
pub fn spop_step(set: &mut Edit<'_, '_>, reply: &mut Reply<'_>, _: Args<'_>) -> Result<Done, CommandError> {
    if set.is_empty() {
        reply.null();
        return Ok(Done::Nothing);
    }
    set.pop(1, |member| reply.bulk(member))?;
    Ok(Done::Changed("spop"))
}

/// SRANDMEMBER key [count]: a member; or that many distinct ones; or, with a negative count, exactly that many,
/// possibly repeated.
pub fn srandmember(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() > 3 {
        return Err(errors::SYNTAX);
    }
    if args.len() == 2 {
        match call.stats.read(call.txn.set(db, args.at(1))?) {
            Some(set) => set.draw_one(|member, _| call.reply.bulk(member))?,
            None => call.reply.null(),
        }
        return Ok(());
    }
    let count = draws(args, 2)?;
    let Some(set) = call.stats.read(call.txn.set(db, args.at(1))?) else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut call.reply;
    if count >= 0 {
        let count = usize::try_from(count).map_or(set.len(), |count| count.min(set.len()));
        reply.array(count);
        set.sample(count, |member, _| reply.bulk(member))?;
        return Ok(());
    }
    let mut left = count.unsigned_abs();
    reply.array(left as usize);
    set.draw(|member, _| {
        reply.bulk(member);
        left -= 1;
        // What the client is not sent need not be drawn.
        if left == 0 || !reply.takes() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(())
}
