//! Model checking with loom: small programs over the engine's own code. Loom runs them through every order of their
//! atomic operations (within a bound of preemptions), with every value that the memory model lets a load return.
//! Compiled only with `--cfg loom --cfg planted`, in the copy of the tree that has the planted bugs; run by `cargo xtask loom`, described in `docs/internals/checking.md`.
//!
//! [`duramen_log::sync::modelled`] replaces the primitives of [`duramen_log::sync`], and [`medium`] is memory that
//! reports races. In models the index has buckets of two slots and segments of two buckets, so that a few keys overflow
//! and split them.
//!
//! Each model names changes of the engine that it must detect ([`Planted`]): an ordering made `Relaxed` at one line, or
//! a planted bug of `planted/mutants.rs`. After the model has passed, it runs again with each change, in a separate
//! process, and must fail there. With `DURAMEN_PLANT` set, a test is that process: `line:index/src/hash.rs:227` or
//! `mutant:EnterNotRechecked`.

#![cfg(all(loom, planted, test))]

mod medium;

mod blocks;
mod bucket;
mod cell;
mod epochs;
mod growth;
mod locks;
mod ordered;
mod reclamation;
mod transactions;
mod victims;

use duramen_log::mutants::{ALL, MODELLED, Mutant, plant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A change of the engine that a model must detect.
#[derive(Clone, Copy)]
enum Planted {
    /// The first line of this file that contains this text, with all its orderings `Relaxed` and no fence.
    Relaxed(&'static str, &'static str),
    /// A planted bug.
    Bug(Mutant),
}

impl Planted {
    /// The value of `DURAMEN_PLANT` for it.
    fn text(self) -> String {
        match self {
            Self::Bug(mutant) => format!("mutant:{mutant:?}"),
            Self::Relaxed(file, text) => {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
                let source = std::fs::read_to_string(&path).unwrap();
                let mut lines = (1..).zip(source.lines()).filter(|(_, line)| line.contains(text));
                let Some((line, _)) = lines.next() else {
                    panic!("{file} has no line with \"{text}\", which a model weakens: name another")
                };
                assert!(
                    lines.next().is_none(),
                    "{file} has several lines with \"{text}\", but a model weakens one line: give a longer part of it"
                );
                format!("line:{file}:{line}")
            }
        }
    }
}

/// As [`check`], for a program that needs more than the 32 KiB of stack of a model's first thread.
fn check_deep(preemptions: usize, planted: &[Planted], program: impl Fn() + Sync + Send + 'static) {
    const STACK_WORDS: usize = 1 << 15;
    let program = Arc::new(program);
    check(preemptions, planted, move || {
        let program = Arc::clone(&program);
        let thread = loom::thread::Builder::new().stack_size(STACK_WORDS).spawn(move || program());
        thread.unwrap().join().unwrap();
    });
}

/// Runs `program` through all its executions with at most `preemptions` preemptions (or `LOOM_MAX_PREEMPTIONS`, if
/// set). Then runs it once with each planted change, which must make it fail.
fn check(preemptions: usize, planted: &[Planted], program: impl Fn() + Sync + Send + 'static) {
    let begun = std::time::Instant::now();
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("model").to_owned();
    let change = std::env::var("DURAMEN_PLANT").ok();
    if let Some(change) = &change {
        make(change);
    }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 50_000;
    let executions = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        program();
        assert_eq!(
            duramen_log::sync::modelled::reclaim::left(),
            (0, 0, 0),
            "guards left, what waits for them, and holds"
        );
    });
    let executions = executions.load(Relaxed);
    println!("{name}: {executions} executions in {:.1} s", begun.elapsed().as_secs_f64());
    if change.is_some() {
        return;
    }
    if std::env::var_os("DURAMEN_SITES").is_some() {
        for (file, line) in duramen_log::sync::modelled::weaken::seen() {
            println!("site: {name} {file}:{line}");
        }
    }
    for planted in planted {
        let begun = std::time::Instant::now();
        let text = planted.text();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&name, "--exact"])
            .env("DURAMEN_PLANT", &text)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(!status.success(), "{name} does not notice {text}");
        println!("{name}: {text} noticed in {:.1} s", begun.elapsed().as_secs_f64());
    }
}

/// Plants the change that `DURAMEN_PLANT` names.
fn make(change: &str) {
    if let Some(site) = change.strip_prefix("line:") {
        let (file, line) = site.rsplit_once(':').unwrap();
        duramen_log::sync::modelled::weaken::weaken(file, line.parse().unwrap());
    } else {
        let wanted = change.strip_prefix("mutant:").unwrap();
        let mutant = ALL.into_iter().chain(MODELLED).find(|m| format!("{m:?}") == wanted);
        plant(Some(mutant.unwrap_or_else(|| panic!("no planted bug is called {wanted}"))));
    }
}
