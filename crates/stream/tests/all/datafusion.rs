//! Random queries over random streams, out of order, compared with what DataFusion gives for the same rows as a batch.
//! `cargo xtask datafusion` gets DataFusion and runs it.
//!
//! Both dialects are made together. DataFusion knows no windows of time: there they are arithmetic over the time, in
//! microseconds, and sessions are islands between gaps.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use duramen_stream::Session;
use duramen_stream::plan::reference::{Arrival, Input, final_rows};
use duramen_stream::types::{DataType, Value};
use serde_json::{Value as Json, json};

use super::support;

/// A Python that has DataFusion.
const PYTHON: &str = "DURAMEN_DATAFUSION_PYTHON";
/// How many pairs are compared.
const PAIRS: &str = "DURAMEN_STREAM_PAIRS";
/// What the pairs are made of.
const SEED: &str = "DURAMEN_STREAM_SEED";

/// Errors of DataFusion about its own wrong plans.
const NOT_PLANNED: [&str; 2] = ["SanityCheckPlan", "Expects PARTITION BY expression to be ordered"];

const SECOND: i64 = 1_000_000;

/// No row is late: the watermark follows later than any row is out of order.
fn table(name: &str) -> String {
    format!(
        "CREATE TABLE {name} (id BIGINT, a BIGINT, b BIGINT, m DECIMAL(10, 2), s STRING, f BOOLEAN, d DOUBLE,
           ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '60' SECOND) WITH ('connector' = 'datagen');"
    )
}

/// A query in both dialects.
#[derive(Debug, Clone)]
struct Both {
    flink: String,
    other: String,
}

fn both(flink: impl Into<String>, other: impl Into<String>) -> Both {
    Both { flink: flink.into(), other: other.into() }
}

fn same(text: impl Into<String>) -> Both {
    let text = text.into();
    both(text.clone(), text)
}

