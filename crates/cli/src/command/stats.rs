//! `duramen stats`: numbers of a store.

use crate::place::Place;
use crate::{Answer, Failure};
use std::io::Write;

/// Print the numbers of a store that nobody has open (for a running server: redis-cli INFO)
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let store = args.place.open_to_read()?;
    let stats = store.stats();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", store.describe())?;
    for (name, number) in [
        ("keys", stats.keys),
        ("medium_bytes", stats.medium_bytes),
        ("used_bytes", stats.used_bytes),
        ("live_bytes", stats.live_bytes),
        ("dead_bytes", stats.dead_bytes),
        ("free_bytes", stats.free_bytes),
        ("unit_bytes", stats.unit_bytes),
        ("index_bytes", stats.index_bytes),
        ("index_pages_left", stats.index_pages_left),
        ("damaged_blocks", stats.damaged_blocks),
        ("unverified_bytes", stats.unverified_bytes),
        ("checkpoints", stats.checkpoints),
        ("checkpoint_bytes", stats.checkpoint_bytes),
        ("recovered_records", stats.recovered_records),
        ("recovery_microseconds", stats.recovery_nanos / 1000),
    ] {
        writeln!(out, "{name} {number}")?;
    }
    store.close()?;
    Ok(Answer::Yes)
}
