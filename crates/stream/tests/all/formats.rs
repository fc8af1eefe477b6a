//! Edge cases of CSV and JSON: quotes, marks, digits, refused records and counted ones.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duramen_stream::run::{Progress, Running};
use duramen_stream::{Error, Outcome, Session};

/// Runs the one job of a script.
fn run(script: &str, directory: &Path) -> Result<Progress, Error> {
    let Some(Outcome::Job(job)) = Session::default().run(script)?.pop() else { panic!("{script}") };
    Running::start(&job.optimised, directory)?.run(&AtomicBool::new(false), |_| ())
}

/// What a file of these bytes gives as CSV, and how many records were left out.
fn rows(columns: &str, options: &str, bytes: impl AsRef<[u8]>) -> Result<(String, u64), Error> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in"), bytes).unwrap();
    let script = format!(
        "CREATE TABLE i ({columns}) WITH ('connector' = 'filesystem', 'path' = 'in', {options});
         CREATE TABLE o ({columns}) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
         INSERT INTO o SELECT * FROM i"
    );
    let progress = run(&script, directory.path())?;
    Ok((std::fs::read_to_string(directory.path().join("out")).unwrap_or_default(), progress.skipped))
}

#[track_caller]
fn gives(columns: &str, options: &str, bytes: impl AsRef<[u8]>, wanted: &str) {
    assert_eq!(rows(columns, options, bytes), Ok((wanted.to_owned(), 0)), "{options}");
}

#[track_caller]
fn is_refused(columns: &str, options: &str, bytes: impl AsRef<[u8]>, wanted: &str) {
    let error = rows(columns, options, bytes).unwrap_err().to_string();
    assert!(error.contains(wanted), "{error}");
}

const AB: &str = "a STRING, b INT";
const CSV: &str = "'format' = 'csv'";
const JSON: &str = "'format' = 'json'";

#[test]
fn a_quote_within_a_value_is_text() {
    gives(AB, CSV, "5\" pipe,1\n6\" pipe,2\nz,3\n", "\"5\"\" pipe\",1\n\"6\"\" pipe\",2\nz,3\n");
    gives(AB, CSV, "ok,0\n5\" pipe,1\nz,2\n", "ok,0\n\"5\"\" pipe\",1\nz,2\n");
    gives(AB, CSV, "a\"b\"c,1\n", "\"a\"\"b\"\"c\",1\n");
    gives(
        AB,
        "'format' = 'csv', 'csv.field-delimiter' = '\\t'",
        "it's 5\"\t1\nok\t3\n",
        "\"it's 5\"\"\",1\nok,3\n",
    );
    gives(AB, CSV, "\"x\ny\",1\r\n\"a\"\"b\",2\r\n", "\"x\ny\",1\n\"a\"\"b\",2\n");
    // The ends of lines of old.
    gives(AB, CSV, "a,1\rb,2\r", "a,1\nb,2\n");
}

#[test]
fn lines_after_an_open_quote_take_no_longer_than_others() {
    let text = format!("5\" y,2\n{}", "abcdefghij,3\n".repeat(40_000));
    let began = Instant::now();
    let (_, skipped) = rows(AB, "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'", &text).unwrap();
    assert_eq!(skipped, 0);
    // A quote that is open for all of them.
    let text = format!("\"y,2\n{}", "abcdefghij,3\n".repeat(40_000));
    let found = rows(AB, "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'", &text).unwrap();
    assert_eq!(found, (String::new(), 1));
    // 91 s and more when each line was looked at again for each that followed.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn an_unclosed_quote_is_reported_with_its_line() {
    is_refused(AB, CSV, "a,1\nb,2\n\"c,3\nd,4\n", "in, line 3: found a quote that is not closed");
}

#[test]
fn a_record_without_an_end_is_refused_with_its_line() {
    let mut bytes = b"a,1\n\"".to_vec();
    bytes.resize(70 << 20, b'x');
    is_refused(AB, CSV, &bytes, "in, line 2: a record of more than 67108864 bytes");
    bytes[4] = b'{';
    is_refused(
        "a INT",
        "'format' = 'json', 'json.ignore-parse-errors' = 'true'",
        &bytes,
        "in, line 2: a record of more",
    );
}

