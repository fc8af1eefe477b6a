//! Rules that each source file must keep.
//!
//! 1. A crate outside [`UNSAFE_IN`] has `#![forbid(unsafe_code)]` in each of its roots. In a crate that [`UNSAFE_IN`]
//!    lists, unsafe code stays in the modules named there.
//! 2. A Rust file over [`LINES_MAX`] lines gives the reason at its head.
//! 3. No code is left unfinished: the words of [`UNFINISHED`] occur nowhere.

use super::tree::Tree;
use super::violation::Violation;

/// The places for unsafe code: crate directory, and modules (paths of files or directories under `src`); no modules means the
/// whole crate.
const UNSAFE_IN: &[(&str, &[&str])] = &[
    ("crates/media", &[]),
    ("crates/log", &[]),
    ("crates/index", &[]),
    // Calls Lua, which is C.
    ("crates/lua", &[]),
    // Compiled with `--cfg loom` alone: raw memory for the model checker.
    ("crates/checks", &[]),
    ("crates/stream", &["compile"]),
    // The measured inner loops: raw accesses by instruction.
    ("crates/bench", &["memory/kernel"]),
    // Opens LMDB's map, to which another process could write.
    ("crates/bench-peers", &["lmdb"]),
    // Exchanges a lock word on the medium, which a medium has no call for.
    ("crates/bench-peers/hyperkv", &["word"]),
    ("bindings/c", &[]),
];

// 1,000: a module is one idea, usually 100 to 600 lines; a much longer one needs a reason.
const LINES_MAX: usize = 1000;
/// What the head of a long file must contain, followed by the reason.
const LONG_MARK: &str = "One file because";
/// Leading lines that count as a file's head.
const HEAD_LINES: usize = 80;

// Concatenated, so that the rule does not find this file.
const UNFINISHED: &[&str] = &[concat!("to", "do!"), concat!("unimple", "mented!"), concat!("FIX", "ME")];

/// Checks every source file of the tree.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    check_crate_roots(tree, violations);
    for (path, text) in tree.texts(|path| path.ends_with(".rs")) {
        check_unsafe_place(path, text, violations);
        check_length(path, text, violations);
    }
    let written = |path: &str| {
        [".rs", ".toml", ".md", ".sh", ".txt", ".conf"].iter().any(|end| path.ends_with(end))
            || path == ".ci/run"
    };
    for (path, text) in tree.texts(written) {
        check_finished(path, text, violations);
    }
}

fn check_crate_roots(tree: &Tree, violations: &mut Vec<Violation>) {
    for (manifest, _) in tree.texts(|path| path.ends_with("/Cargo.toml")) {
        let Some(directory) = manifest.strip_suffix("/Cargo.toml") else { continue };
        // The fuzzing crate is outside the workspace and its macro brings a C entry point.
        if directory == "fuzz" || UNSAFE_IN.iter().any(|(allowed, _)| *allowed == directory) {
            continue;
        }
        for (root, text) in tree.texts(|path| is_crate_root(directory, path)) {
            if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                violations.push(Violation {
                    file: root.to_owned(),
                    line: 1,
                    found: "no #![forbid(unsafe_code)]".to_owned(),
                    wanted: "it in every crate root outside the crates that touch media and machine code"
                        .to_owned(),
                    action: "add it below the file's head".to_owned(),
                });
            }
        }
    }
}

/// Whether `path` is the root of a library or program of the crate in `directory`.
pub fn is_crate_root(directory: &str, path: &str) -> bool {
    let Some(inside) = path.strip_prefix(directory).and_then(|rest| rest.strip_prefix("/src/")) else {
        return false;
    };
    match inside.strip_prefix("bin/") {
        Some(program) => program.ends_with(".rs") && !program.contains('/') || program.ends_with("/main.rs"),
        None => inside == "lib.rs" || inside == "main.rs",
    }
}

