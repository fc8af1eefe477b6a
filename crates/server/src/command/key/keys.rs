//! KEYS pattern: all keys that fit. Reads every key of every database or, with an ordered index, those of its own that begin
//! as the pattern does; what others write meanwhile may or may not be seen.

use super::KeyList;
use crate::command::{Call, CommandError, Flags, Spec};
use duramen_structures::glob;

pub const SPEC: Spec = Spec { arity: 2, flags: Flags::READONLY, ..Spec::new("keys", keys) };

fn keys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, pattern) = (call.session.db, call.args.at(1));
    let mut keys = KeyList::default();
    call.txn.scan_prefix(db, glob::literal_prefix(pattern), |key, _| {
        if glob::matches(pattern, key) {
            keys.push(key);
        }
    })?;
    keys.reply(&mut call.reply);
    Ok(())
}
