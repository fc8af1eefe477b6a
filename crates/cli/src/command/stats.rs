//! `duramen stats`: numbers of a store and of its tables.

use crate::entry::split;
use crate::output::Output;
use crate::place::Place;
use crate::{Answer, Failure};
use duramen::{IndexKind, OnCorruption, Options, TableStats};
use duramen_server::log::counted;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Print the numbers of a store that no process has open, and of its tables (for a running server: redis-cli INFO)
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Verify all records first, so that damaged_blocks counts all of them; takes as long as reading the store
    #[arg(long)]
    verify: bool,
    /// Write the numbers as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Before work that may take long.
    let json = args.json.as_deref().map(Output::create).transpose()?;
    // Also for a store that other commands would refuse.
    let options =
        Options { on_corruption: OnCorruption::Serve, verify_at_open: args.verify, ..args.place.options() };
    let store = args.place.open_to_read_with(&options)?;
    let stats = store.stats();
    let numbers = [
        ("keys", stats.keys),
        ("medium_bytes", stats.medium_bytes),
        ("given_back_bytes", stats.given_back_bytes),
        ("used_bytes", stats.used_bytes),
        ("live_bytes", stats.live_bytes),
        ("dead_bytes", stats.dead_bytes),
        ("free_bytes", stats.free_bytes),
        ("extent_bytes", stats.extent_bytes),
        ("index_bytes", stats.index_bytes),
        ("index_pages_left", stats.index_pages_left),
        ("damaged_blocks", stats.damaged_blocks),
        ("unverified_bytes", stats.unverified_bytes),
        ("checkpoints", stats.checkpoints),
        ("checkpoint_bytes", stats.checkpoint_bytes),
        ("recovered_records", stats.recovered_records),
        ("recovery_microseconds", stats.recovery_nanos / 1000),
    ];
    let tables = store.tables();
    if let Some(mut file) = json {
        let mut found = serde_json::Map::new();
        found.insert("store".into(), store.describe().into());
        found.extend(numbers.map(|(name, number)| (name.to_owned(), number.into())));
        found
            .insert("tables".into(), serde_json::to_value(tables.iter().map(Line::new).collect::<Vec<_>>())?);
        found.insert("damage".into(), store.recovery().damage.clone().into());
        serde_json::to_writer_pretty(&mut file, &found)?;
        writeln!(file)?;
        file.keep()?;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", store.describe())?;
    numbers.iter().try_for_each(|(name, number)| writeln!(out, "{name} {number}"))?;
    for table in &tables {
        let (name, kind) = (table.name.escape_ascii(), kind_of(table));
        writeln!(
            out,
            "table \"{name}\": {kind}, {}, {} index bytes",
            counted(table.keys, "key"),
            table.index_bytes
        )?;
    }
    if stats.unverified_bytes > 0 {
        writeln!(
            out,
            "note: damaged_blocks counts known damage; {} bytes are not verified: --verify reads them",
            stats.unverified_bytes
        )?;
    }
    for damage in &store.recovery().damage {
        writeln!(out, "damage: {damage}")?;
    }
    store.close()?;
    Ok(Answer::Yes)
}

/// A table as JSON.
#[derive(Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_base64: Option<String>,
    index: String,
    keys: u64,
    index_bytes: u64,
}

impl Line {
    fn new(stats: &TableStats) -> Self {
        let (table, table_base64) = split(&stats.name);
        let index = kind_of(stats).to_string();
        Self { table, table_base64, index, keys: stats.keys, index_bytes: stats.index_bytes }
    }
}

fn kind_of(stats: &TableStats) -> IndexKind {
    if stats.is_ordered { IndexKind::Ordered } else { IndexKind::Hash }
}
