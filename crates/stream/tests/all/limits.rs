//! Scripts and values of any size are run or refused: none ends the process.

use super::support;
use std::time::{Duration, Instant};

use duramen_stream::batch::Batch;
use duramen_stream::compile::{Output, Program, Rows};
use duramen_stream::plan::reference::{Arrival, Input, run_plans};
use duramen_stream::types::Value;
use duramen_stream::{Outcome, Result, Session};

fn session() -> Session {
    let mut session = Session::default();
    session
        .run("CREATE TABLE t (v INT, b BIGINT, d DOUBLE, m DECIMAL(10, 2), s STRING) WITH ('connector' = 'datagen')")
        .unwrap();
    session
}

fn rows() -> Input {
    let row = |v: Option<i64>, d, m, s: &str| {
        let int = v.map_or(Value::Null, Value::Int);
        let row = vec![int.clone(), int, Value::Double(d), Value::Decimal(m), Value::string(s)];
        Arrival { table: "t".to_owned(), row, clock: 0 }
    };
    let arrivals = vec![
        row(Some(7), 0.5, 1234, "ab"),
        row(Some(i64::from(i32::MAX)), 1e16, 99_999_999, ""),
        row(None, f64::NAN, -5, "x"),
    ];
    Input { arrivals, ..Input::default() }
}

fn chain(count: usize, between: &str, term: impl Fn(usize) -> String) -> String {
    (0..count).map(term).collect::<Vec<String>>().join(between)
}

/// What a query gives by the reference; machine code must give the same.
fn values(query: &str) -> Vec<String> {
    let bound = session().plan(query).unwrap();
    assert_eq!(support::compare(&bound, &rows()), Some(Ok(())), "{}", &query[..80]);
    let data = &bound.schema[0].ty.data;
    run_plans(std::slice::from_ref(&bound), &rows()).unwrap()[0]
        .iter()
        .map(|(_, row)| row[0].text(data))
        .collect()
}

/// The message of an error, on a stack as small as a thread of the server's has. How soon it comes is measured by
/// `cargo xtask linear`.
fn refused(script: String) -> String {
    let refuse = move || session().run(&script).unwrap_err().to_string();
    std::thread::Builder::new().stack_size(1 << 20).spawn(refuse).unwrap().join().unwrap()
}

#[test]
fn a_long_chain_of_operators_equals_nested_pairs() {
    for (query, wanted) in [
        (chain(2000, " OR ", |i| format!("v = {}", i + 5)), ["TRUE", "FALSE", "NULL"]),
        (
            chain(2000, " OR ", |i| format!("s = 'a{}'", if i == 1999 { "b" } else { "" })),
            ["TRUE", "FALSE", "FALSE"],
        ),
        // More than the better of the two allocators of registers is given.
        (
            chain(4000, " OR ", |i| {
                format!("s = 'a{}'", if i == 3999 { "b".to_owned() } else { i.to_string() })
            }),
            ["TRUE", "FALSE", "FALSE"],
        ),
        (
            format!("CASE {} ELSE 0 END", chain(4000, " ", |i| format!("WHEN v = {i} THEN b + {i}"))),
            ["14", "0", "0"],
        ),
        (chain(2000, " AND ", |i| format!("v <> {}", i + 8)), ["TRUE", "TRUE", "NULL"]),
        (chain(2000, " + ", |_| "v".to_owned()), ["14000", "-2000", "NULL"]),
        (chain(2000, " + ", |_| "b".to_owned()), ["14000", "4294967294000", "NULL"]),
        (format!("CHAR_LENGTH({})", chain(2000, " || ", |_| "s".to_owned())), ["4000", "0", "2000"]),
        (chain(300, " + ", |_| "m".to_owned()), ["3702.00", "299999997.00", "-15.00"]),
        // From left to right: each addition of 1 to 1e16 loses it.
        (format!("d + {} - d", chain(1000, " + ", |_| "1e0".to_owned())), ["1000.0", "0.0", "NaN"]),
    ] {
        assert_eq!(values(&format!("SELECT {query} FROM t")), wanted, "{}", &query[..40]);
    }
}

