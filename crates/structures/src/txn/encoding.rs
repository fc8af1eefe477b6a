//! OBJECT ENCODING of what is no string.

use super::{Collection, List, StreamAt, Txn};
use crate::Type;
use crate::entries::Encoding;
use crate::error::Result;

impl Txn<'_> {
    /// How Redis would keep the hash, list, set, sorted set or stream at `key`; `None` without one.
    pub fn encoding(&mut self, db: u8, key: &[u8]) -> Result<Option<Encoding>> {
        let Some(found) = self.get(db, key)? else { return Ok(None) };
        match Type::of_tag(found.tag()) {
            Some(type_ @ (Type::Hash | Type::Set | Type::SortedSet)) => {
                Collection::of(type_, key, found).map(|it| Some(it.encoding()))
            }
            Some(Type::List) => List::of(key, found).map(|_| Some(Encoding::Quicklist)),
            Some(Type::Stream) => StreamAt::of(key, found).map(|_| Some(Encoding::Stream)),
            _ => Ok(None),
        }
    }
}
