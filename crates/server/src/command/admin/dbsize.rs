//! DBSIZE: how many keys the selected database has.

use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec = Spec { flags: Flags::READONLY.with(Flags::FAST), ..Spec::new("dbsize", dbsize) };

fn dbsize(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let db = call.db();
    call.reply.integer(call.txn.count(db).keys as i64);
    Ok(())
}
