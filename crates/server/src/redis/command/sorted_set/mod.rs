//! Commands on sorted sets.
//!
//! What a command wants of a sorted set is a range of positions; how these are found, `structures` knows.

mod algebra;
mod blocking;
mod change;
mod get;
mod parse;
mod pop;
mod random;
mod range;
mod remove;

use super::{Command, CommandError, Step, step};
use crate::redis::resp::{Protocol, Reply};
pub use change::{Options, add_members};
use duramen_structures::string::double;
use duramen_structures::{Collection, Scored, Source};
use std::ops::{ControlFlow, Deref, Range};

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("zadd", change::zadd).step(4, Step::SortedSet(change::zadd_step)),
    Command::new("zincrby", change::zincrby),
    Command::new("zrem", remove::zrem)
        .removes()
        .step(3, Step::SortedSet(|set, reply, args| step::remove(set, reply, args, "zrem"))),
    Command::new("zscore", get::zscore).merged(3).step(3, Step::SortedSet(get::zscore_step)),
    Command::new("zmscore", get::zmscore),
    Command::new("zcard", get::zcard).step(2, Step::SortedSet(step::len)),
    Command::new("zcount", get::zcount),
    Command::new("zlexcount", get::zlexcount),
    Command::new("zrank", get::zrank)
        .merged(3)
        .step(3, Step::SortedSet(|set, reply, args| get::rank_step(set, reply, args, false))),
    Command::new("zrevrank", get::zrevrank)
        .merged(3)
        .step(3, Step::SortedSet(|set, reply, args| get::rank_step(set, reply, args, true))),
    Command::new("zrange", range::zrange),
    Command::new("zrangestore", range::zrangestore),
    Command::new("zrevrange", range::zrevrange),
    Command::new("zrangebyscore", range::zrangebyscore),
    Command::new("zrevrangebyscore", range::zrevrangebyscore),
    Command::new("zrangebylex", range::zrangebylex),
    Command::new("zrevrangebylex", range::zrevrangebylex),
    Command::new("zremrangebyrank", remove::zremrangebyrank).removes(),
    Command::new("zremrangebyscore", remove::zremrangebyscore).removes(),
    Command::new("zremrangebylex", remove::zremrangebylex).removes(),
    Command::new("zpopmin", pop::zpopmin)
        .removes()
        .step(2, Step::SortedSet(|set, reply, _| pop::pop_step(set, reply, pop::End::Min))),
    Command::new("zpopmax", pop::zpopmax)
        .removes()
        .step(2, Step::SortedSet(|set, reply, _| pop::pop_step(set, reply, pop::End::Max))),
    Command::new("zmpop", pop::zmpop).removes(),
    Command::new("bzpopmin", blocking::bzpopmin).removes(),
    Command::new("bzpopmax", blocking::bzpopmax).removes(),
    Command::new("bzmpop", blocking::bzmpop).removes(),
    Command::new("zrandmember", random::zrandmember),
    Command::new("zscan", get::zscan),
    Command::new("zunion", algebra::zunion),
    Command::new("zinter", algebra::zinter),
    Command::new("zdiff", algebra::zdiff),
    Command::new("zunionstore", algebra::zunionstore),
    Command::new("zinterstore", algebra::zinterstore),
    Command::new("zdiffstore", algebra::zdiffstore),
    Command::new("zintercard", algebra::zintercard),
];

/// Replies with a score.
fn reply_score(reply: &mut Reply<'_>, score: f64) {
    reply.double(&double::text(score));
}

/// Replies with the members at these positions, from the last to the first if `reversed`, as [`reply_members`].
fn reply_part<B: Deref<Target = [u8]>, S: Source>(
    reply: &mut Reply<'_>,
    set: &Collection<'_, B, S>,
    part: Range<usize>,
    reversed: bool,
    with_scores: bool,
) -> Result<(), CommandError> {
    reply_head(reply, part.len(), with_scores);
    set.visit_part(part, reversed, |member, score| {
        reply_member(reply, (member, score), with_scores);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Replies with members, and with their scores: in RESP2 by turns, in RESP3 in pairs.
fn reply_members<'a>(
    reply: &mut Reply<'_>,
    members: impl ExactSizeIterator<Item = Scored<'a>>,
    with_scores: bool,
) {
    reply_head(reply, members.len(), with_scores);
    for member in members {
        reply_member(reply, member, with_scores);
    }
}

fn in_pairs(reply: &Reply<'_>, with_scores: bool) -> bool {
    with_scores && reply.protocol == Protocol::Resp3
}

fn reply_head(reply: &mut Reply<'_>, count: usize, with_scores: bool) {
    let by_turns = with_scores && !in_pairs(reply, with_scores);
    reply.array(if by_turns { count * 2 } else { count });
}

fn reply_member(reply: &mut Reply<'_>, (member, score): Scored<'_>, with_scores: bool) {
    if in_pairs(reply, with_scores) {
        reply.array(2);
    }
    reply.bulk(member);
    if with_scores {
        reply_score(reply, score);
    }
}
