//! Expiry times of the keys that need a timely event: for subscribers to events of class `x`, and for blocked clients
//! whose key may expire.
//!
//! The store also sweeps expired keys, about a second later, and reports the keys that it sweeps
//! (`expiry_listener`). This module holds the keys that were written or waited for since a client
//! needs their events. A worker looks at each key at its time, under the key's lock, so the event has its place among
//! those of the key's writes.
//!
//! The times of fields are held in the same way, those of keys apart, up to a number of bytes: the store reports the
//! others about a second late.
//!
//! **Invariant**: there is at most one time for a key of a database. The holder of the key's lock records it. It is
//! only a hint: the worker that looks at the key at this time finds its actual state.

use crate::clients::unix_millis;
use crate::redis::blocking::{lock, place};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Keys per turn; other turns handle the rest.
const TAKEN_MAX: usize = 1000;
/// Bytes of a name besides its own, in both orders.
const NAME_BYTES: usize = 100;
const NEVER: u64 = u64::MAX;

/// See the module. All workers share it.
pub struct ExpiryTimers {
    times: Mutex<Times>,
    // The earliest of them.
    next: AtomicU64,
    // More names than these bytes are not recorded.
    bytes_max: usize,
}

#[derive(Default)]
struct Times {
    of: HashMap<Arc<[u8]>, u64>,
    due: BTreeSet<(u64, Arc<[u8]>)>,
    bytes: usize,
}

impl Times {
    fn remove(&mut self, place: &[u8]) {
        if let Some((place, at)) = self.of.remove_entry(place) {
            self.bytes -= place.len() + NAME_BYTES;
            self.due.remove(&(at, place));
        }
    }
}

impl Default for ExpiryTimers {
    fn default() -> Self {
        Self { times: Mutex::default(), next: AtomicU64::new(NEVER), bytes_max: usize::MAX }
    }
}

/// Due fields of keys, with their databases.
pub type DueFields = BTreeMap<(u8, Vec<u8>), Vec<Vec<u8>>>;

impl ExpiryTimers {
    /// Those of fields.
    pub fn of_fields() -> Self {
        Self { bytes_max: 4 << 20, ..Self::default() }
    }

    /// Records when a field ends, if there is room.
    pub fn note_field(&self, db: u8, key: &[u8], field: &[u8], at: u64) {
        let key_bytes = (key.len() as u32).to_le_bytes();
        self.note(db, &[&key_bytes, key, field].concat(), Some(at));
    }

    /// Removes and returns some of the fields whose time is at most `now`.
    pub fn take_due_fields(&self, now: u64) -> DueFields {
        let mut taken = DueFields::new();
        for (db, name) in self.take_due(now) {
            if let Some((key_bytes, rest)) = name.split_first_chunk()
                && let Some((key, field)) = rest.split_at_checked(u32::from_le_bytes(*key_bytes) as usize)
            {
                taken.entry((db, key.to_vec())).or_default().push(field.to_vec());
            }
        }
        taken
    }

    /// Whether any key's time is recorded.
    #[inline]
    pub fn is_any(&self) -> bool {
        // Relaxed: a key's time is recorded and changed under its lock.
        self.next.load(Ordering::Relaxed) != NEVER
    }

    /// Whether a key may have expired by now; reads the clock only if a time is recorded.
    pub fn is_due_by_now(&self) -> bool {
        self.is_any() && self.next.load(Ordering::Relaxed) <= unix_millis()
    }

    /// Records when a key expires; the caller holds the key's lock. `None`: never, or the key is absent.
    pub fn note(&self, db: u8, key: &[u8], at: Option<u64>) {
        if at.is_none() && !self.is_any() {
            return;
        }
        let place: Arc<[u8]> = place(db, key).into();
        let mut times = lock(&self.times);
        if times.of.get(&place).copied() == at {
            return;
        }
        times.remove(&place);
        let bytes = place.len() + NAME_BYTES;
        if let Some(at) = at.filter(|_| times.bytes + bytes <= self.bytes_max) {
            times.bytes += bytes;
            times.of.insert(Arc::clone(&place), at);
            times.due.insert((at, place));
        }
        self.look_at_first(&times);
    }

    /// Removes and returns some of the keys whose time is at most `now`, with their databases.
    pub fn take_due(&self, now: u64) -> Vec<(u8, Vec<u8>)> {
        let mut taken = Vec::new();
        if self.next.load(Ordering::Relaxed) > now {
            return taken;
        }
        let mut times = lock(&self.times);
        while taken.len() < TAKEN_MAX
            && let Some((at, place)) = times.due.pop_first()
        {
            if at > now {
                times.due.insert((at, place));
                break;
            }
            times.of.remove(&place);
            times.bytes -= place.len() + NAME_BYTES;
            taken.extend(place.split_first().map(|(db, key)| (*db, key.to_vec())));
        }
        self.look_at_first(&times);
        taken
    }

    fn look_at_first(&self, times: &Times) {
        self.next.store(times.due.first().map_or(NEVER, |(at, _)| *at), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_timer_and_due_timers_are_taken_in_order() {
        let expiry_timers = ExpiryTimers::default();
        assert!(!expiry_timers.is_any() && expiry_timers.take_due(NEVER - 1).is_empty());
        for at in (10..20).rev() {
            expiry_timers.note(0, b"k", Some(at));
        }
        expiry_timers.note(1, b"k", Some(12));
        expiry_timers.note(0, b"l", Some(11));
        assert_eq!(lock(&expiry_timers.times).due.len(), 3);
        assert!(expiry_timers.take_due(9).is_empty() && expiry_timers.is_due_by_now());
        assert_eq!(expiry_timers.take_due(11), [(0, b"k".to_vec()), (0, b"l".to_vec())]);
        expiry_timers.note(1, b"k", None);
        expiry_timers.note(1, b"k", None);
        assert!(!expiry_timers.is_any() && lock(&expiry_timers.times).of.is_empty());
        for at in 0..3 * TAKEN_MAX {
            expiry_timers.note(0, &at.to_le_bytes(), Some(5));
        }
        assert_eq!(
            (expiry_timers.take_due(5).len(), expiry_timers.take_due(5).len()),
            (TAKEN_MAX, TAKEN_MAX)
        );
        assert!(expiry_timers.is_any());
    }

    #[test]
    fn fields_are_grouped_by_key_and_take_bounded_memory() {
        let timers = ExpiryTimers::of_fields();
        for (key, field, at) in [(&b"k"[..], &b"f"[..], 7), (b"", b"kf", 8), (b"k", b"g", 7), (b"k", b"f", 9)]
        {
            timers.note_field(3, key, field, at);
        }
        let fields = |fields: &[&[u8]]| fields.iter().map(|field| field.to_vec()).collect::<Vec<_>>();
        assert_eq!(timers.take_due_fields(7), DueFields::from([((3, b"k".to_vec()), fields(&[b"g"]))]));
        let both = [((3, vec![]), fields(&[b"kf"])), ((3, b"k".to_vec()), fields(&[b"f"]))];
        assert_eq!(timers.take_due_fields(9), DueFields::from(both));
        for at in 0..100 {
            timers.note_field(0, b"k", &vec![at; 60_000], 5);
        }
        let of = lock(&timers.times).of.len();
        assert!((60..70).contains(&of), "{of}");
        timers.take_due(5);
        assert_eq!(lock(&timers.times).bytes, 0);
    }
}
