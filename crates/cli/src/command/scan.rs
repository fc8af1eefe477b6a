//! `duramen scan`: lists keys.

use crate::place::{Keys, Place};
use crate::{Answer, Failure};
use std::io::{BufWriter, Write};

/// List keys, one a line, in no order; bytes that are not printable are escaped
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    keys: Keys,
    /// Only keys that begin so
    #[arg(long, default_value = "")]
    prefix: String,
    /// At most this many
    #[arg(long)]
    limit: Option<u64>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let store = args.place.open()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut left, mut cursor) = (args.limit.unwrap_or(u64::MAX), 0);
    let mut failed = None;
    while left > 0 && failed.is_none() {
        cursor = store.scan(cursor, 1024, &mut |value| {
            let key = args.keys.user_key(value.key()).filter(|key| key.starts_with(args.prefix.as_bytes()));
            if let Some(key) = key
                && left > 0
                && failed.is_none()
            {
                left -= 1;
                failed = writeln!(out, "{}", key.escape_ascii()).err();
            }
        })?;
        if cursor == 0 {
            break;
        }
    }
    failed.map_or(Ok(()), Err)?;
    out.flush()?;
    Ok(Answer::Yes)
}
