//! `filesystem`: files of rows.

mod identity;
mod one_file;
mod sink;
mod source;

use std::path::{Component, Path, PathBuf};

use super::registration::Registration;
use crate::catalog::options::Kind::{Name, Time};
use crate::catalog::options::{DEAD_LETTER, IDLE, REQUIRED, option};
use crate::catalog::{Connector, SinkKind, Table};

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "filesystem",
    purpose: "Reads one file, or all files of a directory, once or as they grow. Writes one file; a job with a store \
        writes parts into a directory, exactly once.",
    example: "CREATE TABLE orders (product STRING, ts TIMESTAMP(3), pieces INT) WITH (
  'connector' = 'filesystem',
  'path' = 'orders.csv',
  'format' = 'csv',
  'source.monitor-interval' = '1 s')",
    options: &[
        option("path", Name, REQUIRED, "a file, or a directory whose files are read in order of their names"),
        option(
            "source.monitor-interval",
            Time,
            "(read once)",
            "how often the source looks for new files and lines",
        ),
        DEAD_LETTER,
        IDLE,
    ],
    source: true,
    sink: Some(SinkKind::Append),
    lookup: false,
    format: true,
    written: Some(written),
};

/// Its place in the registry.
pub const REGISTRATION: Registration =
    Registration::new(&CONNECTOR, Some(source::open), Some(sink::open), None);

/// The path, without `.`, and without a `/` at the end.
fn written(table: &Table) -> String {
    let path = table.options.get("path").map_or("", String::as_str);
    let path = path.strip_prefix("file://").unwrap_or(path);
    let path: PathBuf = Path::new(path).components().filter(|part| *part != Component::CurDir).collect();
    format!("the path {}", path.display())
}
