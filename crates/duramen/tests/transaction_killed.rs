//! A transaction of many records in a process that is killed: all of it is there, or nothing. And how much DRAM it
//! takes besides the index.
//!
//! `DURAMEN_TRANSACTION_KEYS=10000000 cargo test --release -p duramen --test transaction_killed -- --nocapture` is the
//! size that is promised for.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen::{MediumKind, Options, Store};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// DRAM that a transaction may take besides the index.
const DRAM_MAX: u64 = 64 << 20;
/// Names the store in the process that writes.
const STORE: &str = "DURAMEN_TRANSACTION_STORE";

fn keys() -> u64 {
    std::env::var("DURAMEN_TRANSACTION_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(30_000)
}

fn options() -> Options {
    let len_max = (keys() * 256).next_power_of_two().max(64 << 20);
    Options { medium: MediumKind::Shm, len_max, ..Options::default() }
}

/// Anonymous memory of this process, in bytes.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key in a txn....";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn tell(what: &str) {
    println!("told: {what}");
    std::io::stdout().flush().unwrap();
}

/// The process that is killed: half of the keys are there before, and all are written by one transaction.
#[test]
#[ignore = "run by the other test, in a separate process"]
fn writes() {
    let path = PathBuf::from(std::env::var_os(STORE).unwrap());
    let store = options().open(path).unwrap();
    let mut writer = store.writer().unwrap();
    writer
        .transaction(|transaction| {
            (0..keys() / 2).try_for_each(|number| transaction.put(key(number), b"before"))
        })
        .unwrap();
    let (anonymous_before, index_before) = (anonymous(), store.stats().index_bytes);
    writer
        .transaction(|transaction| {
            for number in 0..keys() {
                transaction.put(key(number), number.to_be_bytes())?;
                if number == keys() / 2 {
                    tell("middle");
                }
            }
            let index = store.stats().index_bytes - index_before;
            let besides = anonymous().saturating_sub(anonymous_before).saturating_sub(index);
            tell(&format!("{} KiB", besides >> 10));
            assert!(besides <= DRAM_MAX, "{besides} bytes of DRAM besides the index");
            tell("end");
            // Until it is killed, or is notified to continue.
            let _ = std::io::stdin().read_line(&mut String::new());
            Ok(())
        })
        .unwrap();
    tell("after");
    // Until it is killed, or its standard input ends.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(writer);
    store.close().unwrap();
    tell("closed");
}

/// Starts it, and kills it when it reports this.
fn killed_at(path: &Path, when: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writes", "--ignored", "--nocapture", "--test-threads=1"])
        .env(STORE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if when == "after" || when == "closed" {
        stdin.write_all(b"\n").unwrap();
    }
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    if when == "closed" {
        drop(stdin);
    }
    // What the test harness writes may stand before it on the line.
    let told = lines.find(|line| {
        if let Some((_, dram)) = line.split_once("told: ").filter(|(_, told)| told.ends_with("KiB")) {
            eprintln!("{} keys in one transaction: {dram} of DRAM besides the index", keys());
        }
        line.ends_with(&format!("told: {when}"))
    });
    assert!(told.is_some(), "the process ended before it printed {when:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn count(store: &Store, is: impl Fn(u64, Option<&[u8]>) -> bool) -> u64 {
    (0..keys()).filter(|&number| is(number, store.get(key(number)).unwrap().as_deref())).count() as u64
}

#[test]
fn a_killed_transaction_of_many_records_is_applied_whole_or_not_at_all() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for (when, is_there) in [("middle", false), ("end", false), ("after", true), ("closed", true)] {
        let path = dir.path().join(when);
        killed_at(&path, when);
        let store = options().open(&path).unwrap();
        assert_eq!(store.audit(), Vec::<String>::new(), "killed at {when:?}");
        if is_there {
            assert_eq!(count(&store, |number, value| value == Some(&number.to_be_bytes())), keys(), "{when}");
            assert_eq!(store.len(), keys());
        } else {
            let is_as_before =
                |number: u64, value: Option<&[u8]>| value == (number < keys() / 2).then_some(&b"before"[..]);
            assert_eq!(count(&store, is_as_before), keys(), "killed at {when:?}");
            assert_eq!(store.len(), keys() / 2);
        }
        // And it continues.
        store.put(key(0), b"again").unwrap();
        store.close().unwrap();
        let store = options().open(&path).unwrap();
        assert_eq!(store.len(), if is_there { keys() } else { keys() / 2 });
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}
