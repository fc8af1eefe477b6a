//! `planted`: a copy of the tree in which the engine has its planted bugs, for the checks that must find them.
//!
//! The engine's sources contain no bug. `crates/checks/planted/` has `mutants.rs`, which names the bugs, and a patch for
//! each crate that asks `planted(Mutant::…)` where a bug would be. [`tree`] copies the repository to
//! `target/planted/tree` and applies them. It writes only files that differ, so cargo builds only what has changed. The
//! copy is built with `--cfg planted`, which the crates of checks ask for.
//!
//! To change a bug, edit the copy and run `cargo xtask planted --save`, which writes the patches again. The same mends a
//! patch that no longer applies: [`tree`] leaves the rejected hunks in the copy as `.rej` files.

use crate::failure::{Attempt, Failure, Result};
use crate::target::target;
use crate::tidy::tree::list;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that have bugs; each has a patch of its name.
const CRATES: [&str; 3] = ["log", "index", "duramen"];
/// The list of bugs, and its place in the copy.
const MUTANTS: (&str, &str) = ("crates/checks/planted/mutants.rs", "crates/log/src/mutants.rs");

/// Where the copy lies, and what it is made from.
pub struct Planted {
    repository: PathBuf,
    directory: PathBuf,
}

impl Planted {
    /// The copy of `repository` under its target directory.
    pub fn of(repository: &Path) -> Result<Self> {
        Ok(Self { repository: repository.to_owned(), directory: target(repository, "planted")? })
    }

    fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    /// The target directory of its builds.
    pub fn build(&self) -> PathBuf {
        self.directory.join("build")
    }

    /// Brings the copy up to date; returns its root.
    pub fn update(&self) -> Result<PathBuf> {
        if let Some(edited) = self.edited()? {
            return Err(Failure::new(format!(
                "cannot plant the bugs: {} was edited in the copy; keep that with \"cargo xtask planted --save\", or \
                 remove {} to discard it",
                edited.display(),
                self.directory.display()
            )));
        }
        self.make()
    }

    /// A file of the copy that is not as the last call of `make` left it.
    fn edited(&self) -> Result<Option<PathBuf>> {
        let patched = self.directory.join("patched");
        if !self.mark().exists() {
            return Ok(None);
        }
        let is_edited = |path: &String| {
            let copy = fs::read(self.tree().join(path));
            copy.is_ok_and(|copy| fs::read(patched.join(path)).is_ok_and(|made| made != copy))
        };
        Ok(list(&patched)?.into_iter().find(is_edited).map(|path| self.tree().join(path)))
    }

    /// A file that is there while the copy is complete.
    fn mark(&self) -> PathBuf {
        self.directory.join("made")
    }

    fn make(&self) -> Result<PathBuf> {
        let mark = self.mark();
        if mark.exists() {
            fs::remove_file(&mark).attempt(|| format!("remove {}", mark.display()))?;
        }
        let (patched, rejected) = self.patched()?;
        let tree = self.tree();
        let mut files = BTreeMap::new();
        for path in list(&self.repository)? {
            // A deleted file that git's list still has is not there.
            if let Ok(bytes) = fs::read(self.repository.join(&path)) {
                files.insert(path, bytes);
            }
        }
        for path in list(&patched)? {
            let bytes = read(&patched.join(&path))?;
            files.insert(path, bytes);
        }
        if tree.exists() {
            for path in list(&tree)?.into_iter().filter(|path| !files.contains_key(path)) {
                let path = tree.join(path);
                fs::remove_file(&path).attempt(|| format!("remove {}", path.display()))?;
            }
        }
        for (path, bytes) in files {
            let path = tree.join(path);
            if fs::read(&path).is_ok_and(|now| now == bytes) {
                continue;
            }
            write(&path, &bytes)?;
        }
        write(&mark, b"")?;
        if rejected.is_empty() {
            return Ok(tree);
        }
        Err(Failure::new(format!(
            "cannot plant all bugs: the sources of these hunks have changed:\n{rejected}\
             make the changes of the .rej files in {}, then run \"cargo xtask planted --save\"",
            tree.display()
        )))
    }

