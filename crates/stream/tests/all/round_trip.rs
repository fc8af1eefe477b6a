//! Every connector that reads and writes, with every format and its options, for every type at its borders: what one job
//! writes another reads, equal.
//!
//! Rows come from a source of the test. One job writes them to the connector, a second reads them there and writes them
//! to a file; a third writes them to such a file at once. Both files are equal.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use duramen::{Create, Durability, Options, Store};
use duramen_stream::batch::Batch;
use duramen_stream::catalog::Table;
use duramen_stream::compile::Source;
use duramen_stream::run::{Existing, Keep, MemoryLimit, RowSource, Running, Start};
use duramen_stream::types::Value;
use duramen_stream::{Outcome, Result, Session};
use proptest::prelude::*;

/// Rows that are there at once.
struct Rows {
    rows: Vec<Vec<Value>>,
}

impl RowSource for Rows {
    fn read_rows(&mut self, batch: &mut Batch, _: usize) -> Result<bool> {
        for row in self.rows.drain(..) {
            batch.push(&row)?;
        }
        Ok(false)
    }

    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn seek(&mut self, _: &serde_json::Value) -> Result<()> {
        Ok(())
    }
}

/// How a job is run.
#[derive(Clone, Copy, Default)]
pub(super) struct How<'h> {
    /// Its store, and its name there.
    pub(super) kept: Option<(&'h Store, &'h str)>,
    /// The port of the server that it is attached to.
    pub(super) attached: Option<u16>,
}

/// A job whose table `own` has these rows.
pub(super) fn start(script: &str, directory: &Path, rows: &[Vec<Value>], how: How<'_>) -> Running {
    let mut session = Session::default();
    if let Some(port) = how.attached {
        session.attach("127.0.0.1", port, how.kept.is_some());
    }
    let job = match session.run(script).unwrap_or_else(|error| panic!("{error}\n{script}")).pop() {
        Some(Outcome::Job(job)) => job,
        other => panic!("{other:?}"),
    };
    let keep = how.kept.map(|(store, name)| Keep {
        store: store.clone(),
        name: name.to_owned(),
        every: Duration::from_secs(10),
        from_start: false,
        note: String::new(),
        room: MemoryLimit::default(),
    });
    let mut own = |table: &Table, source: &Source| {
        if table.name != "own" {
            return Ok(None);
        }
        let wanted =
            |row: &Vec<Value>| source.reads.iter().map(|column| row[*column].clone()).collect::<Vec<_>>();
        Ok(Some(Box::new(Rows { rows: rows.iter().map(wanted).collect() }) as Box<dyn RowSource>))
    };
    let running = Running::start_on(
        &job.optimised,
        Start { directory, keep: keep.as_ref(), threads: Some(1), existing: Existing::Refuse, own: &mut own },
    );
    running.unwrap_or_else(|error| panic!("{error}\n{script}"))
}

pub(super) fn run(script: &str, directory: &Path, rows: &[Vec<Value>]) {
    run_in(script, directory, rows, How::default());
}

pub(super) fn run_in(script: &str, directory: &Path, rows: &[Vec<Value>], how: How<'_>) {
    let ran = start(script, directory, rows, how).run(&AtomicBool::new(false), |_| ());
    ran.unwrap_or_else(|error| panic!("{error}\n{script}\n{rows:?}"));
}

pub(super) fn open(directory: &Path) -> Store {
    let options =
        Options { durability: Durability::Manual, create: Create::OpenOrCreate, ..Options::default() };
    options.open(directory.join("store")).unwrap()
}

const BORDERS: [f64; 8] =
    [0.0, -0.0, f64::MIN, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY];

fn texts(length: usize) -> BoxedStrategy<Value> {
    let hard = proptest::sample::select(
        [
            "", "\"", "'", "\\", ",", ";", "\n", "\r", "\t", "#", "\u{feff}", "\0", "é", "😀", "NULL", "n",
            "r", "0", " ",
        ]
        .to_vec(),
    );
    let cut = move |text: String| Value::string(text.chars().take(length).collect::<String>());
    prop_oneof![
        4 => proptest::collection::vec(hard, 0..6).prop_map(|parts| parts.concat()).prop_map(cut),
        1 => any::<String>().prop_map(cut),
    ]
    .boxed()
}

fn integers(least: i64, most: i64) -> BoxedStrategy<Value> {
    prop_oneof![Just(least), Just(most), Just(0), least..=most].prop_map(Value::Int).boxed()
}

