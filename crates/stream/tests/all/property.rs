//! Random expressions over random rows with NULLs: what the rules make of a plan gives the same rows. An expression
//! that fails before may give a value after, where its value was not needed; nothing may fail that did not before.

use super::support;
use duramen_stream::Session;
use duramen_stream::plan::reference::{Arrival, Input, final_rows, run_plans};
use duramen_stream::plan::rules;
use duramen_stream::state::Numbers;
use duramen_stream::types::Value;
use proptest::prelude::*;

const TABLE: &str = "CREATE TABLE t (a INT, b BIGINT, m DECIMAL(10, 2), s STRING, f BOOLEAN, ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');";

/// Numbers as SQL text: columns, constants, and expressions of them.
fn number() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("m".to_owned()),
        Just("CAST(NULL AS INT)".to_owned()),
        (-3i32..4).prop_map(|value| format!("({value})")),
        Just("1.25".to_owned()),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            (inner.clone(), "[-+*/]", inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("COALESCE({a}, {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("MOD({a}, {b})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("CASE WHEN {a} > {b} THEN {c} ELSE {a} END")),
            inner.clone().prop_map(|a| format!("ABS({a})")),
            inner.prop_map(|a| format!("CAST({a} AS BIGINT)")),
        ]
    })
}

fn condition() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (number(), "=|<>|<|<=|>|>=", number()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        number().prop_map(|a| format!("({a} IS NULL)")),
        (number(), number(), number()).prop_map(|(a, b, c)| format!("({a} BETWEEN {b} AND {c})")),
        (number(), number()).prop_map(|(a, b)| format!("({a} IN (1, {b}))")),
        Just("f".to_owned()),
        Just("TRUE".to_owned()),
        Just("FALSE".to_owned()),
        Just("CAST(NULL AS BOOLEAN)".to_owned()),
        Just("(s LIKE 'a%')".to_owned()),
        Just("(s || 'x' = 'ax')".to_owned()),
        Just("(CHAR_LENGTH(s) > 1)".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} AND {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} OR {b})")),
            inner.clone().prop_map(|a| format!("(NOT {a})")),
            inner.prop_map(|a| format!("({a} IS NOT TRUE)")),
        ]
    })
}

/// Queries that put filters above every kind of node that they are pushed through.
fn query() -> impl Strategy<Value = String> {
    (number(), number(), condition(), condition(), 0..6).prop_map(|(x, y, inner, outer, kind)| {
        let rows = format!("SELECT a, b, m, s, f, ts, {x} AS x FROM t WHERE {inner}");
        match kind {
            0 | 1 => format!("SELECT {y}, x FROM ({rows}) WHERE {outer}"),
            2 => format!("SELECT x, {y} FROM ({rows} UNION ALL SELECT a, b, m, s, f, ts, {x} FROM t) WHERE {outer}"),
            3 => format!("SELECT l.x, r.s FROM ({rows}) AS l JOIN t AS r ON l.a = r.a WHERE l.b > r.b AND r.f AND l.x > 0"),
            4 => format!(
                "SELECT * FROM (SELECT a, s, window_end, COUNT(*) AS n, SUM(b) AS b, MAX(m) AS m, COUNT(*) > 1 AS f \
                 FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)) \
                 WHERE {inner} GROUP BY a, s, window_start, window_end) WHERE {outer}"
            ),
            _ => format!(
                "SELECT x, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b, ts, s, m) AS n FROM ({rows})) \
                 WHERE n <= 2 AND (a > 0 OR a IS NULL) AND {outer}"
            ),
        }
    })
}

/// Queries with windows, groups, ranks and joins, for the machine code of breakers.
fn job() -> impl Strategy<Value = String> {
    let window = prop_oneof![
        Just("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND)"),
        Just("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND, INTERVAL '1' SECOND)"),
        Just("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)"),
        Just("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)"),
        Just("SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), INTERVAL '2' SECOND)"),
    ];
    let aggregate = prop_oneof![
        Just("COUNT(*)"),
        Just("COUNT(b)"),
        Just("SUM(b)"),
        Just("SUM(m)"),
        Just("AVG(b)"),
        Just("AVG(m)"),
        Just("MIN(m)"),
        Just("MAX(s)"),
        Just("MIN(f)"),
        Just("COUNT(*) FILTER (WHERE b > 0)"),
        Just("SUM(a) FILTER (WHERE f)"),
    ];
    // Not in sessions yet.
    let whole = prop_oneof![
        aggregate.clone(),
        Just("COUNT(DISTINCT b)"),
        Just("SUM(DISTINCT b)"),
        Just("COUNT(DISTINCT b) FILTER (WHERE f)"),
        Just("COUNT(DISTINCT s) FILTER (WHERE f)"),
        Just("FIRST_VALUE(s)"),
        Just("LAST_VALUE(m)"),
    ];
    let many = |one: BoxedStrategy<&'static str>| {
        proptest::collection::vec(one, 1..5).prop_map(|list| list.join(", "))
    };
    let order = prop_oneof![
        Just("ts"),
        Just("ts DESC"),
        Just("b DESC NULLS LAST, s"),
        Just("m, ts DESC"),
        Just("s DESC, b"),
    ];
    prop_oneof![
        (window.clone(), many(aggregate.boxed()), condition()).prop_map(|(window, aggregates, condition)| format!(
            "SELECT a, window_start, window_end, {aggregates} FROM TABLE({window}) {} GROUP BY a, window_start, window_end",
            // A filter after a session window needs its rows, which is not compiled yet.
            if window.starts_with("SESSION") { String::new() } else { format!("WHERE {condition}") }
        )),
        (window, many(whole.clone().boxed())).prop_map(|(window, aggregates)| format!(
            "SELECT s, f, window_end, {aggregates} FROM TABLE({}) GROUP BY s, f, window_start, window_end",
            if window.starts_with("SESSION") { "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)" } else { window }
        )),
        (many(whole.clone().boxed()), condition())
            .prop_map(|(aggregates, condition)| format!("SELECT s, {aggregates} FROM t WHERE {condition} GROUP BY s")),
        many(whole.boxed()).prop_map(|aggregates| format!("SELECT {aggregates} FROM t")),
        Just("SELECT DISTINCT a, s, f FROM t".to_owned()),
        (order.clone(), 1..4, any::<bool>()).prop_map(|(order, limit, number)| format!(
            "SELECT a, b, s, m, ts{} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY {order}) AS n FROM t) \
             WHERE n <= {limit}",
            if number { ", n" } else { "" }
        )),
        (order, 1..3).prop_map(|(order, limit)| format!(
            "SELECT a, b, s, window_end, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end \
             ORDER BY {order}) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND))) WHERE n <= {limit}"
        )),
        condition().prop_map(|condition| format!(
            "SELECT l.s, r.b, l.window_end FROM (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND)) \
             WHERE {condition}) AS l JOIN (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND))) AS r \
             ON l.a = r.a AND l.window_start = r.window_start AND l.window_end = r.window_end"
        )),
        condition().prop_map(|condition| format!(
            "SELECT l.s, r.m FROM (SELECT * FROM t WHERE {condition}) AS l JOIN t AS r ON l.s = r.s AND l.ts BETWEEN r.ts \
             AND r.ts + INTERVAL '2' SECOND"
        )),
    ]
}

