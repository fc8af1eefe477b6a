//! Duramen with its records outside the store's default table: in a named table, or as elements of a collection.

use crate::kv::contender::{Contender, Held, Opened};
use crate::kv::engine::{Changed, Engine, NO_RANKS, Session, Visit};
use crate::kv::place::{Fresh, Place};
use crate::kv::{Failure, Result};
use duramen::{Batch, Collection, ElementOrder, IndexKind, Meta, Table, Update, Writer};
use std::path::Path;

/// Where the records are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Table(IndexKind),
    Collection(ElementOrder),
}

/// A store with its records in one of these places.
pub(crate) struct Elsewhere {
    pub name: String,
    pub place: Place,
    pub kind: Kind,
}

#[derive(Clone)]
enum Records {
    Table(Table),
    Collection(Collection),
}

struct ElsewhereEngine {
    records: Records,
    updatable: bool,
    // Last: the store is closed and its file removed after all other fields are dropped.
    fresh: Fresh,
}

impl Contender for Elsewhere {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn durability(&self) -> String {
        crate::kv::duramen_engine::durability_name(self.place.options.durability)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.place.path)
    }

    fn distinguishes_updates(&self) -> bool {
        matches!(self.kind, Kind::Table(_))
    }

    fn open(&self, updates: bool) -> Result<Box<dyn Opened + '_>> {
        let fresh = self.place.fresh(updates)?;
        let store = fresh.engine().store();
        let records = match self.kind {
            Kind::Table(kind) => Records::Table(store.table(b"records", kind)?),
            Kind::Collection(order) => {
                let collection = store.new_collection(order);
                let mut batch = Batch::new();
                batch.put_with(
                    b"records",
                    b"",
                    Meta { collection: Some(collection.id()), ..Meta::default() },
                );
                let _ = store.apply(&batch)?;
                Records::Collection(collection)
            }
        };
        Ok(Box::new(Held {
            describe: store.describe(),
            engine: ElsewhereEngine { records, updatable: updates, fresh },
            medium_bytes: |held: &ElsewhereEngine| Some(held.fresh.engine().store().stats().used_bytes),
        }))
    }
}

struct ElsewhereSession<'a> {
    writer: Writer,
    records: &'a Records,
    meta: Meta,
}

impl Engine for ElsewhereEngine {
    type Session<'a> = ElsewhereSession<'a>;

    fn session(&self) -> Result<ElsewhereSession<'_>> {
        let store = self.fresh.engine().store();
        let meta = Meta { updatable: self.updatable, ..Meta::default() };
        Ok(ElsewhereSession { writer: store.writer()?, records: &self.records, meta })
    }
}

impl ElsewhereSession<'_> {
    /// The collection, if it has an order.
    fn ordered(&self) -> Result<&Collection> {
        match self.records {
            Records::Collection(found) if found.order() != ElementOrder::Unordered => Ok(found),
            _ => Err(Failure::usage(NO_RANKS)),
        }
    }
}

impl Session for ElsewhereSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.records {
            Records::Table(table) => self.writer.table(table).put_with(key, value, self.meta)?,
            Records::Collection(collection) => self.writer.collection(collection).put(key, value)?,
        }
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        match self.records {
            Records::Table(table) => Ok(table.get_into(key, into)?),
            Records::Collection(collection) => {
                into.clear();
                let found = collection.get(key)?;
                into.extend_from_slice(found.as_deref().unwrap_or(&[]));
                Ok(found.is_some())
            }
        }
    }

    #[inline]
    fn get_many(&mut self, keys: &[&[u8]], visit: &mut Visit<'_>) -> Result<()> {
        let values = match self.records {
            Records::Table(table) => table.get_many(keys)?,
            Records::Collection(collection) => {
                keys.iter().map(|key| collection.get(key)).collect::<duramen::Result<_>>()?
            }
        };
        for (i, value) in values.iter().enumerate() {
            visit(i, value.as_ref().map(|value| value.bytes()))?;
        }
        Ok(())
    }

    #[inline]
    fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Changed> {
        let Records::Table(table) = self.records else {
            let mut value = Vec::new();
            if !self.get(key, &mut value)? {
                return Ok(Changed::Absent);
            }
            value[at..at + bytes.len()].copy_from_slice(bytes);
            self.put(key, &value)?;
            return Ok(Changed::Rewritten);
        };
        Ok(match self.writer.table(table).update(key, at, bytes)? {
            Update::InPlace => Changed::InPlace,
            Update::NewVersion => Changed::Rewritten,
            Update::Absent => Changed::Absent,
        })
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(match self.records {
            Records::Table(table) => self.writer.table(table).delete(key)?,
            Records::Collection(collection) => self.writer.collection(collection).delete(key)?,
        })
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut seen = 0;
        match self.records {
            Records::Table(table) if table.index_kind()? == IndexKind::Ordered => {
                for value in table.range(key..)?.take(count) {
                    let value = value?;
                    visit(value.key(), value.bytes());
                    seen += 1;
                }
            }
            Records::Collection(collection) if collection.order() != ElementOrder::Unordered => {
                let rank = collection.rank(key)?.unwrap_or(0);
                collection.ranked(rank, false, &mut |value| {
                    visit(value.key(), value.bytes());
                    seen += 1;
                    seen < count
                })?;
            }
            records => {
                let mut cursor = 0;
                while seen < count {
                    let visit = &mut |value: &duramen::Value<'_>| {
                        seen += 1;
                        visit(value.key(), value.bytes());
                    };
                    cursor = match records {
                        Records::Table(table) => table.scan(cursor, count, visit)?,
                        Records::Collection(collection) => collection.scan(cursor, count, visit)?,
                    };
                    if cursor == 0 {
                        break;
                    }
                }
            }
        }
        Ok(seen)
    }

    #[inline]
    fn rank(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.ordered()?.rank(key)?)
    }

    #[inline]
    fn nth(&mut self, rank: u64, into: &mut Vec<u8>) -> Result<bool> {
        let found = self.ordered()?.nth(rank)?;
        into.clear();
        into.extend_from_slice(found.as_deref().unwrap_or(&[]));
        Ok(found.is_some())
    }
}
