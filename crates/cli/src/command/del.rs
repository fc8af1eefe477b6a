//! `duramen del`: removes keys.

use crate::place::{Keys, Place, Within};
use crate::{Answer, Failure};
use std::io::Write;

/// Remove keys, durably; prints how many existed, exit code 1 for none
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
    let within = args.keys.find(&store)?;
    let mut removed = 0;
    for key in &args.key {
        removed += u64::from(match &within {
            Within::Store => store.delete(key.as_bytes())?,
            Within::Table(table) => table.delete(key.as_bytes())?,
            Within::Nowhere => false,
        });
    }
    // It holds the store.
    drop(within);
    store.close()?;
    writeln!(std::io::stdout(), "{removed}")?;
    Ok(if removed > 0 { Answer::Yes } else { Answer::No })
}
