//! Machine code gives what the reference gives.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::PathBuf;

use duramen_stream::nexmark::{Generator, TABLES};
use duramen_stream::reference::{Input, final_rows, run_plans};
use duramen_stream::types::Value;
use duramen_stream::{ErrorKind, Outcome, Session};

const EVENTS: u64 = 10_000;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stream/nexmark").join(name)
}

/// Queries of Nexmark that are not compiled yet, by what they are refused for.
const REFUSED: &[(u32, &str)] = &[];

#[test]
fn nexmark_is_the_same_as_the_reference() {
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
