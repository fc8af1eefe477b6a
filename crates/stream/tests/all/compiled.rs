//! Machine code gives what the reference gives.

use super::support;
use std::path::PathBuf;

use duramen_stream::nexmark::{Generator, TABLES};
use duramen_stream::plan::changelog::RowKind;
use duramen_stream::plan::reference::{Arrival, Changes, Input, final_rows, run_plans};
use duramen_stream::state::{Layout, Numbers};
use duramen_stream::types::{OrderedValue, Value};
use duramen_stream::{ErrorKind, Outcome, Session};

const EVENTS: u64 = 10_000;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stream/nexmark").join(name)
}

/// Queries of Nexmark that are not compiled yet, by what they are refused for.
const REFUSED: &[(u32, &str)] = &[];

#[test]
fn compiled_nexmark_queries_equal_the_reference() {
    let generator = Generator::new(1);
    let mut input =
        Input { arrivals: (0..EVENTS).map(|event| generator.event(event)).collect(), ..Input::default() };
    let side = (0..10_000).step_by(3).map(|key| vec![Value::Int(key), Value::string(format!("side {key}"))]);
    input.tables.insert("side_input".to_owned(), side.collect());
    for number in (0..=22).filter(|number| ![4, 6].contains(number)) {
        let mut session = Session::default();
        session.run(TABLES).unwrap();
        let script = std::fs::read_to_string(file(&format!("q{number}.sql"))).unwrap();
        let Some(Outcome::Job(job)) = session.run(&script).unwrap().pop() else { panic!("q{number}") };
        let plans: Vec<_> = job.optimised.iter().map(|sink| sink.input.clone()).collect();
        // Processing time is that of each event.
        let compiled = support::run(&plans, &input, 4096, number == 12);
        match (compiled, REFUSED.iter().find(|(refused, _)| *refused == number)) {
            (Err(error), Some((_, why))) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "q{number}: {error}");
                assert!(error.to_string().contains(why), "q{number}: {error}");
            }
            (Err(error), None) => panic!("q{number}: {error}"),
            (Ok(_), Some(_)) => panic!("q{number} is compiled after all"),
            (Ok(changes), None) => {
                let wanted = run_plans(&plans, &input).unwrap();
                assert!(!wanted[0].is_empty(), "q{number} gives no rows");
                assert!(final_rows(&changes[0]) == final_rows(&wanted[0]), "q{number} differs");
            }
        }
    }
}

#[test]
fn a_key_equal_to_the_empty_marker_is_stored() {
    let mut session = Session::default();
    session
        .run(
            "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT, ts TIMESTAMP(3) NOT NULL, WATERMARK FOR ts AS ts)
             WITH ('connector' = 'datagen');",
        )
        .unwrap();
    // Enough keys for the table to grow several times, with the odd one before and after.
    let odd = Layout::EMPTY;
    let row = |number: i64| {
        let key = if number % 7 == 3 { odd } else { odd ^ (number % 1000) };
        vec![Value::Int(key), Value::Int(number), Value::Int(number * 1000)]
    };
    let arrivals = (0..3000).map(|number| Arrival { table: "t".to_owned(), row: row(number), clock: number });
    let input = Input { arrivals: arrivals.collect(), ..Input::default() };
    for query in [
        "SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k",
        "SELECT k, COUNT(DISTINCT v) FROM t GROUP BY k",
        "SELECT k, COUNT(DISTINCT v / 9), SUM(DISTINCT v / 9) FILTER (WHERE v % 5 = 0) FROM t GROUP BY k",
        "SELECT k, window_end, SUM(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
         GROUP BY k, window_start, window_end",
        "SELECT k, window_end, SUM(v) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '2' SECOND)) \
         GROUP BY k, window_start, window_end",
        "SELECT k, window_end, SUM(v) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
         GROUP BY k, window_start, window_end",
        "SELECT l.k, l.v, r.v FROM t AS l JOIN t AS r ON l.k = r.k WHERE l.v < 30",
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n <= 2",
    ] {
        let plans = support::job(&[session.plan(query).unwrap()]);
        let wanted = run_plans(&plans, &input).unwrap();
        let (mut program, kept) = support::compile_with(&plans, &input, true).unwrap();
        support::push(&mut program, &input.arrivals[..2000], 256, false).unwrap();
        // And so it is in a checkpoint.
        let mut shelf = support::Shelf::default();
        let frozen = shelf.take(&mut program, &mut Numbers::default());
        let (mut second, more) = support::compile_with(&plans, &input, true).unwrap();
        shelf.restore(&mut second, &frozen).unwrap();
        support::push(&mut second, &input.arrivals[2000..], 256, false).unwrap();
        second.finish().unwrap();
        let found = [kept[0].borrow().clone(), more[0].borrow().clone()].concat();
        assert!(sorted(found) == sorted(wanted[0].clone()), "{query}");
    }
}

