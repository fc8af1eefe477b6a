//! MGET key [key …]: the strings at several keys, all of one moment.

use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::Type;

pub const SPEC: Spec =
    Spec { arity: -2, flags: Flags::READONLY.with(Flags::FAST), keys: Keys::ALL, ..Spec::new("mget", mget) };

fn mget(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(call.args.len() - 1);
    for key in call.args.from(1) {
        match call.stats.read(call.txn.get(call.session.db, key)?) {
            Some(value) if value.tag() == Type::String.tag() => call.reply.bulk(&value),
            _ => call.reply.null(),
        }
    }
    Ok(())
}
