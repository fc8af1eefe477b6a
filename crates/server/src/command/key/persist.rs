//! PERSIST key: a key never ends; 1 if it would have.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("persist", persist)
};

fn persist(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let ends = call.txn.get(db, key)?.is_some_and(|found| found.expires_at().is_some());
    if ends {
        call.txn.set_expiry(db, key, None)?;
    }
    call.reply.integer(i64::from(ends));
    Ok(())
}
