//! The end of a store, by its last handle.
//!
//! With durability `manual` nothing is committed but by the caller, so what a close finds uncommitted is either forgotten by the caller or
//! meant to be dropped. [`StoreOn::close`] refuses then, and [`StoreOn::close_discarding`] drops it.

use super::{PENS, StoreOn};
use crate::Error;
use crate::format::superblock::Regime;
use crate::sync::Arc;
use duramen_media::{Mapped, Medium};
use std::fmt;

/// Why a store was not closed, and the store, if it is as it was.
pub struct CloseError<M: Medium = Mapped> {
    error: Error,
    store: Option<StoreOn<M>>,
}

impl<M: Medium> CloseError<M> {
    /// The handle that was to be closed, when the close was refused and nothing was done; `None` when it failed.
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
    /// Closes the store, when this is its last handle, and tells what went wrong. Damage that is known is no error of the close:
    /// [`Stats::damaged_blocks`](crate::Stats::damaged_blocks) tells of it before, and the next open does as
    /// [`Options::on_damage`](crate::Options::on_damage) says. It commits nothing by itself with durability `Manual`.
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
    /// `InvalidInput` when other handles or writers are left, or, with `Manual`, something was written since the last commit: nothing is done
    /// then, and the error gives the handle back. Otherwise as [`StoreOn::commit`].
    pub fn close(self) -> std::result::Result<(), CloseError<M>> {
        let uncommitted = self.uncommitted();
        if uncommitted == 0 {
            return self.close_discarding();
        }
        let error = Error::invalid(format!(
            "cannot close the store: its durability is manual, and {uncommitted} record{} written since the last commit would be lost: call \
             commit() before, or close_discarding() to drop them",
            if uncommitted == 1 { "" } else { "s" },
        ));
        Err(CloseError { error, store: Some(self) })
    }

    /// As [`StoreOn::close`], but drops what was written since the last commit, where the durability is `Manual`. The drop of the last handle
    /// does so too.
    ///
    /// # Errors
    /// As [`StoreOn::close`].
    pub fn close_discarding(self) -> std::result::Result<(), CloseError<M>> {
        if let Err(error) = self.log().epochs().check_process() {
            return Err(CloseError { error, store: Some(self) });
        }
        let id = self.shared.id;
        let _ = PENS.try_with(|pens| pens.borrow_mut().remove(&id));
        match Arc::try_unwrap(self.shared) {
            Ok(mut shared) => {
                shared.stop();
                shared.core.close().map_err(|error| CloseError { error, store: None })
            }
            Err(shared) => {
                let others = Arc::strong_count(&shared).saturating_sub(1);
                let error = Error::invalid(format!(
                    "cannot close the store: {others} other handles of it, its tables or collections, or writers are left; drop them before"
                ));
                Err(CloseError { error, store: Some(Self { shared }) })
            }
        }
    }

    /// Records that a close would drop.
    fn uncommitted(&self) -> u64 {
        let epochs = self.log().epochs();
        if epochs.regime() == Regime::Manual && epochs.check_writable().is_ok() {
            epochs.uncommitted()
        } else {
            0
        }
    }
}
