//! Many threads on one store, and an oracle that verifies every read.
//!
//! ```text
//! cargo run --release -p duramen --example stress -- [--medium volatile|shm|file] [--durability every-write|interval|manual]
//!     [--seed N] [--seconds N] [--round-seconds N] [--keys N] [--writers N] [--readers N] [--flush-instruction STEP]
//! ```
//!
//! Writers put, delete, update in place, apply batches, increment counters conditionally and write in groups, in so
//! little space that compaction runs all the time. Another thread makes a new writer for each record; readers read and
//! scan. After each round everything stops: each key must hold exactly the last acknowledged write. The store is
//! closed, checked, opened again, and must still hold it. The seed repeats the operations of the threads, not their
//! timing. Exit code 1 and the command if a fault was found.

mod oracle;
mod threads;

use duramen::{Durability, FlushInstruction, MediumKind, Options, Store};
use oracle::{Failure, Key, Kind, Random};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use threads::Run;

struct Args {
    medium: MediumKind,
    durability: Durability,
    seed: u64,
    seconds: u64,
    round_seconds: u64,
    keys: u64,
    writers: usize,
    readers: usize,
    flush_instruction: Option<FlushInstruction>,
}

fn main() -> ExitCode {
    let result = parse().and_then(|args| {
        let dir = match args.medium {
            MediumKind::Shm => PathBuf::from("/dev/shm"),
            _ => std::env::temp_dir(),
        };
        let path = dir.join(format!("duramen-stress-{}", std::process::id()));
        let result = stress(&args, &path);
        if result.is_ok() {
            let _ = std::fs::remove_file(&path);
        } else {
            eprintln!("the store is kept at {}", path.display());
        }
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let args: Vec<String> = std::env::args().skip(1).collect();
            eprintln!("stress: {failure}");
            eprintln!(
                "repeat: cargo run --release -p duramen --example stress -- {}  (the threads' timing differs)",
                args.join(" ")
            );
            ExitCode::from(1)
        }
    }
}

fn parse() -> Result<Args, Failure> {
    let mut args = Args {
        medium: MediumKind::Volatile,
        durability: Durability::EveryWrite,
        seed: 1,
        seconds: 10,
        round_seconds: 10,
        keys: 6_000,
        writers: 3,
        readers: 2,
        flush_instruction: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or(format!("{name} needs a value"))?;
        match &*name {
            "--medium" => args.medium = value.parse()?,
            "--durability" => {
                args.durability = match &*value {
                    "every-write" => Durability::EveryWrite,
                    "interval" => Durability::Interval(Duration::from_millis(20)),
                    "manual" => Durability::Manual,
                    _ => {
                        return Err(format!(
                            "durability {value} is unknown; use every-write, interval or manual"
                        )
                        .into());
                    }
                }
            }
            "--seed" => args.seed = value.parse()?,
            "--seconds" => args.seconds = value.parse()?,
            "--round-seconds" => args.round_seconds = value.parse::<u64>()?.max(1),
            "--keys" => args.keys = value.parse::<u64>()?.max(100),
            "--writers" => args.writers = value.parse::<usize>()?.max(1),
            "--readers" => args.readers = value.parse()?,
            "--flush-instruction" => args.flush_instruction = Some(value.parse()?),
            _ => return Err(format!("{name} is unknown; see the head of this program").into()),
        }
    }
    Ok(args)
}

/// All keys: half of them owned, the others of each kind. Pairs begin at even places.
fn keys(count: u64) -> Vec<Key> {
    (0..count)
        .map(|i| {
            let kind = match i / 2 % 16 {
                0..=7 => Kind::Owned,
                8 | 9 => Kind::Pair,
                10 => Kind::Shared,
                11 | 12 => Kind::Cell,
                13 | 14 => Kind::Short,
                _ => Kind::Still,
            };
            Key::new(kind, i)
        })
        .collect()
}

fn stress(args: &Args, path: &std::path::Path) -> Result<(), Failure> {
    let _ = std::fs::remove_file(path);
    let options = Options {
        medium: args.medium,
        durability: args.durability,
        flush_instruction: args.flush_instruction,
        // Some ten times the live bytes.
        len_max: (args.keys * 8192).next_multiple_of(1 << 20).max(64 << 20),
        extent_bytes: Some(8192),
        compaction_dead_percent: 15,
        compactors: 4,
        ..Options::default()
    };
    let keys = keys(args.keys);
    let begun = Instant::now();
    let mut store = options.open(path)?;
    println!("{}", store.describe());
    for key in keys.iter().filter(|key| key.kind == Kind::Still) {
        let sequence = key.begin();
        store.put(key.bytes(), key.value(sequence))?;
        key.acknowledge(sequence);
    }
    let mut round = 0;
    while round == 0 || begun.elapsed().as_secs() < args.seconds {
        round += 1;
        let left = args.seconds.saturating_sub(begun.elapsed().as_secs());
        let time = Duration::from_secs(args.round_seconds.min(left.max(1)));
        let seed = args.seed.wrapping_mul(1_000_003).wrapping_add(round);
        run_round(args, &store, &keys, seed, time)?;
        let stats = store.stats();
        if args.medium == MediumKind::Volatile {
            continue;
        }
        // Manual: the close would drop uncommitted writes.
        store.commit()?;
        store.close()?;
        let report = duramen::check(path, &options)?;
        if let Some(damage) = report.damage.first() {
            return Err(format!("check after round {round}: {damage}").into());
        }
        store = options.open(path)?;
        verify(&store, &keys, "after opening again")?;
        println!(
            "round {round}: {} blocks compacted to {} bytes in use, {} records checked",
            stats.freed_extents, stats.used_bytes, report.records
        );
    }
    Ok(())
}

fn verify(store: &Store, keys: &[Key], when: &str) -> Result<(), Failure> {
    run_of(store, keys, 1).verify(when)
}

fn run_of<'a>(store: &'a Store, keys: &'a [Key], writers: usize) -> Run<'a> {
    Run {
        store,
        keys,
        writers,
        stop: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        scans: AtomicU64::new(0),
        short_writers: AtomicU64::new(0),
    }
}

fn run_round(args: &Args, store: &Store, keys: &[Key], seed: u64, time: Duration) -> Result<(), Failure> {
    let run = run_of(store, keys, args.writers);
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    let watched = |work: &dyn Fn() -> Result<(), Failure>| {
        if let Err(failure) = work() {
            run.stop.store(true, Relaxed);
            let mut failed = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            failed.get_or_insert(failure);
        }
    };
    std::thread::scope(|scope| {
        let (run, watched) = (&run, &watched);
        for thread in 0..args.writers {
            scope.spawn(move || watched(&|| run.write(thread, Random::new(seed, thread as u64))));
        }
        for reader in 0..args.readers {
            scope.spawn(move || watched(&|| run.read(Random::new(seed, 100 + reader as u64))));
        }
        scope.spawn(move || watched(&|| run.write_shortly(Random::new(seed, 200))));
        scope.spawn(move || watched(&|| run.scan()));
        let begun = Instant::now();
        while begun.elapsed() < time && !run.stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
            if args.durability == Durability::Manual {
                watched(&|| Ok(store.commit()?));
            }
        }
        run.stop.store(true, Relaxed);
    });
    if let Some(failure) = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(failure);
    }
    println!(
        "{} writes, {} reads, {} scans, {} short writers in {time:?}",
        run.writes.load(Relaxed),
        run.reads.load(Relaxed),
        run.scans.load(Relaxed),
        run.short_writers.load(Relaxed)
    );
    run.verify("at rest")
}