fn decimals(precision: u32) -> BoxedStrategy<Value> {
    let most = 10i128.pow(precision) - 1;
    prop_oneof![Just(most), Just(-most), Just(0), Just(1), Just(-1), -most..=most]
        .prop_map(Value::Decimal)
        .boxed()
}

/// Moments of the years 0 to 9999, in these units.
fn moments(per_second: i64, unit: i64) -> BoxedStrategy<Value> {
    let (least, most) = (-62_167_219_200 * per_second, 253_402_300_800 * per_second - 1);
    prop_oneof![Just(least), Just(most), Just(0), Just(-1), least..=most]
        .prop_map(move |moment| Value::Int(moment.div_euclid(unit) * unit))
        .boxed()
}

/// Each type and its values; a number after it says of how many it is one.
fn types() -> Vec<(&'static str, BoxedStrategy<Value>)> {
    let double = prop_oneof![proptest::sample::select(BORDERS.to_vec()), Just(f64::NAN), any::<f64>()];
    let float = prop_oneof![
        proptest::sample::select(vec![
            0.0f32,
            -0.0,
            f32::MIN,
            f32::MAX,
            f32::MIN_POSITIVE,
            1e-45,
            f32::NAN,
            f32::INFINITY
        ]),
        any::<f32>()
    ];
    vec![
        ("BOOLEAN", any::<bool>().prop_map(Value::Boolean).boxed()),
        ("TINYINT", integers(i8::MIN.into(), i8::MAX.into())),
        ("SMALLINT", integers(i16::MIN.into(), i16::MAX.into())),
        ("INT", integers(i32::MIN.into(), i32::MAX.into())),
        ("BIGINT", integers(i64::MIN, i64::MAX)),
        ("FLOAT", float.prop_map(Value::Float).boxed()),
        ("DOUBLE", double.prop_map(Value::Double).boxed()),
        ("DECIMAL(38, 0)", decimals(38)),
        ("DECIMAL(38, 38)", decimals(38)),
        ("DECIMAL(20, 7)", decimals(20)),
        ("DECIMAL(1, 0)", decimals(1)),
        ("CHAR(3)", texts(3)),
        ("VARCHAR(5)", texts(5)),
        ("STRING", texts(usize::MAX)),
        (
            "BYTES",
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(|bytes| Value::Bytes(bytes.into())).boxed(),
        ),
        ("DATE", (-719_528i64..=2_932_896).prop_map(Value::Int).boxed()),
        ("TIME(0)", (0i64..86_400).prop_map(|second| Value::Int(second * 1000)).boxed()),
        ("TIME(3)", integers(0, 86_399_999)),
        ("TIMESTAMP(0)", moments(1_000_000, 1_000_000)),
        ("TIMESTAMP(3)", moments(1_000_000, 1000)),
        ("TIMESTAMP(6)", moments(1_000_000, 1)),
        ("TIMESTAMP_LTZ(3)", moments(1_000_000, 1000)),
        ("TIMESTAMP_LTZ(6)", moments(1_000_000, 1)),
    ]
}

/// Columns and rows: a table of all types, of some, or of one.
pub(super) fn tables() -> impl Strategy<Value = (String, Vec<Vec<Value>>)> {
    let count = types().len();
    let all = Just((0..count).collect::<Vec<usize>>());
    let some = proptest::sample::subsequence((0..count).collect::<Vec<usize>>(), 1..4);
    let one = (0..count).prop_map(|ty| vec![ty]);
    (prop_oneof![1 => all, 2 => some, 2 => one], any::<u32>()).prop_flat_map(|(chosen, nullable)| {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for (place, ty) in chosen.into_iter().enumerate() {
            let (name, value) = types().swap_remove(ty);
            let has_null = nullable >> place & 1 == 0;
            columns.push(format!("c{place} {name}{}", if has_null { "" } else { " NOT NULL" }));
            values.push(match has_null {
                true => prop_oneof![1 => Just(Value::Null), 4 => value].boxed(),
                false => value,
            });
        }
        (Just(columns.join(", ")), proptest::collection::vec(values, 1..8))
    })
}

