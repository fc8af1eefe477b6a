//! `duramen put`: sets a key.

use crate::place::{Keys, Place};
use crate::{Answer, Failure};
use duramen::Meta;
use std::io::Read;

/// Set a key to a value, durably
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
    store.put_with(&args.keys.engine_key(&args.key), &value, meta)?;
    store.close()?;
    Ok(Answer::Yes)
}