#[test]
fn a_job_that_skips_every_record_can_be_stopped() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in"), "no number\n".repeat(6_000_000)).unwrap();
    let script = "CREATE TABLE i (a INT)
          WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true');
        CREATE TABLE o (a INT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT a FROM i";
    let Some(Outcome::Job(job)) = Session::default().run(script).unwrap().pop() else { panic!() };
    let stop = AtomicBool::new(true);
    let progress = Running::start(&job.optimised, directory.path()).unwrap().run(&stop, |_| ()).unwrap();
    assert!(progress.skipped < 6_000_000, "{progress:?}");
    stop.store(false, Ordering::Relaxed);
}

#[test]
fn options_of_csv_are_those_of_flink() {
    let with = |options: &str| format!("'format' = 'csv', {options}");
    gives(AB, &with("'csv.field-delimiter' = ';'"), "a;1\n", "a,1\n");
    gives(AB, &with("'csv.field-delimiter' = '\\u0001'"), "a\u{1}1\n", "a,1\n");
    gives(AB, &with("'csv.quote-character' = ''''"), "'a,b',1\n\"c,2\n", "\"a,b\",1\n\"\"\"c\",2\n");
    gives(
        AB,
        &with("'csv.escape-character' = '\\'"),
        "a\\,b,1\n\"c\\\"d\",2\n\\n,3\n",
        "\"a,b\",1\n\"c\"\"d\",2\n\"\n\",3\n",
    );
    gives(AB, &with("'csv.disable-quote-character' = 'true'"), "\"a,1\n", "\"\"\"a\",1\n");
    gives(AB, &with("'csv.allow-comments' = 'true'"), "# x, \"y\na,1\n#\nb,2\n", "a,1\nb,2\n");
    gives(
        AB,
        &with("'csv.null-literal' = 'NULL'"),
        "NULL,1\n\"NULL\",2\n,3\nx,NULL\n",
        ",1\nNULL,2\n\"\",3\nx,\n",
    );
    // One column: an empty line is a record.
    gives("a STRING", CSV, "a\n\nb\n\"\"\n", "a\n\nb\n\"\"\n");
    gives(AB, CSV, "a,1\n\n\r\nb,2\n\n", "a,1\nb,2\n");
    for (options, wanted) in [
        ("'csv.quote-character' = ','", "wanted different characters"),
        ("'csv.escape-character' = 'n'", "wanted different characters"),
        ("'csv.null-literal' = 'a,b'", "wanted a text without delimiters"),
        ("'csv.field-delimiter' = 'ab'", "one character of ASCII"),
        ("'csv.escape-character' = 'é'", "one character of ASCII"),
    ] {
        is_refused(AB, &with(options), "a,1\n", wanted);
    }
}

#[test]
fn null_is_written_as_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in"), "1,N/A,x\n2,3,\"N/A\"\n").unwrap();
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (a INT, b INT, c STRING) WITH ('connector' = 'filesystem', 'path' = '{name}',
             'format' = 'csv', 'csv.null-literal' = 'N/A');"
        )
    };
    run(
        &format!(
            "{}{}INSERT INTO `out` SELECT * FROM `in`",
            table("`in`").replace("'`in`'", "'in'"),
            table("`out`").replace("'`out`'", "'out'")
        ),
        directory.path(),
    )
    .unwrap();
    let out = std::fs::read_to_string(directory.path().join("out")).unwrap();
    assert_eq!(out, "1,N/A,x\n2,3,\"N/A\"\n");
}

#[test]
fn a_value_that_needs_quotes_is_refused_where_quotes_are_disabled() {
    let write = |options: &str, value: &str| {
        let directory = tempfile::tempdir().unwrap();
        let script = format!(
            "CREATE TABLE o (a STRING, b INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv',
               'csv.disable-quote-character' = 'true' {options});
             INSERT INTO o VALUES ('{value}', 1)"
        );
        let written = run(&script, directory.path()).map_err(|error| error.to_string());
        written.map(|_| std::fs::read_to_string(directory.path().join("out")).unwrap())
    };
    assert_eq!(write("", "a\"b").unwrap(), "a\"b,1\n");
    let error = write("", "a,b").unwrap_err();
    assert!(error.contains("column `a`: the value \"a,b\" would be read as"), "{error}");
    assert_eq!(write(", 'csv.escape-character' = '\\'", "a,b").unwrap(), "a\\,b,1\n");
}

