//! Walking over all entries, and picking one.

use crate::get::barrier::ReadBarrier;
use crate::get::value::{Cursor, Value};
use crate::get::visibility::Visibility;
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::{Error, ErrorKind, Result};
use duramen_index::Slot;
use duramen_index::words::Words;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::Medium;

/// Buckets that a scan may visit, however few entries are requested: those of the smallest index, which takes some
/// microseconds.
const SCAN_BUCKETS_MIN: usize = 512;
/// Maximum of places of the index that [`StoreOn::pick`](crate::StoreOn::pick) draws: in the smallest index, enough to
/// find one of ten keys ...
const DRAWS_MAX: u32 = 4096;
/// ... and entries that are not wanted ...
const UNWANTED_MAX: u32 = 64;
/// ... and buckets or leaves to walk over where nothing was found.
const WALKED_MAX: u32 = 1 << 16;
/// Records that a scan fetches together.
const SCAN_AHEAD: usize = 32;

/// A walk through a table, some buckets at a time.
struct Walk<'w> {
    target: Target<'w>,
    read_barrier: Option<&'w ReadBarrier>,
    /// Entries that are processed together.
    count: usize,
    /// Buffer for their slots.
    slots: Vec<Slot>,
}

impl<'w> Walk<'w> {
    fn new(target: Target<'w>, read_barrier: Option<&'w ReadBarrier>, count: usize) -> Self {
        Self { target, read_barrier, count, slots: Vec::new() }
    }
}

