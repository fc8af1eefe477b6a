//! The order in which a thread takes the locks of a store: each has a rank, and a thread that holds one waits only for
//! higher ones. So threads cannot deadlock. `docs/internals/locks.md` states what each lock guards, and which waits
//! need no lock.
//!
//! A build with debug assertions checks it at each lock ([`Held`]); other builds contain none of it. A lock that is
//! tried without waiting need not come in order, but counts as held.
//!
//! Locks that a writer holds between calls are not covered: [`super::holding`] tracks those, since they belong to one
//! store.

/// The catalog is changed.
pub const CATALOG: u8 = 10;
/// An index checkpoint is written, or dropped.
pub const CHECKPOINTS: u8 = 20;
/// Blocks are moved, retired and freed.
pub const COMPACTOR: u8 = 30;
/// No command runs alone.
pub const ALONE: u8 = 50;
/// Segments of a hash index are merged, or written to a checkpoint.
pub const MERGING: u8 = 60;
/// The medium grows.
pub const GROWING: u8 = 64;
/// The reason is reported why the medium did not grow.
pub const NOT_GROWN: u8 = 66;
/// Stripes of keys, in the order of their numbers.
pub const STRIPE: u8 = 70;
/// Stripes of elements, in the order of their numbers.
pub const ELEMENTS: u8 = 80;
/// The directory of a hash index changes.
pub const DIRECTORY: u8 = 90;
/// A turn in the block that writers share.
pub const SHARED: u8 = 100;
/// An epoch is committed.
pub const COMMIT: u8 = 110;
/// Transactions of several blocks are finalized.
pub const FINALIZING: u8 = 120;
/// Places that roots leave are noted.
pub const LEFT: u8 = 130;
/// Collections whose pages are to be read.
pub const UNREAD: u8 = 140;
/// A table is looked up by its owner, or created.
pub const TABLES: u8 = 145;
/// A name points to another table.
pub const LABEL: u8 = 150;
/// The indexes of a collection.
pub const INDEXES: u8 = 160;
/// Memory of pages.
pub const PAGES: u8 = 170;
/// The superblock is changed.
pub const SUPERBLOCK: u8 = 180;
/// Extents are taken and given back.
pub const SPACE: u8 = 190;
/// Nothing is locked under it.
pub const LEAF: u8 = u8::MAX;

#[cfg(all(debug_assertions, not(loom)))]
mod checked {
    use super::{ELEMENTS, STRIPE};
    use std::cell::{Cell, RefCell};
    use std::panic::Location;
    use std::thread::panicking;

    thread_local! {
        static HELD: RefCell<Vec<Lock>> = const { RefCell::new(Vec::new()) };
        /// Epochs that this thread is in, of all stores.
        static EPOCHS: Cell<u32> = const { Cell::new(0) };
    }

    /// From now on this thread waits for no stripe: see `durability::epochs`, invariant 5.
    pub fn enter_epoch() {
        EPOCHS.set(EPOCHS.get() + 1);
    }

    /// See [`enter_epoch`].
    pub fn leave_epoch() {
        EPOCHS.set(EPOCHS.get() - 1);
    }

    /// Whether this thread is in an epoch.
    pub fn is_in_epoch() -> bool {
        EPOCHS.get() > 0
    }

    #[derive(Clone, Copy, Debug)]
    struct Lock {
        /// And the order among those of one rank.
        rank: (u8, usize),
        place: &'static Location<'static>,
    }

    /// A lock that this thread holds, or is about to wait for; `None`: not counted.
    #[derive(Debug)]
    pub struct Held(Option<(u8, usize)>);

    impl Held {
        pub const UNCOUNTED: Self = Self(None);

        /// Waits for a lock of this rank next; several of one rank must follow the order of `order`.
        #[track_caller]
        pub fn wait(rank: u8, order: usize) -> Self {
            assert!(
                EPOCHS.get() == 0 || !(rank == STRIPE || rank == ELEMENTS) || panicking(),
                "a writer in an epoch waits for a stripe (epochs, invariant 5)"
            );
            let highest =
                |held: &RefCell<Vec<Lock>>| held.borrow().iter().copied().max_by_key(|held| held.rank);
            if let Ok(Some(held)) = HELD.try_with(highest) {
                assert!(
                    held.rank < (rank, order) || panicking(),
                    "waiting for a lock of rank {rank} while holding one of rank {}, locked at {}: see sync/rank.rs for \
                     the order",
                    held.rank.0,
                    held.place
                );
            }
            Self::have(rank, order)
        }

        /// Holds it, without having waited.
        #[track_caller]
        pub fn have(rank: u8, order: usize) -> Self {
            let lock = Lock { rank: (rank, order), place: Location::caller() };
            let _ = HELD.try_with(|held| held.borrow_mut().push(lock));
            Self(Some(lock.rank))
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let Some(rank) = self.0 else { return };
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                held.iter().rposition(|held| held.rank == rank).map(|at| held.swap_remove(at));
            });
        }
    }
}

#[cfg(all(debug_assertions, not(loom)))]
pub use checked::{Held, enter_epoch, is_in_epoch, leave_epoch};

/// Nothing is tracked.
#[cfg(not(all(debug_assertions, not(loom))))]
#[derive(Debug)]
pub struct Held;

#[cfg(not(all(debug_assertions, not(loom))))]
impl Held {
    pub const UNCOUNTED: Self = Self;

    #[inline(always)]
    pub fn wait(_rank: u8, _order: usize) -> Self {
        Self
    }

    #[inline(always)]
    pub fn have(_rank: u8, _order: usize) -> Self {
        Self
    }
}

/// Nothing is tracked.
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn enter_epoch() {}

/// Nothing is tracked.
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn leave_epoch() {}

/// Nothing is tracked.
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn is_in_epoch() -> bool {
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn the_page_of_locks_has_each_rank_once_and_in_order() {
        let source = include_str!("rank.rs");
        let constants =
            source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": u8 = "));
        let ranks: Vec<u8> = constants
            .map(|(_, rank)| rank.trim_end_matches(';').replace("u8::MAX", "255").parse().unwrap())
            .collect();
        let page = include_str!("../../../../docs/internals/locks.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
        let written: Vec<u8> = rows.filter_map(|(rank, _)| rank.parse().ok()).collect();
        assert_eq!(
            written, ranks,
            "docs/internals/locks.md and the constants above must have the same ranks"
        );
        assert!(ranks.is_sorted_by(|a, b| a < b), "a rank is used once: {ranks:?}");
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "a writer in an epoch waits for a stripe")]
    fn a_stripe_that_is_locked_within_an_epoch_panics() {
        super::enter_epoch();
        let _stripe = super::Held::wait(super::STRIPE, 0);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "waiting for a lock of rank 70 while holding one of rank 190")]
    fn a_lock_out_of_order_panics() {
        let _space = super::Held::wait(super::SPACE, 0);
        let _stripe = super::Held::wait(super::STRIPE, 0);
    }
}
