//! `duramen get`: prints a value.

use crate::place::{Keys, Place, Within};
use crate::{Answer, Failure};
use std::io::{IsTerminal, Write};

/// Print the value of a key, unchanged or, with --db, as clients see it; exit code 1 when the key is absent
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    keys: Keys,
    key: String,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let store = args.place.open_to_read()?;
    let within = args.keys.find(&store)?;
    let found = match &within {
        Within::Store => store.get(args.key.as_bytes())?,
        Within::Table(table) => table.get(args.key.as_bytes())?,
        Within::Nowhere => None,
    };
    let Some(value) = found else { return Ok(Answer::No) };
    if let Some(type_) = args.keys.collection(&value) {
        let name = type_.name();
        return Err(format!(
            "key {:?} holds a {name}, which get cannot print: use a client of the server, or duramen dump",
            args.key
        )
        .into());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(args.keys.text(&store, &value)?.as_deref().unwrap_or(&value))?;
    // A line end on a terminal; elsewhere only the value.
    if out.is_terminal() {
        out.write_all(b"\n")?;
    }
    Ok(Answer::Yes)
}