/// Formats with their options.
pub(super) const FORMATS: [&str; 12] = [
    "'format' = 'csv'",
    "'format' = 'csv', 'csv.null-literal' = 'NULL'",
    "'format' = 'csv', 'csv.field-delimiter' = ';', 'csv.allow-comments' = 'true'",
    "'format' = 'csv', 'csv.field-delimiter' = '\\t', 'csv.quote-character' = ''''",
    "'format' = 'csv', 'csv.escape-character' = '\\'",
    "'format' = 'csv', 'csv.escape-character' = '\\', 'csv.null-literal' = 'n'",
    "'format' = 'csv', 'csv.disable-quote-character' = 'true', 'csv.escape-character' = '\\', 'csv.null-literal' = 'NULL'",
    "'format' = 'csv', 'csv.disable-quote-character' = 'true', 'csv.escape-character' = '\\', 'csv.null-literal' = 'N/A', 'csv.allow-comments' = 'true'",
    "'format' = 'json'",
    "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'",
    "'format' = 'json', 'json.encode.decimal-as-plain-number' = 'false'",
    "'format' = 'json', 'json.fail-on-missing-field' = 'true'",
];

pub(super) fn own(columns: &str) -> String {
    format!("CREATE TABLE own ({columns}) WITH ('connector' = 'datagen');")
}

pub(super) fn table(name: &str, columns: &str, options: &str) -> String {
    format!("CREATE TABLE {name} ({columns}) WITH ({options});")
}

/// A file, or the parts of a directory.
pub(super) fn file(directory: &Path, name: &str) -> Vec<u8> {
    let path = directory.join(name);
    if !path.is_dir() {
        return std::fs::read(path).unwrap();
    }
    let parts = std::fs::read_dir(path).unwrap().map(|part| part.unwrap().path());
    let parts: BTreeSet<_> = parts.collect();
    parts.iter().flat_map(|part| std::fs::read(part).unwrap()).collect()
}

/// What the rows are in a file, without a way round.
pub(super) fn wanted(columns: &str, rows: &[Vec<Value>], directory: &Path) -> Vec<u8> {
    let plain = "'connector' = 'filesystem', 'path' = 'wanted', 'format' = 'csv'";
    run(
        &format!("{}{}INSERT INTO w SELECT * FROM own", own(columns), table("w", columns, plain)),
        directory,
        rows,
    );
    file(directory, "wanted")
}

pub(super) const FOUND: &str = "'connector' = 'filesystem', 'path' = 'found', 'format' = 'csv'";

/// Reads a table with a job until it has all rows.
fn read(
    columns: &str,
    options: &str,
    wanted: &[u8],
    directory: &Path,
    begun: impl FnOnce() + Send,
) -> Vec<u8> {
    let script = format!(
        "{}{}INSERT INTO f SELECT * FROM r",
        table("r", columns, options),
        table("f", columns, FOUND)
    );
    let mut running = start(&script, directory, &[], How::default());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun();
            let began = Instant::now();
            let length = || std::fs::metadata(directory.join("found")).map_or(0, |found| found.len());
            while length() < wanted.len() as u64 && began.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(2));
            }
            stop.store(true, Ordering::Relaxed);
        });
        running.run(&stop, |_| ()).unwrap_or_else(|error| panic!("{error}\n{script}"))
    });
    file(directory, "found")
}

pub(super) fn same(found: &[u8], wanted: &[u8], what: &str) -> std::result::Result<(), TestCaseError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    prop_assert_eq!(text(found), text(wanted), "{}", what);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn files_read_back_as_written(
        (columns, rows) in tables(),
        format in proptest::sample::select(FORMATS.to_vec()),
        in_parts in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let store = in_parts.then(|| open(directory.path()));
        let options = format!("'connector' = 'filesystem', 'path' = 'there', {format}");
        run_in(
            &format!("{}{}INSERT INTO t SELECT * FROM own", own(&columns), table("t", &columns, &options)),
            directory.path(),
            &rows,
            How { kept: store.as_ref().map(|store| (store, "write")), ..How::default() },
        );
        prop_assert_eq!(directory.path().join("there").is_dir(), in_parts);
        run(
            &format!("{}{}INSERT INTO f SELECT * FROM t", table("t", &columns, &options), table("f", &columns, FOUND)),
            directory.path(),
            &[],
        );
        let wanted = wanted(&columns, &rows, directory.path());
        // A row of CSV cannot be two.
        let lines = rows.len();
        prop_assert!(wanted.iter().filter(|byte| **byte == b'\n').count() >= lines);
        same(&file(directory.path(), "found"), &wanted, format)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn socket_records_read_back_as_sent((columns, rows) in tables(), format in proptest::sample::select(FORMATS.to_vec())) {
        let directory = tempfile::tempdir().unwrap();
        let wanted = wanted(&columns, &rows, directory.path());
        let options = format!("'connector' = 'socket', 'path' = 'there.sock', {format}");
        let write = format!("{}{}INSERT INTO t SELECT * FROM own", own(&columns), table("t", &columns, &options));
        let listen = format!("{options}, 'mode' = 'listen'");
        let found = read(&columns, &listen, &wanted, directory.path(), || run(&write, directory.path(), &rows));
        same(&found, &wanted, format)?;
    }
}