fn check_unsafe_place(path: &str, text: &str, violations: &mut Vec<Violation>) {
    let Some((directory, modules)) = UNSAFE_IN.iter().find(|(directory, modules)| {
        !modules.is_empty() && path.strip_prefix(directory).is_some_and(|rest| rest.starts_with("/src/"))
    }) else {
        return;
    };
    let inside = &path[directory.len() + "/src/".len()..];
    let is_in = |module: &str| inside.strip_prefix(module).is_some_and(|rest| rest.starts_with(['/', '.']));
    if modules.iter().any(|module| is_in(module)) {
        return;
    }
    let module = inside.split(['/', '.']).next().unwrap_or_default();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern"]
            .iter()
            .any(|form| code.contains(form))
        {
            violations.push(Violation {
                file: path.to_owned(),
                line: index + 1,
                found: format!("unsafe code in module `{module}`"),
                wanted: format!("it in the modules {} of {directory} only", modules.join(", ")),
                action: "wrap it in a safe function of one of them".to_owned(),
            });
        }
    }
}

fn check_length(path: &str, text: &str, violations: &mut Vec<Violation>) {
    let lines = text.lines().count();
    if lines > LINES_MAX
        && !text.lines().take(HEAD_LINES).any(|line| line.starts_with("//") && line.contains(LONG_MARK))
    {
        violations.push(Violation {
            file: path.to_owned(),
            line: 1,
            found: format!("{lines} lines without a stated reason"),
            wanted: format!("at most {LINES_MAX} lines, or \"{LONG_MARK} …\" in the file's head"),
            action: "divide the file by its ideas, or state there why it is one".to_owned(),
        });
    }
}

fn check_finished(path: &str, text: &str, violations: &mut Vec<Violation>) {
    for (index, line) in text.lines().enumerate() {
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            violations.push(Violation {
                file: path.to_owned(),
                line: index + 1,
                found: format!("`{word}`"),
                wanted: "finished work".to_owned(),
                action: "finish it, or open an issue and remove the mark".to_owned(),
            });
        }
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
    fn crate_without_forbid_is_reported_once_per_root() {
        let found = found(&[
            ("crates/server/Cargo.toml", ""),
            ("crates/server/src/lib.rs", "//! Serves.\n"),
            ("crates/server/src/bin/other.rs", "fn main() {}\n"),
            ("crates/server/src/net.rs", "// no root\n"),
            ("crates/media/Cargo.toml", ""),
            ("crates/media/src/lib.rs", "//! May.\n"),
            ("crates/cli/Cargo.toml", ""),
            ("crates/cli/src/main.rs", "#![forbid(unsafe_code)]\n"),
        ]);
        let files: Vec<_> = found.iter().map(|(file, ..)| file.as_str()).collect();
        assert_eq!(files, ["crates/server/src/bin/other.rs", "crates/server/src/lib.rs"]);
    }

    #[test]
    fn unsafe_outside_its_modules_is_reported() {
        let body = "fn a() {\n    // unsafe { in a comment }\n    unsafe { b() }\n}\n";
        let found = found(&[
            ("crates/stream/src/plan.rs", body),
            ("crates/stream/src/compile/call.rs", body),
            ("crates/log/src/durability/epochs.rs", body),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0.as_str(), found[0].1), ("crates/stream/src/plan.rs", 3));
    }

    #[test]
    fn long_file_needs_a_reason_at_its_head() {
        let long = "let x = 1;\n".repeat(LINES_MAX + 1);
        let reasoned = format!("//! Table.\n//! One file because the table is generated.\n{long}");
        let found = found(&[("a.rs", &long), ("b.rs", &reasoned)]);
        assert_eq!(found, [("a.rs".to_owned(), 1, "1001 lines without a stated reason".to_owned())]);
    }

    #[test]
    fn unfinished_work_is_reported() {
        let source = format!("fn a() {{\n    {}()\n}}\n// {}: later\n", UNFINISHED[0], UNFINISHED[2]);
        let lines: Vec<_> = found(&[("a.rs", &source)]).into_iter().map(|(_, line, _)| line).collect();
        assert_eq!(lines, [2, 4]);
    }
}
