//! `duramen scan`: lists keys.

use crate::place::{Keys, Place, Within};
use crate::{Answer, Failure};
use duramen::{IndexKind, Options, Table};
use std::io::{BufWriter, Write};

/// List keys, one per line, in the order of their bytes; unprintable bytes are escaped
///
/// --from, --to and --prefix may be combined. The store's own table is opened with an ordered index, whichever index
/// others use. For a named table with a hash index, all keys are collected first.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    keys: Keys,
    /// Only keys with this prefix
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only this key and those after it
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// In descending order
    #[arg(long)]
    reverse: bool,
    /// Maximum number of keys
    #[arg(long)]
    limit: Option<u64>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Point lookups do not occur.
    let options = Options { index: IndexKind::Ordered, index_cache_slots: 0, ..args.place.options() };
    let store = args.place.open_to_read_with(&options)?;
    let within = args.keys.find(&store)?;
    let prefix = args.prefix.as_bytes();
    let mut range = match &within {
        Within::Nowhere => return Ok(Answer::Yes),
        Within::Table(table) if table.index_kind()? == IndexKind::Hash => return sorted(table, args),
        Within::Table(table) => table.prefix(prefix)?,
        Within::Store => store.prefix(prefix)?,
    };
    let (from, to) = args.bounds();
    match (from, to) {
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
        let (before, behind) = (from.is_some_and(|from| key < from), to.is_some_and(|to| key >= to));
        if if args.reverse { before } else { behind } {
            break;
        }
        // The bound of `--to`, from which a reverse scan begins.
        if !before && !behind {
            writeln!(out, "{}", key.escape_ascii())?;
            left -= 1;
        }
    }
    out.flush()?;
    Ok(Answer::Yes)
}

/// Of a table whose index knows no order.
fn sorted(table: &Table, args: &Args) -> Result<Answer, Failure> {
    let (from, to) = args.bounds();
    let mut keys = Vec::new();
    table.for_each(|value| {
        let key = value.key();
        if key.starts_with(args.prefix.as_bytes())
            && from.is_none_or(|from| key >= from)
            && to.is_none_or(|to| key < to)
        {
            keys.push(key.to_vec());
        }
    })?;
    keys.sort_unstable();
    if args.reverse {
        keys.reverse();
    }
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut out = BufWriter::new(std::io::stdout().lock());
    keys.iter().take(limit).try_for_each(|key| writeln!(out, "{}", key.escape_ascii()))?;
    out.flush()?;
    Ok(Answer::Yes)
}

impl Args {
    fn bounds(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.from.as_ref().map(String::as_bytes), self.to.as_ref().map(String::as_bytes))
    }
}
