//! `duramen stats`: numbers of a store.

use crate::place::Place;
use crate::{Answer, Failure};
use duramen::{OnDamage, Options};
use std::io::Write;

/// Print the numbers of a store that nobody has open (for a running server: redis-cli INFO)
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Verify all records before, so that damaged_blocks tells of all of them; takes as long as to read the store
    #[arg(long)]
    verify: bool,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Also of a store that others would refuse.
    let options = Options { on_damage: OnDamage::Serve, verify_at_open: args.verify, ..args.place.options() };
    let store = args.place.open_to_read_with(&options)?;
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
    if stats.unverified_bytes > 0 {
        writeln!(
            out,
            "note: damaged_blocks tells what is known; {} bytes are not verified: --verify reads them",
            stats.unverified_bytes
        )?;
    }
    for damage in &store.recovery().damage {
        writeln!(out, "damage: {damage}")?;
    }
    store.close()?;
    Ok(Answer::Yes)
}
