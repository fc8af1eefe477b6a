//! Removing keys permanently whose values have expired. No record states this, since the expiry time does.

use crate::Result;
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::writer::WriterState;
use duramen_log::durability::Activity;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};

/// A key whose value has expired, and the place of its record.
pub(crate) struct Expiring<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    pub place: Offset,
    pub record_bytes: u64,
    pub expires_at: Option<u64>,
}

impl<M: Medium> Records<M> {
    /// Makes the key permanently absent, unless its slot points elsewhere now; returns whether this call did it. `then`
    /// runs if it did, under the key's lock.
    pub(crate) fn expire_key(
        &self,
        table: &Table,
        Expiring { key, hash, place, record_bytes, expires_at }: Expiring<'_>,
        activity: &Activity,
        guard: &Guard,
        then: impl FnOnce(),
    ) -> bool {
        let locked = table.index.lock(hash, guard);
        let found = locked.find(key, |slot| slot.location() == place);
        let Some(found) = found.filter(|found| !found.get().is_tombstone()) else { return false };
        if found.get().is_pending() {
            // Its transaction may abort, and then depends on the slot's content. Try again another time.
            self.log.blocks.of(place.0).expiry_add(expires_at.unwrap_or(u64::MAX));
            return false;
        }
        let names = self.whole_record(place).and_then(|record| record.root_ref());
        found.set(found.get().with_tombstone(true));
        if let Some(names) = names {
            self.tables.release_root(names);
        }
        table.count_keys(activity.shard, -1);
        self.expired.fetch_add(1, Relaxed);
        if found.get().covers_no_older_records() {
            self.log.uncount(place, record_bytes, activity);
        }
        then();
        true
    }
}

impl WriterState {
    /// Makes the key permanently absent if its value has expired; returns whether this call did it.
    pub(crate) fn expire<M: Medium>(
        &self,
        records: &Records<M>,
        target: Target<'_>,
        key: &[u8],
    ) -> Result<bool> {
        let guard = reclaim::pin();
        let table = records.tables.at(target, &guard)?;
        let hash = records.hasher.hash(key);
        let look = |slot| Some((slot, records.record_of(slot, key)?));
        let Some((_, (slot, record))) = table.index.find_with(hash, key, &guard, look) else {
            return Ok(false);
        };
        let expires_at = record.ends_at();
        if slot.is_tombstone() || !records.is_expired(expires_at) {
            return Ok(false);
        }
        self.check_named(records, target, hash)?;
        let (place, record_bytes) = (record.at, record.head.record_bytes());
        let expiring = Expiring { key, hash, place, record_bytes, expires_at };
        Ok(records.expire_key(table, expiring, &self.activity, &guard, || ()))
    }
}
