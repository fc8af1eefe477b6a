//! `cargo xtask tidy`: rules between files that no compiler checks.
//!
//! Every rule reads the [`Tree`] and adds [`Violation`]s; none changes a file. Two options do: `--bless` records the
//! digest of the format's sources, and `--wrap` breaks long lines of documents. A violation names the place, the
//! finding, the requirement, and the remedy.

mod changelog;
mod circles;
mod edges;
mod format_digest;
mod lines;
mod links;
mod modules;
mod sources;
pub mod tree;
mod violation;
mod words;

use std::path::Path;

use crate::failure::Result;
use tree::Tree;
use violation::Violation;

/// Checks the tree under `root` and prints the violations. Returns whether there are none.
pub fn run(root: &Path, bless: bool, wrap: bool) -> Result<bool> {
    let mut tree = Tree::read(root)?;
    if bless && format_digest::bless(&tree)? {
        tree = Tree::read(root)?;
    }
    if wrap && lines::wrap(&tree)? {
        tree = Tree::read(root)?;
    }
    let violations = check(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => println!("tidy: no violations"),
        count => println!("tidy: violations found: {count}"),
    }
    Ok(violations.is_empty())
}

fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    links::check(tree, &mut violations);
    edges::check(tree, &mut violations);
    format_digest::check(tree, &mut violations);
    sources::check(tree, &mut violations);
    changelog::check(tree, &mut violations);
    circles::check(tree, &mut violations);
    lines::check(tree, &mut violations);
    words::check(tree, &mut violations);
    violations.sort();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use tree::fabricated;

    const MANIFEST: &str =
        "[workspace]\nmembers = [\"crates/*\"]\n[workspace.package]\nversion = \"0.1.0\"\n";

    #[test]
    fn clean_tree_has_no_violation() {
        let (_keep, tree) = fabricated::tree(&[
            ("Cargo.toml", MANIFEST),
            ("CHANGELOG.md", "# Changes\n\n## 0.1.0\n"),
            ("README.md", "See [changes](CHANGELOG.md) and `crates/media/src/lib.rs`.\n"),
            ("crates/media/Cargo.toml", "[package]\nname = \"duramen-media\"\n"),
            ("crates/media/src/lib.rs", "//! Media.\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn violation_names_place_found_wanted_and_action() {
        let (_keep, tree) = fabricated::tree(&[
            ("Cargo.toml", MANIFEST),
            ("CHANGELOG.md", "## 0.1.0\n"),
            ("README.md", "\nSee [this](gone.md).\n"),
        ]);
        let violations = check(&tree);
        assert_eq!(violations.len(), 1);
        assert_eq!(
            violations[0].to_string(),
            "README.md:2: found a link to gone.md; wanted a file or directory of the repository; \
             correct the link or add its target"
        );
    }
}
