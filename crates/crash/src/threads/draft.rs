//! The writes of one step, and the engine calls that make them.

use super::section::{Section, Write};
use super::touch::Way;
use crate::collections::{element_key, element_meta};
use duramen::{Batch, CollectionOn, Error, ErrorKind, Meta, Swap, TransactionOn, WriterOn};
use duramen_media::sim::SimMedium;
use std::collections::BTreeMap;

pub(super) type Elements = CollectionOn<SimMedium>;
pub(super) type Writer = WriterOn<SimMedium>;

/// The reason why a step failed.
pub(super) enum Failed {
    /// The engine returned this error.
    Engine(Error),
    /// A violation.
    Wrong(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<String> for Failed {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

/// The collection that lies at a place.
#[derive(Clone)]
pub(super) struct Named {
    /// The first byte of its roots.
    pub(super) kind: u8,
    pub(super) number: u64,
    pub(super) handle: Elements,
}

/// One write that the engine is asked for.
pub(super) struct Todo {
    /// An element of this collection, or a key of the store's own table.
    pub(super) of: Option<Elements>,
    pub(super) key: Vec<u8>,
    pub(super) new: Option<(Vec<u8>, Meta)>,
}

/// The writes of one step, derived from earlier reads.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) section: Section,
    pub(super) todo: Vec<Todo>,
    pub(super) made: Vec<Elements>,
    /// The known content of the places.
    pub(super) named: BTreeMap<usize, Option<Named>>,
    /// Places that changed since the beginning.
    pub(super) moved: Vec<usize>,
    /// For a single write, whether the key existed.
    pub(super) was: bool,
}

/// The number of a root's collection, and the first byte of its value.
pub(super) fn root_value(kind: u8, number: u64, change: u64) -> Vec<u8> {
    [&[kind][..], &number.to_le_bytes(), &change.to_le_bytes()].concat()
}

impl Draft {
    /// Whether it writes elements of a collection that exists at a place, which other threads may know.
    pub(super) fn has_written_to(&self, place: usize) -> bool {
        let Some(Some(named)) = self.named.get(&place) else { return false };
        let is_its =
            |write: &Write| matches!(write, Write::Element { collection, .. } if *collection == named.number);
        self.section.writes.iter().any(is_its) && self.made.iter().all(|made| made.id() != named.handle.id())
    }

    pub(super) fn todo_key(&mut self, key: Vec<u8>, new: Option<(Vec<u8>, Meta)>) {
        self.todo.push(Todo { of: None, key, new });
    }

    pub(super) fn todo_element(&mut self, of: &Named, element: usize, new: Option<Vec<u8>>) {
        let new = new.map(|value| {
            let meta = element_meta(&value);
            (value, meta)
        });
        self.todo.push(Todo { of: Some(of.handle.clone()), key: element_key(element), new });
    }
}

impl Draft {
    /// Makes the drafted writes.
    pub(super) fn write(&self, writer: &mut Writer, way: Way) -> Result<(), Failed> {
        match way {
            _ if self.todo.is_empty() => Ok(()),
            Way::Alone | Way::Free if self.todo.len() == 1 => self.write_alone(writer, &self.todo[0], way),
            Way::Batch | Way::Free => match writer.apply(&self.batch())? {
                Swap::Done => Ok(()),
                Swap::Changed => Err("a batch without conditions failed".to_owned().into()),
            },
            Way::AbortedFirst => {
                let mut wrong = None;
                let aborted = writer.transaction(|transaction| {
                    self.write_in(transaction, b"never", &mut wrong)?;
                    Err::<(), _>(Error::aborted("on purpose"))
                });
                match aborted {
                    Err(error) if error.kind() == ErrorKind::Aborted => self.write_transaction(writer),
                    done => done.map_err(Failed::from),
                }
            }
            Way::Transaction | Way::Alone => self.write_transaction(writer),
        }
    }

    fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        for Todo { of, key, new } in &self.todo {
            match of {
                Some(elements) => batch.collection(elements),
                None => batch.table::<SimMedium>(None),
            };
            match new {
                Some((value, meta)) => batch.put_with(key, value, *meta),
                None => batch.delete(key),
            };
        }
        batch
    }

    fn write_transaction(&self, writer: &mut Writer) -> Result<(), Failed> {
        let mut wrong = None;
        writer.transaction(|transaction| self.write_in(transaction, b"", &mut wrong))?;
        wrong.map_or(Ok(()), |wrong| Err(Failed::Wrong(wrong)))
    }

    /// Writes everything, each followed by `more`, within a transaction, and checks that the transaction sees it.
    fn write_in(
        &self,
        transaction: &mut TransactionOn<'_, SimMedium>,
        more: &[u8],
        wrong: &mut Option<String>,
    ) -> duramen::Result<()> {
        for Todo { of, key, new } in &self.todo {
            let mut keys = match of {
                Some(elements) => transaction.collection(elements),
                None => transaction.store(),
            };
            let value = new.as_ref().map(|(value, meta)| ([value, more].concat(), *meta));
            match &value {
                Some((value, meta)) => keys.put_with(key, value, *meta)?,
                None => {
                    keys.delete(key)?;
                }
            }
            let found = keys.get(key)?;
            if found.as_deref() != value.as_ref().map(|(value, _)| &value[..]) {
                wrong.get_or_insert(format!("a transaction does not read its own write of {key:02x?}"));
            }
        }
        Ok(())
    }

    fn write_alone(&self, writer: &mut Writer, todo: &Todo, way: Way) -> Result<(), Failed> {
        let Todo { of, key, new } = todo;
        let was = match (of, new) {
            (Some(elements), Some((value, meta))) => {
                writer.collection(elements).replace(key, Some((value, *meta)))?.is_some()
            }
            (Some(elements), None) => writer.collection(elements).delete(key)?,
            (None, Some((value, meta))) => {
                writer.put_with(key, value, *meta)?;
                return Ok(());
            }
            (None, None) => writer.delete(key)?,
        };
        if way != Way::Free && was != self.was {
            return Err(format!("a write returned that a value existed: {was}, wanted {}", self.was).into());
        }
        Ok(())
    }
}
