//! One concept, one word: identifiers and phrases that gave way to the field's words stay away.
//!
//! `words.toml` has a row for each concept: the refused words, the word to write instead, the files in which that
//! holds, and those in which the old word means something else.

use super::tree::Tree;
use super::violation::Violation;

const TABLE: &str = include_str!("words.toml");

struct Row {
    write: String,
    found: Vec<String>,
    scope: Vec<String>,
    allowed: Vec<String>,
}

/// Checks each source and page of the tree.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(found) => {
            return violations.push(Violation {
                file: "xtask/src/tidy/words.toml".to_owned(),
                line: 1,
                found,
                wanted: "rows with `write`, `found` and `scope`".to_owned(),
                action: "correct the table".to_owned(),
            });
        }
    };
    for (path, text) in tree.texts(|path| path.ends_with(".rs") || path.ends_with(".md")) {
        for row in rows.iter().filter(|row| is_below(path, &row.scope) && !is_below(path, &row.allowed)) {
            for word in row.found.iter().filter(|word| text.contains(word.as_str())) {
                let lines = text.lines().enumerate().filter(|(_, line)| has_word(line, word));
                violations.extend(lines.map(|(at, _)| Violation {
                    file: path.to_owned(),
                    line: at + 1,
                    found: format!("\"{word}\""),
                    wanted: "the field's word".to_owned(),
                    action: format!("write {}", row.write),
                }));
            }
        }
    }
}

/// The rows of the table, or why it has none.
fn rows() -> Result<Vec<Row>, String> {
    let table: toml::Table = TABLE.parse().map_err(|error| format!("no TOML: {error}"))?;
    let rows = table.get("row").and_then(toml::Value::as_array).ok_or("no [[row]]")?;
    rows.iter().map(row).collect()
}

fn row(row: &toml::Value) -> Result<Row, String> {
    let list = |name: &str| -> Vec<String> {
        let cells = row.get(name).and_then(toml::Value::as_array).into_iter().flatten();
        cells.filter_map(toml::Value::as_str).map(str::to_owned).collect()
    };
    let write = row
        .get("write")
        .and_then(toml::Value::as_str)
        .ok_or_else(|| format!("a row without `write`: {row}"))?;
    let row =
        Row { write: write.to_owned(), found: list("found"), scope: list("scope"), allowed: list("allowed") };
    if row.found.is_empty() || row.scope.is_empty() {
        return Err(format!("the row \"{}\" has no words or no scope", row.write));
    }
    Ok(row)
}

fn is_below(path: &str, places: &[String]) -> bool {
    places.iter().any(|place| {
        path.strip_prefix(place.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Whether the line has the word as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fabricated;

    #[test]
    fn an_old_word_is_found_with_its_place_and_the_new_word() {
        let (_keep, tree) = fabricated::tree(&[(
            "crates/duramen/src/lib.rs",
            "//! A store.\n\n// The slot leads to a record.\nfn keepers() {}\nfn bury() {}\n",
        )]);
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        let found: Vec<_> =
            violations.iter().map(|v| (v.line, v.found.as_str(), v.action.as_str())).collect();
        let want = [
            (3, "\"leads to\"", "write point to, repoint"),
            (5, "\"bury\"", "write reclaim, retired, tombstoned"),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn an_old_word_is_left_where_it_means_something_else() {
        let (_keep, tree) = fabricated::tree(&[
            ("crates/checks/src/lib.rs", "fn keeper() {}\n"),
            ("crates/server/src/lib.rs", "fn lane_of() {}\n"),
        ]);
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        assert_eq!(violations, []);
    }
}
