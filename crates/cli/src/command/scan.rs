//! `duramen scan`: lists keys.

use crate::place::{Keys, Place};
use crate::{Answer, Failure};
use duramen::{IndexKind, Options};
use std::io::{BufWriter, Write};

/// List keys, one a line, in the order of their bytes; bytes that are not printable are escaped
///
/// --from, --to and --prefix may be combined. The store is opened with an ordered index, whatever others open it with.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    keys: Keys,
    /// Only keys that begin so
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only this key and those behind it
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// From the last to the first
    #[arg(long)]
    reverse: bool,
    /// At most this many
    #[arg(long)]
    limit: Option<u64>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Point lookups there are none.
    let options = Options { index: IndexKind::Ordered, index_cache_slots: 0, ..args.place.options() };
    let store = args.place.open_to_read_with(&options)?;
    let mut range = store.prefix(&args.keys.engine_key(&args.prefix))?;
    let from = args.from.as_deref().map(|key| args.keys.engine_key(key));
    let to = args.to.as_deref().map(|key| args.keys.engine_key(key));
    match (&from, &to) {
        (_, Some(to)) if args.reverse => range.seek_back(to),
        (Some(from), _) if !args.reverse => range.seek(from),
        _ => {}
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(value) = if args.reverse { range.next_back() } else { range.next() }
    {
        let value = value?;
        let key = value.key();
        let (before, behind) =
            (from.as_deref().is_some_and(|from| key < from), to.as_deref().is_some_and(|to| key >= to));
        if if args.reverse { before } else { behind } {
            break;
        }
        // The bound of `--to` itself, from which a reverse scan begins.
        if let (false, Some(key)) = (before || behind, args.keys.user_key(key)) {
            writeln!(out, "{}", key.escape_ascii())?;
            left -= 1;
        }
    }
    out.flush()?;
    Ok(Answer::Yes)
}
