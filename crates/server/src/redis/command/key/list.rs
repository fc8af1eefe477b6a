//! Which keys there are: KEYS, SCAN, RANDOMKEY.

use super::type_name;
use crate::redis::command::scan::{self, Gathered, Options};
use crate::redis::command::{Call, CommandError};
use duramen_structures::glob;

/// KEYS pattern: all matching keys. Reads every key of every database or, with an ordered index, those of its own
/// database with the pattern's prefix. Concurrent writes may or may not be seen.
pub fn keys(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, pattern) = (call.session.db, call.args.at(1));
    let mut keys = Gathered::default();
    call.txn.scan_prefix(db, glob::literal_prefix(pattern), |key, _| {
        if glob::matches(pattern, key) {
            keys.push(key);
        }
    })?;
    keys.reply(&mut call.reply);
    Ok(())
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]: keys, a few at a time. A key that is there from
/// the first call to the last is returned at least once.
pub fn scan(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let db = call.session.db;
    let mut cursor = scan::cursor(call.args.at(1))?;
    let options = Options::parse(call.args, 2, true)?;
    let mut keys = Gathered::default();
    // COUNT limits the work, not the number of keys. But a client should not have to ask again and again because the
    // index is sparse or other databases are larger than its own.
    for _ in 0..ROUNDS_MAX {
        cursor = call.txn.scan(db, cursor, options.count, |key, tag| {
            if options.wants(key)
                && options.type_name.is_none_or(|name| name.eq_ignore_ascii_case(type_name(tag).as_bytes()))
            {
                keys.push(key);
            }
        })?;
        if cursor == 0 || keys.len() >= options.count {
            break;
        }
    }
    keys.reply_part(&mut call.reply, cursor);
    Ok(())
}

/// RANDOMKEY: some key.
pub fn randomkey(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.txn.random_key(call.session.db)? {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
    Ok(())
}

// Redis too looks at up to ten times COUNT places.
const ROUNDS_MAX: usize = 10;
