//! What all handles of a store share, and how it is closed.

use super::catalog::Catalog;
use crate::ErrorKind;
use crate::Result;
use crate::background::Keeper;
use crate::format::superblock::Regime;
use crate::log::blocks::Use;
use crate::log::open_block::Purpose;
use crate::recovery::Summary;
use crate::sync::atomic::AtomicBool;
use crate::sync::atomic::Ordering::{AcqRel, Relaxed};
use crate::sync::{Arc, Weak};
use crate::tuning::Phase;
use crate::write::{Pen, Site};
use duramen_media::Medium;

/// See the module.
pub(crate) struct Core<M: Medium> {
    pub keeper: Keeper<M>,
    pub(super) catalog: Catalog,
    pub recovered: Summary,
    closed: AtomicBool,
}

impl<M: Medium> Core<M> {
    pub(super) fn new(keeper: Keeper<M>, catalog: Catalog, recovered: Summary) -> Self {
        Self { keeper, catalog, recovered, closed: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn site(&self) -> Site<'_, M> {
        Site { records: &self.keeper.records, supply: &self.keeper }
    }

    /// Whether no block is open. One is that a thread wrote to by a plain handle, which has not ended yet: nobody else knows where
    /// its records end.
    fn is_all_sealed(&self) -> bool {
        let log = &self.keeper.records.log;
        let granules = log.space().granules();
        !log.blocks.walk(0..granules).any(|(_, _, state)| state == Use::Open)
    }

    /// Ends the store: what is open is sealed, what is pending committed, and the superblock says that it
    /// was closed.
    pub(super) fn close(&self) -> Result<()> {
        if self.closed.swap(true, AcqRel) {
            return Ok(());
        }
        let keeper = &self.keeper;
        let log = &keeper.records.log;
        match log.epochs().check_writable() {
            Err(error) if error.kind() == ErrorKind::ReadOnly => return Ok(()),
            Err(error) => {
                log.doubt();
                return Err(error);
            }
            Ok(()) => {}
        }
        let _inside = log.tuning.phase(Phase::Close);
        // With `Manual`, what was not committed is dropped, as the caller asked; so it is not sealed as
        // if it counted: recovery judges it by its epoch.
        let manual = log.epochs().regime() == Regime::Manual && log.epochs().wrote();
        self.catalog.end(&keeper.records);
        keeper.end();
        let mut place = None;
        if !manual {
            log.seal_partial(Purpose::Compaction);
            log.commit()?;
            place = keeper.image_at_close()?;
        }
        if keeper.records.has_unflushed_cells() {
            // The next open will flush nothing.
            let granules = log.space().granules();
            for (granule, block, _) in log.blocks.walk(0..granules) {
                log.medium.flush(log.offset_of(granule), block.tail());
            }
            log.medium.drain();
        }
        let sealed = !manual && self.is_all_sealed();
        log.update_superblock(|superblock| {
            superblock.clean = !manual;
            superblock.sealed = sealed;
            superblock.image = place;
            superblock.time_floor = log.clock().now();
        })
    }
}

/// A pen that is given up with its handle.
pub(super) struct Held<M: Medium> {
    pub pen: Pen,
    core: Weak<Core<M>>,
}

impl<M: Medium> Held<M> {
    pub(super) fn new(core: &Arc<Core<M>>) -> Self {
        Self { pen: Pen::new(core.keeper.records.log.epochs()), core: Arc::downgrade(core) }
    }
}

impl<M: Medium> Drop for Held<M> {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade()
            && !core.closed.load(Relaxed)
            && !core.keeper.records.log.epochs().is_gone()
            // A close that does not wait for all handles waits for this: the block at hand is given back, or sealed.
            && let Ok(_reserved) = core.keeper.records.log.reserving.begin()
        {
            self.pen.end(&core.keeper.records);
        }
    }
}
