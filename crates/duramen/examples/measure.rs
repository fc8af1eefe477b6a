//! Measures the engine on one medium and prints what docs/measuring.md reports.
//!
//! ```text
//! cargo run --release -p duramen --example measure -- [--path P] [--keys N] [--persist-step STEP]
//! ```
//!
//! In one run, on one thread: insert from empty, then the bounds of the memory itself (L, W, R), get, overwrite,
//! recovery with 1 and 2 threads of a copy that nobody closed, and delete; records of 16+200 bytes. The
//! file at `--path` is made and removed.

use duramen::{Create, Options, PersistStep};
use duramen_media::{Mapped, MediaOptions, Medium, Offset};
use hdrhistogram::Histogram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

struct Args {
    path: PathBuf,
    keys: u64,
    persist_step: Option<PersistStep>,
    recover: Option<usize>,
}

fn main() -> Result<(), Failure> {
    let args = parse()?;
    if let Some(threads) = args.recover {
        return recover(&args, threads);
    }
    let _ = std::fs::remove_file(&args.path);
    let result = measure(&args);
    let removed = std::fs::remove_file(&args.path);
    result?;
    Ok(removed?)
}

fn parse() -> Result<Args, Failure> {
    let path = PathBuf::from("/dev/shm/duramen-measure");
    let mut args = Args { path, keys: 10_000_000, persist_step: None, recover: None };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or(format!("{name} needs a value"))?;
        match &*name {
            "--path" => args.path = value.into(),
            "--keys" => args.keys = value.parse()?,
            "--persist-step" => args.persist_step = Some(value.parse()?),
            "--recover" => args.recover = Some(value.parse()?),
            _ => return Err(format!("{name} is unknown; say --path, --keys or --persist-step").into()),
        }
    }
    Ok(args)
}

fn options(args: &Args) -> Options {
    Options { persist_step: args.persist_step, ..Options::default() }
}

/// The key of number `i`: 16 bytes that look random.
fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(i).to_le_bytes());
    key[8..].copy_from_slice(&i.to_le_bytes());
    key
}

