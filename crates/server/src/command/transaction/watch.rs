//! WATCH key [key …]: EXEC will run only if these keys stay as they are.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: -2,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::NOT_QUEUED),
    keys: Keys::ALL,
    ..Spec::new("watch", watch)
};

fn watch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.session.transaction.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in call.args.from(1) {
        let db = call.session.db;
        if !call.session.watched.iter().any(|watched| watched.is(db, key)) {
            let watched = call.txn.watch(db, key)?;
            call.session.watched.extend(watched);
        }
    }
    call.reply.ok();
    Ok(())
}
