//! Text tests of the language: testdata/stream/*.slt. Blocks are parted by empty lines:
//!
//! - `run` and statements;
//! - `input TABLE` and rows, values parted by `|`, one second of processing time apart;
//! - `query`, a query, `----`, and the rows at the end, sorted;
//! - `error`, a script, `----`, and the message.
//!
//! `DURAMEN_BLESS=1` records the found results instead. Every query runs as it is bound, after all rules, and as
//! machine code; each must give the rows.

use super::support;
use std::path::PathBuf;

use duramen_stream::Session;
use duramen_stream::nexmark::BEGIN_MICROS;
use duramen_stream::plan::reference::{Arrival, Input, final_rows, run_plans};
use duramen_stream::plan::rules;
use duramen_stream::types::{DataType, Value, cast};

struct File {
    session: Session,
    input: Input,
    clock: i64,
    /// Queries that were run as machine code too.
    compiled: std::cell::Cell<usize>,
}

impl File {
    fn rows(&mut self, table: &str, lines: &[&str]) {
        let plan = self.session.table(table).unwrap();
        for line in lines {
            let texts: Vec<&str> = line.split('|').map(str::trim).collect();
            let types = plan.physical.iter().map(|column| &plan.columns[*column].ty.data);
            let row: Vec<Value> = texts
                .iter()
                .zip(types)
                .map(|(text, ty)| match *text {
                    "NULL" => Value::Null,
                    text => cast::cast(&Value::string(text), &DataType::STRING, ty).unwrap(),
                })
                .collect();
            assert_eq!(row.len(), plan.physical.len(), "{line}");
            if plan.connector.lookup {
                self.input.tables.entry(table.to_owned()).or_default().push(row);
            } else {
                self.clock += 1_000_000;
                self.input.arrivals.push(Arrival { table: table.to_owned(), row, clock: self.clock });
            }
        }
    }

    fn query(&self, query: &str) -> Result<Vec<String>, String> {
        let bound = self.session.plan(query).map_err(|error| error.to_string())?;
        let schema = bound.schema.clone();
        match support::compare(&bound, &self.input) {
            Some(Ok(())) => self.compiled.set(self.compiled.get() + 1),
            Some(Err(difference)) => panic!("machine code differs: {query}\n{difference}"),
            None => {}
        }
        let optimised = rules::optimise(&bound);
        let run = |plan| run_plans(&[plan], &self.input).map_err(|error| error.to_string());
        let rows = final_rows(&run(optimised)?[0]);
        assert_eq!(rows, final_rows(&run(bound)?[0]), "rules change the result of {query}");
        let text = |row: &Vec<Value>| {
            let texts: Vec<String> =
                row.iter().zip(&schema).map(|(value, field)| value.text(&field.ty.data)).collect();
            texts.join(" | ")
        };
        Ok(rows.iter().map(text).collect())
    }
}

fn run_file(path: &PathBuf) -> (usize, usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut file = File {
        session: Session::default(),
        input: Input::default(),
        clock: BEGIN_MICROS,
        compiled: Default::default(),
    };
    let mut count = 0;
    let bless = std::env::var_os("DURAMEN_BLESS").is_some();
    let mut blessed: Vec<(String, String)> = Vec::new();
    for block in text.split("\n\n") {
        let lines: Vec<&str> =
            block.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let Some((head, body)) = lines.split_first() else { continue };
        let (body, wanted) = match body.iter().position(|line| *line == "----") {
            Some(place) => (&body[..place], &body[place + 1..]),
            None => (body, &body[..0]),
        };
        let script = body.join("\n");
        let wanted: Vec<String> = wanted.iter().map(|line| (*line).to_owned()).collect();
        match *head {
            "run" => {
                drop(file.session.run(&script).unwrap_or_else(|error| panic!("{path:?}: {error}\n{script}")))
            }
            "query" => {
                let found = file.query(&script).unwrap_or_else(|error| vec![format!("error: {error}")]);
                if bless {
                    blessed.push((block.to_owned(), found.join("\n")));
                } else {
                    assert_eq!(found, wanted, "{path:?}\n{script}\nfound\n{}\n", found.join("\n"));
                }
            }
            "error" => {
                let found = match file.session.clone().run(&script) {
                    Err(error) => error.to_string(),
                    Ok(_) => "no error".to_owned(),
                };
                if bless {
                    blessed.push((block.to_owned(), found));
                } else {
                    assert_eq!(found, wanted.join("\n"), "{path:?}\n{script}");
                }
            }
            head => match head.strip_prefix("input ") {
                Some(table) => file.rows(table, body),
                None => panic!("{path:?}: `{head}` begins no block"),
            },
        }
        count += usize::from(*head == "query" || *head == "error");
    }
    if bless {
        let mut text = text;
        for (block, found) in blessed {
            let (head, _) = block.split_once("----").unwrap_or((&block, ""));
            let end = if found.is_empty() { "" } else { "\n" };
            text = text.replacen(block.trim_end(), &format!("{head}----{end}{found}"), 1);
        }
        std::fs::write(path, text).unwrap();
    }
    (count, file.compiled.get())
}

#[test]
fn every_slt_file_has_its_expected_results() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stream");
    let (mut count, mut compiled) = (0, 0);
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "slt") {
            let (blocks, machine) = run_file(&path);
            count += blocks;
            compiled += machine;
        }
    }
    assert!(count > 30, "only {count} blocks were run");
    assert!(compiled > 30, "only {compiled} queries were run as machine code");
}
