//! Names or keys whose cache misses overlap: some are taken together, fetched, and then used one after the other.

use std::ops::Deref;

/// The maximum: more than a core has misses in flight, few enough that the first fetched lines are still in the nearest
/// cache when they are used.
pub const AHEAD_MAX: usize = 16;

/// Up to [`AHEAD_MAX`] items.
pub struct Ahead<T> {
    items: [T; AHEAD_MAX],
    count: usize,
}

impl<T: Copy> Ahead<T> {
    /// The next of these, if there is one.
    pub fn next_of(items: &mut impl Iterator<Item = T>) -> Option<Self> {
        let mut ahead = Self { items: [items.next()?; AHEAD_MAX], count: 1 };
        // In this order: where no place is left no item is taken.
        for (place, item) in ahead.items[1..].iter_mut().zip(items) {
            *place = item;
            ahead.count += 1;
        }
        Some(ahead)
    }
}

impl<T> Deref for Ahead<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_come_once_and_in_order() {
        for count in [0, 1, AHEAD_MAX, AHEAD_MAX + 1, 3 * AHEAD_MAX] {
            let (mut items, mut seen) = (0..count, Vec::new());
            while let Some(some) = Ahead::next_of(&mut items) {
                assert!(some.len() == AHEAD_MAX || some.len() == count % AHEAD_MAX);
                seen.extend_from_slice(&some);
            }
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }
}
