//! Jobs from files to files.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use duramen_stream::run::{Existing, Progress, Running, Start};
use duramen_stream::{Error, ErrorKind, Outcome, Session};

fn run(script: &str, directory: &Path) -> Result<Progress, Error> {
    let Some(Outcome::Job(job)) = Session::default().run(script)?.pop() else { panic!("{script}") };
    Running::start(&job.optimised, directory)?.run(&AtomicBool::new(false), |_| ())
}

const ORDERS: &str = "
1,2020-01-01 00:00:01,12.50,\"a, b\"
2,2020-01-01 00:00:40,1.00,
1,2020-01-01 00:01:10,2.25,\"\"
";

fn script(source: &str, sink: &str) -> String {
    format!(
        "CREATE TABLE o (id BIGINT, ts TIMESTAMP(3), price DECIMAL(10, 2), note STRING, WATERMARK FOR ts AS ts)
           WITH ('connector' = 'filesystem', {source});
         CREATE TABLE s (id BIGINT, wend TIMESTAMP(3), total DECIMAL(38, 2), note STRING)
           WITH ('connector' = 'filesystem', {sink});
         INSERT INTO s SELECT id, window_end, SUM(price), MAX(note)
           FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY id, window_start, window_end;"
    )
}

fn sorted(path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn csv_is_converted_to_csv_and_to_json() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in.csv"), ORDERS).unwrap();
    let source = "'path' = 'in.csv', 'format' = 'csv'";
    let progress = run(&script(source, "'path' = 'out.csv', 'format' = 'csv'"), directory.path()).unwrap();
    assert_eq!(progress.records, 3);
    assert_eq!(
        sorted(&directory.path().join("out.csv")),
        [
            "1,2020-01-01 00:01:00.000,12.50,\"a, b\"",
            "1,2020-01-01 00:02:00.000,2.25,\"\"",
            "2,2020-01-01 00:01:00.000,1.00,",
        ]
    );
    run(&script(source, "'path' = 'out.json', 'format' = 'json'"), directory.path()).unwrap();
    let lines = sorted(&directory.path().join("out.json"));
    let wanted = r#"{"id":1,"wend":"2020-01-01 00:01:00.000","total":12.50,"note":"a, b"}"#;
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert!(lines.iter().any(|line| parse(line) == parse(wanted)), "{lines:?}");
    // What was written is read again.
    let again = "CREATE TABLE s (id BIGINT, total DECIMAL(38, 2)) WITH ('connector' = 'filesystem', 'path' = 'out.json', 'format' = 'json');
        CREATE TABLE t (id BIGINT, total DECIMAL(38, 2)) WITH ('connector' = 'filesystem', 'path' = 'again.csv', 'format' = 'csv');
        INSERT INTO t SELECT id, total FROM s";
    run(again, directory.path()).unwrap();
    assert_eq!(sorted(&directory.path().join("again.csv")), ["1,12.50", "1,2.25", "2,1.00"]);
}

#[test]
fn an_unreadable_record_is_reported_or_counted() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("in.csv"),
        format!("{}x,2020-01-01 00:02:00,1,\n1,2\n", ORDERS.trim_start()),
    )
    .unwrap();
    let sink = "'path' = 'out.csv', 'format' = 'csv'";
    let error = run(&script("'path' = 'in.csv', 'format' = 'csv'", sink), directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connector);
    let text = error.to_string();
    assert!(text.contains("in.csv, line 4: found 'x' for `id`, wanted BIGINT"), "{text}");
    let lenient = "'path' = 'in.csv', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true'";
    let progress = run(&script(lenient, sink), directory.path()).unwrap();
    assert_eq!((progress.records, progress.skipped), (3, 2));
}

#[test]
fn missing_files_and_options_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let sink = "'path' = 'out.csv', 'format' = 'csv'";
    let error = run(&script("'path' = 'no.csv', 'format' = 'csv'", sink), directory.path()).unwrap_err();
    assert!(error.to_string().contains("cannot read `o`"), "{error}");
    let error = run(&script("'format' = 'csv'", sink), directory.path()).unwrap_err();
    assert!(error.to_string().contains("no option 'path' for `o`"), "{error}");
    let kafka = "CREATE TABLE k (a INT) WITH ('connector' = 'kafka', 'format' = 'json');
        CREATE TABLE p (a INT) WITH ('connector' = 'blackhole'); INSERT INTO p SELECT a FROM k";
    let error = run(kafka, directory.path()).unwrap_err();
    let wanted = if cfg!(feature = "kafka") {
        "no option 'topic' for `k`"
    } else {
        "not supported yet: the connector 'kafka' of `k` in this build; a build with the feature kafka has it"
    };
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn the_generator_makes_the_requested_number_of_rows() {
    let directory = tempfile::tempdir().unwrap();
    let rows = "CREATE TABLE g (i BIGINT, k INT, s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '10000',
          'fields.i.kind' = 'sequence', 'fields.i.start' = '1', 'fields.k.min' = '3', 'fields.k.max' = '5', 'fields.s.length' = '4');
        CREATE TABLE c (i BIGINT, k INT, s STRING) WITH ('connector' = 'filesystem', 'path' = 'rows.csv', 'format' = 'csv');
        INSERT INTO c SELECT i, k, s FROM g";
    run(rows, directory.path()).unwrap();
    let lines: Vec<String> = std::fs::read_to_string(directory.path().join("rows.csv"))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), 10_000);
    for (number, line) in lines.iter().enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[0], (number + 1).to_string());
        assert!(["3", "4", "5"].contains(&fields[1]) && fields[2].len() == 4, "{line}");
    }
}