#[test]
fn byte_order_marks_are_skipped() {
    gives(AB, CSV, "\u{feff}a,1\nb,2\n", "a,1\nb,2\n");
    gives(AB, CSV, "\u{feff}\"a\",1\n\u{feff}b,2\n", "a,1\n\"\u{feff}b\",2\n");
    gives(AB, JSON, "\u{feff}{\"a\": \"x\", \"b\": 1}\n", "x,1\n");
    let script = "\u{feff}CREATE TABLE o (a INT) WITH ('connector' = 'blackhole'); INSERT INTO o VALUES (1)";
    assert!(run(script, Path::new(".")).is_ok());
    let error = run("\u{feff}CREATE TABEL o", Path::new(".")).unwrap_err();
    assert!(error.to_string().starts_with("line 1, column 8"), "{error}");
}

#[test]
fn a_fraction_is_no_integer() {
    is_refused(AB, CSV, "a,1.9\n", "found '1.9' for `b`, wanted INT");
    is_refused(AB, CSV, "a,1.0\n", "found '1.0' for `b`, wanted INT");
    is_refused(AB, CSV, "a,2147483648\n", "wanted INT");
    is_refused(AB, JSON, "{\"a\": \"x\", \"b\": 1.9}\n", "found '1.9' for `b`, wanted INT");
    gives(AB, JSON, "{\"a\": \"x\", \"b\": 1.0}\n{\"a\": \"x\", \"b\": 12e2}\n", "x,1\nx,1200\n");
}