/// A generator by seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len() as u64) as usize]
    }

    fn within(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as u64) as i64
    }

    /// A number: BIGINT.
    fn number(&mut self, depth: u32) -> Both {
        if depth == 0 || self.below(3) == 0 {
            return match self.below(4) {
                0 => same("a"),
                1 => same("b"),
                2 => same("id"),
                _ => same(format!("CAST({} AS BIGINT)", self.within(-3, 8))),
            };
        }
        let (x, y) = (self.number(depth - 1), self.number(depth - 1));
        let two = |x: &str, y: &str, op: &str| format!("({x} {op} {y})");
        match self.below(7) {
            0 | 1 => {
                let op = self.pick(&["+", "-", "*"]);
                both(two(&x.flink, &y.flink, op), two(&x.other, &y.other, op))
            }
            2 => {
                let by = self.within(1, 5);
                both(
                    format!("MOD({}, CAST({by} AS BIGINT))", x.flink),
                    format!("({} % CAST({by} AS BIGINT))", x.other),
                )
            }
            3 => {
                let by = self.within(1, 5);
                same_of(&x, |x| format!("({x} / CAST({by} AS BIGINT))"))
            }
            4 => same_of(&x, |x| format!("ABS({x})")),
            5 => both(
                format!("COALESCE({}, {})", x.flink, y.flink),
                format!("COALESCE({}, {})", x.other, y.other),
            ),
            _ => {
                let c = self.condition(depth - 1);
                both(
                    format!("CASE WHEN {} THEN {} ELSE {} END", c.flink, x.flink, y.flink),
                    format!("CASE WHEN {} THEN {} ELSE {} END", c.other, x.other, y.other),
                )
            }
        }
    }

    fn condition(&mut self, depth: u32) -> Both {
        if depth == 0 || self.below(2) == 0 {
            let (x, y) = (self.number(depth.min(1)), self.number(0));
            return match self.below(8) {
                0..=2 => {
                    let op = self.pick(&["=", "<>", "<", "<=", ">", ">="]);
                    both(format!("({} {op} {})", x.flink, y.flink), format!("({} {op} {})", x.other, y.other))
                }
                3 => same_of(&x, |x| format!("({x} IS NULL)")),
                4 => same_of(&x, |x| format!("({x} BETWEEN 0 AND 3)")),
                5 => same_of(&x, |x| format!("({x} IN (1, 2, 5))")),
                6 => same(self.pick(&[
                    "f",
                    "(s LIKE 'a%')",
                    "(s LIKE '_b%')",
                    "(s || 'x' = 'ax')",
                    "(CHAR_LENGTH(s) > 1)",
                ])),
                _ => same(self.pick(&[
                    "(m > 1.25)",
                    "(d < 1.5)",
                    "(m IS NOT NULL)",
                    "(s < 'b')",
                    "(m + m <= 0.5)",
                ])),
            };
        }
        let (x, y) = (self.condition(depth - 1), self.condition(depth - 1));
        match self.below(4) {
            0 => same_of(&x, |x| format!("(NOT {x})")),
            1 => same_of(&x, |x| format!("({x} IS NOT TRUE)")),
            other => {
                let op = if other == 2 { "AND" } else { "OR" };
                both(format!("({} {op} {})", x.flink, y.flink), format!("({} {op} {})", x.other, y.other))
            }
        }
    }

    /// Some aggregates; `whole` has those that sessions do not have yet.
    fn aggregates(&mut self, whole: bool) -> Both {
        let mut list = Vec::new();
        for _ in 0..=self.below(4) {
            list.push(match self.below(if whole { 14 } else { 11 }) {
                0 => same("COUNT(*)"),
                1 => same("COUNT(b)"),
                2 => same("SUM(b)"),
                3 => same("SUM(m)"),
                4 => same("AVG(d)"),
                5 => same("MIN(m)"),
                6 => same("MAX(s)"),
                7 => same("MIN(d)"),
                8 => same("COUNT(*) FILTER (WHERE b > 0)"),
                9 => same("SUM(a) FILTER (WHERE f)"),
                10 => {
                    let x = self.number(1);
                    both(format!("MAX({})", x.flink), format!("MAX({})", x.other))
                }
                11 => same("COUNT(DISTINCT b)"),
                12 => same("SUM(DISTINCT a)"),
                _ => same("COUNT(DISTINCT s)"),
            });
        }
        let flink: Vec<&str> = list.iter().map(|one| one.flink.as_str()).collect();
        // DataFusion takes no name twice.
        let other: Vec<String> =
            list.iter().enumerate().map(|(number, one)| format!("{} AS g{number}", one.other)).collect();
        both(flink.join(", "), other.join(", "))
    }

    /// A window as a table, of rows for which the condition holds: what stands in FROM, with columns `ws` and `we` of
    /// the other dialect.
    fn window(&mut self, of: &str, condition: &Both) -> Both {
        let (slide, parts) = (self.within(1, 4), self.within(1, 4));
        let size = slide * parts;
        let offset = if self.below(3) == 0 { self.within(0, size) } else { 0 };
        let at = |shift: i64| {
            format!("((ts - {}) / {} * {} + {})", offset * SECOND, slide * SECOND, slide * SECOND, shift)
        };
        let other = |bounds: Vec<(String, String)>| {
            let one = |(start, end): &(String, String)| {
                format!(
                    "SELECT *, {start} AS ws, {end} AS we FROM {of} WHERE {} AND ts >= {start} AND ts < {end}",
                    condition.other
                )
            };
            format!("({})", bounds.iter().map(one).collect::<Vec<_>>().join(" UNION ALL "))
        };
        let seconds = |seconds: i64| format!("INTERVAL '{seconds}' SECOND");
        // At least a multiple of the step after the epoch, so that division rounds down.
        let from = offset * SECOND;
        match self.below(3) {
            0 => {
                let start = format!("((ts - {from}) / {0} * {0} + {from})", size * SECOND);
                let end = format!("({start} + {})", size * SECOND);
                both(
                    format!(
                        "TABLE(TUMBLE(TABLE {of}, DESCRIPTOR(ts), {}, {}))",
                        seconds(size),
                        seconds(offset)
                    ),
                    other(vec![(start, end)]),
                )
            }
            1 => {
                let bound = |part: i64| {
                    let start = at(from - part * slide * SECOND);
                    let end = format!("({start} + {})", size * SECOND);
                    (start, end)
                };
                both(
                    format!(
                        "TABLE(HOP(TABLE {of}, DESCRIPTOR(ts), {}, {}, {}))",
                        seconds(slide),
                        seconds(size),
                        seconds(offset)
                    ),
                    other((0..parts).map(bound).collect()),
                )
            }
            _ => {
                let start = format!("((ts - {from}) / {0} * {0} + {from})", size * SECOND);
                let bound = |part: i64| (start.clone(), format!("({start} + {})", part * slide * SECOND));
                both(
                    format!(
                        "TABLE(CUMULATE(TABLE {of}, DESCRIPTOR(ts), {}, {}, {}))",
                        seconds(slide),
                        seconds(size),
                        seconds(offset)
                    ),
                    other((1..=parts).map(bound).collect()),
                )
            }
        }
    }

    fn query(&mut self) -> Both {
        let condition = self.condition(2);
        let (x, y) = (self.number(2), self.number(2));
        let order = self.pick(&[
            "b DESC NULLS LAST",
            "m NULLS FIRST",
            "s NULLS FIRST",
            "ts",
            "d DESC NULLS LAST",
            "a NULLS LAST",
        ]);
        let order = format!("{order}, id");
        let limit = self.within(1, 4);
        match self.below(12) {
            0 => {
                let outer = self.condition(1);
                let rows =
                    |x: &str, c: &str| format!("SELECT {x} AS x, id, a, b, m, s, f, d, ts FROM t WHERE {c}");
                both(
                    format!(
                        "SELECT x, {}, m + m, m * m, d * d, s, f FROM ({}) WHERE {}",
                        y.flink,
                        rows(&x.flink, &condition.flink),
                        outer.flink
                    ),
                    format!(
                        "SELECT x, {}, m + m, m * m, d * d, s, f FROM ({}) WHERE {}",
                        y.other,
                        rows(&x.other, &condition.other),
                        outer.other
                    ),
                )
            }
            1 => both(
                format!(
                    "SELECT {} AS x, s FROM t WHERE {} UNION ALL SELECT {} AS x, s FROM u",
                    x.flink, condition.flink, y.flink
                ),
                format!(
                    "SELECT {} AS x, s FROM t WHERE {} UNION ALL SELECT {} AS x, s FROM u",
                    x.other, condition.other, y.other
                ),
            ),
            2 => {
                let aggregates = self.aggregates(true);
                let keys = self.pick(&["s", "a", "f, s", "a, s"]);
                both(
                    format!(
                        "SELECT {keys}, {} FROM t WHERE {} GROUP BY {keys}",
                        aggregates.flink, condition.flink
                    ),
                    format!(
                        "SELECT {keys}, {} FROM t WHERE {} GROUP BY {keys}",
                        aggregates.other, condition.other
                    ),
                )
            }
            3 => both(
                format!("SELECT DISTINCT a, s, f FROM t WHERE {}", condition.flink),
                format!("SELECT DISTINCT a, s, f FROM t WHERE {}", condition.other),
            ),
            4..=6 => {
                let aggregates = self.aggregates(true);
                let keys = self.pick(&["a", "s", "f, a"]);
                let window = self.window("t", &condition);
                both(
                    format!(
                        "SELECT {keys}, window_start, window_end, {} FROM {} WHERE {} GROUP BY {keys}, window_start, window_end",
                        aggregates.flink, window.flink, condition.flink
                    ),
                    format!(
                        "SELECT {keys}, ws, we, {} FROM {} AS w GROUP BY {keys}, ws, we",
                        aggregates.other, window.other
                    ),
                )
            }
            7 => {
                let aggregates = self.aggregates(false);
                let gap = self.within(1, 4);
                let micros = gap * SECOND;
                both(
                    format!(
                        "SELECT a, window_start, window_end, {} FROM TABLE(SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), \
                         INTERVAL '{gap}' SECOND)) GROUP BY a, window_start, window_end",
                        aggregates.flink
                    ),
                    format!(
                        "SELECT a, MIN(ts), MAX(ts) + {micros}, {} FROM (SELECT *, SUM(n) OVER (PARTITION BY a ORDER BY ts, id \
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS g FROM (SELECT *, CASE WHEN ts - LAG(ts) OVER \
                         (PARTITION BY a ORDER BY ts, id) <= {micros} THEN 0 ELSE 1 END AS n FROM t)) GROUP BY a, g",
                        aggregates.other
                    ),
                )
            }
            8 => {
                let ranked = |c: &str| {
                    format!(
                        "SELECT a, b, id, s, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY {order}) AS n FROM t \
                         WHERE {c}) WHERE n <= {limit}"
                    )
                };
                both(ranked(&condition.flink), ranked(&condition.other))
            }
            9 => {
                let window = self.window("t", &condition);
                let ranked = |start: &str, end: &str, of: &str, c: &str| {
                    format!(
                        "SELECT a, id, {end}, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {start}, {end} ORDER BY {order}) \
                         AS n FROM {of} WHERE {c}) WHERE n <= {limit}"
                    )
                };
                both(
                    ranked("window_start", "window_end", &window.flink, &condition.flink),
                    ranked("ws", "we", &format!("{} AS w", window.other), "TRUE"),
                )
            }
            10 => {
                let seed = self.0;
                let l = self.window("t", &same("TRUE"));
                // The same window over the other table.
                self.0 = seed;
                let r = self.window("u", &same("TRUE"));
                both(
                    format!(
                        "SELECT l.id, r.id, l.s, r.b, l.window_end FROM (SELECT * FROM {} WHERE {}) AS l JOIN (SELECT * FROM {}) \
                         AS r ON l.a = r.a AND l.window_start = r.window_start AND l.window_end = r.window_end",
                        l.flink, condition.flink, r.flink
                    ),
                    format!(
                        "SELECT l.id, r.id, l.s, r.b, l.we FROM (SELECT * FROM {} AS w WHERE {}) AS l JOIN {} AS r \
                         ON l.a = r.a AND l.ws = r.ws AND l.we = r.we",
                        l.other, condition.other, r.other
                    ),
                )
            }
            _ => {
                let (back, forth) = (self.within(0, 4), self.within(0, 4));
                let joined = |interval: bool, c: &str| {
                    let time = |seconds: i64| {
                        if interval {
                            format!("INTERVAL '{seconds}' SECOND")
                        } else {
                            (seconds * SECOND).to_string()
                        }
                    };
                    let between = format!("l.ts BETWEEN r.ts - {} AND r.ts + {}", time(back), time(forth));
                    let on = if back + forth == 0 { "l.b > r.b" } else { between.as_str() };
                    format!(
                        "SELECT l.id, r.id, l.m, r.s FROM (SELECT * FROM t WHERE {c}) AS l JOIN u AS r ON l.s = r.s AND {on}"
                    )
                };
                both(joined(true, &condition.flink), joined(false, &condition.other))
            }
        }
    }

    /// Rows of a table; `id` distinguishes each row from all others.
    fn rows(&mut self, first: i64) -> Vec<Vec<Value>> {
        let count = self.below(25) as i64;
        let mut one = |id: i64| {
            let or_null =
                |value: Value, this: &mut Random| if this.below(6) == 0 { Value::Null } else { value };
            let a = Value::Int(self.within(-2, 4));
            let b = Value::Int(self.within(-4, 6));
            let m = Value::Decimal(i128::from(self.within(-300, 300)));
            let s = Value::string(self.pick(&["", "a", "b", "ab", "ba", "bb", "aé"]));
            let f = Value::Boolean(self.below(2) == 0);
            // Sums of halves are exact in any order.
            let d = Value::Double(self.within(-8, 8) as f64 / 2.0);
            let ts = Value::Int((40 + self.within(0, 20)) * SECOND);
            let mut row = vec![Value::Int(id)];
            for value in [a, b, m, s, f, d] {
                row.push(or_null(value, self));
            }
            row.push(ts);
            row
        };
        (first..first + count).map(&mut one).collect()
    }
}

