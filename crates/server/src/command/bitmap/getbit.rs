//! GETBIT key offset: one bit.

use super::bit_offset;
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::bits;

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("getbit", getbit)
};

fn getbit(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let offset = bit_offset(call, call.args.at(2), None)?;
    let value = call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?);
    call.reply.integer(i64::from(value.is_some_and(|value| bits::get(&value, offset))));
    Ok(())
}
