//! The files of the repository, read once for all rules.
//!
//! Paths are relative to the root, with `/`, and sorted: a rule's findings do not depend on the order of a directory's
//! entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Attempt, Result};

/// The files that git tracks, or would after `git add`; without git, all files except build output.
pub struct Tree {
    root: PathBuf,
    /// Path to text; `None` for a file that is not UTF-8.
    files: BTreeMap<String, Option<String>>,
    directories: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree under `root`.
    pub fn read(root: &Path) -> Result<Tree> {
        let paths = list(root)?;
        let mut tree = Tree { root: root.to_owned(), files: BTreeMap::new(), directories: BTreeSet::new() };
        for path in paths {
            // A deleted file that git's list still has.
            let Ok(bytes) = fs::read(root.join(&path)) else { continue };
            let mut end = 0;
            while let Some(at) = path[end..].find('/') {
                tree.directories.insert(path[..end + at].to_owned());
                end += at + 1;
            }
            tree.files.insert(path, String::from_utf8(bytes).ok());
        }
        Ok(tree)
    }

    /// The root of the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether `path` is a file or a directory of the tree.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.directories.contains(path)
    }

    /// Whether `path` is a directory of the tree.
    pub fn has_directory(&self, path: &str) -> bool {
        self.directories.contains(path)
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).and_then(Option::as_deref)
    }

    /// Every text file whose path fits `wanted`, in the order of paths.
    pub fn texts(&self, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(move |(path, text)| {
            if wanted(path) { text.as_deref().map(|text| (path.as_str(), text)) } else { None }
        })
    }
}

/// The paths of a tree's files: those that git tracks or would; without git, all except build output.
pub fn list(root: &Path) -> Result<Vec<String>> {
    if let Some(paths) = listed_by_git(root) {
        return Ok(paths);
    }
    let mut paths = Vec::new();
    walk(root, "", &mut paths)?;
    Ok(paths)
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()?;
    // A tree inside another repository is not that repository: git would list nothing of it, or only files that are not
    // ignored there.
    if !output.status.success() || !root.join(".git").exists() {
        return None;
    }
    let listed = String::from_utf8(output.stdout).ok()?;
    Some(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, under: &str, paths: &mut Vec<String>) -> Result<()> {
    let directory = root.join(under);
    for entry in fs::read_dir(&directory).attempt(|| format!("list {}", directory.display()))? {
        let entry = entry.attempt(|| format!("list {}", directory.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        let kind = entry.file_type().attempt(|| format!("look at {path}"))?;
        if kind.is_dir() && name != ".git" && name != "target" {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
pub mod fabricated {
    //! Made-up trees for the tests of the rules.

    use super::super::violation::Violation;
    use super::Tree;
    use std::fs;

    /// A tree of these files, in a directory that lives as long as the first half of the pair.
    pub fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::read(directory.path()).unwrap();
        (directory, tree)
    }

    /// File, line and finding of each violation that a rule reports in a tree of these files.
    pub fn found(
        check: fn(&Tree, &mut Vec<Violation>),
        files: &[(&str, &str)],
    ) -> Vec<(String, usize, String)> {
        let (_keep, tree) = tree(files);
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        violations.into_iter().map(|v| (v.file, v.line, v.found)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::fabricated::tree;

    #[test]
    fn build_output_is_not_part_of_the_tree() {
        let (_keep, tree) = tree(&[("a/b.rs", "x"), ("target/debug/c.rs", "y")]);
        assert!(tree.has("a/b.rs") && tree.has_directory("a"));
        assert!(!tree.has("target/debug/c.rs"));
        assert_eq!(tree.texts(|path| path.ends_with(".rs")).count(), 1);
    }
}
