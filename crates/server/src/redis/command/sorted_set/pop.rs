//! Removes and returns the members at an end: ZPOPMIN, ZPOPMAX, ZMPOP.

use super::{reply_members, reply_score};
use crate::observe::keyspace_events::SORTED_SET;
use crate::redis::command::many::Many;
use crate::redis::command::{Args, Call, CommandError, Done, OwnedArgs, errors};
use crate::redis::resp::Reply;
use duramen_structures::Edit;
use duramen_structures::string::double;
use std::ops::ControlFlow;

/// From which end.
#[derive(Clone, Copy)]
pub enum End {
    /// The lowest scores.
    Min,
    /// The highest.
    Max,
}

/// ZPOPMIN key [count]: the members with the lowest scores, with these, which are removed.
pub fn zpopmin(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop_from(call, End::Min)
}

/// ZPOPMAX key [count]: the members with the highest scores, with these, which are removed.
pub fn zpopmax(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop_from(call, End::Max)
}

/// ZMPOP numkeys key [key …] MIN | MAX [COUNT count]: ZPOPMIN or ZPOPMAX of the first key that is there.
pub fn zmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !Many::parse(call.args, end)?.pop(call, call.args)? {
        call.reply.null_array();
    }
    Ok(())
}

/// MIN or MAX.
pub fn end(args: Args<'_>, index: usize) -> Result<End, CommandError> {
    match () {
        () if args.is(index, "min") => Ok(End::Min),
        () if args.is(index, "max") => Ok(End::Max),
        () => Err(errors::SYNTAX),
    }
}

impl Many<End> {
    /// Takes from the first key that is there; false when none is.
    pub fn pop(&self, call: &mut Call<'_, '_>, args: Args<'_>) -> Result<bool, CommandError> {
        for key in args.from(2).take(self.keys) {
            // Types are looked at up to the first key that is there, as in the reference.
            if call.txn.sorted_set(call.session.db, key)?.is_some() {
                pop(call, key, self.end, self.count, |reply, members| {
                    reply.array(2);
                    reply.bulk(key);
                    reply.array(members.len());
                    for (member, score) in members {
                        reply.array(2);
                        reply.bulk(member);
                        reply_score(reply, *score);
                    }
                })?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn pop_from(call: &mut Call<'_, '_>, end: End) -> Result<(), CommandError> {
    let args = call.args;
    if args.len() > 3 {
        return Err(errors::SYNTAX);
    }
    let count = match args.get(2) {
        None => None,
        // Every error of the count has this text.
        Some(_) => Some(args.count(2).ok_or(errors::NOT_POSITIVE)?),
    };
    if count.is_none() {
        call.edits_one();
    }
    let Some(count) = count else {
        // It is not a pair in the reply, not even in RESP3.
        return pop(call, args.at(1), end, 1, |reply, members| match members.first() {
            Some((member, score)) => {
                reply.array(2);
                reply.bulk(member);
                reply_score(reply, *score);
            }
            None => reply.array(0),
        });
    };
    pop(call, args.at(1), end, count, |reply, members| reply_members(reply, members.iter().copied(), true))
}

/// ZPOPMIN or ZPOPMAX in a run, of one member.
pub fn pop_step(set: &mut Edit<'_, '_>, reply: &mut Reply<'_>, end: End) -> Result<Done, CommandError> {
    let Some(last) = set.len().checked_sub(1) else {
        reply.array(0);
        return Ok(Done::Nothing);
    };
    let at = if matches!(end, End::Min) { 0 } else { last };
    let mut taken = Vec::new();
    set.visit_part(at..at + 1, false, |member, score| {
        taken.extend_from_slice(member);
        reply.array(2);
        reply.bulk(member);
        reply_score(reply, score);
        ControlFlow::Break(())
    })?;
    set.remove(&taken)?;
    Ok(Done::Changed(popped(end)))
}

/// The event of members that were taken from an end.
fn popped(end: End) -> &'static str {
    match end {
        End::Min => "zpopmin",
        End::Max => "zpopmax",
    }
}

/// Takes so many members of a key, and has them written.
pub fn pop(
    call: &mut Call<'_, '_>,
    key: &[u8],
    end: End,
    count: usize,
    reply: impl FnOnce(&mut Reply<'_>, &[duramen_structures::Scored<'_>]),
) -> Result<(), CommandError> {
    let mut set = call.txn.edit_sorted_set(call.session.db, key)?;
    let all = set.len();
    let count = count.min(all);
    let part = match end {
        End::Min => 0..count,
        End::Max => all - count..all,
    };
    let mut members: Vec<(Vec<u8>, f64)> = Vec::with_capacity(count);
    set.visit_part(part.clone(), matches!(end, End::Max), |member, score| {
        members.push((member.to_vec(), score));
        ControlFlow::Continue(())
    })?;
    let members: Vec<_> = members.iter().map(|(member, score)| (&member[..], *score)).collect();
    reply(&mut call.reply, &members);
    if count > 0 {
        set.remove_part(part)?;
        let is_gone = set.is_empty();
        set.save()?;
        let event = popped(end);
        call.put_back(|| {
            let scores: Vec<String> = members.iter().map(|(_, score)| double::text(*score)).collect();
            let mut args = vec![&b"ZADD"[..], key];
            for ((member, _), score) in members.iter().zip(&scores) {
                args.extend([score.as_bytes(), member]);
            }
            OwnedArgs::of(&args)
        });
        call.notify_or_gone(SORTED_SET, event, key, is_gone);
    }
    Ok(())
}
