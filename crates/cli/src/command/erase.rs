//! `duramen erase`: prepares a place for a new store.

use crate::place::Place;
use crate::{Answer, Failure};
use std::io::Write;

/// Erase the head of a store, or of a device that held something else, so that a new store can be created there
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Confirm: existing data will be lost
    #[arg(long, required = true)]
    force: bool,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let bytes = duramen::erase(args.place.path(), &args.place.options())?;
    let path = args.place.path().display();
    writeln!(std::io::stdout().lock(), "{path}: {bytes} bytes erased; a new store can be created there")?;
    Ok(Answer::Yes)
}
