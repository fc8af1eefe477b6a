//! Intended differences: a short list, each with its reason.
//!
//! A line is `PATTERN => REASON`. The pattern is the transcript's name without `.txt`, a colon, and the line as written
//! there. For Redis's own tests it is the unit, a colon, and the test's name. `*` matches anything. An entry without a
//! difference is reported, so that the list does not outlive its reasons.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use crate::failure::{Attempt, Failure, Result};

/// The list.
pub struct Intended {
    entries: Vec<Entry>,
}

struct Entry {
    line: usize,
    pattern: String,
    used: Cell<bool>,
}

impl Intended {
    /// Reads the list from a file of the repository.
    pub fn read(root: &Path, path: &str) -> Result<Intended> {
        let text = fs::read_to_string(root.join(path)).attempt(|| format!("read {path}"))?;
        Intended::parse(&text)
            .map_err(|(line, message)| Failure::new(format!("cannot read {path}:{line}: {message}")))
    }

    /// Parses the list. The error is the line's number and the problem.
    fn parse(text: &str) -> std::result::Result<Intended, (usize, String)> {
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((pattern, reason)) = line.split_once(" => ") else {
                return Err((line_number, "no \" => \" between pattern and reason".to_owned()));
            };
            if reason.trim().is_empty() {
                return Err((line_number, "no reason".to_owned()));
            }
            entries.push(Entry {
                line: line_number,
                pattern: pattern.trim().to_owned(),
                used: Cell::new(false),
            });
        }
        Ok(Intended { entries })
    }

    /// Whether a difference at this line of this transcript is intended.
    pub fn covers(&self, transcript: &str, text: &str) -> bool {
        let place = format!("{transcript}:{text}");
        let mut covered = false;
        for entry in self.entries.iter().filter(|entry| fits(&entry.pattern, &place)) {
            entry.used.set(true);
            covered = true;
        }
        covered
    }

    /// Line and pattern of the entries that covered nothing.
    pub fn unused(&self) -> impl Iterator<Item = (usize, &str)> {
        self.entries
            .iter()
            .filter(|entry| !entry.used.get())
            .map(|entry| (entry.line, entry.pattern.as_str()))
    }
}

/// Whether `text` fits `pattern`, in which `*` matches any run of characters.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_globs() {
        for (pattern, text, expected) in [
            ("keys:DUMP a", "keys:DUMP a", true),
            ("keys:DUMP a", "keys:DUMP ab", false),
            ("keys:DUMP*", "keys:DUMP ab", true),
            ("*:*HELLO*3*", "server:@any HELLO 3 x", true),
            ("*:HELLO 3", "a:HELLO 3 x", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_intended_difference_needs_a_reason_and_a_use() {
        assert_eq!(Intended::parse("a:b").err().map(|e| e.0), Some(1));
        assert_eq!(Intended::parse("# c\na:b => ").err().map(|e| e.0), Some(2));
        let list = Intended::parse("a:GET* => why\nb:* => why\n").unwrap();
        assert!(list.covers("a", "GET x"));
        assert!(!list.covers("a", "SET x"));
        assert_eq!(list.unused().collect::<Vec<_>>(), [(2, "b:*")]);
    }
}
