//! Fields by chance: HRANDFIELD.

use crate::command::random::{Draw, reply_drawn};
use crate::command::{Call, CommandError};

/// HRANDFIELD key [count [WITHVALUES]]: a field; or so many, each once; or, with a negative count, just as many, of which
/// one may come again.
pub fn hrandfield(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let draw = Draw::parse(call.args, "withvalues")?;
    let hash = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?);
    reply_drawn(&mut call.reply, hash, draw, |reply, value| reply.bulk(value))
}
