//! `duramen load`: lines of JSON into a store.

use super::progress_bar;
use crate::entry::Entry;
use crate::place::Place;
use crate::{Answer, Failure};
use duramen::{Collection, ElementOrder, IndexKind, Meta, Store, Table, Writer};
use duramen_server::log::counted;
use std::collections::{HashMap, hash_map};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

/// Lines between two waits for durability.
const GROUP_LINES: u64 = 256;

/// Put the output of `dump` into a store, which is created if it does not exist. Existing keys are overwritten, and
/// missing tables are created
///
/// Stops at the first malformed line and names it; the lines before it are stored.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// The file to read [default: standard input]
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
    let mut loader = Loader::default();
    let (mut stored, mut loaded) = (0, 0);
    writer.group();
    for (number, line) in input.lines().enumerate() {
        let line = line.map_err(|e| format!("cannot read {name}: {e}"))?;
        bar.inc(line.len() as u64 + 1);
        if line.is_empty() {
            continue;
        }
        match parse(&line).map_err(Failure::from).and_then(|line| loader.put(&mut writer, line)) {
            Err(why) => {
                loader.put_root(&mut writer)?;
                writer.flush_group()?;
                return Err(format!(
                    "{name} line {}: {why}; stored before it: {}",
                    number + 1,
                    counted(stored, "line")
                )
                .into());
            }
            Ok(keys) => (stored, loaded) = (stored + 1, loaded + keys),
        }
        if stored % GROUP_LINES == 0 {
            writer.flush_group()?;
            writer.group();
        }
    }
    loader.put_root(&mut writer)?;
    writer.flush_group()?;
    // They hold the store.
    drop((writer, loader));
    store.close()?;
    bar.finish_and_clear();
    eprintln!("loaded {}", counted(loaded, "key"));
    Ok(Answer::Yes)
}

/// A line of a dump.
enum Line {
    Table(Vec<u8>, IndexKind),
    Key(Pair, Option<ElementOrder>),
    Element { name: Vec<u8>, value: Vec<u8>, meta: Meta },
}

/// A key of a table, and its value.
struct Pair {
    table: Option<Vec<u8>>,
    key: Vec<u8>,
    value: Vec<u8>,
    meta: Meta,
}

fn parse(line: &str) -> Result<Line, String> {
    let entry: Entry = serde_json::from_str(line).map_err(|e| format!("not a line of a dump: {e}"))?;
    if entry.is_element() {
        let meta = Meta { expires_at: entry.expires_at, ..Meta::default() };
        return Ok(Line::Element { name: entry.element()?, value: entry.value()?, meta });
    }
    let table = entry.table()?;
    match (&entry.index, table) {
        (Some(index), Some(table)) if entry.is_table() => {
            let index = index.parse().map_err(|e| format!("index: {e}"))?;
            Ok(Line::Table(table, index))
        }
        (Some(_), _) => Err("found index, which is allowed only in a line with just a table".to_owned()),
        (None, table) => {
            let meta = Meta { tag: entry.tag, expires_at: entry.expires_at, ..Meta::default() };
            Ok(Line::Key(Pair { table, key: entry.key()?, value: entry.value()?, meta }, entry.order()?))
        }
    }
}

/// The state from earlier lines.
#[derive(Default)]
struct Loader {
    // By name.
    tables: HashMap<Vec<u8>, Table>,
    /// A root whose elements follow. It is put after them, so that no crash leaves it with only some of them.
    root: Option<(Collection, Pair)>,
}

impl Loader {
    /// Stores the content of the line; returns the number of keys.
    fn put(&mut self, writer: &mut Writer, line: Line) -> Result<u64, Failure> {
        if !matches!(line, Line::Element { .. }) {
            self.put_root(writer)?;
        }
        match line {
            Line::Element { name, value, meta } => {
                let Some((elements, _)) = &self.root else {
                    return Err("found element, but the line before is neither a root nor an element".into());
                };
                writer.collection(elements).put_with(&name, &value, meta)?;
                return Ok(0);
            }
            Line::Table(name, index) => {
                let table = find_or_make(writer.store(), &name, index)?;
                self.tables.insert(name, table);
                return Ok(0);
            }
            Line::Key(pair, Some(order)) => self.root = Some((writer.store().new_collection(order), pair)),
            Line::Key(pair, None) => self.put_pair(writer, pair)?,
        }
        Ok(1)
    }

    /// All elements of the last root have come.
    fn put_root(&mut self, writer: &mut Writer) -> duramen::Result<()> {
        let Some((elements, mut pair)) = self.root.take() else { return Ok(()) };
        pair.meta.collection = Some(elements.id());
        self.put_pair(writer, pair)
    }

    fn put_pair(&mut self, writer: &mut Writer, pair: Pair) -> duramen::Result<()> {
        let Pair { table, key, value, meta } = pair;
        let Some(name) = table else { return writer.put_with(&key, &value, meta) };
        let table = match self.tables.entry(name) {
            hash_map::Entry::Occupied(table) => table.into_mut(),
            // Like the store's own table.
            hash_map::Entry::Vacant(none) => {
                let table = find_or_make(writer.store(), none.key(), writer.store().index_kind())?;
                none.insert(table)
            }
        };
        writer.table(table).put_with(&key, &value, meta)
    }
}

/// An existing table keeps its index.
fn find_or_make(store: &Store, name: &[u8], index: IndexKind) -> duramen::Result<Table> {
    store.find_table(name)?.map_or_else(|| store.table(name, index), Ok)
}
