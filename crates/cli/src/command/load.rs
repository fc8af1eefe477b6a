//! `duramen load`: lines of JSON into a store.

use super::progress_bar;
use crate::entry::Entry;
use crate::place::Place;
use crate::{Answer, Failure};
use duramen::Meta;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

/// Lines between two waits for durability.
const GROUP_LINES: u64 = 256;

/// Put what `dump` wrote into a store, which is made when there is none; keys that exist are overwritten
///
/// Stops at the first line that is wrong, and says which; the lines before it are stored.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// The file to read; standard input when not given
    file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    let (name, bytes, input): (_, _, Box<dyn BufRead>) = match &args.file {
        None => ("standard input".into(), 0, Box::new(std::io::stdin().lock())),
        Some(path) => {
            let name = path.display().to_string();
            let file = std::fs::File::open(path).map_err(|e| format!("cannot read dump {name}: {e}"))?;
            let bytes = file.metadata().map_or(0, |m| m.len());
            (name, bytes, Box::new(BufReader::new(file)))
        }
    };
    let store = args.place.open_or_create()?;
    let bar = progress_bar(bytes, "bytes");
    let mut writer = store.writer()?;
    let mut loaded = 0;
    writer.group();
    for (number, line) in input.lines().enumerate() {
        let line = line.map_err(|e| format!("cannot read {name}: {e}"))?;
        bar.inc(line.len() as u64 + 1);
        if line.is_empty() {
            continue;
        }
        let put = parse(&line)
            .and_then(|(key, value, meta)| writer.put_with(&key, &value, meta).map_err(|e| e.to_string()));
        if let Err(why) = put {
            writer.settle()?;
            return Err(
                format!("{name} line {}: {why}; {loaded} lines before it are stored", number + 1).into()
            );
        }
        loaded += 1;
        if loaded % GROUP_LINES == 0 {
            writer.settle()?;
            writer.group();
        }
    }
    writer.settle()?;
    drop(writer);
    store.close()?;
    bar.finish_and_clear();
    eprintln!("loaded {loaded} keys");
    Ok(Answer::Yes)
}

fn parse(line: &str) -> Result<(Vec<u8>, Vec<u8>, Meta), String> {
    let entry: Entry = serde_json::from_str(line).map_err(|e| format!("not a line of a dump: {e}"))?;
    let meta = Meta { tag: entry.tag, expires_at: entry.expires_at, ..Meta::default() };
    Ok((entry.key()?, entry.value()?, meta))
}
