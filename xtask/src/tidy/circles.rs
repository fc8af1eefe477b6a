//! The imports between the files of a crate's `src` have no cycle.
//!
//! An import is a path in code that resolves to another file of the same crate, as "go to definition" would (see
//! [`modules`](super::modules)). A parent consists of its modules: naming a file below it (`mod x;`, `pub use x::X`, a
//! call) is no import. A file below that names a definition of its parent imports the parent, and with it everything
//! that the parent imports from elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{self, Import};
use super::tree::Tree;
use super::violation::Violation;

/// Checks each crate of the tree.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (manifest, _) in tree.texts(|path| path.ends_with("/Cargo.toml")) {
        let Some(krate) = manifest.strip_suffix("/Cargo.toml") else { continue };
        let mut pairs = BTreeSet::new();
        for (root, _) in tree.texts(|path| super::sources::is_crate_root(krate, path)) {
            let imports = modules::imports(tree, root);
            pairs.extend(in_circles(imports.into_iter().filter(|i| !is_above(&i.from, &i.to)).collect()));
        }
        violations.extend(pairs.into_iter().map(|Import { from, to, line }| Violation {
            found: format!("an import of {to}, which imports this file, directly or through others"),
            wanted: "no cycle of imports".to_owned(),
            action: "move the shared part into a file below both, or pass it as an argument".to_owned(),
            file: from,
            line,
        }));
    }
}

/// Whether the module of `file` is below that of `parent`.
fn is_above(parent: &str, file: &str) -> bool {
    let (directory, name) = parent.rsplit_once('/').unwrap_or(("", parent));
    let below = match name {
        "lib.rs" | "main.rs" | "mod.rs" => directory,
        _ => parent.trim_end_matches(".rs"),
    };
    file.strip_prefix(below).is_some_and(|rest| rest.starts_with('/'))
}

/// The imports that are part of a cycle.
fn in_circles(imports: Vec<Import>) -> Vec<Import> {
    let mut below = BTreeMap::<&str, Vec<&str>>::new();
    for import in &imports {
        below.entry(&import.from).or_default().push(&import.to);
    }
    // A crate has a few hundred files at most, so a walk from each file is fast enough.
    let reached: BTreeMap<&str, BTreeSet<&str>> = below
        .keys()
        .map(|file| {
            let mut reached = BTreeSet::new();
            let mut next = below[file].clone();
            while let Some(file) = next.pop() {
                if reached.insert(file) {
                    next.extend(below.get(file).into_iter().flatten());
                }
            }
            (*file, reached)
        })
        .collect();
    let leads_back = |import: &Import| {
        reached.get(import.to.as_str()).is_some_and(|reached| reached.contains(import.from.as_str()))
    };
    let circles: Vec<bool> = imports.iter().map(leads_back).collect();
    imports.into_iter().zip(circles).filter_map(|(import, circle)| circle.then_some(import)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    const CRATE: (&str, &str) = ("crates/kv/Cargo.toml", "");
    const ROOT: (&str, &str) =
        ("crates/kv/src/lib.rs", "mod plan;\nmod run;\nmod words;\npub use run::Run;\n");
    const PLAN: (&str, &str) =
        ("crates/kv/src/plan.rs", "//! Plans.\nuse crate::words::Word;\npub struct Plan(Word);\n");
    const RUN: (&str, &str) = ("crates/kv/src/run.rs", "use crate::plan::Plan;\npub struct Run(Plan);\n");

    fn found(words: &str) -> Vec<(String, usize)> {
        let files = [CRATE, ROOT, PLAN, RUN, ("crates/kv/src/words.rs", words)];
        fabricated::found(check, &files).into_iter().map(|(file, line, _)| (file, line)).collect()
    }

    #[test]
    fn an_import_cycle_is_reported_at_each_of_its_imports() {
        assert_eq!(found("pub struct Word;\n"), []);
        let places = [("plan.rs", 2), ("run.rs", 1), ("words.rs", 2)];
        let expected = places.map(|(file, line)| (format!("crates/kv/src/{file}"), line));
        assert_eq!(found("pub struct Word;\nfn f() -> crate::Run {}\n"), expected);
    }

    #[test]
    fn a_parent_may_use_its_children_and_its_imports_count_for_its_importers() {
        let root =
            ("crates/kv/src/lib.rs", "mod tree;\nmod wood;\nuse tree::Tree;\npub struct Garden(Tree);\n");
        let tree = (
            "crates/kv/src/tree/mod.rs",
            "mod leaf;\nuse crate::wood::Wood;\npub struct Tree(leaf::Leaf);\n",
        );
        let leaf = ("crates/kv/src/tree/leaf.rs", "pub struct Leaf;\nfn grown() -> super::Tree {}\n");
        let found = |wood: &str| {
            let files = [CRATE, root, tree, leaf, ("crates/kv/src/wood.rs", wood)];
            let places =
                fabricated::found(check, &files).into_iter().map(|(file, line, _)| format!("{file}:{line}"));
            places.collect::<Vec<_>>()
        };
        assert!(found("pub struct Wood;\n").is_empty());
        let circle = found("use crate::tree::leaf::Leaf;\npub struct Wood;\n");
        assert_eq!(
            circle,
            ["crates/kv/src/tree/leaf.rs:2", "crates/kv/src/tree/mod.rs:2", "crates/kv/src/wood.rs:1"]
        );
    }
}
