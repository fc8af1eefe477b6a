//! The end of a store, by its last handle.
//!
//! With durability `manual` only the caller commits. So uncommitted writes at a close are either forgotten or meant to
//! be dropped. [`StoreOn::close`] refuses then, and [`StoreOn::close_discarding`] drops them.

use crate::Error;
use crate::api::{PENS, StoreOn};
use crate::locks::close_barrier;
use duramen_log::format::superblock::Regime;
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::Ordering::Acquire;
use duramen_media::{Mapped, Medium};
use std::fmt;
use std::panic::Location;

/// The reason why a store was not closed, and the store, if it is unchanged.
pub struct CloseError<M: Medium = Mapped> {
    error: Error,
    store: Option<StoreOn<M>>,
}

impl<M: Medium> CloseError<M> {
    /// The handle of the store, when the close was refused and nothing was done; `None` when the close failed.
    pub fn into_store(self) -> Option<StoreOn<M>> {
        self.store
    }
}

impl<M: Medium> fmt::Debug for CloseError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<M: Medium> fmt::Display for CloseError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

// Without a source, as its error.
impl<M: Medium> std::error::Error for CloseError<M> {}

impl<M: Medium> std::ops::Deref for CloseError<M> {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.error
    }
}

impl<M: Medium> From<CloseError<M>> for Error {
    fn from(error: CloseError<M>) -> Self {
        error.error
    }
}

impl<M: Medium> StoreOn<M> {
    /// Closes the store, if this is its last handle, and reports errors. Known damage is no error of the close:
    /// [`Stats::damaged_blocks`](crate::Stats::damaged_blocks) reports it before, and the next open handles it by
    /// [`Options::on_corruption`](crate::Options::on_corruption). With durability `Manual` a close commits nothing.
    ///
    /// Handles of its tables and collections may remain, if no call on them is under way and no value of them is kept.
    /// Calls on them fail from then on, and the store may be opened again while they exist. If a close is refused
    /// because a call is under way, that call may have failed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use duramen::{Durability, Options};
    /// let store = Options { durability: Durability::Manual, ..Options::default() }.open(dir.path().join("store"))?;
    /// store.put(b"key", b"value")?;
    /// let refused = store.close().unwrap_err();
    /// assert!(refused.to_string().contains("1 record"));
    /// let store = refused.into_store().unwrap();
    /// store.commit()?;
    /// store.close()?;
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` when other handles or writers remain, values are kept, or, with `Manual`, something was written
    /// since the last commit: then nothing is done, and the error returns the handle. Otherwise as [`StoreOn::commit`].
    #[track_caller]
    pub fn close(self) -> std::result::Result<(), CloseError<M>> {
        let uncommitted = self.uncommitted();
        if uncommitted == 0 {
            return self.close_discarding();
        }
        let error = Error::invalid(format!(
            "cannot close the store: its durability is manual, and {uncommitted} record{} written since the last commit would be lost: call \
             commit() first, or close_discarding() to drop them",
            if uncommitted == 1 { "" } else { "s" },
        ));
        Err(CloseError { error, store: Some(self) })
    }

    /// As [`StoreOn::close`], but with durability `Manual` it drops writes since the last commit. Dropping the last
    /// handle does so too.
    ///
    /// # Errors
    /// As [`StoreOn::close`].
    #[track_caller]
    pub fn close_discarding(self) -> std::result::Result<(), CloseError<M>> {
        if let Err(error) = self.log().epochs().check_process() {
            return Err(CloseError { error, store: Some(self) });
        }
        let id = self.shared.id;
        let _ = PENS.try_with(|writer_states| writer_states.borrow_mut().remove(&id));
        match Arc::try_unwrap(self.shared) {
            Ok(shared) => {
                shared.stop();
                shared.core.close().map_err(|error| CloseError { error, store: None })
            }
            Err(shared) => Self { shared }.close_beside_parts(),
        }
    }

    /// Closes it while handles of tables and collections remain: calls on them fail from then on.
    ///
    /// 1. Tables and collections are marked closed: each call checks its own after its pin, as it checks for a drop.
    /// 2. The barrier closes, which waits for all calls that did not see the mark. Then it waits for writers that make
    ///    room, which are not inside the barrier.
    /// 3. The store is closed as usual, and its medium released.
    /// 4. The barrier opens: a writer that waited there checks its table next, and sees 1.
    #[track_caller]
    fn close_beside_parts(self) -> std::result::Result<(), CloseError<M>> {
        let core = Arc::clone(&self.shared.core);
        let records = &core.maintenance.records;
        let refused = |error, store| Err(CloseError { error, store: Some(store) });
        let kept = |what: &str| Error::invalid(format!("cannot close the store: {what}; drop them first"));
        // Acquire: see `Part`.
        let parts = self.shared.parts.load(Acquire);
        let others = Arc::strong_count(&self.shared).saturating_sub(1) as u64;
        if others > parts {
            return refused(
                kept(&format!("{} other handles of it, or writers, remain", others - parts)),
                self,
            );
        }
        let is_kept = || core.maintenance.keeps_values();
        let values = "values of its tables or collections are still pinned";
        if is_kept() {
            return refused(kept(values), self);
        }
        records.tables.set_closed(true);
        let alone = match close_barrier(records, "close the store", Location::caller()) {
            Ok(alone) => alone,
            Err(error) => {
                records.tables.set_closed(false);
                return refused(error, self);
            }
        };
        if is_kept() {
            // A value of a call that began before: the handle was in use.
            records.tables.set_closed(false);
            drop(alone);
            return refused(kept(values), self);
        }
        records.log.reserving.end();
        self.shared.stop();
        let closed = core.close();
        records.log.epochs().close();
        records.log.medium.release();
        drop(alone);
        closed.map_err(|error| CloseError { error, store: None })
    }

    /// Number of records that a close would drop.
    fn uncommitted(&self) -> u64 {
        let epochs = self.log().epochs();
        if epochs.regime() == Regime::Manual && epochs.check_writable().is_ok() {
            epochs.uncommitted()
        } else {
            0
        }
    }
}
