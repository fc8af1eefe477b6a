//! The sources of the on-medium format and their description change together.
//!
//! `docs/internals/format.md` contains a digest of `crates/log/src/format/`. This rule fails after a change of the
//! sources: the author must read and correct the document, and then record the new digest with `cargo xtask tidy
//! --bless`. Blank lines, indentation and comments do not count, so moving them does not require that.

use std::fs;

use super::tree::Tree;
use super::violation::Violation;
use crate::digest::Digest;
use crate::failure::{Attempt, Failure, Result};

const SOURCES: &str = "crates/log/src/format";
const DOCUMENT: &str = "docs/internals/format.md";
const MARK: &str = "<!-- digest of crates/log/src/format: ";
const MARK_END: &str = " -->";

/// Checks that the digest in the document is that of the sources.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(digest) = digest(tree) else { return };
    let mut report = |line, found: String, action: &str| {
        violations.push(Violation {
            file: DOCUMENT.to_owned(),
            line,
            found,
            wanted: format!("{MARK}{digest}{MARK_END}"),
            action: action.to_owned(),
        });
    };
    let Some(text) = tree.text(DOCUMENT) else {
        return report(1, "no such document".to_owned(), "describe the format byte by byte");
    };
    match recorded(text) {
        None => report(1, "no digest".to_owned(), "run `cargo xtask tidy --bless`"),
        Some((_, found)) if found == digest => {}
        Some((line, found)) => report(
            line,
            format!(
                "digest {found}: the sources under {SOURCES} changed since this document was last blessed"
            ),
            "bring the document up to date with them, then run `cargo xtask tidy --bless`",
        ),
    }
}

/// Writes the sources' digest into the document. Returns whether the document changed.
pub fn bless(tree: &Tree) -> Result<bool> {
    let Some(digest) = digest(tree) else { return Ok(false) };
    let Some(text) = tree.text(DOCUMENT) else {
        return Err(Failure::new(format!(
            "cannot bless {DOCUMENT}: no such file; describe the format there first"
        )));
    };
    let mark = format!("{MARK}{digest}{MARK_END}");
    let blessed = match recorded(text) {
        Some((_, found)) => text.replace(&format!("{MARK}{found}{MARK_END}"), &mark),
        None => format!("{}\n\n{mark}\n", text.trim_end()),
    };
    if blessed == text {
        return Ok(false);
    }
    let path = tree.root().join(DOCUMENT);
    fs::write(&path, blessed).attempt(|| format!("write {}", path.display()))?;
    println!("{DOCUMENT}: recorded digest {digest}");
    Ok(true)
}

/// The line and the digest that a document records.
fn recorded(text: &str) -> Option<(usize, &str)> {
    text.lines().enumerate().find_map(|(index, line)| {
        let digest = line.trim().strip_prefix(MARK)?.strip_suffix(MARK_END)?;
        Some((index + 1, digest))
    })
}

fn digest(tree: &Tree) -> Option<String> {
    let mut hash = Digest::new();
    let mut any = false;
    for (path, text) in tree.texts(|path| {
        path.strip_prefix(SOURCES).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
            && path.ends_with(".rs")
    }) {
        any = true;
        hash.add(path.as_bytes());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
            hash.add(line.as_bytes());
        }
    }
    any.then(|| format!("{:016x}", hash.value()))
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    const SOURCE: &str = "crates/log/src/format/record.rs";

    fn violations(tree: &Tree) -> Vec<Violation> {
        let mut violations = Vec::new();
        check(tree, &mut violations);
        violations
    }

    #[test]
    fn an_accepted_document_passes_until_a_source_changes() {
        let (keep, tree) = fabricated::tree(&[(SOURCE, "const A: u8 = 1;\n"), (DOCUMENT, "# Format\n")]);
        assert_eq!(violations(&tree).len(), 1, "no digest yet");
        assert!(bless(&tree).unwrap());
        let tree = Tree::read(keep.path()).unwrap();
        assert_eq!(violations(&tree), []);
        assert!(!bless(&tree).unwrap(), "blessing twice changes nothing");

        fs::write(keep.path().join(SOURCE), "// Why.\n\n  const A: u8 = 1;\n").unwrap();
        assert_eq!(violations(&Tree::read(keep.path()).unwrap()), [], "comments do not count");

        fs::write(keep.path().join(SOURCE), "const A: u8 = 2;\n").unwrap();
        let tree = Tree::read(keep.path()).unwrap();
        let found = violations(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].file.as_str(), found[0].line), (DOCUMENT, 3));
        assert!(found[0].action.contains("--bless"));
        assert!(bless(&tree).unwrap());
        assert_eq!(violations(&Tree::read(keep.path()).unwrap()), []);
    }

    #[test]
    fn sources_without_document_are_reported() {
        let (_keep, tree) = fabricated::tree(&[(SOURCE, "const A: u8 = 1;\n")]);
        assert_eq!(violations(&tree)[0].found, "no such document");
        assert!(bless(&tree).is_err());
    }
}
