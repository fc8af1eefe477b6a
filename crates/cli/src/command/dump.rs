//! `duramen dump`: a store as lines of JSON.

use super::progress_bar;
use crate::entry::Entry;
use crate::place::Place;
use crate::{Answer, Failure};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Write all keys and values as lines of JSON, with tags and expiry times, for `load`
///
/// Nothing is written of a store with damage: see `check`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// The file to write; standard output when not given
    file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let Some(store) = args.place.open_verified()? else { return Ok(Answer::No) };
    let bar = progress_bar(store.len(), "keys");
    let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(match &args.file {
        None => Box::new(std::io::stdout().lock()),
        Some(path) => Box::new(
            std::fs::File::create(path).map_err(|e| format!("cannot write dump {}: {e}", path.display()))?,
        ),
    });
    let mut failed: Option<Failure> = None;
    store.for_each(|value| {
        if failed.is_none() {
            let entry = Entry::new(value.key(), value, value.tag(), value.expires_at());
            let line = serde_json::to_string(&entry).map_err(Failure::from);
            failed = line.and_then(|line| writeln!(out, "{line}").map_err(Failure::from)).err();
            bar.inc(1);
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    out.flush()?;
    bar.finish_and_clear();
    Ok(Answer::Yes)
}
