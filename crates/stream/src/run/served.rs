//! Views in a running server, exactly once: `'sink.delivery-guarantee' = 'exactly-once'` of the connector `redis`, which
//! `duramen sql --attach` gives to tables of the connector `duramen`.
//!
//! The newest rows of a checkpoint are written by one `MULTI`, with the marker: the string `sql:JOB:SINK` in the view's
//! database. The marker is watched: a job of the same name that has come meanwhile makes the `MULTI` do nothing.

use std::collections::BTreeMap;

use super::outbox::{Deliver, Encode, Failure, Messages, Name, messages};
use super::redis::{Address, Client, Reply, words};
use super::take::Content;
use super::view::{View, changes};
use crate::catalog::Table;
use crate::compile::Rows;
use crate::error::{Error, Result};

/// What errors begin with that pass.
const PASSING: [&str; 5] = ["LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"];

/// The newest row of each key that has changed.
pub struct Newest {
    view: View,
    changed: BTreeMap<String, Option<Content>>,
    bytes: usize,
}

impl Newest {
    /// Of a table.
    pub fn of(table: &Table) -> Result<Newest> {
        Ok(Newest { view: View::of(table)?, changed: BTreeMap::new(), bytes: 0 })
    }
}

impl Encode for Newest {
    fn encode(&mut self, rows: &Rows<'_>, _: &mut Messages) -> Result<()> {
        let Newest { view, changed, bytes } = self;
        changes(view, rows, |key, kept| {
            // About; a key that changes again costs little more.
            let new = key.len();
            if changed.insert(key, kept).is_none() {
                *bytes += new + 200;
            }
        });
        Ok(())
    }

    fn end(&mut self, messages: &mut Messages) {
        for (key, kept) in std::mem::take(&mut self.changed) {
            let kept = kept.map(|content| match content {
                Content::Text(text) => format!("s{text}"),
                Content::Hash(fields) => format!("h{}", serde_json::json!(fields)),
            });
            messages.push(Some(key.as_bytes()), kept.as_deref().map(str::as_bytes));
        }
        self.bytes = 0;
    }

    fn kept(&self) -> usize {
        self.bytes
    }
}

/// Who writes them.
pub struct Server {
    table: String,
    address: Address,
    client: Client,
    marker: String,
}

impl Server {
    /// Of the sink with this number of a job.
    pub fn of(table: &Table, job: &str, number: usize) -> Result<Server> {
        let address = Address::of(table)?;
        let client = Client::new(address.clone(), View::of(table)?.database());
        Ok(Server { table: table.name.clone(), address, client, marker: format!("sql:{job}:{number}") })
    }

    fn run(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Reply>, Failure> {
        match self.client.once(commands) {
            Ok(Ok(replies)) => Ok(replies),
            // A server that has just started, or waits for another.
            Ok(Err(refused)) if PASSING.iter().any(|word| refused.starts_with(word)) => {
                Err(Failure::Passing(refused))
            }
            Ok(Err(refused)) => Err(Failure::Lasting(self.failed(&refused))),
            Err(error) => Err(Failure::Passing(error.to_string())),
        }
    }

    /// Watches the marker, and reads it.
    fn look(&mut self) -> Result<Option<Name>, Failure> {
        let marker = self.marker.clone();
        let replies = self.run(&[words(&["WATCH", &marker]), words(&["GET", &marker])])?;
        let Some(text) = replies.get(1).and_then(Reply::text) else { return Ok(None) };
        let text = String::from_utf8_lossy(text).into_owned();
        let name = text
            .split_once(' ')
            .and_then(|(number, run)| Some(Name { run: run.to_owned(), number: number.parse().ok()? }));
        match name {
            Some(name) => Ok(Some(name)),
            None => {
                Err(Failure::Lasting(self.failed(&format!("key {marker} has '{text}', which is no marker"))))
            }
        }
    }
}

/// The commands that make this the value of a key.
fn commands(key: &[u8], kept: Option<&[u8]>) -> Result<Vec<Vec<Vec<u8>>>> {
    let damaged = || Error::connector("the results of a checkpoint are damaged");
    let delete = vec![b"DEL".to_vec(), key.to_vec()];
    match kept.map(|kept| kept.split_first().ok_or_else(damaged)).transpose()? {
        None => Ok(vec![delete]),
        Some((b's', text)) => Ok(vec![vec![b"SET".to_vec(), key.to_vec(), text.to_vec()]]),
        Some((_, fields)) => {
            let fields: Vec<(String, String)> = serde_json::from_slice(fields).map_err(|_| damaged())?;
            let mut set = vec![b"HSET".to_vec(), key.to_vec()];
            for (name, value) in fields {
                set.extend([name.into_bytes(), value.into_bytes()]);
            }
            // Fields that are NULL now go too.
            Ok(vec![delete, set])
        }
    }
}

impl Deliver for Server {
    fn connect(&mut self) -> Result<Option<Name>, Failure> {
        self.client.disconnect();
        self.look()
    }

    fn deliver(&mut self, name: &Name, before: Option<&Name>, chunks: &[Vec<u8>]) -> Result<(), Failure> {
        if self.look()?.as_ref() != before {
            return Err(Failure::Passing("another job has written to it".to_owned()));
        }
        let mut unit = vec![words(&["MULTI"])];
        for chunk in chunks {
            for message in messages(chunk) {
                let (key, kept) = message.map_err(Failure::Lasting)?;
                unit.extend(commands(key.unwrap_or_default(), kept).map_err(Failure::Lasting)?);
            }
        }
        unit.push(words(&["SET", &self.marker, &format!("{} {}", name.number, name.run)]));
        unit.push(words(&["EXEC"]));
        match self.run(&unit)?.last() {
            Some(Reply::List(_)) => Ok(()),
            _ => Err(Failure::Passing("another job has written to it".to_owned())),
        }
    }

    fn disconnect(&mut self) {
        self.client.disconnect();
    }

    fn failed(&self, what: &str) -> Error {
        let name = self.address.name();
        Error::connector(format!("cannot write `{}` to the server at {name}: {what}", self.table))
    }

    fn whom(&self) -> (String, String) {
        (self.table.clone(), self.address.name())
    }
}
