//! APPEND key value: longer by this much; the new length.

use super::string_bytes_max;
use crate::command::{Call, CommandError, Flags, Keys, Spec};
use duramen_structures::{string_until, strings};

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("append", append)
};

fn append(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key, more) = (call.session.db, call.args.at(1), call.args.at(2));
    let (new, expires_at) = match call.txn.get_string(db, key)? {
        Some(old) => {
            let bytes_max = string_bytes_max(call.server, (old.len() + more.len()) as u64);
            (strings::append(&old, more, bytes_max)?, old.expires_at())
        }
        None => (more.to_vec(), None),
    };
    call.reply.count(new.len());
    call.txn.put_vec(db, key, new, string_until(expires_at))?;
    Ok(())
}
