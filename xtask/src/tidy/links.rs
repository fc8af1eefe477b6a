//! Documents only name existing targets: relative links, anchors, and back-quoted paths.
//!
//! This parser of Markdown knows fenced blocks, code spans, inline links and images, reference definitions and
//! headings; the documents use nothing else. Links to other hosts are not followed: a check that needs the network
//! fails for reasons outside the tree.

use std::collections::BTreeMap;

use super::tree::Tree;
use super::violation::Violation;

/// Checks every `*.md` of the tree.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, text) in tree.texts(|path| path.ends_with(".md")) {
        for (line, reference) in references(text) {
            let broken = match &reference {
                Reference::Link(target) => broken_link(tree, path, target),
                Reference::Path(named) => broken_path(tree, path, named),
            };
            if let Some((found, wanted)) = broken {
                violations.push(Violation {
                    file: path.to_owned(),
                    line,
                    found,
                    wanted,
                    action: match reference {
                        Reference::Link(_) => "correct the link or add its target".to_owned(),
                        Reference::Path(_) => "correct the path or add the file".to_owned(),
                    },
                });
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reference {
    Link(String),
    /// A code span without blanks.
    Path(String),
}

fn broken_link(tree: &Tree, document: &str, target: &str) -> Option<(String, String)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let resolved = match path {
        "" => Some(document.to_owned()),
        _ => resolve(document, path),
    };
    let existing = resolved.filter(|resolved| resolved.is_empty() || tree.has(resolved));
    let Some(existing) = existing else {
        return Some((format!("a link to {path}"), "a file or directory of the repository".to_owned()));
    };
    let anchor = anchor.filter(|_| existing.ends_with(".md"))?;
    let known = anchors(tree.text(&existing)?);
    if known.contains_key(anchor) {
        return None;
    }
    Some((format!("a link to #{anchor}"), format!("a heading of {existing} that makes this anchor")))
}

/// A code span counts as a path of the repository in two cases: it has a slash and begins with a directory of the root,
/// or it is the bare name of a document.
fn broken_path(tree: &Tree, document: &str, named: &str) -> Option<(String, String)> {
    let plain = named.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:".contains(&b));
    // `file.rs:12` names a line of the file.
    let path = match named.split_once(':') {
        Some((path, line)) if line.bytes().all(|b| b.is_ascii_digit()) => path,
        Some(_) => return None,
        None => named,
    };
    let path = path.strip_suffix('/').unwrap_or(path);
    let claims = match path.split_once('/') {
        Some((first, _)) => tree.has_directory(first) || first == "..",
        None => path.ends_with(".md"),
    };
    if !plain || !claims {
        return None;
    }
    let beside = resolve(document, path);
    if tree.has(path) || beside.is_some_and(|beside| tree.has(&beside)) {
        return None;
    }
    Some((format!("the path `{named}`"), "a file or directory of the repository".to_owned()))
}

/// `path` as seen from the directory of `document`; `None` if it leaves the repository.
fn resolve(document: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = match path.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => document.rsplit_once('/').map_or(Vec::new(), |(directory, _)| directory.split('/').collect()),
    };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a document's headings, as GitHub generates them.
fn anchors(text: &str) -> BTreeMap<String, usize> {
    let mut anchors = BTreeMap::new();
    for (_, line) in outside_fences(text) {
        let level = line.bytes().take_while(|b| *b == b'#').count();
        if !(1..=6).contains(&level) || !line[level..].starts_with(' ') {
            continue;
        }
        let mut slug = String::new();
        for c in line[level..].trim().chars() {
            match c {
                ' ' | '-' => slug.push('-'),
                '_' => slug.push('_'),
                c if c.is_alphanumeric() => slug.extend(c.to_lowercase()),
                _ => {}
            }
        }
        let count = anchors.entry(slug.clone()).or_insert(0);
        *count += 1;
        if *count > 1 {
            let numbered = format!("{slug}-{}", *count - 1);
            anchors.insert(numbered, 1);
        }
    }
    anchors
}

/// Lines (from 1) that are not inside a fenced block.
pub fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (None, None) => return Some((index + 1, line)),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
        None
    })
}

