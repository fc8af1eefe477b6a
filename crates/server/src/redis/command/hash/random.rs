//! Fields by chance: HRANDFIELD.

use crate::redis::command::random::{Draw, reply_drawn};
use crate::redis::command::{Call, CommandError};

/// HRANDFIELD key [count [WITHVALUES]]: a field; or that many distinct ones; or, with a negative count, exactly that
/// many, possibly repeated.
pub fn hrandfield(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let draw = Draw::parse(call.args, "withvalues")?;
    let hash = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?);
    reply_drawn(&mut call.reply, hash, draw, |reply, value| reply.bulk(value))
}
