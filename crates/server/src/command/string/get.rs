//! GET key: the string at a key.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec =
    Spec { arity: 2, flags: Flags::READONLY.with(Flags::FAST), keys: Keys::FIRST, ..Spec::new("get", get) };

fn get(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?) {
        Some(value) => call.reply.bulk(&value),
        None => call.reply.null(),
    }
    Ok(())
}
