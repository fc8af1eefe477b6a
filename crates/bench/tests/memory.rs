#![allow(clippy::unwrap_used)] // A panic here is a failed test.
//! Broken workload files are refused with file, line, the error and a hint. Each file in testdata/bench/broken contains
//! the beginning of its expected message.

use duramen_bench::memory::{ErrorKind, Overrides, benchmarks};
use std::path::Path;

#[test]
fn every_broken_file_is_refused_with_its_message() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bench/broken");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let wanted = std::fs::read_to_string(path.with_extension("expected")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let error = benchmarks(name, &text, &Overrides::default()).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        assert!(error.to_string().starts_with(wanted.trim_end()), "{name}: found {error}");
        count += 1;
    }
    assert!(count >= 12, "{count} broken files");
}

#[test]
fn the_published_example_is_read_unchanged() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bench/hash_index_published.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let smaller = Overrides { memory_range: Some(1 << 30), ..Overrides::default() };
    assert_eq!(benchmarks("hash_index_published.yaml", &text, &smaller).unwrap().len(), 3);
}