impl<M: Medium> Records<M> {
    /// The value of a slot found by a walk, if it may be shown; `read_barrier` as in `look_up`. The guard is from
    /// before the slot was read.
    #[inline]
    pub(crate) fn show(
        &self,
        table: &Table,
        slot: Slot,
        guard: &Guard,
        read_barrier: Option<&ReadBarrier>,
    ) -> Result<Option<Value<'_>>> {
        let Some(record) = self.whole_record(slot.location()) else {
            // The slot alone shows that the key is absent.
            return if slot.is_tombstone() { Ok(None) } else { Err(self.corrupt(slot.location())) };
        };
        match self.check_visible(slot, &record, read_barrier) {
            Visibility::Shown => Ok(Some(Value::new(guard, record, None))),
            Visibility::Copied => {
                let hash = self.hasher.hash(record.key());
                let copy = record.cell().map(|cell| self.copy_cell(hash, cell));
                self.flush_shown(hash, record.cell(), read_barrier);
                Ok(Some(Value::new(guard, record, copy)))
            }
            Visibility::Absent => Ok(None),
            // A record that cannot be shown yet takes the ordinary path, even if absent: that too is an answer.
            Visibility::OfTransaction | Visibility::Undrained | Visibility::Uncommitted(_) => {
                let key = record.key();
                Ok(self.look_up(table, key, self.hasher.hash(key), guard, read_barrier)?.value())
            }
        }
    }

    /// See [`StoreOn::pick`](crate::StoreOn::pick); `read_barrier` as in `look_up`.
    pub(crate) fn pick(
        &self,
        target: Target<'_>,
        read_barrier: Option<&ReadBarrier>,
        seed: u64,
        wanted: &mut dyn FnMut(&Value<'_>) -> bool,
    ) -> Result<Option<Value<'_>>> {
        let mut words = Words::of(seed);
        let mut random = || words.draw();
        let mut unwanted = 0;
        for _ in 0..DRAWS_MAX {
            let drawn = [random(), random()];
            let shown = {
                let guard = reclaim::pin();
                let table = self.tables.at(target, &guard)?;
                let slot = table.index.draw(drawn, &guard);
                let Some(slot) = slot.filter(|slot| slot.is_pending() || !slot.is_tombstone()) else {
                    continue;
                };
                self.show(table, slot, &guard, read_barrier)
            };
            match shown {
                Ok(Some(value)) if wanted(&value) => return Ok(Some(value)),
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                // A damaged record is never picked.
                _ => {}
            }
            unwanted += 1;
            if unwanted == UNWANTED_MAX {
                break;
            }
        }
        // A few unwanted ones, such as expired ones, do not prove that the others are unwanted too.
        if unwanted == UNWANTED_MAX {
            return Ok(None);
        }
        self.pick_by_walk(target, read_barrier, &mut random, wanted)
    }

    /// As [`Records::pick`], where nearly all places of the index are empty: by a walk over as many of them as take
    /// some milliseconds.
    #[cold]
    fn pick_by_walk(
        &self,
        target: Target<'_>,
        read_barrier: Option<&ReadBarrier>,
        random: &mut dyn FnMut() -> u64,
        wanted: &mut dyn FnMut(&Value<'_>) -> bool,
    ) -> Result<Option<Value<'_>>> {
        let (mut cursor, mut left, mut seen) = (0, WALKED_MAX, 0);
        let (mut walk, mut chosen) = (Walk::new(target, read_barrier, SCAN_AHEAD), None);
        while left > 0 {
            let visit = &mut |value: &Value<'_>| {
                if wanted(value) {
                    seen += 1;
                    if random().is_multiple_of(seen) {
                        chosen = Some(value.key().to_vec());
                    }
                }
            };
            let ends = || {
                left -= 1;
                left == 0
            };
            (cursor, _) = self.scan_together(&mut walk, cursor, visit, ends)?;
            if cursor == 0 {
                break;
            }
        }
        chosen.map_or(Ok(None), |key| self.get(target, &key, read_barrier))
    }

    /// See [`StoreOn::scan`](crate::StoreOn::scan); `read_barrier` as in `look_up`.
    pub(crate) fn scan(
        &self,
        target: Target<'_>,
        read_barrier: Option<&ReadBarrier>,
        mut cursor: Cursor,
        count: usize,
        visit: &mut dyn FnMut(&Value<'_>),
    ) -> Result<Cursor> {
        let mut visited = 0;
        let mut walk = Walk::new(target, read_barrier, count.min(SCAN_AHEAD));
        // A scan of an almost empty index must end too: visit at most this many buckets.
        let mut buckets = count.saturating_mul(10).max(SCAN_BUCKETS_MIN);
        loop {
            let counted = &mut |value: &Value<'_>| {
                visit(value);
                visited += 1;
            };
            let ends = || {
                buckets -= 1;
                buckets == 0
            };
            let (next, damaged) = self.scan_together(&mut walk, cursor, counted, ends)?;
            cursor = next;
            if let Some(damaged) = damaged {
                return Err(damaged.with_cursor(cursor));
            }
            if cursor == 0 || visited >= count || buckets == 0 {
                return Ok(cursor);
            }
        }
    }

    /// Visits the live entries of some buckets from `cursor` on, with their records prefetched together so that the
    /// misses overlap. It ends when the walk's count is reached, the index ends, or `ends`, called after each bucket,
    /// returns true. Damaged records are skipped, and the first one is returned with the cursor.
    fn scan_together(
        &self,
        walk: &mut Walk<'_>,
        mut cursor: Cursor,
        visit: &mut dyn FnMut(&Value<'_>),
        mut ends: impl FnMut() -> bool,
    ) -> Result<(Cursor, Option<Error>)> {
        let guard = reclaim::pin();
        let Walk { target, read_barrier, count, slots } = walk;
        let table = self.tables.at(*target, &guard)?;
        slots.clear();
        loop {
            cursor = table.index.scan_once(cursor, self, &guard, &mut |slot| {
                self.log.medium.prefetch(slot.location());
                slots.push(slot);
            });
            if ends() || cursor == 0 || slots.len() >= *count {
                break;
            }
        }
        let mut damaged = None;
        let mut values = Vec::with_capacity(slots.len());
        for &slot in &*slots {
            match self.show(table, slot, &guard, *read_barrier) {
                Ok(value) => values.extend(value),
                Err(error) if error.kind() == ErrorKind::Corrupt => damaged = damaged.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        // The caller's work on the values may take any time.
        drop(guard);
        values.iter().for_each(visit);
        Ok((cursor, damaged))
    }
}
