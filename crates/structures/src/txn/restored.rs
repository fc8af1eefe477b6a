//! Whole values for DUMP and RESTORE, and for `import` and `export`.

use super::scratch::Write;
use super::{SCAN_ENTRIES, Txn, whole};
use crate::dump::{self, Restored};
use crate::error::{Error, Result};
use crate::map::TIMED;
use crate::{Encoding, Type, large, string_until};
use duramen::Value;

impl Txn<'_> {
    /// RDB type and value of the key, and its expiry time.
    pub fn dumped(&mut self, db: u8, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
        let Some(found) = self.get(db, key)? else { return Ok(None) };
        let expires_at = found.expires_at();
        let value = match Type::of_tag(found.tag()) {
            Some(Type::String) => Some(dump::string(&found)),
            Some(Type::Hash) => match self.hash(db, key)? {
                Some(hash) if hash.is_timed() => {
                    let fields = hash.timed()?;
                    let is_listpack = hash.encoding() == Encoding::ListpackEx;
                    (!fields.is_empty()).then(|| dump::timed_hash(&fields, is_listpack))
                }
                Some(hash) => Some(dump::hash(&hash.pairs()?, hash.encoding() == Encoding::Listpack)),
                None => None,
            },
            Some(Type::List) => match self.list(db, key)? {
                Some(list) => Some(dump::list(&list.list()?)),
                None => None,
            },
            Some(Type::Set) => match self.set(db, key)? {
                Some(set) => Some(dump::set(&set.list()?, set.encoding() == Encoding::Intset)),
                None => None,
            },
            Some(Type::SortedSet) => match self.sorted_set(db, key)? {
                Some(set) => Some(dump::sorted_set(&set.scored()?, set.encoding() == Encoding::Listpack)),
                None => None,
            },
            Some(Type::Stream) => match self.stream(db, key)? {
                Some(stream) => Some(stream.dumped()?),
                None => None,
            },
            None => return Err(Error::WrongType),
        };
        Ok(value.map(|value| (value, expires_at)))
    }

    /// Stores a restored value at `key`, replacing an existing one. An empty collection deletes the key, and so does an
    /// expiry time in the past.
    pub fn put_restored(
        &mut self,
        db: u8,
        key: &[u8],
        value: &Restored,
        expires_at: Option<u64>,
    ) -> Result<()> {
        let is_over = expires_at.is_some_and(|time| time <= self.now());
        if is_over || value.is_empty_collection() {
            self.delete(db, key)?;
            return Ok(());
        }
        match value {
            Restored::String(value) => return self.put_with(db, key, value, string_until(expires_at)),
            Restored::Hash(strings) => {
                let (pairs, _) = strings.as_chunks::<2>();
                let pairs: Vec<_> = pairs.iter().map(|[field, value]| (&field[..], &value[..])).collect();
                self.put_hash(db, key, &pairs)?;
            }
            Restored::TimedHash(fields) => {
                self.delete(db, key)?;
                let now = self.now();
                let mut hash = self.edit_hash(db, key)?;
                for (field, value, at) in fields.iter().filter(|(.., at)| at.is_none_or(|at| at > now)) {
                    hash.insert_until(field, value, *at)?;
                }
                hash.save()?;
            }
            Restored::List(elements) => {
                let elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
                self.put_list(db, key, &elements)?;
            }
            Restored::SortedSet(members) => {
                let members = members.iter().map(|(member, score)| (&member[..], *score)).collect();
                self.put_sorted_set(db, key, members)?;
            }
            Restored::Stream(run) => self.put_stream(db, key, run)?,
            Restored::Set(members) => {
                self.put_set(db, key, members.iter().map(Vec::as_slice).collect())?;
            }
        }
        if expires_at.is_some() {
            self.set_expiry(db, key, expires_at)?;
        }
        Ok(())
    }

    /// Whether `db` has a hash of which some field has had an expiry time. Takes time in proportion to its keys.
    pub fn has_timed_hashes(&mut self, db: u8) -> Result<bool> {
        self.before_scan()?;
        let is_timed = |tag, is_root, root: &[u8]| {
            tag == Type::Hash.tag()
                && is_root
                && matches!(large::flags(root, u8::MAX), Ok(flags) if flags & TIMED != 0)
        };
        let scratch = &self.worker.scratch;
        let is_pending = scratch.entries.iter().any(|entry| match &entry.write {
            Write::Put(payload, meta) => {
                is_timed(meta.tag, meta.collection.is_some(), payload.bytes(&scratch.arena))
            }
            _ => false,
        });
        let Some(table) = self.worker.keyspace.table(db) else { return Ok(is_pending) };
        let (mut is_any, mut cursor) = (is_pending, 0);
        while !is_any {
            let visit = &mut |value: &Value<'_>| {
                is_any |= is_timed(value.tag(), value.meta().collection.is_some(), value);
            };
            cursor = whole(table.scan(cursor, SCAN_ENTRIES, visit))?;
            if cursor == 0 {
                break;
            }
        }
        Ok(is_any)
    }
}