fn references(text: &str) -> Vec<(usize, Reference)> {
    let mut references = Vec::new();
    for (number, line) in outside_fences(text) {
        // Code spans first: the text of a link inside one is not a link.
        let mut prose = String::new();
        let mut rest = line;
        while let Some(at) = rest.find('`') {
            prose.push_str(&rest[..at]);
            let ticks = rest[at..].bytes().take_while(|b| *b == b'`').count();
            let (mark, inside) = rest[at..].split_at(ticks);
            let Some(end) = inside.find(mark) else {
                // Not closed on this line: a stray back-quote, or a span over two lines, which is never a path.
                rest = inside;
                continue;
            };
            let span = inside[..end].trim();
            if !span.is_empty() && !span.contains(char::is_whitespace) {
                references.push((number, Reference::Path(span.to_owned())));
            }
            // A placeholder for the span, so that "[`x`](y)" is still parsed as a link.
            prose.push('x');
            rest = &inside[end + ticks..];
        }
        prose.push_str(rest);
        links_of(&prose, |target| references.push((number, Reference::Link(target.to_owned()))));
    }
    references
}

fn links_of(prose: &str, mut found: impl FnMut(&str)) {
    let definition = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    if let Some((name, target)) = definition
        && !name.starts_with('^')
    {
        found(target.split_whitespace().next().unwrap_or_default());
        return;
    }
    let mut rest = prose;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let Some(end) = rest.find(')') else { return };
        // "(target "title")"
        found(rest[..end].split_whitespace().next().unwrap_or_default().trim_matches(['<', '>']));
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize, String)> {
        fabricated::found(check, files)
    }

    #[test]
    fn missing_link_targets_are_reported() {
        let document =
            "[a](b.md) [c](../README.md)\n![d](img/e.png \"title\")\n\n[f]: gone.md\n[g](../../x)\n";
        let found = found(&[("README.md", "# Top\n"), ("docs/a.md", document), ("docs/b.md", "")]);
        let named: Vec<_> = found.iter().map(|(_, line, found)| (*line, found.as_str())).collect();
        assert_eq!(named, [(2, "a link to img/e.png"), (4, "a link to gone.md"), (5, "a link to ../../x")]);
    }

    #[test]
    fn missing_anchor_is_reported_and_others_are_not() {
        let target = "# The `log` of records!\n## Twice\n## Twice\n```\n# no heading\n```\n";
        let document =
            "[a](t.md#the-log-of-records) [b](t.md#twice-1) [c](t.md#no-heading) [d](#here)\n\n# Here\n";
        let found = found(&[("t.md", target), ("a.md", document)]);
        assert_eq!(found, [("a.md".to_owned(), 1, "a link to #no-heading".to_owned())]);
    }

    #[test]
    fn back_quoted_paths_must_exist() {
        let document = "`crates/media/src/lib.rs`, `crates/media/`, `crates/media/src/lib.rs:3`,\n\
             `crates/media/src/gone.rs`, `std::io/x`, `/dev/shm`, `a/b`, `crates/*`, `GONE.md`, ``crates/media``\n";
        let found = found(&[("README.md", document), ("crates/media/src/lib.rs", "")]);
        let named: Vec<_> = found.iter().map(|(_, line, found)| (*line, found.as_str())).collect();
        assert_eq!(named, [(2, "the path `crates/media/src/gone.rs`"), (2, "the path `GONE.md`")]);
    }

    #[test]
    fn fenced_blocks_code_spans_and_other_hosts_are_left_alone() {
        let document =
            "```\n[a](gone.md)\n```\n`[b](gone.md)` [c](https://example.org/x#y) <d@example.org>\n";
        assert_eq!(found(&[("README.md", document)]), []);
    }
}
