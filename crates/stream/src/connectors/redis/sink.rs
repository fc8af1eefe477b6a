//! Writes keys of a running server at once.

use std::collections::BTreeMap;

use super::exactly_once::{Newest, Server};
use crate::catalog::Table;
use crate::compile::{Output, Rows};
use crate::connectors::client::{Address, Client, words};
use crate::connectors::keyed::{KeyedSink, changes};
use crate::error::{Error, Result};
use crate::plan::Sink;
use crate::run::outbox::{Outage, Outbox, guarantee};
use crate::run::records::Place;
use crate::run::row_sink::{Content, RowSink};

pub fn open(sink: &Sink, number: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    let table = &sink.table;
    match (guarantee(table, place)?.unwrap_or(false), place.job) {
        (true, Some(job)) => {
            let server = Server::of(table, job, number, place.existing)?;
            let newest = Box::new(Newest::of(table)?);
            Ok(Box::new(Outbox::new(server, newest, Outage::default(), number, place)))
        }
        _ => Ok(Box::new(Remote::open(table)?)),
    }
}

/// A keyed sink in a running server.
pub struct Remote {
    keyed: KeyedSink,
    client: Client,
}

impl Remote {
    /// For a table of connector 'redis'; it connects when the first row comes.
    pub fn open(table: &Table) -> Result<Remote> {
        let keyed = KeyedSink::of(table)?;
        let client = Client::new(Address::of(table)?, keyed.database());
        Ok(Remote { keyed, client })
    }
}

impl Output for Remote {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        // Of several changes of one key in a batch only the newest is written.
        let mut changed = BTreeMap::new();
        changes(&self.keyed, rows, |key, kept| {
            changed.insert(key, kept);
        })?;
        let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
        for (key, kept) in &changed {
            match kept {
                None => commands.push(words(&["DEL", key])),
                Some(Content::Text(text)) => commands.push(words(&["SET", key, text])),
                Some(Content::Hash(fields)) => {
                    let mut set = words(&["HSET", key]);
                    for (name, value) in fields {
                        set.push(name.as_bytes().to_vec());
                        set.push(value.as_bytes().to_vec());
                    }
                    // Fields that are NULL now.
                    let gone = |name: &&String| !fields.iter().any(|(field, _)| field == *name);
                    let gone: Vec<&str> =
                        self.keyed.columns().iter().filter(gone).map(String::as_str).collect();
                    commands.push(set);
                    if !gone.is_empty() {
                        commands.push(words(&[&["HDEL", key.as_str()], gone.as_slice()].concat()));
                    }
                }
            }
        }
        self.client
            .run(&commands)
            .map(|_| ())
            .map_err(|error| Error::connector(format!("cannot write `{}`: {error}", self.keyed.name())))
    }
}

impl RowSink for Remote {}
