//! When keys expire, as far as somebody wants to know it in time: who follows events of class `x`, and who waits for a key that may go.
//!
//! The store sweeps what has expired too, a second or so later, and tells of the keys that it sweeps
//! ([`expirations`](crate::expiry_listener)). Here are the keys that were written, or waited for, since somebody wants
//! to know; a worker looks at each at its time, under the key's lock, so the event has its place among those of the
//! key's writes.
//!
//! **Invariant**: of a key of a database there is at most one time. It is noted by who has the key's lock, and is only a hint: who looks at
//! the key at this time finds out what became of it.

use crate::clients::unix_millis;
use crate::waiting::{lock, place};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Keys of one turn: others have theirs.
const TAKEN_MAX: usize = 1000;
const NEVER: u64 = u64::MAX;

/// See the module. One for all workers.
pub struct ExpiryTimers {
    times: Mutex<Times>,
    // The first of them.
    next: AtomicU64,
}

#[derive(Default)]
struct Times {
    of: HashMap<Arc<[u8]>, u64>,
    due: BTreeSet<(u64, Arc<[u8]>)>,
}

impl Times {
    fn remove(&mut self, place: &[u8]) {
        if let Some((place, at)) = self.of.remove_entry(place) {
            self.due.remove(&(at, place));
        }
    }
}

impl Default for ExpiryTimers {
    fn default() -> Self {
        Self { times: Mutex::default(), next: AtomicU64::new(NEVER) }
    }
}

impl ExpiryTimers {
    /// Whether the time of any key is noted.
    #[inline]
    pub fn is_any(&self) -> bool {
        // Relaxed: a key's time is noted, and changed, under its lock.
        self.next.load(Ordering::Relaxed) != NEVER
    }

    /// Whether a key may have expired by now; the clock is looked at if there is any.
    pub fn is_due_by_now(&self) -> bool {
        self.is_any() && self.next.load(Ordering::Relaxed) <= unix_millis()
    }

    /// When a key expires, whose lock the caller has; `None`: never, or it is not there.
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
        if let Some(at) = at {
            times.of.insert(Arc::clone(&place), at);
            times.due.insert((at, place));
        }
        self.look_at_first(&times);
    }

    /// Keys whose time has come by `now`, with their databases: some of them, and no longer noted.
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
    fn a_key_has_one_time_and_those_that_have_come_are_taken_in_their_order() {
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
}
