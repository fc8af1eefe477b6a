//! Deletes that are too many for one transaction.

use duramen::ErrorKind;

use crate::error::{Error, Result};
use crate::txn::whole;
use crate::worker::Worker;

// Entries looked at per call of the engine's scan when all keys are wanted.
const SCAN_ENTRIES: usize = 1024;
// 65,536 deletes are about 4 MB of batch: small enough to hold, large enough for every test database.
const FLUSH_KEYS_ATOMIC: u64 = 1 << 16;

impl Worker {
    /// Deletes every key of `db`, for FLUSHDB and FLUSHALL outside of MULTI (inside, see
    /// [`Txn::flush`]). All or nothing up to 65,536 keys; a larger database is emptied in steps, so
    /// that memory stays bounded: others see it shrink, and a crash leaves the rest. Damaged keys go too, as far as their
    /// records still say whose they are ([`duramen::StoreOn::claimed_keys`]).
    pub fn flush(&mut self, db: u8, now: u64) -> Result<()> {
        if self.keyspace.count(db, now).keys <= FLUSH_KEYS_ATOMIC {
            let flushed = self.retry(|worker| {
                let mut txn = worker.begin(now);
                txn.flush(db)?;
                txn.commit()
            });
            match flushed {
                // Very long keys, more than one batch takes; or no room for a batch, while there is for one delete at a time.
                Err(Error::Engine(error))
                    if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::OutOfSpace) => {}
                flushed => return flushed,
            }
        }
        self.settle_for_scan()?;
        let store = self.keyspace.store().clone();
        self.delete_each(db, self.keyspace.claimed_keys(db).iter().map(|key| &key[..]), now)?;
        let mut cursor = 0;
        let mut keys = Vec::new();
        loop {
            keys.clear();
            cursor = whole(store.scan(cursor, SCAN_ENTRIES, &mut |value| {
                if let Some((&first, key)) = value.key().split_first()
                    && first == db
                {
                    keys.push(key.to_vec());
                }
            }))?;
            self.delete_each(db, keys.iter().map(|key| &key[..]), now)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Deletes keys one after the other, for who meets a store that has no room to delete all of them at once; how many were
    /// there. Others see them go, and a crash or an error leaves the rest.
    pub fn delete_each<'k>(&mut self, db: u8, keys: impl Iterator<Item = &'k [u8]>, now: u64) -> Result<u64> {
        let mut deleted = 0;
        for key in keys {
            let mut found = false;
            self.retry(|worker| {
                let mut txn = worker.begin(now);
                found = txn.delete(db, key)?;
                txn.commit()
            })?;
            deleted += u64::from(found);
        }
        Ok(deleted)
    }
}