fn same_of(x: &Both, text: impl Fn(&str) -> String) -> Both {
    both(text(&x.flink), text(&x.other))
}

fn json_of(value: &Value, ty: &DataType) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Double(value) => json!(value),
        value => json!(value.text(ty)),
    }
}

/// A process that runs DataFusion.
struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start() -> Other {
        let python = std::env::var(PYTHON);
        let python = python.unwrap_or_else(|_| panic!("{PYTHON} is not set: run `cargo xtask datafusion`"));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/with_datafusion.py");
        let mut child = Command::new(python)
            .args(["-u", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, to, from }
    }

    fn run(
        &mut self,
        query: &str,
        tables: [&[Vec<Value>]; 2],
        partitions: u64,
    ) -> Result<Vec<String>, String> {
        let types = [
            DataType::BigInt,
            DataType::BigInt,
            DataType::BigInt,
            DataType::Decimal { precision: 10, scale: 2 },
            DataType::Varchar(u32::MAX),
            DataType::Boolean,
            DataType::Double,
            DataType::BigInt,
        ];
        let row = |row: &Vec<Value>| row.iter().zip(&types).map(|(value, ty)| json_of(value, ty)).collect();
        let [t, u] = tables.map(|rows| rows.iter().map(row).collect::<Vec<Json>>());
        writeln!(self.to, "{}", json!({ "sql": query, "t": t, "u": u, "partitions": partitions })).unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let reply: Json = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        if let Some(error) = reply["error"].as_str() {
            return Err(error.to_owned());
        }
        let mut rows: Vec<String> =
            reply["rows"].as_array().unwrap().iter().map(ToString::to_string).collect();
        rows.sort();
        Ok(rows)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs DataFusion: cargo xtask datafusion"]
fn queries_return_the_results_of_datafusion() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let pairs = number(PAIRS).unwrap_or(1000);
    let first = number(SEED).unwrap_or(1);
    let mut other = Other::start();
    let started = Instant::now();
    let (mut empty, mut rows, mut compared, mut not_planned) = (0, 0, 0, 0);
    for seed in first.. {
        if compared == pairs {
            break;
        }
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9));
        let query = random.query();
        let (t, u) = (random.rows(0), random.rows(1000));
        let mut session = Session::default();
        session.run(&format!("{}{}", table("t"), table("u"))).unwrap();
        let fails = |what: &str, why: &dyn std::fmt::Display| -> ! {
            panic!("{what}: {why}\nseed {seed}\n{}\n{}\nt: {t:?}\nu: {u:?}", query.flink, query.other)
        };
        let bound = session.plan(&query.flink).unwrap_or_else(|error| fails("not planned", &error));
        // As they come: those of both tables between each other.
        let mut arrivals: Vec<Arrival> = Vec::new();
        let (mut left, mut right) = (t.iter().peekable(), u.iter().peekable());
        while left.peek().is_some() || right.peek().is_some() {
            let from_t = right.peek().is_none() || left.peek().is_some() && random.below(2) == 0;
            let (table, row) = if from_t { ("t", left.next()) } else { ("u", right.next()) };
            let Some(row) = row else { continue };
            arrivals.push(Arrival {
                table: table.to_owned(),
                row: row.clone(),
                clock: arrivals.len() as i64 * SECOND,
            });
        }
        let input = Input { arrivals, ..Input::default() };
        let plans = support::job(std::slice::from_ref(&bound));
        let batch = [1, 3, 4096][random.below(3) as usize];
        let threads = random.below(3) as usize + 1;
        let ran = match support::run_on(&plans, &input, batch, false, threads) {
            Some(ran) if threads > 1 => ran,
            _ => support::run(&plans, &input, batch, false),
        };
        let found = ran.unwrap_or_else(|error| fails("failed", &error));
        let types: Vec<&DataType> = bound.schema.iter().map(|field| &field.ty.data).collect();
        let row = |row: &Vec<Value>| {
            let values: Vec<Json> = row.iter().zip(&types).map(|(value, ty)| json_of(value, ty)).collect();
            Json::Array(values).to_string()
        };
        let mut found: Vec<String> = final_rows(&found[0]).iter().map(row).collect();
        found.sort();
        let wanted = match other.run(&query.other, [&t, &u], 1 + random.below(3)) {
            // Where a filter makes a column equal to another, or one is in PARTITION BY and in ORDER BY.
            Err(error) if NOT_PLANNED.iter().any(|what| error.contains(what)) => {
                not_planned += 1;
                continue;
            }
            wanted => wanted.unwrap_or_else(|error| fails("DataFusion fails", &error)),
        };
        if wanted != found {
            fails("they differ", &format!("wanted\n{wanted:?}\nfound\n{found:?}"));
        }
        compared += 1;
        empty += u64::from(found.is_empty());
        rows += found.len();
        if compared % 500 == 0 {
            eprintln!("{compared} of {pairs} pairs, 0 differences, {:.0} s", started.elapsed().as_secs_f64());
        }
    }
    assert!(empty < pairs / 2, "{empty} of {pairs} pairs gave nothing");
    assert!(not_planned <= 1 + pairs / 500, "DataFusion planned {not_planned} of {pairs} pairs wrongly");
    eprintln!(
        "{pairs} pairs from seed {first}, 0 differences; {rows} rows, {empty} pairs without any; {not_planned} more that \
         DataFusion did not plan"
    );
}
