//! Lines of documents have at most [`CHARACTERS_MAX`] characters: README, ARCHITECTURE, CHANGELOG, and the pages under
//! `docs`. Tables, headings, code blocks and longer single words are excepted.
//!
//! `cargo xtask tidy --wrap` breaks long lines of paragraphs and list items, at blanks that are not inside a link or a
//! code span. A person must fix the remaining ones.

use std::fs;

use super::links::outside_fences;
use super::tree::Tree;
use super::violation::Violation;
use crate::failure::{Attempt, Result};

const CHARACTERS_MAX: usize = 120;
// 60: names and short commands stay whole; a span of more than half a line may be broken.
const SPAN_KEPT_MAX: usize = 60;

/// Checks each page of the tree.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, text) in tree.texts(is_page) {
        violations.extend(outside_fences(text).filter(|(_, line)| is_long(line)).map(|(number, line)| {
            Violation {
                file: path.to_owned(),
                line: number,
                found: format!("a line of {} characters", line.chars().count()),
                wanted: format!("at most {CHARACTERS_MAX}"),
                action: "break it where a sentence or a part of one ends, or run cargo xtask tidy --wrap"
                    .to_owned(),
            }
        }));
    }
}

/// Wraps the pages that have long lines. Returns whether there were any.
pub fn wrap(tree: &Tree) -> Result<bool> {
    let mut changed = false;
    for (path, text) in tree.texts(is_page) {
        let wrapped = wrapped(text);
        if wrapped != text {
            fs::write(tree.root().join(path), wrapped).attempt(|| format!("write {path}"))?;
            changed = true;
        }
    }
    Ok(changed)
}

fn is_page(path: &str) -> bool {
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].contains(&path)
        || path.starts_with("docs/") && path.ends_with(".md")
}

fn is_long(line: &str) -> bool {
    line.chars().count() > CHARACTERS_MAX && !is_whole(line) && line.trim().contains(' ')
}

/// Whether the line is part of a table or a heading, which cannot be broken.
fn is_whole(line: &str) -> bool {
    line.trim_start().starts_with(['|', '#'])
}

/// The beginning of a list item, including its margin; empty for other lines.
fn mark(line: &str) -> &str {
    let margin = line.len() - line.trim_start().len();
    let rest = &line[margin..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let length = match &rest[digits..] {
        number if digits > 0 && number.starts_with(". ") => digits + 2,
        bullet if digits == 0 && (bullet.starts_with("- ") || bullet.starts_with("* ")) => 2,
        _ => return "",
    };
    &line[..margin + length]
}

fn wrapped(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut prose = vec![false; lines.len()];
    for (number, line) in outside_fences(text) {
        prose[number - 1] = !line.trim().is_empty() && !is_whole(line) && !line.trim_start().starts_with('>');
    }
    let mut out = String::new();
    let mut at = 0;
    while at < lines.len() {
        let mut end = at + 1;
        if prose[at] {
            while end < lines.len() && prose[end] && mark(lines[end]).is_empty() {
                end += 1;
            }
        }
        let part = &lines[at..end];
        if prose[at] && part.iter().any(|line| is_long(line)) {
            wrap_part(part, &mut out);
        } else {
            part.iter().for_each(|line| {
                out.push_str(line);
                out.push('\n');
            });
        }
        at = end;
    }
    if !text.ends_with('\n') {
        out.pop();
    }
    out
}

/// Writes one paragraph or list item with lines that are not too long.
fn wrap_part(lines: &[&str], out: &mut String) {
    let mark = mark(lines[0]);
    let margin = lines[0].len() - lines[0].trim_start().len();
    let indent = " ".repeat(if mark.is_empty() { margin } else { mark.len() });
    let text = lines.join(" ");
    let mut line = if mark.is_empty() { indent.clone() } else { mark.to_owned() };
    let mut empty = true;
    for word in words(&text[line.len()..]) {
        if !empty && line.chars().count() + 1 + word.chars().count() > CHARACTERS_MAX {
            out.push_str(&line);
            out.push('\n');
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(&line);
    out.push('\n');
}

/// The parts between blanks. A link is one part, and so is a short code span. A word stays with the one before if, as
/// the first of its line, it would begin a list, a heading, a quotation or a table.
fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let (mut begin, mut end) = (0, 0);
    let (mut code, mut square, mut round) = (None, 0_usize, 0_usize);
    let mut before = ' ';
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match c {
            '`' if code.is_some() => code = None,
            '`' => code = Some(text[at + 1..].find('`').is_some_and(|length| length <= SPAN_KEPT_MAX)),
            '[' if code.is_none() => square += 1,
            ']' if code.is_none() => square = square.saturating_sub(1),
            '(' if code.is_none() && (before == ']' || round > 0) => round += 1,
            ')' if code.is_none() => round = round.saturating_sub(1),
            _ => {}
        }
        before = c;
        if c != ' ' {
            continue;
        }
        let last = at == text.len();
        if (code == Some(true) || square > 0 || round > 0) && !last {
            continue;
        }
        let word = text[end..at].trim_start();
        let number =
            word.strip_suffix('.').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let stays = word.starts_with(['-', '+', '*', '#', '>', '|']) && !word.starts_with("**") || number;
        if stays && !words.is_empty() {
            words.pop();
        } else {
            begin = at - word.len();
        }
        if begin < at {
            words.push(&text[begin..at]);
        }
        end = at;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    #[test]
    fn long_line_is_reported_but_for_tables_and_code() {
        let words = "word ".repeat(30);
        let page = format!("Short.\n{words}\n| {words} |\n```\n{words}\n```\n");
        let found = fabricated::found(check, &[("docs/page.md", &page), ("crates/x/NOTES.md", &page)]);
        assert_eq!(found, [("docs/page.md".to_owned(), 2, "a line of 150 characters".to_owned())]);
    }

    #[test]
    fn wrapping_keeps_words_lists_links_and_short_lines() {
        let long = "some words ".repeat(12);
        let link = "[a link of words](docs/a.md#some-place)";
        let page = format!("Kept\nas it is.\n\n1. {long}{link} `a code span` - {long}\n   and on.\n- next\n");
        let (_keep, tree) = fabricated::tree(&[("README.md", &page)]);
        assert!(wrap(&tree).unwrap());
        let after = fs::read_to_string(tree.root().join("README.md")).unwrap();
        assert!(after.starts_with("Kept\nas it is.\n\n1. some words"));
        assert!(after.ends_with("\n- next\n") && after.contains(link) && after.contains("`a code span`"));
        assert!(after.lines().all(|line| line.chars().count() <= CHARACTERS_MAX));
        assert!(after.lines().skip(4).take(3).all(|line| line.starts_with("   ") || line == "- next"));
        assert_eq!(after.split_whitespace().collect::<Vec<_>>(), page.split_whitespace().collect::<Vec<_>>());
        let tree = Tree::read(tree.root()).unwrap();
        assert!(!wrap(&tree).unwrap());
    }
}
