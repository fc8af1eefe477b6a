//! `duramen dump`: a store as lines of JSON.

use super::progress_bar;
use crate::entry::Entry;
use crate::output::{self, Output};
use crate::place::Place;
use crate::{Answer, Failure};
use duramen::{Store, TableStats, Value};
use indicatif::ProgressBar;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Write all keys, values and elements of all tables as lines of JSON, with tags and expiry times, for `load`
///
/// Nothing is written for a store with damage: see `check`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// The file to write; replaces an existing one once it is complete [default: standard output]
    file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Before the store is read, which may take long.
    args.file.as_deref().map_or(Ok(()), output::check)?;
    let Some(store) = args.place.open_verified()? else { return Ok(Answer::No) };
    match &args.file {
        None => write(&store, BufWriter::new(std::io::stdout().lock()))?.flush()?,
        Some(path) => {
            let out = write(&store, BufWriter::new(Output::create(path)?))?;
            out.into_inner().map_err(std::io::IntoInnerError::into_error)?.keep()?;
        }
    }
    Ok(Answer::Yes)
}

fn write<W: Write>(store: &Store, mut out: W) -> Result<W, Failure> {
    let bar = progress_bar(store.stats().keys, "keys");
    let mut failed = None;
    store.for_each(|value| write_unless(&mut failed, &mut out, store, None, value, &bar))?;
    for TableStats { name, .. } in store.tables() {
        // No other process has the store: all of them still exist.
        let Some(table) = store.find_table(&name)? else { continue };
        write_line(&mut out, &Entry::of_table(&name, table.index_kind()?))?;
        table.for_each(|value| write_unless(&mut failed, &mut out, store, Some(&name), value, &bar))?;
    }
    failed.map_or(Ok(()), Err)?;
    bar.finish_and_clear();
    Ok(out)
}

/// Writes a value with its elements, unless an earlier one failed.
fn write_unless(
    failed: &mut Option<Failure>,
    out: &mut impl Write,
    store: &Store,
    table: Option<&[u8]>,
    value: &Value<'_>,
    bar: &ProgressBar,
) {
    if failed.is_none() {
        *failed = write_value(out, store, table, value).err();
        bar.inc(1);
    }
}

fn write_value(
    out: &mut impl Write,
    store: &Store,
    table: Option<&[u8]>,
    value: &Value<'_>,
) -> Result<(), Failure> {
    let entry = Entry::new(table, value.key(), value, value.tag(), value.expires_at());
    let Some(id) = value.meta().collection else { return write_line(out, &entry) };
    let elements = store.collection(id)?;
    write_line(out, &entry.of_root(elements.order()))?;
    let mut written = Ok(());
    elements.each(&mut |element| {
        written = write_line(out, &Entry::of_element(element.key(), element, element.expires_at()));
        written.is_ok()
    })?;
    written
}

fn write_line(out: &mut impl Write, entry: &Entry) -> Result<(), Failure> {
    let line = serde_json::to_string(entry)?;
    Ok(writeln!(out, "{line}")?)
}
