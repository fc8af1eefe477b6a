//! `cargo xtask linear`: checks that scripts of continuous SQL with many of one thing cost about four times as much for
//! four times as many.
//!
//! The measure is the processor time of `duramen sql`, less that of an empty script, so that other programs on the
//! machine change little.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program, built with the feature sql [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The largest number of each thing
    #[arg(long, default_value_t = 10_000)]
    pub count: usize,
    /// Only the cases whose names contain one of these
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// The limit for the cost of four times as many: a quadratic cost would be sixteen.
const GROWTH_MAX: f64 = 7.0;
/// Less processor time than this is ignored: a clock tick is a hundredth of a second.
const SECONDS_MIN: f64 = 0.2;

/// A script with `n` of one thing, and files in its directory.
struct Case {
    name: &'static str,
    store: bool,
    make: fn(&Path, usize) -> Result<String>,
}

const SINK: &str = "CREATE TABLE o (x BIGINT) WITH ('connector' = 'blackhole');\n";
const ROWS: &str = "CREATE TABLE t (v BIGINT, s STRING, m DECIMAL(10, 2)) WITH ('connector' = 'datagen', 'number-of-rows' = '100');\n";

fn list(n: usize, between: &str, each: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for index in 0..n {
        // Writing to a text does not fail.
        let _ = write!(text, "{}{}", if index == 0 { "" } else { between }, each(index));
    }
    text
}

fn count_where(condition: &str) -> Result<String> {
    Ok(format!("{SINK}{ROWS}INSERT INTO o SELECT v FROM t WHERE {condition};\n"))
}

fn value_of(expr: &str) -> Result<String> {
    Ok(format!("{SINK}{ROWS}INSERT INTO o SELECT CAST({expr} AS BIGINT) FROM t;\n"))
}

const fn case(name: &'static str, make: fn(&Path, usize) -> Result<String>) -> Case {
    Case { name, store: false, make }
}

const CASES: &[Case] = &[
    case("terms of OR", |_, n| count_where(&list(n, " OR ", |i| format!("v = {i}")))),
    case("terms of OR, of texts", |_, n| count_where(&list(n, " OR ", |i| format!("s = 'x{i}'")))),
    case("terms of AND", |_, n| count_where(&list(n, " AND ", |i| format!("v <> {i}")))),
    case("terms of +", |_, n| value_of(&list(n, " + ", |i| format!("v * {i}")))),
    case("terms of + of DECIMAL", |_, n| value_of(&list(n, " + ", |i| format!("m * {}", i % 10)))),
    case("terms of ||", |_, n| {
        value_of(&format!("CHAR_LENGTH({})", list(n, " || ", |i| format!("s || '{i}'"))))
    }),
    case("members of IN", |_, n| count_where(&format!("v IN ({})", list(n, ", ", |i| i.to_string())))),
    case("branches of CASE", |_, n| {
        value_of(&format!("CASE {} ELSE 0 END", list(n, " ", |i| format!("WHEN v = {i} THEN {}", i + 1))))
    }),
    case("arguments", |_, n| value_of(&format!("GREATEST({})", list(n, ", ", |i| format!("v - {i}"))))),
    case("rows of VALUES", |_, n| {
        Ok(format!(
            "{SINK}INSERT INTO o SELECT x FROM (VALUES {}) AS t (x);\n",
            list(n, ", ", |i| format!("(CAST({i} AS BIGINT))"))
        ))
    }),
    case("parts of UNION ALL", |_, n| {
        Ok(format!(
            "{SINK}{ROWS}INSERT INTO o {};\n",
            list(n, " UNION ALL ", |i| format!("SELECT v + {i} FROM t"))
        ))
    }),
    case("columns", |directory, n| {
        let path = directory.join("columns.csv");
        fs::write(&path, format!("{}\n", list(n, ",", |i| i.to_string())))
            .attempt(|| "write a file".to_owned())?;
        let columns = list(n, ", ", |i| format!("c{i} BIGINT"));
        Ok(format!(
            "CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = 'columns.csv', 'format' = 'csv');\n\
             CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole');\n\
             INSERT INTO o ({}) SELECT {} FROM t;\n",
            list(n, ", ", |i| format!("c{i}")),
            list(n, ", ", |i| format!("c{i} + 1"))
        ))
    }),
    case("tables", |_, n| {
        let tables = list(n, "", |i| {
            format!("CREATE TABLE t{i} (x BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');\n")
        });
        Ok(format!("{SINK}{tables}INSERT INTO o SELECT x FROM t0;\n"))
    }),
    case("views", |_, n| {
        let views = list(n, "", |i| format!("CREATE VIEW w{i} AS SELECT v + {i} AS v FROM t;\n"));
        Ok(format!("{SINK}{ROWS}{views}INSERT INTO o SELECT v FROM w0;\n"))
    }),
    case("jobs of a script", |_, n| {
        Ok(format!("{SINK}{ROWS}{}", list(n, "", |_| "INSERT INTO o SELECT v FROM t;\n".to_owned())))
    }),
    case("INSERTs into one file", |_, n| {
        Ok(format!(
            "{ROWS}CREATE TABLE f (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'o', 'format' = 'csv');\n{}",
            list(n, "", |i| format!("INSERT INTO f SELECT v + {i} FROM t;\n"))
        ))
    }),
    case("files that are written", |_, n| {
        Ok(format!(
            "{ROWS}{}",
            list(n, "", |i| format!(
                "CREATE TABLE f{i} (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'o{i}', 'format' = 'csv');\n\
                 INSERT INTO f{i} SELECT v FROM t;\n"
            ))
        ))
    }),
    case("files of a directory", |directory, n| {
        let files = directory.join("files");
        fs::create_dir_all(&files).attempt(|| "make a directory".to_owned())?;
        for index in 0..n {
            fs::write(files.join(format!("{index:06}.csv")), "1\n").attempt(|| "write a file".to_owned())?;
        }
        Ok(format!(
            "{SINK}CREATE TABLE t (v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'files', 'format' = 'csv');\n\
             INSERT INTO o SELECT v FROM t;\n"
        ))
    }),
    case("late rows", |directory, n| {
        let mut text = "1,2030-01-01 00:00:00\n".to_owned();
        // Each in another window.
        for index in 0..n * 20 {
            let _ = writeln!(
                text,
                "1,20{:02}-{:02}-{:02} {:02}:00:00",
                index % 20,
                index % 12 + 1,
                index % 28 + 1,
                index % 24
            );
        }
        fs::write(directory.join("late.csv"), text).attempt(|| "write a file".to_owned())?;
        Ok(format!(
            "{SINK}CREATE TABLE t (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
             WITH ('connector' = 'filesystem', 'path' = 'late.csv', 'format' = 'csv');\n\
             INSERT INTO o SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) \
             GROUP BY window_start, window_end;\n"
        ))
    }),
    Case {
        store: true,
        ..case("keys of a lookup", |_, n| {
            let n = n * 5;
            Ok(format!(
                "{SINK}CREATE TABLE k (v BIGINT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '{n}', \
             'fields.v.kind' = 'sequence', 'fields.v.start' = '1', 'fields.v.end' = '{n}');\n\
             CREATE TABLE d (v BIGINT, w BIGINT, PRIMARY KEY (v) NOT ENFORCED) WITH ('connector' = 'duramen');\n\
             INSERT INTO d SELECT v, v FROM k;\n\
             INSERT INTO o SELECT d.w FROM k JOIN d FOR SYSTEM_TIME AS OF k.p ON k.v = d.v;\n"
            ))
        })
    },
];

