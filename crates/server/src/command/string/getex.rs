//! GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]: the string at a key, with another expiry time.

use crate::command::string::Expiry;
use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec =
    Spec { arity: -2, flags: Flags::WRITE.with(Flags::FAST), keys: Keys::FIRST, ..Spec::new("getex", getex) };

fn getex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let mut expiry = Expiry::None;
    let mut at = 2;
    while at < call.args.len() {
        if call.args.is(at, "persist") && matches!(expiry, Expiry::None | Expiry::Persist) {
            expiry = Expiry::Persist;
        } else {
            expiry = expiry.parse(call.args, &mut at)?;
        }
        at += 1;
    }
    let Some(value) = call.stats.read(call.txn.get_string(db, key)?) else {
        call.reply.null();
        return Ok(());
    };
    let expires_at = expiry.deadline(call.now, "getex")?;
    call.reply.bulk(&value);
    let changes = match expiry {
        Expiry::None | Expiry::Keep => false,
        Expiry::Persist => value.expires_at().is_some(),
        Expiry::At(..) => true,
    };
    if changes {
        call.txn.set_expiry(db, key, expires_at)?;
    }
    Ok(())
}