#[test]
fn of_two_rows_with_one_timestamp_the_later_arrival_is_last_in_its_window() {
    let mut session = Session::default();
    session
        .run(
            "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
             WITH ('connector' = 'datagen')",
        )
        .unwrap();
    let arrivals = [("a", 1, 5), ("a", 2, 5), ("b", 3, 6), ("a", 4, 5)].map(|(k, v, second)| Arrival {
        table: "t".to_owned(),
        row: vec![Value::string(k), Value::Int(v), Value::Int(second * 1_000_000)],
        clock: 0,
    });
    let input = Input { arrivals: arrivals.into(), ..Input::default() };
    for (order, bound, wanted) in [
        ("ts DESC", "n = 1", &["a 4", "b 3"][..]),
        ("ts", "n <= 1", &["a 1", "b 3"]),
        ("ts DESC", "n <= 2", &["a 1", "a 2", "b 3"]),
    ] {
        let query = format!(
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (
               PARTITION BY window_start, window_end, k ORDER BY {order}) AS n
             FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE {bound}"
        );
        let plans = support::job(&[session.plan(&query).unwrap()]);
        let reference = run_plans(&plans, &input).unwrap();
        let compiled = support::run(&plans, &input, 10, false).unwrap();
        for changes in [&reference[0], &compiled[0]] {
            let row = |row: &Vec<Value>| format!("{} {}", row[0].as_str().unwrap(), row[1].as_int().unwrap());
            let mut found: Vec<String> = changes.iter().map(|(_, values)| row(values)).collect();
            found.sort();
            assert_eq!(found, wanted, "{order} {bound}");
        }
    }
}

#[test]
fn rows_with_a_null_timestamp_are_counted() {
    let mut session = Session::default();
    session
        .run("CREATE TABLE t (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')")
        .unwrap();
    let time = |number: i64| if number % 4 == 1 { Value::Null } else { Value::Int(number * 1_000_000) };
    let arrivals = (0..20).map(|number| Arrival {
        table: "t".to_owned(),
        row: vec![Value::Int(number), time(number)],
        clock: 0,
    });
    let input = Input { arrivals: arrivals.collect(), ..Input::default() };
    let window = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))";
    for query in [
        format!("SELECT window_end, COUNT(*) FROM {window} GROUP BY window_start, window_end"),
        format!("SELECT v, window_end FROM {window}"),
        "SELECT COUNT(*) FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)) \
         GROUP BY window_start, window_end"
            .to_owned(),
    ] {
        let plans = support::job(&[session.plan(&query).unwrap()]);
        let (mut program, _) = support::compile(&plans, &input).unwrap();
        support::push(&mut program, &input.arrivals, 7, false).unwrap();
        program.finish().unwrap();
        let (late, timeless) = program
            .held()
            .iter()
            .fold((0, 0), |(late, timeless), held| (late + held.late, timeless + held.timeless));
        assert_eq!((late, timeless), (0, 5), "{query}");
    }
}

