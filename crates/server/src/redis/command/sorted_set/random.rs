//! Members by chance: ZRANDMEMBER.

use super::{reply_part, reply_score};
use crate::redis::command::random::{Draw, reply_drawn};
use crate::redis::command::{Call, CommandError};
use duramen_structures::score_of;

/// ZRANDMEMBER key [count [WITHSCORES]]: a member; or that many distinct ones; or, with a negative count, exactly that
/// many, possibly repeated.
pub fn zrandmember(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let draw = Draw::parse(call.args, "withscores")?;
    let set = call.stats.read(call.txn.sorted_set(call.session.db, call.args.at(1))?);
    match (&set, draw) {
        // All of them come from the last to the first, as in the reference.
        (Some(set), Draw::Many { count, with_values }) if count >= set.len() as i64 => {
            reply_part(&mut call.reply, set, 0..set.len(), true, with_values)
        }
        _ => reply_drawn(&mut call.reply, set, draw, |reply, score| reply_score(reply, score_of(score))),
    }
}
