//! `cargo xtask nexmark`: measures Nexmark's queries over the same events in three ways, and prints a table. The ways
//! are `duramen bench stream`, loops written by hand, and DataFusion. With `--compare` it checks instead that the
//! results equal those of DataFusion as a batch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cargo::cargo;
use crate::datafusion::python;
use crate::failure::{Attempt, Failure, Result};

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program, built with the feature sql [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The directory for DataFusion [default: target/datafusion]
    #[arg(long, value_name = "DIRECTORY", default_value_os_t = crate::repository().join("target/datafusion"), hide_default_value = true)]
    pub cache: PathBuf,
    /// Number of events
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    pub events: u64,
    /// How often each query runs; medians are printed
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Compares each query's result with DataFusion's, and measures nothing
    #[arg(long)]
    pub compare: bool,
}

/// All queries except q4 and q6, which are refused, and q9: these consume updates.
fn numbers() -> impl Iterator<Item = u32> {
    (0..=22).filter(|number| ![4, 6, 9].contains(number))
}

/// The tables' names, columns, and further clauses.
const TABLES: [(&str, &str, &str); 3] = [
    (
        "person",
        "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, \
                    dateTime TIMESTAMP(3), extra STRING",
        "",
    ),
    (
        "auction",
        "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, \
                     dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
        "",
    ),
    (
        "bid",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP(3), \
                 extra STRING",
        ", p AS PROCTIME()",
    ),
];

/// The tables as files, for DataFusion.
fn script(events: u64) -> String {
    TABLES
        .iter()
        .map(|(name, columns, _)| {
            format!(
                "CREATE TABLE {name} ({columns}) WITH ('connector' = 'nexmark', 'events' = '{events}');\n\
                 CREATE TABLE {name}_file ({columns}) WITH ('connector' = 'filesystem', 'path' = '{name}.csv', \
                 'format' = 'csv');\nINSERT INTO {name}_file SELECT * FROM {name};\n"
            )
        })
        .collect()
}

/// A query's script that prints its result.
fn printing(query: &str, events: u64) -> Result<String> {
    let tables: String = TABLES
        .iter()
        .map(|(name, columns, more)| {
            format!(
                "CREATE TABLE {name} ({columns}{more}, WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND) \
                 WITH ('connector' = 'nexmark', 'events' = '{events}');\n"
            )
        })
        .collect();
    let shape = || Failure::new("a query is no CREATE TABLE result (...) ... WITH (...); and an INSERT");
    let (before, rest) = query.split_once("CREATE TABLE result (").ok_or_else(shape)?;
    let (table, rest) = rest.split_once(";").ok_or_else(shape)?;
    let columns = table.split("WITH (").next().ok_or_else(shape)?;
    Ok(format!("{tables}{before}CREATE TABLE result ({columns} WITH ('connector' = 'print');{rest}"))
}

/// Fills the table in which q13 looks up rows.
const SIDE_INPUT: &str = "
CREATE TABLE side (key BIGINT, `value` STRING) WITH ('connector' = 'filesystem', 'path' = 'side.csv', 'format' = 'csv');
CREATE TABLE side_input (key BIGINT, `value` STRING, PRIMARY KEY (key) NOT ENFORCED) WITH ('connector' = 'duramen');
INSERT INTO side_input SELECT key, `value` FROM side;
";

/// Whether each query's result, on as many threads as the machine has, equals that of DataFusion.
fn compare(repository: &Path, (duramen, python): (&Path, &Path), place: &Path, events: u64) -> Result<bool> {
    let write =
        |name: &str, text: &str| std::fs::write(place.join(name), text).attempt(|| format!("write {name}"));
    let sql = |script: &str, out: &str| {
        let file = File::create(place.join(out)).attempt(|| format!("write {out}"))?;
        let mut call = Command::new(duramen);
        call.args(["sql", script, "--store", "store"]).current_dir(place).stdout(file);
        succeeds(&mut call, &format!("run {script}"))
    };
    let side: String = (0..10_000).step_by(3).map(|key| format!("{key},side {key}\n")).collect();
    write("side.csv", &side)?;
    write("side.sql", SIDE_INPUT)?;
    sql("side.sql", "side.printed")?;
    for number in numbers() {
        let file = repository.join(format!("testdata/stream/nexmark/q{number}.sql"));
        let query = std::fs::read_to_string(&file).attempt(|| format!("read {}", file.display()))?;
        write(&format!("q{number}.sql"), &printing(&query, events)?)?;
        sql(&format!("q{number}.sql"), &format!("q{number}.printed"))?;
    }
    let file = place.join("compared.json");
    let out = File::create(&file).attempt(|| format!("write {}", file.display()))?;
    let mut call = Command::new(python);
    call.arg(repository.join("crates/bench/nexmark_with_datafusion.py")).arg(place).stdout(out);
    succeeds(&mut call, "run DataFusion")?;
    let (found, mut same) = (read(&file)?, true);
    for number in numbers() {
        let one = &found[number.to_string()];
        let (rows, differ) = (&one["rows"], &one["differ"]);
        println!("q{number}: {rows} rows, {differ} differ");
        same &= rows.as_u64().is_some_and(|rows| rows > 0) && differ == 0;
    }
    Ok(same)
}

