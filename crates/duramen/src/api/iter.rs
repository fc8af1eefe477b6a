//! All entries of a store or a table, copied, some at a time.

use crate::get::value::Value;
use crate::{Cursor, Result};

type Entry = (Vec<u8>, Vec<u8>);
type Scan<'s> = dyn Fn(Cursor, &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> + 's;

/// Copies of all entries, made by [`Reads::iter`](crate::Reads::iter). It pins nothing between two entries, so it
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
    /// Entries that are copied at once.
    pub(crate) const ENTRIES: usize = 64;

    pub(crate) fn new(scan: impl Fn(Cursor, &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> + 's) -> Self {
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