/// A server for the test, if there is one.
struct Server(Child, u16);

impl Server {
    fn start(directory: &Path) -> Option<Server> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--dir"]).arg(directory);
        let server = Server(command.stdout(Stdio::null()).spawn().ok()?, port);
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stream_entries_read_back_as_added() {
    let place = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(place.path()) else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let numbers = AtomicUsize::new(0);
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let ran = runner.run(&tables(), |(columns, rows)| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let wanted = wanted(&columns, &rows, directory.path());
        let options =
            format!("'connector' = 'redis-stream', 'port' = '{}', 'stream' = 's{number}'", server.1);
        run(
            &format!("{}{}INSERT INTO t SELECT * FROM own", own(&columns), table("t", &columns, &options)),
            directory.path(),
            &rows,
        );
        same(&read(&columns, &options, &wanted, directory.path(), || ()), &wanted, "redis-stream")
    });
    ran.unwrap();
}

/// What keeps the newest row of each key, with its options, whether the jobs that write and read have a store, and
/// whether they are attached to the server.
const KEPT: [(&str, bool, bool); 8] = [
    ("'connector' = 'redis', 'value' = 'hash'", false, false),
    ("'connector' = 'redis', 'value' = 'json'", false, false),
    ("'connector' = 'redis', 'value' = 'hash', 'sink.delivery-guarantee' = 'exactly-once'", true, false),
    ("'connector' = 'redis', 'value' = 'json', 'sink.delivery-guarantee' = 'exactly-once'", true, false),
    ("'connector' = 'duramen', 'value' = 'hash'", true, false),
    ("'connector' = 'duramen', 'value' = 'json'", true, false),
    ("'connector' = 'duramen', 'value' = 'hash'", true, true),
    ("'connector' = 'duramen', 'value' = 'json'", false, true),
];

/// Keys are looked up by what they were written as, also where a column of any type is part of the key.
#[test]
fn keyed_rows_read_back_as_written() {
    let place = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(place.path()) else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let numbers = AtomicUsize::new(0);
    let config = ProptestConfig { cases: 96, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let ran = runner.run(&tables(), |(columns, rows)| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let (options, is_kept, is_attached) = KEPT[number % KEPT.len()];
        let options = match options.contains("'redis'") {
            true => format!("{options}, 'port' = '{}', 'key' = 'k{number}'", server.1),
            false => format!("{options}, 'key' = 'k{number}'"),
        };
        let store = is_kept.then(|| open(directory.path()));
        let how = |name| How {
            kept: store.as_ref().map(|store| (store, name)),
            attached: is_attached.then_some(server.1),
        };
        let keyed: Vec<Vec<Value>> = rows
            .iter()
            .enumerate()
            .map(|(place, row)| [vec![Value::Int(place as i64)], row.clone()].concat())
            .collect();
        // Not-a-number equals nothing, and is no key to look up.
        let first = columns.split(", c1 ").next().unwrap();
        let in_key = first.ends_with(" NOT NULL") && !first.contains("FLOAT") && !first.contains("DOUBLE");
        let (key, on) = match in_key {
            true => ("c0, id", "own.c0 = t.c0 AND own.id = t.id"),
            false => ("id", "own.id = t.id"),
        };
        let columns = format!("id BIGINT NOT NULL, {columns}");
        let wanted = wanted(&columns, &keyed, directory.path());
        let kept = table("t", &format!("{columns}, PRIMARY KEY ({key}) NOT ENFORCED"), &options);
        run_in(
            &format!("{}{kept}INSERT INTO t SELECT * FROM own", own(&columns)),
            directory.path(),
            &keyed,
            how("write"),
        );
        let others: Vec<String> = (0..keyed[0].len() - 1).map(|place| format!("t.c{place}")).collect();
        run_in(
            &format!(
                "{}{kept}{}
                 INSERT INTO f SELECT own.id, {} FROM own JOIN t FOR SYSTEM_TIME AS OF own.p ON {on}",
                own(&format!("{columns}, p AS PROCTIME()")),
                table("f", &columns, FOUND),
                others.join(", ")
            ),
            directory.path(),
            &keyed,
            how("read"),
        );
        same(&file(directory.path(), "found"), &wanted, &format!("{options}, by {key}"))
    });
    ran.unwrap();
}
