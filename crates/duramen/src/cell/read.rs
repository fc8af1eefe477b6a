//! Cells as seen by readers and updates: a copy at one moment, and one store. [`duramen_log::cell`] defines what a cell
//! is.

use crate::get::barrier::ReadBarrier;
use crate::records::Records;
use duramen_index::Slot;
use duramen_log::cell::Cell;
use duramen_log::sync::atomic::Ordering::{Acquire, Release};
use duramen_media::Medium;

/// A cell's value at one moment; a small one needs no allocation.
pub(crate) enum CellCopy {
    Short { bytes: [u8; CELL_SHORT_BYTES], len: u8 },
    Long(Vec<u8>),
}

/// A number with its alignment padding. More would make every [`Value`](crate::Value) longer, which all reads pay for.
const CELL_SHORT_BYTES: usize = 15;
const _: () = assert!(size_of::<Option<CellCopy>>() == size_of::<Vec<u8>>());

impl CellCopy {
    fn new(len: usize) -> Self {
        if len <= CELL_SHORT_BYTES {
            Self::Short { bytes: [0; CELL_SHORT_BYTES], len: len as u8 }
        } else {
            Self::Long(vec![0; len])
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short { bytes, len } => &mut bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for CellCopy {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl<M: Medium> Records<M> {
    /// A consistent copy of a cell of a key of `hash`.
    pub(crate) fn copy_cell(&self, hash: u64, cell: Cell) -> CellCopy {
        let mut copy = CellCopy::new(cell.bytes());
        self.copy_cell_into(hash, cell, copy.bytes_mut());
        copy
    }

    /// As `copy_cell`, into `into`, which is as long as the cell.
    pub(crate) fn copy_cell_into(&self, hash: u64, cell: Cell, into: &mut [u8]) {
        if cell.is_one_piece() {
            cell.load(&self.log.medium, into);
        } else {
            self.stripes().read_cell(hash, || cell.load(&self.log.medium, into));
        }
    }

    /// As `copy_cell`, for a caller that holds the lock of the key: then nobody stores to it.
    #[inline]
    pub(crate) fn copy_cell_locked(&self, cell: Cell) -> CellCopy {
        let mut copy = CellCopy::new(cell.bytes());
        cell.load(&self.log.medium, copy.bytes_mut());
        copy
    }

    /// Makes a copied cell durable if its last update may not be: an updater holds the key's lock from before the store
    /// until it is durable. Or the updater was killed in between: see [`Records::cells_unflushed`]. `read_barrier` when
    /// the reader is in a group: it drains then too, as in [`Records::flush_on_behalf_of_reader`], except where it
    /// holds the key itself, so that nobody updates.
    #[inline]
    pub(crate) fn flush_shown(&self, hash: u64, cell: Option<Cell>, read_barrier: Option<&ReadBarrier>) {
        if self.log.shows_before_durable()
            && (self.has_unflushed_cells() || self.stripes().is_locked(hash))
            && let Some(cell) = cell
        {
            cell.flush(&self.log.medium);
            if read_barrier.is_none() || self.has_unflushed_cells() || !self.stripes().is_held_here(hash) {
                self.log.medium.drain();
            }
        }
    }

    /// Stores into a cell, within its value. Its key, of `hash`, is locked, and its `slot` is not pending. False where
    /// one atomic store cannot do it.
    #[inline(always)]
    pub(crate) fn store_in_cell(&self, hash: u64, slot: Slot, cell: Cell, at: usize, bytes: &[u8]) -> bool {
        debug_assert!(
            cfg!(loom) || self.stripes().is_locked(hash),
            "a store to a cell whose key nobody holds (log::cell, invariant 1; cell::update, invariant 2)"
        );
        debug_assert!(
            !slot.is_pending(),
            "a store to a pending cell (log::cell and cell::update, invariant 1)"
        );
        debug_assert!(!self.log.epochs().in_use(), "a store that no epoch undoes (log::cell, invariant 3)");
        cell.store(&self.log.medium, at, bytes, || self.stripes().count_update(hash))
    }

    /// Whether cells may hold updates of the previous process that are not flushed.
    #[inline]
    pub(crate) fn has_unflushed_cells(&self) -> bool {
        // Acquire: pairs with the Release in `flushed_cells`.
        self.cells_unflushed.load(Acquire)
    }

    /// Blocks that recovery did not read were flushed and drained; `left`: there are more.
    pub(crate) fn flushed_cells(&self, left: bool) {
        // Release: pairs with the Acquire in `has_unflushed_cells`. Cells of retired blocks were copied.
        self.cells_unflushed.store(left, Release);
    }
}
