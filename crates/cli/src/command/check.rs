//! `duramen check`: verifies a store, and saves what is valid of a damaged one.

use crate::place::Place;
use crate::{Answer, Failure};
use std::io::Write;
use std::path::PathBuf;

/// Verify every checksum and invariant of a store that nobody has open; changes nothing
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Save what is valid, of each key the newest valid version, into a new store here
    #[arg(long, value_name = "NEW")]
    salvage: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let options = args.place.options();
    let path = args.place.path();
    let mut out = std::io::stdout().lock();
    if let Some(into) = &args.salvage {
        let (saved, damage) = duramen::salvage(path, into, &options)?;
        damage.iter().try_for_each(|damage| writeln!(out, "damage: {damage}"))?;
        writeln!(out, "saved {saved} keys into {}; {} is as it was", into.display(), path.display())?;
        return Ok(Answer::Yes);
    }
    let report = duramen::check(path, &options)?;
    report.damage.iter().try_for_each(|damage| writeln!(out, "damage: {damage}"))?;
    report.differences.iter().try_for_each(|wrong| writeln!(out, "difference: {wrong}"))?;
    report.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    writeln!(
        out,
        "{}: {} keys, {} records in {} blocks, {} bytes; {}",
        path.display(),
        report.keys,
        report.records,
        report.blocks,
        report.bytes,
        match report.damage.len() {
            0 => "sound".into(),
            n => format!("{n} damaged; \"duramen check --salvage NEW\" saves what is valid"),
        }
    )?;
    Ok(if report.damage.is_empty() && report.differences.is_empty() { Answer::Yes } else { Answer::No })
}
