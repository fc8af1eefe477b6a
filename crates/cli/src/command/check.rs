//! `duramen check`: verifies a store, and saves the valid records of a damaged one.

use crate::entry::split;
use crate::output::Output;
use crate::place::Place;
use crate::{Answer, Failure};
use duramen::Report;
use duramen_server::log::counted;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Verify every checksum and invariant of a store that no process has open; changes nothing
#[derive(clap::Args)]
pub struct Args {
    /// The store, instead of --path
    store: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Save the newest valid version of each key into a new store at this path
    #[arg(long, value_name = "NEW")]
    salvage: Option<PathBuf>,
    /// Write the findings as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let options = args.place.options();
    let path = args.store.as_ref().unwrap_or(args.place.path());
    // Before work that may take long.
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let (saved, report) = match &args.salvage {
        Some(into) => {
            let (saved, report) = duramen::salvage(path, into, &options)?;
            (Some(saved), report)
        }
        None => (None, duramen::check(path, &options)?),
    };
    if let Some(mut file) = json {
        let found = Found::new(&report, path.display().to_string(), saved);
        serde_json::to_writer_pretty(&mut file, &found)?;
        writeln!(file)?;
        file.keep()?;
    }
    let mut out = std::io::stdout().lock();
    report.damage.iter().try_for_each(|damage| writeln!(out, "damage: {damage}"))?;
    for record in &report.damaged_records {
        match &record.key {
            Some(key) => writeln!(
                out,
                "damaged record: offset {:#x}, {} bytes, may be of key \"{}\": {}",
                record.at,
                record.bytes,
                key.escape_ascii(),
                record.remains
            )?,
            None => writeln!(
                out,
                "damaged record: offset {:#x}, {} bytes: its key is unknown",
                record.at, record.bytes
            )?,
        }
    }
    report.differences.iter().try_for_each(|wrong| writeln!(out, "difference: {wrong}"))?;
    report.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    for (name, keys) in &report.tables {
        match name {
            Some(name) => writeln!(out, "table \"{}\": {}", name.escape_ascii(), counted(*keys, "key"))?,
            None => writeln!(out, "table whose name is lost: {}", counted(*keys, "key"))?,
        }
    }
    if let (Some(saved), Some(into)) = (saved, &args.salvage) {
        let saved = counted(saved, "key");
        writeln!(out, "saved {saved} into {}; {} is unchanged", into.display(), path.display())?;
        return Ok(Answer::Yes);
    }
    writeln!(
        out,
        "{}: {}, {} in {}, {}; {}",
        path.display(),
        counted(report.keys, "key"),
        counted(report.records, "record"),
        counted(report.blocks, "block"),
        counted(report.bytes, "byte"),
        match report.damage.len() {
            0 => "sound".into(),
            n => format!(
                "{}; \"duramen check --salvage NEW\" saves the valid records",
                counted(n as u64, "damaged place")
            ),
        }
    )?;
    Ok(if report.damage.is_empty() && report.differences.is_empty() { Answer::Yes } else { Answer::No })
}

/// The report as JSON: names as in the text, keys as in a dump.
#[derive(Serialize)]
struct Found<'r> {
    path: String,
    keys: u64,
    tables: Vec<Table>,
    records: u64,
    blocks: u64,
    bytes: u64,
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<u64>,
    damage: &'r [String],
    damaged_records: Vec<Record>,
    differences: &'r [String],
    notes: &'r [String],
}

/// A named table; one whose name is lost has none.
#[derive(Serialize)]
struct Table {
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_base64: Option<String>,
    keys: u64,
}

#[derive(Serialize)]
struct Record {
    offset: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_be_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_be_key_base64: Option<String>,
    remains: &'static str,
}

impl<'r> Found<'r> {
    fn new(report: &'r Report, path: String, saved: Option<u64>) -> Self {
        let record = |record: &duramen::DamagedRecord| {
            let (may_be_key, may_be_key_base64) = record.key.as_deref().map_or((None, None), split);
            Record {
                offset: record.at,
                bytes: record.bytes,
                may_be_key,
                may_be_key_base64,
                remains: record.remains.name(),
            }
        };
        let table = |(name, keys): &(Option<Vec<u8>>, u64)| {
            let (table, table_base64) = name.as_deref().map_or((None, None), split);
            Table { table, table_base64, keys: *keys }
        };
        Self {
            path,
            keys: report.keys,
            tables: report.tables.iter().map(table).collect(),
            records: report.records,
            blocks: report.blocks,
            bytes: report.bytes,
            sound: report.damage.is_empty() && report.differences.is_empty(),
            saved,
            damage: &report.damage,
            damaged_records: report.damaged_records.iter().map(record).collect(),
            differences: &report.differences,
            notes: &report.notes,
        }
    }
}