#[test]
fn an_interval_join_keeps_only_rows_that_can_still_match() {
    let mut session = Session::default();
    session
        .run(
            "CREATE TABLE l (k STRING, a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
             CREATE TABLE r (k STRING, b INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');",
        )
        .unwrap();
    let query = "SELECT l.k, a, b FROM l JOIN r ON l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL '1' SECOND AND r.ts + INTERVAL '3' SECOND";
    let plans = support::job(&[session.plan(query).unwrap()]);
    // In order, so that nothing is late: four rows a second, the sides in turn.
    let row = |number: i64| {
        let key = Value::string(format!("key {}", number / 2 % 3 + number / 400));
        vec![key, Value::Int(number), Value::Int(number * 250_000)]
    };
    let arrivals = (0..40_000).map(|number| Arrival {
        table: if number % 2 == 0 { "l" } else { "r" }.to_owned(),
        row: row(number),
        clock: number * 250_000,
    });
    let input = Input { arrivals: arrivals.collect(), ..Input::default() };
    let wanted = run_plans(&plans, &input).unwrap();
    let (mut program, kept) = support::compile(&plans, &input).unwrap();
    support::push(&mut program, &input.arrivals, 4096, false).unwrap();
    // 40,000 rows of more than 40 bytes each.
    let bytes: usize = program.held().iter().map(|held| held.bytes).sum();
    assert!(bytes < 500_000, "{bytes} bytes are held");
    program.finish().unwrap();
    assert!(wanted[0].len() > 20_000, "{} pairs", wanted[0].len());
    assert!(sorted(kept[0].borrow().clone()) == sorted(wanted[0].clone()), "the pairs differ");
}

#[test]
fn a_regular_join_drops_rows_older_than_all_later_windows() {
    let mut session = Session::default();
    session
        .run(
            "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
             WITH ('connector' = 'datagen');",
        )
        .unwrap();
    let query = "SELECT t.k, t.v, t.ts, w.e FROM t JOIN (
          SELECT k, MAX(v) AS most, window_end AS e FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))
          GROUP BY k, window_start, window_end
        ) AS w ON t.k = w.k AND t.v = w.most WHERE t.ts BETWEEN w.e - INTERVAL '10' SECOND AND w.e";
    let plans = support::job(&[session.plan(query).unwrap()]);
    // Twenty rows a second; each seventh is up to a minute late, so that its windows closed long before.
    let row = |number: i64| {
        let late = if number % 7 == 0 { number * 7919 % 60_000_000 } else { number * 31 % 1_000_000 };
        let ts = (number * 50_000 - late) / 1000 * 1000;
        vec![Value::string(format!("key {}", number % 3)), Value::Int(number * 7 % 20), Value::Int(ts)]
    };
    let arrivals =
        (0..40_000).map(|number| Arrival { table: "t".to_owned(), row: row(number), clock: number * 50_000 });
    let input = Input { arrivals: arrivals.collect(), ..Input::default() };
    let wanted = run_plans(&plans, &input).unwrap();
    let late =
        |row: &Vec<Value>| matches!(row[..], [_, _, Value::Int(ts), Value::Int(end)] if end - ts > 5_000_000);
    assert!(
        wanted[0].iter().filter(|(_, row)| late(row)).count() > 100,
        "rows of the previous window also match"
    );
    for rows in [1, 4096] {
        let (mut program, kept) = support::compile(&plans, &input).unwrap();
        support::push(&mut program, &input.arrivals, rows, false).unwrap();
        // 40,000 rows of more than 60 bytes each, of which the join needs the last few hundred.
        let bytes: usize = program.held().iter().map(|held| held.bytes).sum();
        assert!(bytes < 1_300_000, "{bytes} bytes are held");
        program.finish().unwrap();
        assert!(sorted(kept[0].borrow().clone()) == sorted(wanted[0].clone()), "the pairs differ");
    }
}

