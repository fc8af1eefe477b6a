//! KEYS pattern: all keys that fit. Reads every key of every database; what others write meanwhile
//! may or may not be seen.

use super::{KeyList, SCAN_ENTRIES};
use crate::command::{Call, CommandError, Flags, Spec};
use duramen_structures::glob;

pub const SPEC: Spec = Spec { arity: 2, flags: Flags::READONLY, ..Spec::new("keys", keys) };

fn keys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, pattern) = (call.session.db, call.args.at(1));
    let mut keys = KeyList::default();
    let mut cursor = 0;
    loop {
        cursor = call.txn.scan(db, cursor, SCAN_ENTRIES, |key, _| {
            if glob::matches(pattern, key) {
                keys.push(key);
            }
        })?;
        if cursor == 0 {
            break;
        }
    }
    keys.reply(&mut call.reply);
    Ok(())
}
