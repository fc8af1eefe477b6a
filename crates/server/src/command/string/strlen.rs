//! STRLEN key: the length of a string, 0 without one.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("strlen", strlen)
};

fn strlen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let value = call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?);
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}
