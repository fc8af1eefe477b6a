//! The state that all handles of a store share, and its close.

use crate::ErrorKind;
use crate::Result;
use crate::api::catalog::Catalog;
use crate::maintenance::Maintenance;
use crate::recover::Summary;
use crate::tuning::Phase;
use crate::writer::{WriteContext, WriterState};
use duramen_log::blocks::Use;
use duramen_log::format::superblock::Regime;
use duramen_log::open_block::Purpose;
use duramen_log::sync::atomic::AtomicBool;
use duramen_log::sync::atomic::Ordering::{AcqRel, Relaxed};
use duramen_log::sync::{Arc, Weak};
use duramen_media::Medium;

/// See the module.
pub(crate) struct Core<M: Medium> {
    pub maintenance: Maintenance<M>,
    pub(crate) catalog: Catalog,
    pub recovered: Summary,
    closed: AtomicBool,
}

impl<M: Medium> Core<M> {
    pub(crate) fn new(maintenance: Maintenance<M>, catalog: Catalog, recovered: Summary) -> Self {
        Self { maintenance, catalog, recovered, closed: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn context(&self) -> WriteContext<'_, M> {
        WriteContext { records: &self.maintenance.records, supply: &self.maintenance }
    }

    /// Whether no block is open. A thread that wrote through a plain handle, and has not ended, keeps a block open:
    /// only that thread knows where its records end.
    fn is_all_sealed(&self) -> bool {
        let log = &self.maintenance.records.log;
        let extents = log.space().extents();
        !log.blocks.walk(0..extents).any(|(_, _, state)| state == Use::Open)
    }

    /// Ends the store: open blocks are sealed, pending writes committed, and the superblock records that it was closed.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, AcqRel) {
            return Ok(());
        }
        let maintenance = &self.maintenance;
        let log = &maintenance.records.log;
        match log.epochs().check_writable() {
            Err(error) if error.kind() == ErrorKind::ReadOnly => return Ok(()),
            Err(error) => {
                log.mark_unverified();
                return Err(error);
            }
            Ok(()) => {}
        }
        let _inside = log.phases.enter(Phase::Close);
        // With `Manual`, uncommitted writes are dropped, as the caller requested. So their blocks are not sealed as if
        // they counted: recovery decides by their epoch.
        let manual = log.epochs().regime() == Regime::Manual && log.epochs().wrote();
        self.catalog.end(&maintenance.records);
        maintenance.end();
        let mut place = None;
        if !manual {
            log.seal_partial(Purpose::Compaction);
            log.commit()?;
            place = maintenance.checkpoint_at_close()?;
        }
        if maintenance.records.has_unflushed_cells() {
            // The next open will flush nothing.
            let extents = log.space().extents();
            for (extent, block, _) in log.blocks.walk(0..extents) {
                log.medium.flush(log.offset_of(extent), block.tail());
            }
            log.medium.drain();
        }
        let sealed = !manual && self.is_all_sealed();
        log.update_superblock(|superblock| {
            superblock.clean = !manual;
            superblock.sealed = sealed;
            superblock.checkpoint = place;
            superblock.time_floor = log.clock().now();
        })
    }
}

/// A writer state that is released with its handle.
pub(crate) struct Held<M: Medium> {
    pub writer_state: WriterState,
    core: Weak<Core<M>>,
}

impl<M: Medium> Held<M> {
    pub(crate) fn new(core: &Arc<Core<M>>) -> Self {
        Self {
            writer_state: WriterState::new(core.maintenance.records.log.epochs()),
            core: Arc::downgrade(core),
        }
    }
}

impl<M: Medium> Drop for Held<M> {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade()
            && !core.closed.load(Relaxed)
            && !core.maintenance.records.log.epochs().is_gone()
            // A close that does not wait for all handles waits for this: the current block is returned, or sealed.
            && let Ok(_reserved) = core.maintenance.records.log.reserving.begin()
        {
            self.writer_state.end(&core.maintenance.records);
        }
    }
}
