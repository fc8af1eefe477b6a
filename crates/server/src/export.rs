//! Writes a store as an RDB file for redis-server 7.0 and later; with hashes whose fields expire, for 7.4 and later.

use crate::clients::unix_millis;
use duramen::Store;
use duramen_structures::dump::file::Writer;
use duramen_structures::{DATABASES_MAX, Keyspace, Txn};
use std::fmt;
use std::io::Write;

// Keys that are looked up together.
const SCAN_KEYS: usize = 1024;

/// Why an import or an export ended early.
#[derive(Debug)]
pub struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Writes all databases of `store` to `out`; nothing changes the store meanwhile. Returns the output, not flushed, and
/// the number of keys. Calls `told` with the number of keys since the last call.
///
/// # Errors
/// When a value cannot be read, or the output fails.
pub fn store<W: Write>(store: Store, out: W, told: &mut dyn FnMut(u64)) -> Result<(W, u64), Failure> {
    let keyspace = Keyspace::open(store, DATABASES_MAX).map_err(Failure::new)?;
    let mut worker = keyspace.worker().map_err(Failure::new)?;
    let now = unix_millis();
    databases(&mut worker.begin(now), now, out, told)
}

/// Writes all databases as a transaction sees them, which has locked everything or is alone; otherwise like [`store`].
///
/// # Errors
/// As [`store`].
pub fn databases<W: Write>(
    txn: &mut Txn<'_>,
    now: u64,
    out: W,
    told: &mut dyn FnMut(u64),
) -> Result<(W, u64), Failure> {
    let mut is_timed = false;
    for db in 0..txn.databases() {
        is_timed = is_timed || txn.has_timed_hashes(db).map_err(Failure::new)?;
    }
    let mut writer = Writer::new(out, now / 1000, is_timed).map_err(Failure::new)?;
    let libraries = txn.libraries().map_err(Failure::new)?.unwrap_or_default();
    writer.libraries(&libraries).map_err(Failure::new)?;
    let mut keys = 0;
    for db in 0..txn.databases() {
        let count = txn.count(db).map_err(Failure::new)?;
        if count.keys > 0 {
            writer.database(db.into(), count.keys, count.expires).map_err(Failure::new)?;
            keys += database(txn, db, &mut writer, told)?;
        }
    }
    Ok((writer.finish().map_err(Failure::new)?, keys))
}

fn database(
    txn: &mut Txn<'_>,
    db: u8,
    writer: &mut Writer<impl Write>,
    told: &mut dyn FnMut(u64),
) -> Result<u64, Failure> {
    let (mut cursor, mut all) = (0, 0);
    loop {
        let mut keys = Vec::with_capacity(SCAN_KEYS);
        cursor = txn.scan(db, cursor, SCAN_KEYS, |key, _| keys.push(key.to_vec())).map_err(Failure::new)?;
        let before = all;
        for key in &keys {
            let named = |why: &dyn std::fmt::Display| {
                Failure(format!("cannot export key '{}' of database {db}: {why}", key.escape_ascii()))
            };
            let dumped = txn.dumped(db, key).map_err(|error| named(&error))?;
            if let Some((value, expires_at)) = dumped {
                writer.key(key, expires_at, &value).map_err(|error| named(&error))?;
                all += 1;
            }
        }
        txn.forget_reads();
        told(all - before);
        if cursor == 0 {
            return Ok(all);
        }
    }
}
