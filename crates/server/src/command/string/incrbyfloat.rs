//! INCRBYFLOAT key increment: the number at a key, 0 without one, plus the increment, as a long double.

use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::string_until;
use duramen_structures::strings::long_double;

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("incrbyfloat", incrbyfloat)
};

fn incrbyfloat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let (text, expires_at) = match call.txn.get_string(db, key)? {
        Some(old) => (sum(&old, call.args.at(2))?, old.expires_at()),
        None => (sum(b"0", call.args.at(2))?, None),
    };
    call.reply.bulk(text.as_bytes());
    call.txn.put_vec(db, key, text.into_bytes(), string_until(expires_at))?;
    Ok(())
}

fn sum(value: &[u8], increment: &[u8]) -> Result<String, CommandError> {
    let value = long_double::parse_or_error(value)?;
    Ok(value.add(&long_double::parse_or_error(increment)?)?.text())
}
