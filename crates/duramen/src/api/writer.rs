//! The handle of a writer.

use crate::Result;
use crate::api::StoreOn;
use crate::api::core::Held;
use crate::get::barrier::ReadBarrier;
use crate::transaction::batch::Batch;
use crate::writer::{Swap, WriteContext, WriterState};
use duramen_media::{Mapped, Medium};
use std::marker::PhantomData;

/// A writer, made by [`StoreOn::writer`]: a [`WriterOn`] on the media of this machine.
pub type Writer = WriterOn<Mapped>;

/// Makes a type neither `Send` nor `Sync`; the compiler's error shows this name. A thread's reads must see the writes
/// of its own writer, so a writer never changes threads: make one in each thread.
struct StaysInTheThreadThatMadeIt(PhantomData<*const ()>);

/// Appends to its own blocks; one for each thread (Viper's client). `&mut self` to write, `&self` to read. Other
/// writers of the same store contend with it only on the bucket of a key.
///
/// Make it in the thread that uses it: it stays there, since that thread's own reads must see its writes.
pub struct WriterOn<M: Medium = Mapped> {
    writer_state: Held<M>,
    store: StoreOn<M>,
    /// Of the keys that it locks.
    pub(crate) hashes: Vec<u64>,
    _not_send: StaysInTheThreadThatMadeIt,
}

impl<M: Medium> WriterOn<M> {
    pub(crate) fn new(store: StoreOn<M>) -> Self {
        Self {
            writer_state: Held::new(&store.shared.core),
            store,
            hashes: Vec::new(),
            _not_send: StaysInTheThreadThatMadeIt(PhantomData),
        }
    }

    /// The store that it writes to.
    #[must_use]
    pub fn store(&self) -> &StoreOn<M> {
        &self.store
    }

    /// The read barrier of the group, if there is one.
    pub(crate) fn read_barrier(&self) -> Option<&ReadBarrier> {
        self.writer_state.writer_state.read_barrier()
    }

    pub(crate) fn writer_state(&self) -> &WriterState {
        &self.writer_state.writer_state
    }

    /// Its writer state, and the context that it writes in.
    pub(crate) fn parts(&mut self) -> (&mut WriterState, WriteContext<'_, M>) {
        (&mut self.writer_state.writer_state, self.store.core().context())
    }

    /// Applies a batch, all or nothing, after a crash and for readers; [`Swap::Changed`] (nothing written) when an
    /// expectation failed.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn apply(&mut self, batch: &Batch) -> Result<Swap> {
        self.writer_state.writer_state.apply(self.store.core().context(), batch)
    }

    /// Begins a group: until [`WriterOn::flush_group`], writes return before they are durable, and reads through *this*
    /// writer may show values that are not durable yet. Show no result of a read or write of the group to anybody
    /// before `flush_group` has returned `Ok`. Other readers never see undurable state. One drain, or one wait for the
    /// device shared with other writers, serves the whole group.
    ///
    /// Keep it short: space that is compacted meanwhile is not reused before the group ends.
    pub fn group(&mut self) {
        self.writer_state.writer_state.begin_group();
    }

    /// Makes all writes and reads of the group durable, and ends it. Without a group it does nothing.
    ///
    /// # Errors
    /// As [`StoreOn::commit`]: then nothing of the group may be acknowledged. `InvalidInput` while keys are
    /// [locked](WriterOn::lock): the flush would wait for others that may wait for those keys.
    pub fn flush_group(&mut self) -> Result<()> {
        self.store.records().log.epochs().check_process()?;
        WriterState::check_unlocked(self.store.records(), "flush the group")?;
        self.writer_state.writer_state.flush_group(self.store.records())
    }

    /// Panics within a write, as a bug of the engine would, to test the result: the store is poisoned.
    #[doc(hidden)]
    pub fn panic_within_a_write(&mut self) {
        self.writer_state.writer_state.panic_within_a_write(self.store.records());
    }
}

impl<M: Medium> std::fmt::Debug for WriterOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("store", &self.store).finish_non_exhaustive()
    }
}
