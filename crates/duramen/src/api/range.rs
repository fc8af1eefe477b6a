//! Ranges of keys, on stores with index `ordered`.

use crate::api::{StoreOn, WriterOn};
use crate::scan::range::{prefix_of, range_of};
use crate::table::tables::Target;
use crate::{Range, Result, Value};
use duramen_media::Medium;
use std::ops::RangeBounds;

impl<M: Medium> StoreOn<M> {
    /// Keys within bounds, and their values, in the order of the keys' bytes. O(log n) for the first one, then O(1)
    /// each.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use duramen::{IndexKind, Options};
    ///
    /// let store = Options { index: IndexKind::Ordered, ..Options::default() }.open(dir.path().join("store"))?;
    /// for name in ["ash", "beech", "birch", "oak"] {
    ///     store.put(name.as_bytes(), b"tree")?;
    /// }
    /// let (from, to): (&[u8], &[u8]) = (b"b", b"c");
    /// let names: Vec<_> = store.range(from..to)?.map(|tree| Ok(tree?.key().to_vec())).collect::<duramen::Result<_>>()?;
    /// assert_eq!(names, [&b"beech"[..], b"birch"]);
    /// let last = store.range(..)?.next_back().transpose()?;
    /// assert_eq!(last.unwrap().key(), b"oak");
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` on a store that was opened with a hash index. Items of the iterator: as [`StoreOn::get`]. After an
    /// error the iterator ends, except after `Corrupt`, which replaces a damaged record: the next records follow.
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Result<Range<'_, M>> {
        range_of(self.records(), Target::Store, None, &keys)
    }

    /// Keys with this `prefix`; as [`StoreOn::range`].
    ///
    /// # Errors
    /// As [`StoreOn::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'_, M>> {
        let prefix = prefix.as_ref();
        prefix_of(self.records(), Target::Store, None, prefix)
    }

    /// The lowest key and its value.
    ///
    /// # Errors
    /// As [`StoreOn::range`].
    pub fn first(&self) -> Result<Option<Value<'_>>> {
        self.range(..)?.next().transpose()
    }

    /// The highest key and its value.
    ///
    /// # Errors
    /// As [`StoreOn::range`].
    pub fn last(&self) -> Result<Option<Value<'_>>> {
        self.range(..)?.next_back().transpose()
    }
}

impl<M: Medium> WriterOn<M> {
    /// As [`StoreOn::range`]; in a group it may show values that are not durable yet, as [`WriterOn::get`] does.
    ///
    /// # Errors
    /// As [`StoreOn::range`].
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Result<Range<'_, M>> {
        range_of(self.store().records(), Target::Store, self.read_barrier(), &keys)
    }

    /// Keys with this `prefix`; as [`WriterOn::range`].
    ///
    /// # Errors
    /// As [`StoreOn::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'_, M>> {
        let prefix = prefix.as_ref();
        prefix_of(self.store().records(), Target::Store, self.read_barrier(), prefix)
    }
}
