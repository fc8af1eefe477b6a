//! What there is of one sorted set: ZSCORE, ZMSCORE, ZCARD, ZCOUNT, ZLEXCOUNT, ZRANK, ZREVRANK, ZSCAN.

use super::parse::{Bounds, By};
use super::reply_score;
use crate::redis::command::scan::{self, Gathered, Options};
use crate::redis::command::{Args, Call, CommandError, Done, errors};
use crate::redis::resp::Reply;
use duramen_structures::string::double;
use duramen_structures::{Edit, Encoding, score_of};

/// ZSCORE key member: the score of a member.
pub fn zscore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let set = call.txn.sorted_set(call.session.db, call.args.at(1))?;
    for member in call.args.from(2) {
        call.stats.read_key(set.is_some());
        match set.as_ref().map(|set| set.score(member)).transpose()?.flatten() {
            Some(score) => reply_score(&mut call.reply, score),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// ZMSCORE key member [member …]: the scores of several members.
pub fn zmscore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let set = call.stats.read(call.txn.sorted_set(call.session.db, call.args.at(1))?);
    call.reply.array(call.args.len() - 2);
    let Some(set) = set else {
        call.args.from(2).for_each(|_| call.reply.null());
        return Ok(());
    };
    set.get_each(call.args.from(2), |score| match score {
        Some(score) => reply_score(&mut call.reply, score_of(score)),
        None => call.reply.null(),
    })?;
    Ok(())
}

/// ZCARD key: how many members there are.
pub fn zcard(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let set = call.stats.read(call.txn.sorted_set(call.session.db, call.args.at(1))?);
    call.reply.count(set.map_or(0, |set| set.len()));
    Ok(())
}

/// ZCOUNT key min max: how many members have a score in a range.
pub fn zcount(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    count(call, By::Score)
}

/// ZLEXCOUNT key min max: how many members are in a range.
pub fn zlexcount(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    count(call, By::Lex)
}

fn count(call: &mut Call<'_, '_>, by: By) -> Result<(), CommandError> {
    let bounds = Bounds::parse(by, call.args, 2, 3)?;
    let set = call.stats.read(call.txn.sorted_set(call.session.db, call.args.at(1))?);
    let count = match set {
        Some(set) => bounds.part(&set)?.len(),
        None => 0,
    };
    call.reply.count(count);
    Ok(())
}

/// ZRANK key member [WITHSCORE]: how many members are before one.
pub fn zrank(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    rank(call, false)
}

/// ZREVRANK key member [WITHSCORE]: the number of members after one.
pub fn zrevrank(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    rank(call, true)
}

fn rank(call: &mut Call<'_, '_>, from_end: bool) -> Result<(), CommandError> {
    // Merged they are of a key and members alone.
    let with_score = call.merged == 1 && call.args.len() > 3;
    if with_score && (call.args.len() > 4 || !call.args.is(3, "withscore")) {
        return Err(errors::SYNTAX);
    }
    let set = call.txn.sorted_set(call.session.db, call.args.at(1))?;
    let members = if with_score { 1 } else { call.args.len() };
    for member in call.args.from(2).take(members) {
        call.stats.read_key(set.is_some());
        let place = set.as_ref().map(|set| set.place(member)).transpose()?.flatten();
        match (place, &set) {
            (Some(at), Some(set)) => {
                if with_score {
                    call.reply.array(2);
                }
                call.reply.count(if from_end { set.len() - 1 - at } else { at });
                if with_score && let Some(score) = set.score(member)? {
                    reply_score(&mut call.reply, score);
                }
            }
            _ if with_score => call.reply.null_array(),
            _ => call.reply.null(),
        }
    }
    Ok(())
}

/// ZSCORE in a run.
pub fn zscore_step(
    set: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
) -> Result<Done, CommandError> {
    match set.score(args.at(0))? {
        Some(score) => reply_score(reply, score),
        None => reply.null(),
    }
    Ok(Done::Read(!set.is_empty()))
}

/// ZRANK or ZREVRANK in a run.
pub fn rank_step(
    set: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
    from_end: bool,
) -> Result<Done, CommandError> {
    match set.place(args.at(0))? {
        Some(at) => reply.count(if from_end { set.len() - 1 - at } else { at }),
        None => reply.null(),
    }
    Ok(Done::Read(!set.is_empty()))
}

/// ZSCAN key cursor [MATCH pattern] [COUNT count]: members with their scores, a few at a time.
pub fn zscan(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut cursor = scan::cursor(call.args.at(2))?;
    let mut pairs = Gathered::default();
    match call.stats.read(call.txn.sorted_set(call.session.db, call.args.at(1))?) {
        // Without a key nobody looks at the options, as in the reference.
        None => cursor = 0,
        Some(set) => {
            let options = Options::parse(call.args, 3, false)?;
            // As the reference keeps it.
            let text =
                if set.encoding() == Encoding::Listpack { double::listpack_text } else { double::text };
            cursor = set.scan(cursor, options.count, |member, score| {
                if options.wants(member) {
                    pairs.push(member);
                    pairs.push(text(score_of(score)).as_bytes());
                }
            })?;
        }
    }
    pairs.reply_part(&mut call.reply, cursor);
    Ok(())
}