fn succeeds(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().attempt(|| what.to_owned())?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("cannot {what}: {status}"))) }
}

fn read(file: &Path) -> Result<Value> {
    let open = File::open(file).attempt(|| format!("read {}", file.display()))?;
    serde_json::from_reader(open).attempt(|| format!("read {}", file.display()))
}

/// Measures, and prints the table.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let duramen = match &settings.duramen {
        Some(duramen) => std::path::absolute(duramen).attempt(|| "find the program".to_owned())?,
        None => {
            let mut cargo = cargo(repository);
            cargo.args(["build", "--release", "--package", "duramen-cli", "--features", "bench,sql"]);
            succeeds(&mut cargo, "build duramen")?;
            repository.join("target/release/duramen")
        }
    };
    let python = python(&settings.cache)?;
    let place = tempfile::tempdir().attempt(|| "make a directory".to_owned())?;
    let (events, rounds) = (settings.events.to_string(), settings.rounds.to_string());
    std::fs::write(place.path().join("files.sql"), script(settings.events))
        .attempt(|| "write a script".to_owned())?;
    succeeds(
        Command::new(&duramen).args(["sql", "files.sql"]).current_dir(place.path()),
        "write the events to files",
    )?;
    if settings.compare {
        return compare(repository, (&duramen, &python), place.path(), settings.events);
    }
    let found = place.path().join("found.json");
    let mut bench = Command::new(&duramen);
    bench.args(["bench", "stream", "--events", &events, "--rounds", &rounds, "--nexmark"]);
    bench.arg(repository.join("testdata/stream/nexmark")).arg("--json").arg(&found);
    succeeds(&mut bench, "run duramen bench stream")?;
    let mut others = Vec::new();
    for partitions in ["1", "2"] {
        let file = place.path().join(format!("datafusion-{partitions}.json"));
        let out = File::create(&file).attempt(|| format!("write {}", file.display()))?;
        let mut call = Command::new(&python);
        call.arg(repository.join("crates/bench/nexmark_with_datafusion.py")).arg(place.path());
        succeeds(call.args([partitions, &rounds]).stdout(out), "run DataFusion")?;
        others.push(read(&file)?);
    }
    print(&read(&found)?, &others, settings.events)?;
    Ok(true)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Rates in millions of events a second, as a table of a document.
fn print(found: &Value, others: &[Value], events: u64) -> Result<()> {
    let all = found["run"]["measurements"].as_array();
    let all = all.ok_or_else(|| Failure::new("the JSON of duramen bench stream has no run.measurements"))?;
    let shown = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!("{:.2}", rate / 1e6));
    let own = |number: u32, how: &str| {
        let name = format!("q{number}, {how}");
        let one = all.iter().find(|one| one["name"] == name.as_str())?;
        one["metrics"]["rate"]["value"].as_f64()
    };
    let other = |number: u32, found: &Value| {
        let times = found[number.to_string()].as_array()?;
        median(times.iter().filter_map(Value::as_f64).map(|seconds| events as f64 / seconds).collect())
    };
    println!("| query | one thread | two threads | by hand | DataFusion, one partition | two partitions |");
    println!("|---|---|---|---|---|---|");
    for number in numbers() {
        let one = own(number, "1 thread");
        if one.is_none() {
            return Err(Failure::new(format!("the JSON of duramen bench stream has no rate of q{number}")));
        }
        println!(
            "| q{number} | {} | {} | {} | {} | {} |",
            shown(one),
            shown(own(number, "2 threads")),
            shown(own(number, "by hand")),
            shown(other(number, &others[0])),
            shown(other(number, &others[1])),
        );
    }
    Ok(())
}
