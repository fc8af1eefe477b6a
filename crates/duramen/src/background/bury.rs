//! Dead tables: cleared or dropped ones, and those that a swap left without a name. To die takes a table one small write; what it had
//! is taken off the live bytes of its blocks afterwards, a part at a time, and then its index goes.
//!
//! ```text
//!  named ──(its name leads elsewhere, durably)──▶ dead ──(who came before has left)──▶ its slots are marked ──▶ buried
//! ```
//!
//! 1. *Dead*: nothing names the owner, and that is durable (but with `manual`, where blocks are freed only when it is). Its records
//!    are dead, and none of them needs a tombstone: numbers of owners are not used twice, so no crash brings them back.
//! 2. Whoever looked the table up before it died has left when the moment is past that is noted then. So nobody adds slots any more. And
//!    the group has ended in which a root was superseded: until then a crash may take that away. An image is begun only when all that is
//!    dead is buried, so what it does not have is dead for good ([`crate::recovery::image`]).
//! 3. Each slot is *marked* as one of a tombstone that hides nothing, and its record is taken off its block's live bytes. The compactor
//!    that meets the record afterwards takes it for what it is, and removes the slot.
//!    A root takes what it names with it: that dies then, and is buried after this one.
//!    Before that a collection forgets the order of its elements: the tree leads to all records that are no tombstones, and some are gone
//!    from here on.
//! 4. *Buried*: all slots are marked, and the index goes. A record of an owner without a table is dead.
//!
//! Only who has the mover marks slots or moves records, so between two parts a block may be moved out of and freed. That is why slots are marked
//! one by one: the slot of a record in a block that was freed since is gone.
//!
//! A crash at any point: recovery finds records of an owner that nothing names (`recovery`), and buries it.

use super::Keeper;
use super::compaction::Mover;
use super::dying::{Dying, Left, Until};
use crate::mutants::{Mutant, planted};
use crate::sync::reclaim::{self, Moment};
use crate::sync::time::Instant;
use duramen_media::Medium;
use std::time::Duration;

/// How long one part takes, about, unless all is asked for.
const PART: Duration = Duration::from_millis(1);
/// Between two looks for whether those have left who may use a dead table.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_micros(200);
/// Buckets or leaves between two looks at the clock.
const BUCKETS: usize = 16;

impl<M: Medium> Keeper<M> {
    /// Goes on with dead tables.
    pub(super) fn bury(&self, mover: &mut Mover, until: Until) -> Left {
        let begun = Instant::now();
        let is_part = until == Until::Part;
        let mut at = 0;
        loop {
            // Again after each one: a table that is buried takes collections with it.
            let fresh = self.records.tables.take_dying();
            mover.dying.extend(fresh.into_iter().map(|table| Dying {
                table,
                moment: None,
                has_left: false,
                cursor: 0,
            }));
            if at == mover.dying.len() || (is_part && begun.elapsed() >= PART) {
                break;
            }
            let mut dying = mover.dying.swap_remove(at);
            if until == Until::Closed {
                // Nobody has the store any more.
                dying.has_left = true;
            }
            if self.bury_part(mover, &mut dying, &|| is_part && begun.elapsed() >= PART) {
                self.records.tables.bury(dying.table.owner);
                // Its keys need what is damaged no more.
                self.records.mended();
                mover.shrink_at.remove(&dying.table.owner);
            } else {
                mover.dying.insert(at, dying);
                at += 1;
            }
        }
        let is_waiting = |dying: &Dying| dying.moment.is_some() && !dying.has_left;
        match &mover.dying[..] {
            [] => Left::Nothing,
            dying if dying.iter().all(is_waiting) => Left::Waiting,
            _ => Left::More,
        }
    }

    /// Buries all dead tables, and waits for those who may still use them, but no longer than `patience`; whether none is left.
    pub(super) fn bury_all(&self, mover: &mut Mover, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            match self.bury(mover, Until::Now) {
                Left::Nothing => return true,
                // A thread that is pinned itself would wait for itself.
                _ if begun.elapsed() >= patience || reclaim::is_pinned() => return false,
                Left::Waiting => crate::sync::thread::sleep(BETWEEN_LOOKS),
                Left::More => {}
            }
        }
    }

    /// Marks slots until `stops`; whether all are.
    fn bury_part(&self, mover: &Mover, dying: &mut Dying, stops: &dyn Fn() -> bool) -> bool {
        let Dying { table, moment, has_left, cursor } = dying;
        if moment.is_none() {
            let groups = self.log().epochs().groups();
            *moment = Moment::now(if planted(Mutant::BuriedBesideGroup) { Vec::new() } else { groups });
        }
        *has_left |=
            moment.as_mut().is_some_and(Moment::is_past) || planted(Mutant::BuriedBeforeWritersLeave);
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
            for slot in slots.drain(..).filter(|slot| !slot.hides_nothing()) {
                let at = slot.location();
                // One that is damaged lies in a block that is not moved out of.
                let Some(record) = self.records.whole_record(at) else { continue };
                let locked = table.index.lock(self.records.hasher.hash(record.key()), &guard);
                let Some(place) = locked.find(record.key(), |slot| slot.location() == at) else { continue };
                if !place.get().hides_nothing() {
                    if !place.get().is_tombstone()
                        && let Some(names) = record.met_name().filter(|_| !planted(Mutant::ClearedRootsKept))
                    {
                        // What it names dies with it, and is buried after it.
                        self.records.tables.unname(names);
                    }
                    place.set(place.get().of_dead_table());
                    if !planted(Mutant::DeadNotUncounted) {
                        self.log().uncount(at, record.head.record_bytes(), &mover.activity);
                    }
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
