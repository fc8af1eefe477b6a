//! Expressions give what Flink gives: testdata/stream/flink/*.txt has its answers, which `cargo xtask flink` gets.
//!
//! Each expression is computed as it is bound, after all rules, and as machine code; all three must agree with each
//! other for every row, and with Flink but for the expressions of `differences.txt`, which has a reason for each.

use super::support;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use duramen_stream::Session;
use duramen_stream::plan::reference::{Arrival, Changes, Input, run_plans};
use duramen_stream::plan::{Node, rules};
use duramen_stream::types::Value;

const FILES: [&str; 4] = ["strings.txt", "numbers.txt", "casts.txt", "times.txt"];

fn text_of(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stream/flink").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows that expressions are over: texts, which a view casts, so that nothing is a constant.
struct Rows {
    session: Session,
    arrivals: Vec<Arrival>,
}

impl Rows {
    fn read(head: &str, lines: &[&str]) -> Rows {
        // A comma within a type has no name after it.
        let mut columns: Vec<String> = Vec::new();
        for part in head.split(", ") {
            match part.chars().next() {
                Some('a'..='z') => columns.push(part.to_owned()),
                _ => *columns.last_mut().unwrap() += &format!(", {part}"),
            }
        }
        let columns: Vec<(&str, &str)> =
            columns.iter().map(|column| column.split_once(' ').unwrap()).collect();
        let texts: Vec<String> = (0..columns.len()).map(|column| format!("c{column} STRING")).collect();
        let casts = columns.iter().enumerate();
        let casts: Vec<String> =
            casts.map(|(at, (name, ty))| format!("CAST(c{at} AS {ty}) AS {name}")).collect();
        let mut session = Session::default();
        let script = format!(
            "CREATE TABLE texts ({}) WITH ('connector' = 'datagen'); CREATE VIEW v AS SELECT {} FROM texts",
            texts.join(", "),
            casts.join(", ")
        );
        session.run(&script).unwrap();
        let row = |line: &&str| {
            let cells: Vec<Value> = line.split('|').map(cell).collect();
            assert_eq!(cells.len(), columns.len(), "{line}");
            Arrival { table: "texts".to_owned(), row: cells, clock: 0 }
        };
        Rows { session, arrivals: lines.iter().map(row).collect() }
    }

    /// The type of an expression and its value for each row, as text.
    fn answer(&self, expr: &str) -> Vec<String> {
        let Ok(bound) = self.session.plan(&format!("SELECT {expr} AS x FROM v")) else {
            return vec!["refused".to_owned()];
        };
        let data = &bound.schema[0].ty.data;
        let text = |changes: &Changes| {
            changes.iter().map(|(_, row)| escaped(&row[0].text(data))).collect::<Vec<String>>()
        };
        type Way<'a> = &'a dyn Fn(&Input) -> Option<Vec<String>>;
        let ways: [(&str, Way); 3] = [
            ("as bound", &|input| Some(text(&run_plans(std::slice::from_ref(&bound), input).ok()?[0]))),
            ("after rules", &|input| Some(text(&run_plans(&[rules::optimise(&bound)], input).ok()?[0]))),
            ("as machine code", &|input| compiled(&bound, input).map(|changes| text(&changes))),
        ];
        let mut found: Option<Vec<String>> = None;
        for (way, run) in ways {
            let values = match run(&self.input(&self.arrivals)) {
                Some(values) => values,
                // It fails for some row: for which?
                None => {
                    let each = self.arrivals.iter().map(|arrival| self.input(std::slice::from_ref(arrival)));
                    each.map(|input| run(&input).map_or("failed".to_owned(), |values| values.concat()))
                        .collect()
                }
            };
            match &found {
                // Arrays and rows are not compiled.
                _ if way == "as machine code" && values.iter().all(|value| value == "failed") => {}
                Some(found) => assert_eq!(*found, values, "{expr} {way} differs from the reference"),
                None => found = Some(values),
            }
        }
        [vec![data.to_string()], found.unwrap_or_default()].concat()
    }

    fn input(&self, arrivals: &[Arrival]) -> Input {
        Input { arrivals: arrivals.to_vec(), ..Input::default() }
    }
}

fn compiled(bound: &Arc<Node>, input: &Input) -> Option<Changes> {
    support::run(&support::job(std::slice::from_ref(bound)), input, 4096, false).ok()?.pop()
}

fn cell(text: &str) -> Value {
    match text {
        "NULL" => return Value::Null,
        "\\e" => return Value::string(""),
        _ => {}
    }
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => out.push(match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('p') => '|',
                Some(other) => other,
                None => panic!("{text} ends in a backslash"),
            }),
            other => out.push(other),
        }
    }
    Value::string(out)
}

fn escaped(text: &str) -> String {
    if text.is_empty() {
        return "\\e".to_owned();
    }
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\0'..' ' | '\u{7f}'..'\u{a0}' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
            other => out.push(other),
        }
    }
    out
}

/// Equal, but for the last bits of what only libraries of mathematics differ in.
fn agree(wanted: &str, found: &str, ty: &str) -> bool {
    if wanted == found {
        return true;
    }
    let close = |bits: f64| match (wanted.parse::<f64>(), found.parse::<f64>()) {
        (Ok(a), Ok(b)) if a.is_finite() && b.is_finite() => (a - b).abs() <= a.abs() * bits,
        _ => false,
    };
    match ty {
        "DOUBLE" => close(4.0 * f64::EPSILON),
        "FLOAT" => close(4.0 * f64::from(f32::EPSILON)),
        _ => false,
    }
}

/// Expressions that differ, with the reason of each: lines that begin with `=` are reasons.
fn known() -> BTreeSet<String> {
    let text = text_of("differences.txt");
    let lines = text.lines().filter(|line| !line.starts_with(['#', '=']) && !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn expressions_return_the_results_of_flink() {
    let (mut count, mut values) = (0, 0);
    let mut different = BTreeSet::new();
    for file in FILES {
        let text = text_of(file);
        let mut rows: Option<Rows> = None;
        for block in text.split("\n\n") {
            let lines: Vec<&str> = block.trim_end_matches('\n').split('\n').collect();
            match lines.as_slice() {
                ["rows", head, lines @ ..] => rows = Some(Rows::read(head, lines)),
                ["expr", expr, "----", wanted @ ..] => {
                    let found = rows.as_ref().unwrap().answer(expr);
                    let same = wanted.len() == found.len()
                        && wanted[0] == found[0]
                        && wanted[1..].iter().zip(&found[1..]).all(|(a, b)| agree(a, b, wanted[0]));
                    if !same {
                        different.insert(format!("{file} {expr}"));
                        if std::env::var_os("DURAMEN_FLINK_SHOW").is_some() {
                            println!("{file} {expr}\n  flink {wanted:?}\n  found {found:?}");
                        }
                    }
                    (count, values) = (count + 1, values + wanted.len() - 1);
                }
                _ => assert!(block.starts_with('#'), "{file}: `{}` begins no block", lines[0]),
            }
        }
    }
    assert!(count > 1000 && values > 5000, "only {count} expressions with {values} values were computed");
    println!("{count} expressions with {values} values, {} differ", different.len());
    let known = known();
    let new: Vec<&String> = different.difference(&known).collect();
    let mended: Vec<&String> = known.difference(&different).collect();
    assert!(new.is_empty(), "these differ from Flink, and differences.txt has no reason for them: {new:#?}");
    assert!(mended.is_empty(), "these are as in Flink: take them out of differences.txt: {mended:#?}");
}
