//! Inputs and outputs recorded from redis-server 7.0.15 on x86-64, one case a line.
//!
//! `DURAMEN_VECTORS=DIR` reads them from another directory, for a longer recording.

use std::path::PathBuf;

use duramen_structures::dump;
use duramen_structures::string::long_double;

fn lines(name: &str) -> Vec<Vec<String>> {
    let dir = std::env::var_os("DURAMEN_VECTORS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors"), PathBuf::from);
    let text = std::fs::read_to_string(dir.join(name)).unwrap();
    text.split_terminator('\n').map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn incrbyfloat_gives_the_same_digits_and_errors() {
    let mut wrong = vec![];
    for case in lines("incrbyfloat.txt") {
        let [value, increment, wanted] = &case[..] else { panic!("{case:?}") };
        let result = long_double::parse_or_error(value.as_bytes())
            .and_then(|value| value.add(&long_double::parse_or_error(increment.as_bytes())?));
        let found = result.map_or_else(|error| error.to_string(), |sum| sum.text());
        if found != *wanted {
            wrong.push(format!("{value} + {increment} = {wanted}, found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn dump_gives_the_same_bytes_and_restore_takes_them() {
    let mut wrong = vec![];
    for case in lines("dump.txt") {
        let [value, payload] = &case[..] else { panic!("{case:?}") };
        let (value, payload) = (unhex(value), unhex(payload));
        assert_eq!(
            dump::restore(&payload, 512 << 20).unwrap(),
            dump::Restored::String(value.clone()),
            "{case:?}"
        );
        if dump::signed(dump::string(&value)) != payload {
            wrong.push(format!("{case:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ, first: {}", wrong.len(), wrong[0]);
}