fn mix(i: u64) -> u64 {
    let x = (i ^ (i >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// `count` numbers below `n`, in an order that no prefetcher follows.
fn shuffled(n: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| mix(i.wrapping_add(77)) % n)
}

/// Anonymous memory of this process: what the store takes of DRAM, without the medium's own pages.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn report(what: &str, count: u64, took: Duration) {
    let nanos = took.as_nanos() as f64 / count as f64;
    println!("{what}: {nanos:.0} ns, {:.2} million/s", 1000.0 / nanos);
}

fn measure(args: &Args) -> Result<(), Failure> {
    let n = args.keys;
    let ops = n.min(5_000_000);
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3)?;
    let before = resident_bytes();
    let store = Options { create: Create::CreateNew, ..options(args) }.open(&args.path)?;
    println!("{}", store.describe());
    let mut writer = store.writer()?;

    let begun = Instant::now();
    let mut last = begun;
    for i in 0..n {
        writer.put(&key(i), &[7; 200])?;
        let now = Instant::now();
        histogram.record((now - last).as_nanos() as u64)?;
        last = now;
    }
    report("insert", n, begun.elapsed());
    let quantile = |q| histogram.value_at_quantile(q);
    println!(
        "insert during growth from empty: p50 {} ns, p99 {} ns, p99.9 {} ns, p99.99 {} ns, max {} ns",
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(0.9999),
        histogram.max()
    );
    let stats = store.stats();
    let (keys, raw) = (n as f64, (n * 216) as f64);
    println!(
        "DRAM per key: {:.1} bytes of anonymous memory, {:.1} of it index",
        (resident_bytes() - before) as f64 / keys,
        stats.index_bytes as f64 / keys
    );
    println!(
        "medium: {:.1} bytes a record in blocks ({:.3} of raw), {:.1} with free units ({:.3} of raw)",
        stats.used_bytes as f64 / keys,
        stats.used_bytes as f64 / raw,
        stats.medium_bytes as f64 / keys,
        stats.medium_bytes as f64 / raw
    );
    bounds(args)?;

    let mut copy = Vec::with_capacity(256);
    let begun = Instant::now();
    for i in shuffled(n, ops) {
        if !store.get_into(&key(i), &mut copy)? {
            return Err(format!("key {i} is missing").into());
        }
    }
    report("get, copied out", ops, begun.elapsed());
    let order: Vec<u64> = shuffled(n, ops).collect();
    let begun = Instant::now();
    for chunk in order.chunks(32) {
        let keys: Vec<_> = chunk.iter().map(|&i| key(i)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        for value in store.get_many(&keys)?.into_iter().flatten() {
            copy.clear();
            copy.extend_from_slice(&value);
        }
    }
    report("get_many of 32", ops, begun.elapsed());
    for threads in [1, 2] {
        recover_a_copy(args, threads)?;
    }
    let begun = Instant::now();
    for i in shuffled(n, ops) {
        writer.put(&key(i), &[8; 200])?;
    }
    report("overwrite", ops, begun.elapsed());
    let begun = Instant::now();
    for i in 0..ops {
        writer.delete(&key(i))?;
    }
    report("delete", ops, begun.elapsed());
    Ok(())
}

/// Recovers a copy of the store as it is on the medium now, unclosed, in a process of its own.
fn recover_a_copy(args: &Args, threads: usize) -> Result<(), Failure> {
    let copy = args.path.with_extension("copy");
    std::fs::copy(&args.path, &copy)?;
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(["--path".as_ref(), copy.as_os_str(), "--recover".as_ref()])
        .arg(threads.to_string())
        .status()?;
    std::fs::remove_file(&copy)?;
    if status.success() { Ok(()) } else { Err("recovery failed".into()) }
}

fn recover(args: &Args, threads: usize) -> Result<(), Failure> {
    let begun = Instant::now();
    let store = Options { recovery_threads: threads, ..options(args) }.open(&args.path)?;
    let took = begun.elapsed().as_secs_f64();
    let records = store.recovery().records;
    println!(
        "recovery with {threads} threads: {records} records in {took:.2} s, {:.2} million records/s",
        records as f64 / took / 1e6
    );
    Ok(())
}

/// What the memory itself does, on a file of 1 GiB beside the store: L, W and R.
fn bounds(args: &Args) -> Result<(), Failure> {
    let path = args.path.with_extension("bounds");
    let _ = std::fs::remove_file(&path);
    let bytes = 1u64 << 30;
    let media = MediaOptions { persist_step: args.persist_step, ..MediaOptions::default() };
    let medium = Mapped::open(&path, &media)?;
    medium.grow(bytes)?;
    // A cycle through all lines in random order.
    let lines = bytes / 64;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for i in (1..lines as usize).rev() {
        order.swap(i, (mix(i as u64) % (i as u64 + 1)) as usize);
    }
    for pair in order.windows(2) {
        medium.store_u64(Offset(u64::from(pair[0]) * 64), u64::from(pair[1]) * 64);
    }
    let count = 3_000_000;
    let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / count as f64;
    let mut at = u64::from(order[0]) * 64;
    let begun = Instant::now();
    for _ in 0..count {
        at = medium.load_u64(Offset(at));
    }
    let load = each(begun);
    std::hint::black_box(at);
    let begun = Instant::now();
    for i in 0..count {
        medium.write(Offset(i * 256), &[&[3; 256]]);
        medium.drain();
    }
    let write = each(begun);
    let begun = Instant::now();
    for i in 0..count {
        medium.publish(Offset(mix(i) % lines * 64), i);
    }
    let random = each(begun);
    drop(medium);
    std::fs::remove_file(path)?;
    println!(
        "bounds: L {load:.0} ns (random dependent load), W {write:.0} ns (256 bytes in sequence, flushed and \
         drained), R {random:.0} ns (8 random bytes, flushed and drained)"
    );
    Ok(())
}
