//! MSETNX key value [key value …]: MSET if none of the keys is there; 1 or 0.

use super::{pairs_or_arity, put_pairs};
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::range(1, -1, 2),
    ..Spec::new("msetnx", msetnx)
};

fn msetnx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pairs_or_arity(call, "msetnx")?;
    for key in call.args.from(1).step_by(2) {
        if call.txn.exists(call.session.db, key)? {
            call.reply.integer(0);
            return Ok(());
        }
    }
    put_pairs(call)?;
    call.reply.integer(1);
    Ok(())
}