#[test]
fn nexmark_is_a_connector() {
    let directory = tempfile::tempdir().unwrap();
    let script = "CREATE TABLE bid (auction BIGINT, price BIGINT, dateTime TIMESTAMP(3), WATERMARK FOR dateTime AS dateTime)
          WITH ('connector' = 'nexmark', 'events' = '5000');
        CREATE TABLE c (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'n.csv', 'format' = 'csv');
        INSERT INTO c SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' HOUR))
        GROUP BY window_start, window_end";
    match run(script, directory.path()) {
        Ok(progress) => {
            assert_eq!(progress.records, 4600);
            assert_eq!(sorted(&directory.path().join("n.csv")), ["4600"]);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn explain_codegen_shows_the_code() {
    let script = "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT) WITH ('connector' = 'datagen');
        CREATE TABLE p (k BIGINT, v BIGINT) WITH ('connector' = 'blackhole');
        EXPLAIN CODEGEN INSERT INTO p SELECT k, v + 1 AS more FROM t WHERE k > 5";
    let text = Session::default().explain(script).unwrap();
    for part in ["; scan of t", "bytes of machine code", "icmp sgt", "; deliver", "; k", "; v"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// Says where a view's row goes though another one follows.
#[test]
fn a_row_of_a_view_is_deleted_only_when_it_fails_the_condition() {
    struct Seen(std::rc::Rc<std::cell::RefCell<(usize, usize)>>);
    impl duramen_stream::compile::Output for Seen {
        fn take(&mut self, rows: &duramen_stream::compile::Rows<'_>) -> duramen_stream::Result<()> {
            let rows: Vec<_> = rows.iter().collect();
            let mut seen = self.0.borrow_mut();
            for (place, (kind, row)) in rows.iter().enumerate() {
                let follows =
                    rows.get(place + 1).is_some_and(|(kind, next)| kind.adds() && next[0] == row[0]);
                match kind {
                    duramen_stream::plan::changelog::RowKind::UpdateBefore if follows => seen.0 += 1,
                    duramen_stream::plan::changelog::RowKind::UpdateBefore => seen.1 += 1,
                    _ => {}
                }
            }
            Ok(())
        }
    }
    let run = |having: &str| {
        let mut session = Session::default();
        session.run("CREATE TABLE t (k BIGINT, v BIGINT) WITH ('connector' = 'datagen')").unwrap();
        let bound = session.plan(&format!("SELECT k, SUM(v) FROM t GROUP BY k {having}")).unwrap();
        let plans = super::support::job(std::slice::from_ref(&bound));
        let seen = std::rc::Rc::default();
        let output = Box::new(Seen(std::rc::Rc::clone(&seen)));
        let mut program = duramen_stream::compile::Program::compile(&plans, vec![output]).unwrap();
        let source = program.sources().remove(0);
        let mut batch = duramen_stream::batch::Batch::new(&source.types).unwrap();
        for number in 0..3000 {
            let row = [number % 7, 1].map(duramen_stream::types::Value::Int);
            batch.push(&source.reads.iter().map(|read| row[*read].clone()).collect::<Vec<_>>()).unwrap();
        }
        program.run(0, &batch).unwrap();
        program.finish().unwrap();
        *seen.borrow()
    };
    // Far more than a buffer has room for: no pair is taken apart.
    assert_eq!(run(""), (3000 - 7, 0));
    assert_eq!(run("HAVING SUM(v) < 101"), (7 * 99, 7));
}

#[test]
fn a_pipe_is_refused_before_anything_waits_for_its_writer() {
    let directory = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(directory.path().join("in.csv")).status().unwrap();
    assert!(made.success());
    let (source, sink) = ("'path' = 'in.csv', 'format' = 'csv'", "'path' = 'out.csv', 'format' = 'csv'");
    for source in [source.to_owned(), format!("{source}, 'source.monitor-interval' = '1 ms'")] {
        let error = run(&script(&source, sink), directory.path()).unwrap_err().to_string();
        assert!(error.contains("in.csv\" of `o`, a pipe, socket or device, wanted a file"), "{error}");
        assert!(error.contains("the connector 'socket'"), "{error}");
    }
}

/// Rows without an event time are in no window. Whatever thread has them, the job reports them.
#[test]
fn rows_with_null_as_event_time_are_counted_on_one_thread_and_on_several() {
    let directory = tempfile::tempdir().unwrap();
    let row = |id: i64| match id % 4 {
        1 => format!("{id},,1.00,\n"),
        _ => format!("{id},2020-01-01 00:00:01,1.00,\n"),
    };
    std::fs::write(directory.path().join("in.csv"), (0..400).map(row).collect::<String>()).unwrap();
    let script = script("'path' = 'in.csv', 'format' = 'csv'", "'path' = 'out.csv', 'format' = 'csv'");
    for threads in [1, 2, 5] {
        let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
        let own = &mut |_: &_, _: &_| Ok(None);
        let start = Start {
            directory: directory.path(),
            existing: Existing::Overwrite,
            ..Start::here(None, Some(threads), own)
        };
        let mut running = Running::start_on(&job.optimised, start).unwrap();
        assert_eq!(running.threads(), threads);
        let progress = running.run(&AtomicBool::new(false), |_| ()).unwrap();
        let timeless: u64 = progress.held.iter().map(|held| held.timeless).sum();
        assert_eq!((progress.records, timeless), (400, 100), "{threads} threads");
        assert_eq!(sorted(&directory.path().join("out.csv")).len(), 300);
    }
}

/// The target of such a link, as `/dev/stdout` may be one, is the name of no file.
#[test]
fn rows_go_to_a_pipe_behind_a_link() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in.csv"), ORDERS).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let sink = format!("'path' = '/proc/self/fd/{}', 'format' = 'csv'", writer.as_raw_fd());
    run(&script("'path' = 'in.csv', 'format' = 'csv'", &sink), directory.path()).unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
}
