//! Reads keys of a running server.

use std::sync::Arc;

use duramen::Store;

use crate::catalog::Table;
use crate::connectors::client::{Address, Client, Reply, scan};
use crate::connectors::keyed::database;
use crate::connectors::registration::KeyReader;
use crate::error::Result;
use crate::run::row_sink::Content;

/// Keys requested at a time.
const KEYS: usize = 1000;

pub fn open(table: &Arc<Table>, _: Option<&Store>) -> Result<Box<dyn KeyReader>> {
    Ok(Box::new(Remote(Client::new(Address::of(table)?, database(table)?))))
}

struct Remote(Client);

impl KeyReader for Remote {
    fn read(&mut self, _: u8, prefix: &str, json: bool) -> Result<Vec<(String, Content)>> {
        on_server(&mut self.0, prefix, json)
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
