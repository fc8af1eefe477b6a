//! Lookup tables: keys of the job's store (`duramen`) or of a running server (`redis`), as the sinks of the same names
//! write them. All rows are read when the job starts and, with `'lookup.refresh' = '10 s'`, periodically.

use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen::Store;

use super::clock::duration;
use super::keyed_sink::{database, prefix, split};
use super::resp_client::{Address, Client, Reply, scan};
use super::row_sink::{Content, JobStore};
use super::texts::parse_or_null;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::headroom::watch;
use crate::types::{Row, Type};

/// Keys requested at a time.
const KEYS: usize = 1000;

enum From {
    Own(Box<JobStore>),
    Server(Client),
}

/// A lookup table.
pub struct Lookup {
    from: From,
    table: Arc<Table>,
    source: Source,
    database: u8,
    prefix: String,
    json: bool,
    refresh: Option<Duration>,
    read: Instant,
}

impl Lookup {
    /// For a table of connector 'duramen' or 'redis'.
    pub fn open(table: &Arc<Table>, source: &Source, store: Option<&Store>) -> Result<Lookup> {
        let from = match (table.connector.name, store) {
            ("duramen", Some(store)) => From::Own(Box::new(JobStore::new(store)?)),
            ("duramen", None) => {
                return Err(Error::invalid(
                    format!("`{}` of connector 'duramen' in a job without a store", table.name),
                    "a store for the job: --store PATH",
                ));
            }
            ("redis", _) => From::Server(Client::new(Address::of(table)?, database(table)?)),
            (other, _) => {
                return Err(Error::unsupported(format!("looking rows up in the connector '{other}'"))
                    .hint("supported connectors: duramen, redis"));
            }
        };
        let refresh = match table.options.get("lookup.refresh") {
            None => None,
            Some(text) => Some(duration(text).ok_or_else(|| {
                Error::invalid(
                    format!("'lookup.refresh' = '{text}' of `{}`", table.name),
                    "a time such as '10 s'",
                )
            })?),
        };
        Ok(Lookup {
            from,
            database: database(table)?,
            prefix: prefix(table),
            json: table.options.get("value").is_some_and(|value| value == "json"),
            table: table.clone(),
            source: source.clone(),
            refresh,
            read: Instant::now(),
        })
    }

    /// Whether it must be read again.
    pub fn is_due(&self) -> bool {
        self.refresh.is_some_and(|refresh| self.read.elapsed() >= refresh)
    }

    /// All current rows.
    pub fn rows(&mut self) -> Result<Batch> {
        self.read = Instant::now();
        let failed = |error| Error::connector(format!("cannot look up `{}`: {error}", self.table.name));
        let found = match &mut self.from {
            From::Own(job_store) => job_store.kept(self.database, self.prefix.as_bytes()).map_err(failed)?,
            From::Server(client) => on_server(client, &self.prefix, self.json).map_err(failed)?,
        };
        let mut batch = Batch::new(&self.source.types)?;
        for (key, kept) in found {
            watch()?;
            let row = self
                .row(&key, &kept)
                .map_err(|error| Error::connector(format!("key {key} of `{}`: {error}", self.table.name)))?;
            batch.push(&row)?;
        }
        Ok(batch)
    }

    /// A row: columns of the primary key may be in the key only.
    fn row(&self, key: &str, kept: &Content) -> Result<Row> {
        let fields = kept.fields()?;
        let rest = key.strip_prefix(&self.prefix).unwrap_or(key);
        let count = self.table.primary_key.len();
        let parts = split(rest, count);
        let value = |(read, ty): (&usize, &Type)| {
            let name = &self.table.columns[*read].name;
            let field = fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
            let place = self.table.primary_key.iter().position(|column| column == read);
            let of_key = match (&parts, place) {
                (Some(parts), Some(place)) => parts.get(place).map(String::as_str),
                (None, Some(_)) if field.is_none() => {
                    return Err(Error::invalid(
                        format!("a key without a value for `{name}`"),
                        format!("{count} values after {}, with a : between them", self.prefix),
                    ));
                }
                _ => None,
            };
            parse_or_null(field.or(of_key), name, ty)
        };
        self.source.reads.iter().zip(&self.source.types).map(value).collect()
    }
}

/// The keys with this prefix, and their values.
fn on_server(client: &mut Client, prefix: &str, json: bool) -> Result<Vec<(String, Content)>> {
    let keys = scan(prefix, |command| client.run(&[command]))?;
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let mut found = Vec::new();
    for keys in keys.chunks(KEYS) {
        let verb = if json { "GET" } else { "HGETALL" };
        let gets: Vec<_> = keys.iter().map(|key| vec![verb.as_bytes().to_vec(), key.clone()]).collect();
        for (key, reply) in keys.iter().zip(client.run(&gets)?) {
            let text = |reply: &Reply| String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
            let kept = match &reply {
                reply if reply.is_null() => continue,
                Reply::Aggregate { items, .. } if items.is_empty() => continue,
                Reply::Aggregate { items, .. } => {
                    let pairs = items.chunks_exact(2);
                    Content::Hash(pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
                }
                reply => Content::Text(text(reply)),
            };
            found.push((String::from_utf8_lossy(key).into_owned(), kept));
        }
    }
    Ok(found)
}
