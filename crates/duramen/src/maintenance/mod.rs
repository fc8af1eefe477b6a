//! The background work of a store: compaction, growth, index checkpoints, verification, and the thread that runs them.

pub(crate) mod give_back;
pub(crate) mod grow;
pub(crate) mod room;
pub(crate) mod run;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod wake;

use crate::checkpoint::state::Checkpoints;
use crate::compact::compactor::{Compaction, Moving};
use crate::evict::queues::Evictor;
use crate::expire::listeners::Expirations;
use crate::maintenance::grow::Growth;
use crate::maintenance::wake::Wake;
use crate::records::Records;
use duramen_log::Log;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::holding::What;
use duramen_log::sync::lock;
use duramen_media::Medium;

/// The records of a store, with the parts that keep room for more.
pub(crate) struct Maintenance<M: Medium> {
    pub records: Records<M>,
    pub compaction: Compaction,
    pub growth: Growth,
    pub checkpoints: Checkpoints,
    pub evictor: Evictor,
    pub wake: Wake,
    pub expirations: Expirations,
}

impl<M: Medium> Maintenance<M> {
    pub(crate) fn new(records: Records<M>, compaction: Compaction, checkpoints: Checkpoints) -> Self {
        let growth = Growth::new(records.tuning.growth_bytes_min);
        let (evictor, wake, expirations) = Default::default();
        Self { records, compaction, growth, checkpoints, evictor, wake, expirations }
    }

    #[inline]
    pub(crate) fn log(&self) -> &Log<M> {
        &self.records.log
    }

    /// Waits for the compactor.
    pub(crate) fn compactor(&self) -> Moving<'_> {
        debug_assert!(
            self.records.barrier.held_here(What::has_stripes).is_none(),
            "the compactor may wait for a stripe that this thread holds"
        );
        self.compaction.waiting.fetch_add(1, Relaxed);
        let compactor = lock(&self.compaction.compactor);
        self.compaction.waiting.fetch_sub(1, Relaxed);
        Moving::new(compactor, self.log().epochs())
    }

    /// The compactor, if no other thread has it.
    pub(crate) fn compactor_if_free(&self) -> Option<Moving<'_>> {
        let compactor = self.compaction.compactor.try_lock()?;
        Some(Moving::new(compactor, self.log().epochs()))
    }
}