#[test]
fn a_checkpoint_has_the_state_at_its_begin_and_costs_only_the_changes() {
    let mut session = Session::default();
    session
        .run(
            "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3) NOT NULL, WATERMARK FOR ts AS ts)
             WITH ('connector' = 'datagen');",
        )
        .unwrap();
    // 8,000 keys: pages are changed while they wait to be written out, and tables grow meanwhile.
    let row = |number: i64| {
        let key = Value::string(format!("key {}", number * 7919 % (1000 + number / 5)));
        vec![key, Value::Int(number), Value::Int(number * 1000)]
    };
    let arrivals =
        (0..40_000).map(|number| Arrival { table: "t".to_owned(), row: row(number), clock: number });
    let input = Input { arrivals: arrivals.collect(), ..Input::default() };
    for query in [
        "SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k",
        "SELECT k, COUNT(DISTINCT v), MAX(k) FROM t GROUP BY k",
        "SELECT v % 1500, COUNT(DISTINCT v / 8000), COUNT(DISTINCT v / 8000) FILTER (WHERE v % 7 = 0) FROM t \
         GROUP BY v % 1500",
        "SELECT k, window_end, SUM(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) \
         GROUP BY k, window_start, window_end",
        "SELECT k, window_end, SUM(v) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '4' SECOND)) \
         GROUP BY k, window_start, window_end",
        "SELECT k, window_end, SUM(v) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
         GROUP BY k, window_start, window_end",
        "SELECT l.k, l.v, r.v FROM t AS l JOIN t AS r ON l.k = r.k WHERE l.v < 300",
        "SELECT l.k, l.v, r.v FROM t AS l JOIN t AS r ON l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL '0.1' SECOND AND r.ts",
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n <= 2",
    ] {
        let plans = support::job(&[session.plan(query).unwrap()]);
        let (mut whole, wanted) = support::compile(&plans, &input).unwrap();
        support::push(&mut whole, &input.arrivals, 100, false).unwrap();
        whole.finish().unwrap();
        let (mut program, kept) = support::compile_with(&plans, &input, true).unwrap();
        let mut shelf = support::Shelf::default();
        let mut numbers = Numbers::default();
        let mut last = None;
        let mut taken = Vec::new();
        for (number, chunk) in input.arrivals.chunks(100).enumerate() {
            if last.is_none() && number % 90 == 33 {
                last = Some((program.freeze(&mut numbers), number * 100, kept[0].borrow().len()));
            }
            support::push(&mut program, chunk, 100, false).unwrap();
            // A page or three for each batch: much changes before it is written.
            if last.is_some() && shelf.save(&mut program, 10_000) {
                let (frozen, at, given) = last.take().unwrap();
                taken.push((frozen, at, given, shelf.clone(), numbers.clone()));
            }
        }
        program.finish().unwrap();
        assert!(*kept[0].borrow() == *wanted[0].borrow(), "tracking of changes alters the result: {query}");
        assert!(taken.len() > 2, "{} checkpoints of {query}", taken.len());
        for (frozen, at, given, shelf, numbers) in taken {
            let (mut second, more) = support::compile_with(&plans, &input, true).unwrap();
            assert_eq!(shelf.restore(&mut second, &frozen).unwrap(), numbers);
            support::push(&mut second, &input.arrivals[at..], 100, false).unwrap();
            second.finish().unwrap();
            let found = [&kept[0].borrow()[..given], &more[0].borrow()].concat();
            assert!(found == *wanted[0].borrow(), "the checkpoint at row {at} differs: {query}");
        }
        // One row changes some pages, not all.
        let (before, tail) = (&input.arrivals[..39_900], &input.arrivals[39_900..39_901]);
        let (mut program, _) = support::compile_with(&plans, &input, true).unwrap();
        support::push(&mut program, before, 100, false).unwrap();
        let mut shelf = support::Shelf::default();
        let mut numbers = Numbers::default();
        shelf.take(&mut program, &mut numbers);
        let all = std::mem::take(&mut shelf.written);
        support::push(&mut program, tail, 100, false).unwrap();
        shelf.take(&mut program, &mut numbers);
        assert!(shelf.written <= 12.min(all), "{} pages of {all} for one row: {query}", shelf.written);
    }
}

/// All changes in an order of their own: `final_rows` takes the square of their number.
fn sorted(changes: Changes) -> Vec<Vec<Value>> {
    let kind = |kind: RowKind| Value::string(kind.to_string());
    let mut rows: Vec<Vec<Value>> =
        changes.into_iter().map(|(change, row)| [vec![kind(change)], row].concat()).collect();
    rows.sort_by_cached_key(|row| OrderedValue(row.clone()));
    rows
}
