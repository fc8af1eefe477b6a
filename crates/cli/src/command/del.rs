//! `duramen del`: removes keys.

use crate::place::{Keys, Place};
use crate::{Answer, Failure};
use std::io::Write;

/// Remove keys, durably; prints how many were there, exit code 1 for none
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    keys: Keys,
    #[arg(required = true)]
    key: Vec<String>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let store = args.place.open()?;
    let mut removed = 0;
    for key in &args.key {
        removed += u64::from(store.delete(&args.keys.engine_key(key))?);
    }
    store.close()?;
    writeln!(std::io::stdout(), "{removed}")?;
    Ok(if removed > 0 { Answer::Yes } else { Answer::No })
}