/// Measures all cases; returns whether each is linear.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let duramen = match &settings.duramen {
        Some(path) => std::path::absolute(path).attempt(|| format!("find {}", path.display()))?,
        None => built(repository)?,
    };
    let nothing = seconds(&duramen, &case("nothing", |_, _| Ok(SINK.to_owned())), 1)?;
    println!("| | count | seconds | four times | seconds | growth |\n|---|---|---|---|---|---|");
    let mut is_good = true;
    for case in CASES {
        if !settings.only.is_empty() && !settings.only.iter().any(|part| case.name.contains(part.as_str())) {
            continue;
        }
        let most = settings.count.max(4);
        let few = (seconds(&duramen, case, most / 4)? - nothing).max(0.01);
        let many = (seconds(&duramen, case, most)? - nothing).max(0.01);
        let growth = many / few;
        let is_linear = growth <= GROWTH_MAX || many < SECONDS_MIN;
        is_good &= is_linear;
        let note = if is_linear { "" } else { " **more than linear**" };
        println!("| {} | {} | {few:.2} | {most} | {many:.2} | {growth:.1}{note} |", case.name, most / 4);
    }
    Ok(is_good)
}

fn built(repository: &Path) -> Result<PathBuf> {
    let mut cargo = cargo(repository);
    cargo.args(["build", "--release", "--package", "duramen-cli", "--features", "sql"]);
    let status = cargo.status().attempt(|| "run cargo build".to_owned())?;
    if !status.success() {
        return Err(Failure::new("cannot build the duramen program: cargo build failed"));
    }
    Ok(repository.join("target/release/duramen"))
}

/// The processor time of a script, in seconds. It must succeed.
fn seconds(duramen: &Path, case: &Case, n: usize) -> Result<f64> {
    let directory = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let script = (case.make)(directory.path(), n)?;
    fs::write(directory.path().join("job.sql"), script).attempt(|| "write a script".to_owned())?;
    let mut command = Command::new(duramen);
    command.current_dir(directory.path()).args(["sql", "job.sql", "--threads", "1"]);
    if case.store {
        command.args(["--store", "jobs"]);
    }
    let before = spent()?;
    let output = command.stdin(Stdio::null()).output().attempt(|| format!("start {}", duramen.display()))?;
    let spent = spent()? - before;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let end: String = said.chars().take(400).collect();
        return Err(Failure::new(format!("{} {}: {}\n{end}", n, case.name, output.status)));
    }
    Ok(spent)
}

/// The processor time of all ended child processes of this one, in seconds.
fn spent() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").attempt(|| "read /proc/self/stat".to_owned())?;
    // The name, in parentheses, may have blanks; cutime and cstime are the 16th and 17th, in hundredths.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    match (ticks(13), ticks(14)) {
        (Some(user), Some(system)) => Ok((user + system) / 100.0),
        _ => Err(Failure::new("/proc/self/stat has no times of children")),
    }
}