#[test]
fn a_chain_of_twenty_thousand_is_planned_on_a_small_stack() {
    let condition = chain(20_000, " OR ", |i| format!("v = {i}"));
    let script = format!(
        "CREATE TABLE o (v INT) WITH ('connector' = 'blackhole');
         CREATE VIEW w AS SELECT v FROM t WHERE {condition};
         INSERT INTO o SELECT v FROM w;
         INSERT INTO o SELECT v FROM t WHERE v IN ({}) AND ({condition})",
        chain(20_000, ", ", |i| i.to_string())
    );
    let plan = move || {
        let mut session = session();
        let outcomes = session.run(&script).unwrap();
        assert_eq!(outcomes.len(), 4);
        // With the plans and the view.
        drop((outcomes, session));
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(plan).unwrap().join().unwrap();
}

#[test]
fn too_deep_or_too_long_expressions_are_refused() {
    for (select, wanted) in [
        (chain(20_000, " - ", |_| "v".to_owned()), "arithmetic of too many operators in a row"),
        (format!("v{}", " IS NULL".repeat(20_000)), "nested too deep"),
        (chain(20_000, " = ", |_| "v".to_owned()), "nested too deep"),
        (format!("{}v{}", "(".repeat(20_000), ")".repeat(20_000)), "nested too deep"),
        (format!("{}v", "NOT ".repeat(20_000)), "nested too deep"),
        (format!("{}v", "- ".repeat(20_000)), "nested too deep"),
        (chain(60_000, " OR ", |i| format!("v = {i}")), "a statement of more than 200000 words"),
        (chain(150_000, "+", |_| "v".to_owned()), "a statement of more than 200000 words"),
        (format!("{}nope", "v = 1 OR ".repeat(5000)), "nope"),
        (format!("nope{}", " OR v = 1".repeat(5000)), "line 1, column 16: found name `nope`"),
    ] {
        let message = refused(format!("EXPLAIN SELECT {select} FROM t"));
        assert!(message.contains(wanted), "{message}");
    }
    let joins = format!("EXPLAIN SELECT t.v FROM t{}", " JOIN t AS u ON t.v = u.v".repeat(9000));
    assert!(refused(joins).contains("9001 relations in one FROM"));
    // Much of anything.
    for text in ["x", "'", "(", "/*", "--", "SELECT ", "\n", ";", "WITH a AS (", "\u{e4}", "CASE "] {
        let script = text.repeat(100_000 / text.len());
        let ran = std::thread::spawn(move || Session::default().run(&script).map(|outcomes| outcomes.len()));
        let _ = ran.join().unwrap();
    }
}

/// Which script of [`of_ten_megabytes`] a child process runs.
const SHAPE: &str = "DURAMEN_STREAM_SHAPE";

/// A number of Linux's `/proc/self/status`.
fn own_status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Makes a script.
type Make = Box<dyn Fn() -> String>;

/// Scripts of ten megabytes, by what they are full of.
fn of_ten_megabytes() -> Vec<(&'static str, Make)> {
    const BYTES: usize = 10_000_000;
    fn full(before: impl Into<String>, part: impl Into<String>, after: &'static str) -> Make {
        let (before, part) = (before.into(), part.into());
        Box::new(move || format!("{before}{}{after}", part.repeat(BYTES / part.len())))
    }
    fn counted(part: fn(usize) -> String) -> Make {
        Box::new(move || {
            let mut script = String::with_capacity(BYTES);
            let mut number = 0;
            while script.len() < BYTES {
                script.push_str(&part(number));
                number += 1;
            }
            script
        })
    }
    let select = "EXPLAIN SELECT v FROM t WHERE ";
    let into = "CREATE TABLE o (x INT) WITH ('connector' = 'blackhole'); ";
    vec![
        ("OR", full(select, "v = 1 OR ", "v = 2")),
        ("+", full("EXPLAIN SELECT v", "+v", " FROM t")),
        ("minus", full("EXPLAIN SELECT ", "- ", "v FROM t")),
        ("names with points", full("EXPLAIN SELECT v", ".v", " FROM t")),
        ("texts", full(select, "s = 'abc' OR ", "v = 2")),
        ("IN", full(select, "v IN (1, 2, 3) OR ", "v = 2")),
        ("CASE", full("EXPLAIN SELECT CASE", " WHEN v = 1 THEN 2", " END FROM t")),
        ("VALUES", full(format!("{into} INSERT INTO o SELECT x FROM (VALUES (0)"), ", (1)", ") AS u (x)")),
        ("UNION ALL", full("EXPLAIN SELECT v FROM t", " UNION ALL SELECT v FROM t", "")),
        ("parentheses", full("EXPLAIN SELECT ", "(", "v FROM t")),
        ("signs", full("EXPLAIN SELECT ", "~", "v FROM t")),
        ("statements without words", full("", ";", "")),
        ("SET", full("", "SET 'table.local-time-zone' = 'UTC';", "")),
        ("jobs", full(into, "INSERT INTO o SELECT v FROM t;", "")),
        (
            "a statement set",
            full(format!("{into} EXECUTE STATEMENT SET BEGIN "), "INSERT INTO o SELECT v FROM t;", "END;"),
        ),
        (
            "tables",
            counted(|number| format!("CREATE TABLE t{number} (x INT) WITH ('connector' = 'datagen');\n")),
        ),
        ("views", counted(|number| format!("CREATE VIEW w{number} AS SELECT v FROM t;\n"))),
        ("a text", full("EXPLAIN SELECT '", "ab c,d;", "' FROM t")),
        ("a text of quotes", full("EXPLAIN SELECT '", "''", "' FROM t")),
        ("a text without an end", full("EXPLAIN SELECT '", "ab c,d;", "")),
        ("a name", full("EXPLAIN SELECT `", "ab c,d;", "` FROM t")),
        ("a word", full("EXPLAIN SELECT ", "abc", " FROM t")),
        ("a number", full("EXPLAIN SELECT ", "123", " FROM t")),
        ("large texts", full("EXPLAIN SELECT ", format!("'{}', ", "x, ".repeat(30_000)), "v FROM t")),
        ("comments", full("EXPLAIN SELECT v FROM t", "-- of a line\n/* of none */\n", "")),
        ("a comment", full("EXPLAIN SELECT v /*", "ab c,d;", "*/ FROM t")),
        ("a comment without an end", full("EXPLAIN SELECT v /*", "ab c,d;", " FROM t")),
        ("a comment of a line", full("EXPLAIN SELECT v FROM t --", "ab c,d;", "")),
        ("blanks", full("EXPLAIN SELECT v", " ", "FROM t")),
        ("lines", full("EXPLAIN SELECT v", "\n", "FROM t")),
    ]
}

/// Any script is planned or refused within a second, and in bounded memory. A child process runs each, so that the
/// memory is its own.
#[test]
fn scripts_of_ten_megabytes_are_planned_or_refused_soon_and_in_little_memory() {
    if let Ok(shape) = std::env::var(SHAPE) {
        let (_, make) = of_ten_megabytes().into_iter().find(|(name, _)| *name == shape).unwrap();
        let script = make();
        // With the script itself.
        let before = own_status("VmRSS:");
        let began = Instant::now();
        let said = match session().run(&script) {
            Ok(outcomes) => format!("{} outcomes", outcomes.len()),
            Err(error) => error.to_string().chars().take(150).collect(),
        };
        let megabytes = own_status("VmHWM:").saturating_sub(before) / 1024;
        println!("said {} {megabytes} {said}", began.elapsed().as_millis());
        return;
    }
    // An optimised build takes less than a second, alone on the machine.
    let patience = if cfg!(debug_assertions) { Duration::from_secs(60) } else { Duration::from_secs(4) };
    for (shape, _) in of_ten_megabytes() {
        let name = "limits::scripts_of_ten_megabytes_are_planned_or_refused_soon_and_in_little_memory";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = child.args([name, "--exact", "--nocapture"]).env(SHAPE, shape).output().unwrap();
        let out = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{shape}: {}\n{out}", String::from_utf8_lossy(&ran.stderr));
        let said = out.split_once("said ").unwrap().1.lines().next().unwrap();
        println!("{shape}: {said}");
        let mut numbers = said.split(' ').map(|word| word.parse::<u64>().unwrap_or_default());
        let (millis, megabytes) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(Duration::from_millis(millis) < patience && megabytes < 300, "{shape}: {said}");
    }
}

/// How soon is measured by `cargo xtask linear`.
#[test]
fn many_inserts_into_one_table_are_one_job_and_too_many_jobs_are_refused() {
    let tables = ["a", "b", "c"].map(|name| {
        format!(
            "CREATE TABLE {name} (v INT) WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'csv');"
        )
    });
    let inserts = chain(3000, "", |i| format!("INSERT INTO {} SELECT v FROM t;", ["a", "b"][i % 2]));
    let script = format!("{} INSERT INTO c SELECT v FROM t; {inserts}", tables.concat());
    let jobs: Vec<(String, usize)> = session()
        .run(&script)
        .unwrap()
        .into_iter()
        .filter_map(|outcome| match outcome {
            Outcome::Job(job) => Some((job.bound[0].table.name.clone(), job.optimised.len())),
            _ => None,
        })
        .collect();
    assert_eq!(jobs, [("c".to_owned(), 1), ("a".to_owned(), 1500), ("b".to_owned(), 1500)]);
    // Rows written in between are read after the last of them, and not before.
    let after = |more: &str| format!("{} {inserts} {more}", tables.concat());
    assert_eq!(session().run(&after("INSERT INTO c SELECT v FROM a;")).unwrap().len(), 3 + 3000 + 1);
    let error = refused(after("INSERT INTO c SELECT v FROM a; INSERT INTO a SELECT v FROM t;"));
    assert!(error.contains("`a` written and read in the same script"), "{error}");
    let error = refused(format!(
        "{} INSERT INTO a SELECT v FROM t; INSERT INTO c SELECT v FROM a; INSERT INTO c SELECT v FROM t; {inserts}",
        tables.concat()
    ));
    assert!(error.contains("`a` written and read in the same script"), "{error}");
    let error = refused(format!("{} {}", tables.concat(), "INSERT INTO a SELECT v FROM t;".repeat(10_001)));
    assert!(error.contains("found a script of more than 10000 jobs, wanted at most 10000"), "{error}");
}

#[test]
fn the_plan_of_nested_views_does_not_grow_exponentially() {
    let mut script = "CREATE VIEW w0 AS SELECT b AS x FROM t;".to_owned();
    for number in 1..35 {
        script += &format!("CREATE VIEW w{number} AS SELECT x * x + x AS x FROM w{};", number - 1);
    }
    script += "CREATE TABLE o (x BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT x FROM w34 WHERE x > 1";
    let began = Instant::now();
    session().run(&script).unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "it took {:?}", began.elapsed());
}

