//! `duramen export`: the databases of a store as an RDB file.

use super::progress_bar;
use crate::output::{self, Output};
use crate::place::Place;
use crate::{Answer, Failure};
use duramen::Store;
use duramen_server::export;
use duramen_server::log::counted;
use std::io::{BufWriter, IntoInnerError};
use std::path::PathBuf;

/// Write all databases of a server's store as an RDB file, which redis-server 7.0 and later load
///
/// Nothing is written for a store with damage: see `check`. Other tables, for example memcached's items, and the store's
/// own are not included, and reported: `dump` writes them.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// The file to write; replaces an existing one once it is complete
    file: PathBuf,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Before the store is read, which may take long.
    output::check(&args.file)?;
    // Not read-only: reading as the server's commands do needs a writer.
    let store = args.place.open()?;
    if let Err(error) = store.verify() {
        if error.kind() != duramen::ErrorKind::Corrupt {
            return Err(error.into());
        }
        eprintln!("duramen: {error}");
        return Ok(Answer::No);
    }
    let bar = progress_bar(store.tables().iter().map(|table| table.keys).sum(), "keys");
    let out = BufWriter::with_capacity(1 << 20, Output::create(&args.file)?);
    let left_out = left_out(&store);
    let (out, keys) = export::store(store.clone(), out, &mut |keys| bar.inc(keys))?;
    out.into_inner().map_err(IntoInnerError::into_error)?.keep()?;
    store.close()?;
    bar.finish_and_clear();
    eprintln!("exported {}", counted(keys, "key"));
    for (table, keys) in left_out {
        eprintln!(
            "not exported: {} of {table}, which is no database; \"duramen dump\" writes them",
            counted(keys, "key")
        );
    }
    Ok(Answer::Yes)
}

/// The tables with keys that an RDB file does not hold.
fn left_out(store: &Store) -> Vec<(String, u64)> {
    let is_database = |name: &[u8]| (0..=127).any(|db| duramen_server::table_name(db).as_bytes() == name);
    let tables = store.tables().into_iter().filter(|table| table.keys > 0 && !is_database(&table.name));
    let named = tables.map(|table| (format!("table {}", String::from_utf8_lossy(&table.name)), table.keys));
    let own = (!store.is_empty()).then(|| ("the store's own table".to_owned(), store.len()));
    own.into_iter().chain(named).collect()
}