    /// The sources of the engine with the patches applied, in a directory of their own; and what git says of the hunks
    /// that do not apply, which are in `.rej` files.
    fn patched(&self) -> Result<(PathBuf, String)> {
        let patched = self.directory.join("patched");
        self.copy_sources(&self.repository, &patched)?;
        write(&patched.join(MUTANTS.1), &read(&self.repository.join(MUTANTS.0))?)?;
        let mut rejected = String::new();
        for name in CRATES {
            let mut apply = git(&patched);
            apply.args(["apply", "--whitespace=nowarn", "--reject"]).arg(self.patch(name));
            let output = apply.output().attempt(|| "run git".into())?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                let errors = said.lines().filter_map(|line| line.strip_prefix("error: "));
                let errors = errors.filter(|error| *error != "while searching for:");
                rejected.extend(errors.flat_map(|line| [line, "\n"]));
            }
        }
        Ok((patched, rejected))
    }

    fn patch(&self, name: &str) -> PathBuf {
        self.repository.join(format!("crates/checks/planted/{name}.patch"))
    }

    /// Copies the engine's sources from the tree `from`, into a directory that has nothing else then.
    fn copy_sources(&self, from: &Path, to: &Path) -> Result<()> {
        if to.exists() {
            fs::remove_dir_all(to).attempt(|| format!("remove {}", to.display()))?;
        }
        for name in CRATES {
            let sources = format!("crates/{name}/src");
            for path in list(&from.join(&sources))?.into_iter().filter(|path| path.ends_with(".rs")) {
                let path = format!("{sources}/{path}");
                write(&to.join(&path), &read(&from.join(&path))?)?;
            }
        }
        Ok(())
    }

    /// Writes the patches and the list of bugs from an edited copy, and makes it again from them.
    pub fn save(&self) -> Result<()> {
        let (before, after) = (self.directory.join("a"), self.directory.join("b"));
        self.copy_sources(&self.repository, &before)?;
        self.copy_sources(&self.tree(), &after)?;
        let mutants = after.join(MUTANTS.1);
        write(&self.repository.join(MUTANTS.0), &read(&mutants)?)?;
        fs::remove_file(&mutants).attempt(|| format!("remove {}", mutants.display()))?;
        for name in CRATES {
            let sources = format!("crates/{name}/src");
            let output = git(&self.directory)
                .args(["diff", "--no-index", "--no-prefix", "--no-color", "-U2"])
                .args([format!("a/{sources}"), format!("b/{sources}")])
                .output()
                .attempt(|| "run git".into())?;
            let difference = String::from_utf8(output.stdout).attempt(|| "read git's output".into())?;
            // These lines name contents of this repository's database.
            let lines = difference.lines().filter(|line| !line.starts_with("index "));
            let patch: String = lines.flat_map(|line| [line, "\n"]).collect();
            write(&self.patch(name), patch.as_bytes())?;
        }
        self.make().map(drop)
    }
}

/// Git for files outside of any repository, though `at` may lie in one.
fn git(at: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(at).env("GIT_CEILING_DIRECTORIES", at.parent().unwrap_or(at));
    command
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).attempt(|| format!("read {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).attempt(|| format!("create {}", parent.display()))?;
    }
    fs::write(path, bytes).attempt(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    #[test]
    fn every_call_that_the_simulated_medium_omits_is_in_the_sources() {
        let mutants = fs::read_to_string(repository().join("crates/crash/src/mutants.rs")).unwrap();
        let calls = mutants.split("lost!(").filter(|call| call.trim_start().starts_with('"'));
        let mut count = 0;
        for call in calls {
            let texts: Vec<&str> = call.split('"').skip(1).step_by(2).take(5).collect();
            let [name, of, file, behind, call] = texts[..] else { panic!("five texts, found {texts:?}") };
            let source = fs::read_to_string(repository().join(format!("crates/{of}/src/{file}"))).unwrap();
            let mut lines = source.lines().skip_while(|line| !line.contains(behind));
            let is_there = lines.any(|line| line.contains(call));
            assert!(is_there, "{name}: crates/{of}/src/{file} has no \"{call}\" after \"{behind}\"");
            count += 1;
        }
        assert!(count > 10, "the calls were read: {count} of them");
    }

    #[test]
    fn the_patches_apply_and_plant_every_bug() {
        let directory = tempfile::tempdir().unwrap();
        let planted = Planted { repository: repository(), directory: directory.path().to_owned() };
        let (patched, rejected) = planted.patched().unwrap();
        assert_eq!(rejected, "");
        let texts: Vec<(String, String)> = list(&patched)
            .unwrap()
            .into_iter()
            .map(|path| (path.clone(), fs::read_to_string(patched.join(path)).unwrap()))
            .collect();
        let bugs = texts.iter().find(|(path, _)| path == MUTANTS.1).unwrap();
        let list = bugs.1.split("pub enum Mutant {").nth(1).unwrap().split("\n}").next().unwrap();
        let names: Vec<&str> = list
            .lines()
            .map(|line| line.trim().trim_end_matches(',').trim_end_matches(" = 1"))
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .collect();
        assert!(names.len() > 100, "the list of bugs was read: {} of them", names.len());
        for name in names {
            let asks = format!("Mutant::{name})");
            assert!(
                texts.iter().any(|(_, text)| text.contains(&asks)),
                "no line of the engine asks for {name}"
            );
        }
    }
}