#[test]
fn texts_that_are_too_long_are_refused() {
    let mut input = rows();
    input.arrivals.truncate(1);
    let long = "REPEAT(s, 30000000)";
    for (expr, name) in [
        ("REPLACE(REPEAT(s, 30000), 'a', REPEAT('b', 60000))", "REPLACE"),
        ("REPLACE(REPEAT(s, 30000), s, REPEAT('b', 60000))", "REPLACE"),
        ("REPLACE(REPEAT(s, 30000), '', REPEAT('b', 60000))", "REPLACE"),
        ("REGEXP_REPLACE(REPEAT(s, 30000), 'a', REPEAT('b', 60000))", "REGEXP_REPLACE"),
        ("REGEXP_REPLACE(REPEAT(s, 30000), s, REPEAT('b', 60000))", "REGEXP_REPLACE"),
        (format!("CONCAT({long}, {long})").as_str(), "CONCAT"),
        (format!("CONCAT_WS({long}, s, s, s)").as_str(), "CONCAT_WS"),
        (format!("{long} || {long}").as_str(), "||"),
        (format!("{long} || s || s || s || {long}").as_str(), "||"),
        ("REPEAT(s, 300000000)", "REPEAT"),
        ("LPAD(s, 300000000, 'x')", "padding"),
    ] {
        let bound = session().plan(&format!("SELECT CHAR_LENGTH({expr}) FROM t")).unwrap();
        let plans = support::job(std::slice::from_ref(&bound));
        let reference = run_plans(&plans, &input).map(|_| ()).unwrap_err().to_string();
        let compiled = support::run(&plans, &input, 10, false).map(|_| ()).unwrap_err().to_string();
        for message in [reference, compiled] {
            assert!(message.starts_with(&format!("{name} would make")), "{expr}: {message}");
            assert!(message.contains("67108864"), "{expr}: {message}");
        }
    }
}

#[test]
fn a_sink_that_panics_fails_its_job_and_not_the_process() {
    struct Panics;
    impl Output for Panics {
        fn take(&mut self, _: &Rows<'_>) -> Result<()> {
            panic!("as if it had a fault");
        }
    }
    let plans = support::job(&[session().plan("SELECT v FROM t").unwrap()]);
    let outputs = vec![Box::new(Panics) as Box<dyn Output>];
    let mut program = Program::compile_with(&plans, outputs, None, None).unwrap();
    let source = program.sources().remove(0);
    let mut batch = Batch::new(&source.types).unwrap();
    // More than the sink's buffer holds: it is given them while machine code runs, through which nothing unwinds.
    for row in 0..100_000 {
        batch.push(&[Value::Int(row)]).unwrap();
    }
    let failed = program.run(0, &batch).unwrap_err().to_string();
    assert!(failed.contains("as if it had a fault"), "{failed}");
}
