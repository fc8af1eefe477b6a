//! `duramen put`: sets a key.

use crate::place::{Keys, Place, Within};
use crate::{Answer, Failure};
use duramen::Meta;
use std::io::Read;

/// Set a key to a value, durably; a missing store or table is created
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    keys: Keys,
    key: String,
    /// The value; - reads it from standard input
    value: String,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let value = if args.value == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        bytes
    } else {
        args.value.clone().into_bytes()
    };
    let store = args.place.open_or_create()?;
    let meta = Meta { tag: args.keys.tag(), ..Meta::default() };
    match args.keys.find_or_make(&store)? {
        Within::Table(table) => table.put_with(args.key.as_bytes(), &value, meta)?,
        Within::Store | Within::Nowhere => store.put_with(args.key.as_bytes(), &value, meta)?,
    }
    store.close()?;
    Ok(Answer::Yes)
}
