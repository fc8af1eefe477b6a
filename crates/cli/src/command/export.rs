//! `duramen export`: the databases of a store as an RDB file.

use super::progress_bar;
use crate::output::{self, Output};
use crate::place::Place;
use crate::{Answer, Failure};
use duramen_server::export;
use duramen_server::log::counted;
use std::io::{BufWriter, IntoInnerError};
use std::path::PathBuf;

/// Write all databases of a server's store as an RDB file, which redis-server 7.0 and later load
///
/// Nothing is written for a store with damage: see `check`. Other tables, and the store's own, are not included: see
/// `dump`.
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
    let (out, keys) = export::store(store.clone(), out, &mut |keys| bar.inc(keys))?;
    out.into_inner().map_err(IntoInnerError::into_error)?.keep()?;
    store.close()?;
    bar.finish_and_clear();
    eprintln!("exported {}", counted(keys, "key"));
    Ok(Answer::Yes)
}