fn rows() -> impl Strategy<Value = Vec<Vec<Value>>> {
    let int = prop_oneof![Just(Value::Null), (-2i64..4).prop_map(Value::Int)];
    let decimal = prop_oneof![Just(Value::Null), (-300i128..300).prop_map(Value::Decimal)];
    let text = prop_oneof![Just(Value::Null), "[ab]{0,2}".prop_map(Value::string)];
    let truth = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::Boolean)];
    let time = (0i64..10).prop_map(|second| Value::Int(second * 1_000_000));
    let row = (int.clone(), int, decimal, text, truth, time)
        .prop_map(|(a, b, m, s, f, ts)| vec![a, b, m, s, f, ts]);
    proptest::collection::vec(row, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_never_change_a_result(query in query(), rows in rows()) {
        let mut session = Session::default();
        session.run(TABLE).unwrap();
        let bound = session.plan(&query).unwrap_or_else(|error| panic!("{error}\n{query}"));
        let arrivals = rows.into_iter().enumerate().map(|(clock, row)| Arrival {
            table: "t".to_owned(),
            row,
            clock: clock as i64 * 1_000_000,
        });
        let input = Input { arrivals: arrivals.collect(), ..Input::default() };
        // A failing expression ends a run; there is nothing to compare then.
        if let Ok(before) = run_plans(std::slice::from_ref(&bound), &input) {
            let after = run_plans(&[rules::optimise(&bound)], &input);
            let after = after.unwrap_or_else(|error| panic!("rules make it fail: {error}\n{query}"));
            prop_assert_eq!(final_rows(&before[0]), final_rows(&after[0]), "{}", query);
        }
    }
}

fn input(rows: Vec<Vec<Value>>) -> Input {
    let arrivals = rows.into_iter().enumerate().map(|(clock, row)| Arrival {
        table: "t".to_owned(),
        row,
        clock: clock as i64 * 1_000_000,
    });
    Input { arrivals: arrivals.collect(), ..Input::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn machine_code_returns_the_results_of_the_reference(query in prop_oneof![query(), job()], rows in rows()) {
        let mut session = Session::default();
        session.run(TABLE).unwrap();
        let bound = session.plan(&query).unwrap_or_else(|error| panic!("{error}\n{query}"));
        match support::compare(&bound, &input(rows)) {
            Some(Ok(())) => {}
            Some(Err(difference)) => prop_assert!(false, "{}\n{}", query, difference),
            None => prop_assert!(false, "not compiled: {}", query),
        }
    }

    #[test]
    fn a_job_resumed_from_a_checkpoint_has_the_results_of_an_uninterrupted_one(query in job(), rows in rows(), at in 0usize..12) {
        let mut session = Session::default();
        session.run(TABLE).unwrap();
        let plans = support::job(&[session.plan(&query).unwrap()]);
        let input = input(rows);
        let at = at.min(input.arrivals.len());
        // A failing expression ends a run; there is nothing to compare then.
        let Ok(whole) = support::run(&plans, &input, 1, true) else { return Ok(()) };
        let (mut first, before) = support::compile_with(&plans, &input, true).unwrap();
        let (mut shelf, mut numbers) = (support::Shelf::default(), Numbers::default());
        // One at half of the way, so that the other has what changed since.
        support::push(&mut first, &input.arrivals[..at / 2], 1, true).unwrap();
        shelf.take(&mut first, &mut numbers);
        support::push(&mut first, &input.arrivals[at / 2..at], 1, true).unwrap();
        let frozen = shelf.take(&mut first, &mut numbers);
        drop(first);
        let (mut second, after) = support::compile_with(&plans, &input, true).unwrap();
        shelf.restore(&mut second, &frozen).unwrap();
        support::push(&mut second, &input.arrivals[at..], 1, true).unwrap();
        second.finish().unwrap();
        let both = [before[0].borrow().clone(), after[0].borrow().clone()].concat();
        prop_assert_eq!(final_rows(&both), final_rows(&whole[0]), "{}", query);
        // Truncated parts are refused.
        prop_assert!(shelf.restore(&mut second, &frozen[..frozen.len() - 1]).is_err());
    }
}
