//! MSET key value [key value …]: several keys become strings at once.

use super::{pairs_or_arity, put_pairs};
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::range(1, -1, 2),
    ..Spec::new("mset", mset)
};

fn mset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pairs_or_arity(call, "mset")?;
    put_pairs(call)?;
    call.reply.ok();
    Ok(())
}
