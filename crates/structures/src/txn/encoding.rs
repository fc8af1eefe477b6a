//! OBJECT ENCODING of values that are not strings.

use super::Txn;
use super::collection::Stored;
use super::list::StoredList;
use super::stream::StoredStream;
use crate::Type;
use crate::error::Result;
use crate::map::Encoding;

impl Txn<'_> {
    /// How Redis would keep the hash, list, set, sorted set or stream at `key`; `None` without one.
    pub fn encoding(&mut self, db: u8, key: &[u8]) -> Result<Option<Encoding>> {
        let now = self.now();
        let Some((found, reads)) = self.root(db, key)? else { return Ok(None) };
        match Type::of_tag(found.tag()) {
            Some(type_ @ (Type::Hash | Type::Set | Type::SortedSet)) => {
                Stored::of(type_, key, found, reads, now).map(|it| Some(it.encoding()))
            }
            Some(Type::List) => StoredList::of(key, found, reads).map(|_| Some(Encoding::Quicklist)),
            Some(Type::Stream) => StoredStream::of(key, found, reads).map(|_| Some(Encoding::Stream)),
            _ => Ok(None),
        }
    }
}