#[test]
fn the_values_of_a_refused_record_are_in_no_later_one() {
    let skip = |format: &str| format!("'format' = '{format}', '{format}.ignore-parse-errors' = 'true'");
    let columns = "a STRING, b INT, c STRING";
    let csv = "a,1,x\nlost,no,y\nb,2,z\nlost,3\n";
    assert_eq!(rows(columns, &skip("csv"), csv), Ok(("a,1,x\nb,2,z\n".to_owned(), 2)));
    let json = r#"{"a": "a", "b": 1, "c": "x"}
{"a": "lost", "b": "no", "c": "lost"}
{"c": "lost", "a": "lost", "b": 1.5}
{"c": "lost", "a": "lost", "b": 1
{"c": "y", "a": "b", "b": 2}
"#;
    assert_eq!(rows(columns, &skip("json"), json), Ok(("a,1,x\nb,2,y\n".to_owned(), 3)));
}

#[test]
fn a_json_value_is_read_alike_whatever_the_objects_before_it_had() {
    let lines = [
        (r#"{"a": "x", "b": 1}"#, "x,1"),
        (r#"{"a": {"k": [1, 2]}, "b": 2}"#, "\"{\"\"k\"\":[1,2]}\",2"),
        (r#"{"a": 1.50, "b": 3.0}"#, "1.50,3"),
        (r#"{"a": -7, "b": "4"}"#, "-7,4"),
        (r#"{"a": -0, "b": -0}"#, "-0,0"),
        (r#"{"a": 18446744073709551615, "b": 5e0}"#, "18446744073709551615,5"),
        (r#"{"a": true, "b": 6, "z": [{}]}"#, "true,6"),
        (r#"{"a": null, "b": null}"#, ","),
        (r#"{"b": 1, "a": "lost", "b": 7, "a": "the \u006cast"}"#, "the last,7"),
        (r#"{}"#, ","),
    ];
    for first in 0..lines.len() {
        let order = || lines[first..].iter().chain(&lines[..first]);
        let json: String = order().map(|(json, _)| format!("{json}\n")).collect();
        let csv: String = order().map(|(_, csv)| format!("{csv}\n")).collect();
        gives(AB, JSON, json, &csv);
    }
}

#[test]
fn an_empty_value_is_null_unless_it_is_quoted() {
    // A quote elsewhere in the record, of one piece and of several lines.
    gives("a STRING, b STRING, c STRING", CSV, "x,,\"\"\n\"y\",\"\",\n", "x,,\"\"\ny,\"\",\n");
    gives("a STRING, b STRING, c STRING", CSV, "\"\n\",,\"\"\r\n,\"\",z", "\"\n\",,\"\"\n,\"\",z\n");
    gives("a STRING, b STRING", CSV, "\"\",\"\"\n,\n\"\",\n,\"\"", "\"\",\"\"\n,\n\"\",\n,\"\"\n");
}

#[test]
fn bytes_are_written_as_base64() {
    gives("a BYTES, b INT", CSV, "AP8=,1\n", "AP8=,1\n");
    gives("a BYTES, b INT", JSON, "{\"a\": \"AP8=\", \"b\": 1}\n", "AP8=,1\n");
    is_refused("a BYTES, b INT", CSV, "#,1\n", "wanted bytes in base64");
}

#[test]
fn decimals_keep_all_their_digits() {
    let columns = "a DECIMAL(38, 2), b DECIMAL(20, 0), s STRING";
    let json = "{\"a\": 123456789012345678901234567890123456.78, \"b\": 12345678901234567891, \"s\": 1.10}\n";
    gives(columns, JSON, json, "123456789012345678901234567890123456.78,12345678901234567891,1.10\n");
    let directory = tempfile::tempdir().unwrap();
    let write = |options: &str| {
        let script = format!(
            "CREATE TABLE o (a DECIMAL(38, 2), b DECIMAL(38, 12), c DECIMAL(9, 8))
               WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json' {options});
             INSERT INTO o VALUES (CAST('123456789012345678901234567890123456.78' AS DECIMAL(38, 2)),
               CAST('100' AS DECIMAL(38, 12)), CAST('0.00000027' AS DECIMAL(9, 8)))"
        );
        run(&script, directory.path()).unwrap();
        let path = directory.path().join("out");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        text
    };
    assert_eq!(
        write(""),
        "{\"a\":123456789012345678901234567890123456.78,\"b\":100.000000000000,\"c\":0.00000027}\n"
    );
    assert_eq!(
        write(", 'json.encode.decimal-as-plain-number' = 'false'"),
        "{\"a\":123456789012345678901234567890123456.78,\"b\":1E+2,\"c\":2.7E-7}\n"
    );
}

#[test]
fn json_value_keeps_the_digits_of_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let script = "CREATE TABLE o (a STRING, b STRING, c STRING) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
        INSERT INTO o VALUES (JSON_VALUE('{\"x\": [0, 12345678901234567890.123], \"y\": 1e400}', '$.x[1]'),
          JSON_VALUE('{\"x\": 0.10}', 'lax $.x'), JSON_QUERY('{\"x\": {\"a b\" : 1.10 }}', '$.x'))";
    run(script, directory.path()).unwrap();
    let out = std::fs::read_to_string(directory.path().join("out")).unwrap();
    assert_eq!(out, "12345678901234567890.123,0.10,\"{\"\"a b\"\":1.10}\"\n");
}

#[test]
fn infinities_and_nan_are_json_strings_as_in_flink() {
    let directory = tempfile::tempdir().unwrap();
    let columns = "a DOUBLE, b DOUBLE, c FLOAT";
    let table = |name: &str, format: &str| {
        format!(
            "CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = '{format}');"
        )
    };
    std::fs::write(directory.path().join("i"), "NaN,-Infinity,0.1\nInfinity,5e-324,NaN\n").unwrap();
    run(
        &format!("{}{}INSERT INTO o SELECT * FROM i", table("i", "csv"), table("o", "json")),
        directory.path(),
    )
    .unwrap();
    let out = std::fs::read_to_string(directory.path().join("o")).unwrap();
    assert_eq!(
        out,
        "{\"a\":\"NaN\",\"b\":\"-Infinity\",\"c\":0.1}\n{\"a\":\"Infinity\",\"b\":5e-324,\"c\":\"NaN\"}\n"
    );
    run(
        &format!("{}{}INSERT INTO p SELECT * FROM o", table("o", "json"), table("p", "csv")),
        directory.path(),
    )
    .unwrap();
    let again = std::fs::read_to_string(directory.path().join("p")).unwrap();
    assert_eq!(again, "NaN,-Infinity,0.1\nInfinity,4.9E-324,NaN\n");
}

#[test]
fn a_json_line_that_is_no_object_is_refused() {
    for (line, found) in [
        ("[1]", "found an array"),
        ("1", "found 1"),
        ("\"x\"", "found a string"),
        ("null", "found null"),
        ("{", "no JSON"),
    ] {
        is_refused(AB, JSON, format!("{{\"a\": \"x\"}}\n{line}\n"), "in, line 2: found ");
        is_refused(AB, JSON, format!("{line}\n"), found);
        let lenient = "'format' = 'json', 'json.ignore-parse-errors' = 'true'";
        let counted = rows(AB, lenient, format!("{{\"b\": 1}}\n{line}\n{{\"b\": 2}}\n"));
        assert_eq!(counted, Ok((",1\n,2\n".to_owned(), 1)), "{line}");
    }
}

#[test]
fn an_unused_field_never_refuses_a_record() {
    let line = "{\"x\": 1e400, \"a\": \"q\", \"y\": {\"z\": [1e999, \"\\ud800\"]}, \"b\": 1, \"b\": 2}\n";
    gives(AB, JSON, line, "q,2\n");
    let deep = format!("{{\"x\": {}{}, \"a\": \"q\", \"b\": 3}}\n", "[".repeat(10_000), "]".repeat(10_000));
    gives(AB, JSON, deep, "q,3\n");
}

#[test]
fn options_of_json_are_those_of_flink() {
    let with = |options: &str| format!("'format' = 'json', {options}");
    gives(AB, JSON, "{\"b\": 1}\n", ",1\n");
    is_refused(AB, &with("'json.fail-on-missing-field' = 'true'"), "{\"b\": 1}\n", "no field `a`");
    gives(AB, &with("'json.fail-on-missing-field' = 'true'"), "{\"a\": null, \"b\": 1}\n", ",1\n");
    let directory = tempfile::tempdir().unwrap();
    let write = |options: &str| {
        let script = format!(
            "CREATE TABLE o (a TIMESTAMP(3), b TIMESTAMP_LTZ(0), c DATE)
               WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json' {options});
             INSERT INTO o VALUES (TIMESTAMP '2020-01-31 23:59:59.123',
               CAST(TIMESTAMP '2020-01-31 23:59:59' AS TIMESTAMP_LTZ(0)), DATE '2020-01-31')"
        );
        run(&script, directory.path()).unwrap();
        let path = directory.path().join("out");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        text
    };
    assert_eq!(
        write(""),
        "{\"a\":\"2020-01-31 23:59:59.123\",\"b\":\"2020-01-31 23:59:59Z\",\"c\":\"2020-01-31\"}\n"
    );
    assert_eq!(
        write(", 'json.timestamp-format.standard' = 'ISO-8601'"),
        "{\"a\":\"2020-01-31T23:59:59.123\",\"b\":\"2020-01-31T23:59:59Z\",\"c\":\"2020-01-31\"}\n"
    );
    let iso = with("'json.timestamp-format.standard' = 'ISO-8601'");
    gives("a TIMESTAMP(3)", &iso, "{\"a\": \"2020-01-31T23:59:59.123\"}\n", "2020-01-31 23:59:59.123\n");
}

#[test]
fn a_string_column_contains_the_text_of_a_json_object() {
    let line = "{\"a\": {\"x y\" : [1.10, \"\\\" \" ]}, \"b\": 1}\n";
    gives(AB, JSON, line, "\"{\"\"x y\"\":[1.10,\"\"\\\"\" \"\"]}\",1\n");
}

#[test]
fn nested_columns_are_refused_with_their_position() {
    for ty in ["ROW<x INT>", "ARRAY<INT>"] {
        let script = format!(
            "CREATE TABLE t (a INT,\n  r {ty}) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json')"
        );
        let error = Session::default().run(&script).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column 3: not supported yet: column `r` of type "), "{error}");
    }
}

#[test]
fn a_byte_order_mark_may_come_byte_by_byte_over_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.sock");
    let script = "CREATE TABLE i (a STRING, b INT)
          WITH ('connector' = 'socket', 'path' = 'in.sock', 'mode' = 'listen', 'format' = 'csv');
        CREATE TABLE o (a STRING, b INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
        INSERT INTO o SELECT a, b FROM i";
    let Some(Outcome::Job(job)) = Session::default().run(script).unwrap().pop() else { panic!() };
    let mut running = Running::start(&job.optimised, directory.path()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = UnixStream::connect(&path).unwrap();
            for byte in "\u{feff}\"5\"\" \r\nx\",1\r\n\u{feff}y,2\r\n".bytes() {
                stream.write_all(&[byte]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(stream);
            let began = Instant::now();
            let out = || std::fs::read_to_string(directory.path().join("out")).unwrap_or_default();
            while out().lines().count() < 3 && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        running.run(&stop, |_| ()).unwrap()
    });
    let out = std::fs::read_to_string(directory.path().join("out")).unwrap();
    assert_eq!(out, "\"5\"\" \r\nx\",1\n\"\u{feff}y\",2\n");
}
