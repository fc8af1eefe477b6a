//! Makes the tables of `docs/metrics.md` from the families. `cargo xtask docs` writes them; a test compares.

use super::family::{Family, Kind, PREFIX};
use super::table::{NOT_EXPORTED, TABLE};
use crate::generated_page;
use std::fmt::Write as _;
use std::path::PathBuf;

fn row(family: &Family) -> String {
    let names = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    format!(
        "| `{}` | {} | {} | {} | {} |",
        family.sample_name(),
        family.kind.word(),
        names(family.labels),
        family.help,
        names(family.info)
    )
}

fn tables() -> String {
    let mut out = String::new();
    for (title, families) in TABLE {
        let _ = write!(
            out,
            "\n### {title}\n\n| family | kind | labels | meaning | in INFO |\n|---|---|---|---|---|\n"
        );
        for family in *families {
            let _ = writeln!(out, "{}", row(family));
        }
    }
    out.push_str("\n### Numbers of INFO that are not exported\n\n| reason | fields |\n|---|---|\n");
    for (reason, fields) in NOT_EXPORTED {
        let _ = writeln!(out, "| {reason} | `{}` |", fields.join("`, `"));
    }
    out
}

#[test]
fn the_page_has_the_families_that_are_declared() {
    generated_page::compare("metrics.md", "crates/server/src/metrics/table", &tables());
}

/// `cargo xtask metrics` runs them against a real Prometheus.
#[test]
fn the_dashboard_and_the_rules_use_only_families_that_exist() {
    let mut names = std::collections::BTreeSet::new();
    for family in super::table::families() {
        let name = family.sample_name();
        match family.kind {
            Kind::Histogram => names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"))),
            Kind::Counter | Kind::Gauge => drop(names.insert(name)),
        }
    }
    for file in ["grafana/duramen.json", "prometheus/duramen.rules.yml"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: Vec<&str> = words.filter(|word| word.starts_with(PREFIX)).collect();
        assert!(used.len() > 20, "{file}");
        for name in used {
            assert!(names.contains(name), "{file} uses {name}, which no family has");
        }
    }
}
