//! The tutorial of `docs/sql/overview.md`: its scripts are those of `testdata/stream/tutorial`, and give the output that
//! the page shows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::round_trip::{How, open, run, start};

const TOTALS: &str = "{\"product\":\"cheese\",\"orders\":8,\"revenue\":501.97}";
const TOTALS_AFTER: &str = "{\"product\":\"cheese\",\"orders\":9,\"revenue\":511.87}";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/sql/overview.md")).unwrap()
}

/// A script of the tutorial, which the page shows whole.
fn script(name: &str) -> String {
    let script = std::fs::read_to_string(repository().join("testdata/stream/tutorial").join(name)).unwrap();
    let shown = format!("```sql\n{}\n```", script.trim());
    assert!(page().contains(&shown), "docs/sql/overview.md does not show {name} as it is");
    script
}

fn copy_orders(directory: &Path) -> PathBuf {
    let orders = directory.join("orders.csv");
    std::fs::copy(repository().join("testdata/stream/tutorial/orders.csv"), &orders).unwrap();
    orders
}

/// The output that the page shows after a command.
fn shown(command: &str) -> Vec<String> {
    let page = page();
    let (_, rest) = page.split_once(&format!("$ {command}\n")).unwrap_or_else(|| panic!("no `{command}`"));
    rest.lines()
        .take_while(|line| !line.starts_with("```") && !line.starts_with('$'))
        .map(str::to_owned)
        .collect()
}

fn sorted(path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn the_query_of_the_tutorial_prints_the_rows_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    copy_orders(directory.path());
    // The same rows in a file, since a test cannot read what the process prints.
    let script = script("show.sql");
    let to_file = "'connector' = 'filesystem', 'path' = 'shown.csv', 'format' = 'csv'";
    assert!(script.contains("'connector' = 'print'"));
    run(&script.replace("'connector' = 'print'", to_file), directory.path(), &[]);
    let mut wanted = shown("duramen sql show.sql");
    wanted.sort();
    let found = sorted(&directory.path().join("shown.csv"));
    let printed: Vec<String> = found.iter().map(|line| format!("+I[{}]", line.replace(',', ", "))).collect();
    assert_eq!(printed, wanted);
}

#[test]
fn the_window_of_the_tutorial_writes_the_file_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    copy_orders(directory.path());
    run(&script("minutes.sql"), directory.path(), &[]);
    assert_eq!(sorted(&directory.path().join("minutes.csv")), shown("sort minutes.csv"));
}

#[test]
fn the_totals_of_the_tutorial_count_each_order_once() {
    let page = page();
    let directory = tempfile::tempdir().unwrap();
    let orders = copy_orders(directory.path());
    let script = script("totals.sql");
    let more = "cheese,2026-01-05 10:00:00,1,9.90\n";
    assert!(page.contains(&format!("echo '{}' >> orders.csv", more.trim())));
    for (records, wanted) in [(40, TOTALS), (41, TOTALS_AFTER)] {
        assert!(page.contains(&wanted.replace('"', "\\\"")), "docs/sql/overview.md does not show {wanted}");
        let store = open(directory.path());
        let stop = AtomicBool::new(false);
        let how = How { kept: Some((&store, "totals")), ..How::default() };
        let mut running = start(&script, directory.path(), &[], how);
        running.run(&stop, |progress| stop.store(progress.records >= records, Ordering::Relaxed)).unwrap();
        let table = store.find_table(b"redis.0").unwrap().unwrap();
        let mut found = String::new();
        let wanted_key = b"total:cheese";
        table
            .for_each(|value| {
                if value.key() == wanted_key {
                    found = String::from_utf8_lossy(value).into_owned();
                }
            })
            .unwrap();
        assert_eq!(found, wanted);
        let text = std::fs::read_to_string(&orders).unwrap();
        std::fs::write(&orders, format!("{text}{more}")).unwrap();
    }
}
