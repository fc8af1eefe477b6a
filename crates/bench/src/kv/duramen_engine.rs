//! Duramen as an engine of the benchmark.

use crate::kv::engine::{Changed, Engine, Session, Visit};
use crate::kv::{Result, random};
use duramen::{Durability, IndexKind, Meta, Options, StoreOn, Update, WriterOn};
use duramen_media::{Mapped, Medium};
use std::path::Path;

/// Entries of one call of a scan by cursor, which delays reclamation while it lasts.
const SCAN_ENTRIES: usize = 10_000;

/// A store of Duramen on medium `M`.
pub struct DuramenEngine<M: Medium = Mapped> {
    store: StoreOn<M>,
    updatable: bool,
}

impl DuramenEngine {
    /// Opens the store at `path`. `updatable`: values are put so that 8 bytes may change in place.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: &Path, options: &Options, updatable: bool) -> Result<Self> {
        Ok(Self::new(options.open(path)?, updatable))
    }
}

impl<M: Medium> DuramenEngine<M> {
    /// Over an open store.
    pub fn new(store: StoreOn<M>, updatable: bool) -> Self {
        Self { store, updatable }
    }

    /// The store.
    pub fn store(&self) -> &StoreOn<M> {
        &self.store
    }

    /// Closes the store. With durability `manual`, uncommitted writes are dropped: the figures are already taken.
    ///
    /// # Errors
    /// As [`StoreOn::close`].
    pub fn close(self) -> Result<()> {
        self.store.close_discarding().map_err(duramen::Error::from)?;
        Ok(())
    }
}

/// `every-write`, `interval(1s)`, `manual`.
pub(crate) fn durability_name(durability: Durability) -> String {
    match durability {
        Durability::EveryWrite => "every-write".into(),
        Durability::Interval(interval) => format!("interval({interval:?})"),
        Durability::Manual => "manual".into(),
    }
}

impl<M: Medium> Engine for DuramenEngine<M> {
    type Session<'a> = DuramenSession<M>;

    fn session(&self) -> Result<DuramenSession<M>> {
        let meta = Meta { updatable: self.updatable, ..Meta::default() };
        let ordered = self.store.index_kind() == IndexKind::Ordered;
        Ok(DuramenSession { writer: self.store.writer()?, store: self.store.clone(), meta, ordered })
    }
}

/// A writer of Duramen, and the store to read from.
pub struct DuramenSession<M: Medium = Mapped> {
    writer: WriterOn<M>,
    store: StoreOn<M>,
    meta: Meta,
    ordered: bool,
}

impl<M: Medium> Session for DuramenSession<M> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.writer.put_with(key, value, self.meta)?)
    }

    #[inline]
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        Ok(self.store.get_into(key, into)?)
    }

    #[inline]
    fn get_many(&mut self, keys: &[&[u8]], visit: &mut Visit<'_>) -> Result<()> {
        for (i, value) in self.store.get_many(keys)?.iter().enumerate() {
            visit(i, value.as_ref().map(|value| value.bytes()))?;
        }
        Ok(())
    }

    #[inline]
    fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Changed> {
        Ok(match self.writer.update(key, at, bytes)? {
            Update::InPlace => Changed::InPlace,
            Update::NewVersion => Changed::Rewritten,
            Update::Absent => Changed::Absent,
        })
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.writer.delete(key)?)
    }

    /// On an ordered store, visits from `key` on, in key order. A hash index has no key order: the visit starts at a
    /// random place of the index, follows its order and covers about `count` entries.
    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        if self.ordered {
            let mut seen = 0;
            for value in self.store.range(key..)?.take(count) {
                let value = value?;
                visit(value.key(), value.bytes());
                seen += 1;
            }
            return Ok(seen);
        }
        let seed = key.iter().fold(0u64, |seed, byte| seed.rotate_left(8) ^ u64::from(*byte));
        let begin = if key.is_empty() { 0 } else { self.store.cursor_at(random::mix(seed))? };
        let (mut cursor, mut seen) = (begin, 0);
        while seen < count {
            cursor = self.store.scan(cursor, (count - seen).min(SCAN_ENTRIES), &mut |value| {
                seen += 1;
                visit(value.key(), value.bytes());
            })?;
            if cursor == 0 {
                break;
            }
        }
        Ok(seen)
    }
}
