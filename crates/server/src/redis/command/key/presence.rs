//! Existence and types of keys: DEL, UNLINK, EXISTS, TOUCH, TYPE.

use super::type_name;
use crate::observe::keyspace_events::GENERIC;
use crate::redis::command::{Call, CommandError};

/// DEL key [key …] and UNLINK key [key …]: delete keys; reply with the number of those that existed. Space is freed in
/// the background.
pub fn delete(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut count = 0;
    call.each_key(call.args.from(1), |call, key| {
        if call.txn.delete(call.session.db, key)? {
            count += 1;
            call.notify(GENERIC, "del", key);
        }
        Ok(())
    })?;
    if call.entry.spec.name == "unlink" {
        call.stats.lazyfreed.add(count as u64);
    }
    call.reply.integer(count);
    Ok(())
}

/// EXISTS key [key …] and TOUCH key [key …]: the number of existing keys; a key named twice counts twice. There is no
/// time of last access for TOUCH to renew.
pub fn exists(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut count = 0;
    call.each_key(call.args.from(1), |call, key| {
        count += i64::from(call.stats.read_key(call.txn.exists(call.session.db, key)?));
        Ok(())
    })?;
    call.reply.integer(count);
    Ok(())
}

/// TYPE key: the name of a key's type, `none` without one.
pub fn type_(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let found = call.stats.read(call.txn.look(call.session.db, call.args.at(1))?);
    call.reply.simple(found.map_or("none", |found| type_name(found.tag)));
    Ok(())
}
