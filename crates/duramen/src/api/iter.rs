//! All entries of a store or a table, copied, some at a time.

use crate::api::{StoreOn, TableOn};
use crate::get::value::Value;
use crate::{Cursor, Result};
use duramen_media::Medium;

/// Entries that are copied at once.
const ENTRIES: usize = 64;

type Entry = (Vec<u8>, Vec<u8>);
type Scan<'s> = dyn Fn(Cursor, &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> + 's;

/// Copies of all entries, made by [`StoreOn::iter`] and [`TableOn::iter`]. It pins nothing between two entries, so it
/// may be kept for any time.
///
/// A key that is present during the whole iteration comes exactly once, or more often while the index grows or shrinks.
/// Keys come in no order. An error is an item; after a damaged entry the iteration continues.
pub struct Iter<'s> {
    scan: Box<Scan<'s>>,
    /// Where the next entries are read, unless all were.
    cursor: Option<Cursor>,
    entries: std::vec::IntoIter<Entry>,
}

impl<'s> Iter<'s> {
    fn new(scan: impl Fn(Cursor, &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> + 's) -> Self {
        Self { scan: Box::new(scan), cursor: Some(0), entries: Vec::new().into_iter() }
    }
}

impl Iterator for Iter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            let cursor = self.cursor?;
            let mut entries = Vec::new();
            let scanned =
                (self.scan)(cursor, &mut |value| entries.push((value.key().to_vec(), value.to_vec())));
            self.entries = entries.into_iter();
            let next = match &scanned {
                Ok(next) => *next,
                Err(error) => error.cursor().unwrap_or(0),
            };
            self.cursor = (next != 0).then_some(next);
            if let Err(error) = scanned {
                return Some(Err(error));
            }
        }
    }
}

impl std::fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<M: Medium> StoreOn<M> {
    /// Copies of all live entries of the store's own table. [`StoreOn::for_each`] visits them without a copy.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = duramen::Store::open(dir.path().join("store"))?;
    /// store.put("one", "1")?;
    /// store.put("two", "2")?;
    /// let mut entries = store.iter().collect::<duramen::Result<Vec<_>>>()?;
    /// entries.sort();
    /// assert_eq!(entries, [(b"one".to_vec(), b"1".to_vec()), (b"two".to_vec(), b"2".to_vec())]);
    /// # Ok::<(), duramen::Error>(())
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(|cursor, visit| self.scan(cursor, ENTRIES, visit))
    }
}

impl<M: Medium> TableOn<M> {
    /// Copies of all live entries of the table, as [`StoreOn::iter`].
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(|cursor, visit| self.scan(cursor, ENTRIES, visit))
    }
}
