//! `duramen compact`: makes a store take as little space as it can.

use crate::place::Place;
use crate::{Answer, Failure};
use duramen::Options;
use std::io::Write;

/// Compact a store that no process has open, and give its free space back to the file system
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // What a server keeps for its next writes is of no use here.
    let compactors = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    let options = Options { background: false, keep_free_bytes: 0, compactors, ..args.place.options() };
    let store = options.open(args.place.path())?;
    let space = || {
        let stats = store.stats();
        stats.medium_bytes - stats.given_back_bytes
    };
    let before = space();
    store.compact()?;
    let (after, live) = (space(), store.stats().live_bytes);
    store.close()?;
    let path = args.place.path().display();
    writeln!(std::io::stdout().lock(), "{path}: takes {after} bytes, {live} of them live; before: {before}")?;
    Ok(Answer::Yes)
}
