//! RANDOMKEY: some key.

use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec = Spec { flags: Flags::READONLY, ..Spec::new("randomkey", randomkey) };

fn randomkey(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.txn.random_key(call.session.db)? {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
    Ok(())
}
