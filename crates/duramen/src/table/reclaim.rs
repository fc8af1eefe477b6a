//! Dead tables: cleared or dropped ones, and those that a swap left without a name. Killing a table takes one small
//! write. Its records are subtracted from the live bytes of their blocks afterwards, a part at a time, and then its
//! index is dropped.
//!
//! ```text
//! named ──(its name points elsewhere, durably)──▶ dead ──(earlier users have left)──▶ its slots are marked ──▶
//!  reclaimed
//! ```
//!
//! 1. *Dead*: no name points to the owner, durably (except with `manual`, where blocks are freed only once that is
//!    durable). Its records are dead, and none of them needs a tombstone: owner numbers are never reused, so no crash
//!    brings them back.
//! 2. A thread that looked the table up before it died has left once the grace period that begins then is past. So no
//!    thread adds slots any more. The group that superseded a root has also ended: until then a crash may undo that. An
//!    index checkpoint begins only when all dead tables are reclaimed, so an owner that it lacks is dead permanently
//!    ([`crate::checkpoint::plan`]).
//! 3. Each slot is *marked* as that of a tombstone that hides nothing, and its record is subtracted from its block's
//!    live bytes. The compactor later finds the record, treats it as such a tombstone and removes the slot. A root
//!    takes the collection that it names with it: that dies then, and is reclaimed after this table. Before that a
//!    collection forgets the order of its elements: the tree points to all records that are no tombstones, and some are
//!    marked from here on.
//! 4. *Reclaimed*: all slots are marked, and the index is dropped. A record of an owner without a table is dead.
//!
//! Only the thread that has the compactor marks slots or moves records, so between two parts a block may be moved out
//! of and freed. That is why slots are marked one by one: the slot of a record in a block that was freed since is gone.
//!
//! A crash at any point: recovery finds records of an owner without a name (`recovery`), and reclaims it.

use crate::compact::compactor::{Compactor, Copier};
use crate::maintenance::Maintenance;
use crate::table::retired::{Left, RetiredTable, Until};
use duramen_log::sync::reclaim::{self, GracePeriod};
use duramen_log::sync::time::Instant;
use duramen_media::Medium;
use std::time::Duration;

/// How long one part takes, about, unless the caller asks for all.
const PART: Duration = Duration::from_millis(1);
/// Between two checks whether all users of a dead table have left.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_micros(200);
/// Buckets or leaves between two looks at the clock.
const BUCKETS: usize = 16;

impl<M: Medium> Maintenance<M> {
    /// Continues to reclaim dead tables.
    pub(crate) fn reclaim_tables(&self, compactor: &mut Compactor, until: Until) -> Left {
        let begun = Instant::now();
        let is_part = until == Until::Part;
        let mut at = 0;
        loop {
            // Again after each one: a table that is reclaimed takes collections with it.
            let fresh = self.records.tables.take_retired();
            compactor.retired_tables.extend(fresh.into_iter().map(|table| RetiredTable {
                table,
                grace: None,
                has_left: false,
                cursor: 0,
            }));
            if at == compactor.retired_tables.len() || (is_part && begun.elapsed() >= PART) {
                break;
            }
            let mut retired = compactor.retired_tables.swap_remove(at);
            if until == Until::Closed {
                // No thread has the store any more.
                retired.has_left = true;
            }
            if self.reclaim_part(&compactor.copier, &mut retired, &|| is_part && begun.elapsed() >= PART) {
                self.records.tables.remove_reclaimed(retired.table.owner);
                // Its keys no longer need any damaged record.
                self.records.mended();
                compactor.shrink_at.remove(&retired.table.owner);
            } else {
                compactor.retired_tables.insert(at, retired);
                at += 1;
            }
        }
        let is_waiting = |retired: &RetiredTable| retired.grace.is_some() && !retired.has_left;
        match &compactor.retired_tables[..] {
            [] => Left::Nothing,
            retired if retired.iter().all(is_waiting) => Left::Waiting,
            _ => Left::More,
        }
    }

    /// Reclaims all dead tables, and waits for threads that may still use them, but no longer than `patience`. Returns
    /// whether none is left.
    pub(crate) fn reclaim_all_tables(&self, compactor: &mut Compactor, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            match self.reclaim_tables(compactor, Until::Now) {
                Left::Nothing => return true,
                // A thread that is pinned itself would wait for itself.
                _ if begun.elapsed() >= patience || reclaim::is_pinned() => return false,
                Left::Waiting => duramen_log::sync::thread::sleep(BETWEEN_LOOKS),
                Left::More => {}
            }
        }
    }

    /// Marks slots until `stops`; returns whether all are marked.
    fn reclaim_part(&self, copier: &Copier, retired: &mut RetiredTable, stops: &dyn Fn() -> bool) -> bool {
        let RetiredTable { table, grace, has_left, cursor } = retired;
        if grace.is_none() {
            let groups = self.log().epochs().groups();
            *grace = GracePeriod::now(groups);
        }
        *has_left |= grace.as_mut().is_some_and(GracePeriod::has_elapsed);
        if !*has_left {
            return false;
        }
        table.index.read_pages(stops);
        if table.index.pages_left() > 0 {
            return false;
        }
        if !table.index.forget_order(stops) {
            return false;
        }
        let mut slots = Vec::new();
        loop {
            let guard = reclaim::pin();
            for _ in 0..BUCKETS {
                *cursor = table.index.scan(*cursor, &guard, &mut |slot| slots.push(slot));
                if *cursor == 0 {
                    break;
                }
            }
            for slot in &slots {
                self.records.log.fetch_key(slot.location());
            }
            for slot in slots.drain(..).filter(|slot| !slot.covers_no_older_records()) {
                let at = slot.location();
                // A damaged record lies in a block that is not moved out of.
                let Some(record) = self.records.whole_record(at) else { continue };
                let locked = table.index.lock(self.records.hasher.hash(record.key()), &guard);
                let Some(place) = locked.find(record.key(), |slot| slot.location() == at) else { continue };
                if !place.get().covers_no_older_records() {
                    if !place.get().is_tombstone()
                        && let Some(names) = record.root_ref()
                    {
                        // The collection that it names dies with it, and is reclaimed after it.
                        self.records.tables.release_root(names);
                    }
                    place.set(place.get().of_dead_table());
                    self.log().uncount(at, record.head.record_bytes(), &copier.activity);
                }
            }
            if *cursor == 0 {
                return true;
            }
            if stops() {
                return false;
            }
        }
    }
}
