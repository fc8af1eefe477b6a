//! Commands on sorted sets.
//!
//! A sorted set is one value, which every command reads from begin to end; so ranges are cut out of the list of all
//! members.

mod algebra;
mod change;
mod get;
mod parse;
mod pop;
mod random;
mod range;
mod remove;

use super::Command;
use crate::resp::{Protocol, Reply};
pub use change::{Options, add_members};
use duramen_structures::Scored;
use duramen_structures::strings::double;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("zadd", change::zadd),
    Command::new("zincrby", change::zincrby),
    Command::new("zrem", remove::zrem),
    Command::new("zscore", get::zscore),
    Command::new("zmscore", get::zmscore),
    Command::new("zcard", get::zcard),
    Command::new("zcount", get::zcount),
    Command::new("zlexcount", get::zlexcount),
    Command::new("zrank", get::zrank),
    Command::new("zrevrank", get::zrevrank),
    Command::new("zrange", range::zrange),
    Command::new("zrangestore", range::zrangestore),
    Command::new("zrevrange", range::zrevrange),
    Command::new("zrangebyscore", range::zrangebyscore),
    Command::new("zrevrangebyscore", range::zrevrangebyscore),
    Command::new("zrangebylex", range::zrangebylex),
    Command::new("zrevrangebylex", range::zrevrangebylex),
    Command::new("zremrangebyrank", remove::zremrangebyrank),
    Command::new("zremrangebyscore", remove::zremrangebyscore),
    Command::new("zremrangebylex", remove::zremrangebylex),
    Command::new("zpopmin", pop::zpopmin),
    Command::new("zpopmax", pop::zpopmax),
    Command::new("zmpop", pop::zmpop),
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

/// Replies with members, and with their scores: in RESP2 by turns, in RESP3 in pairs.
fn reply_members<'a>(
    reply: &mut Reply<'_>,
    members: impl ExactSizeIterator<Item = Scored<'a>>,
    with_scores: bool,
) {
    let in_pairs = with_scores && reply.protocol == Protocol::Resp3;
    reply.array(if with_scores && !in_pairs { members.len() * 2 } else { members.len() });
    for (member, score) in members {
        if in_pairs {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply_score(reply, score);
        }
    }
}
