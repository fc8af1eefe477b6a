//! Transactions over several large values in a process that is killed: each counts completely or not at all, and
//! acknowledged ones exist.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen::{MediumKind, Options};
use duramen_structures::{End, Error, Keyspace, Locks, Txn};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Names the store in the process that writes.
const STORE: &str = "DURAMEN_KILLED_STORE";
const NOW: u64 = 1_700_000_000_000;
/// Fields that a transaction writes of each hash.
const FIELDS: usize = 3;
/// As many rounds are in the values at once: so elements come, are overwritten and go.
const ROUNDS: usize = 300;

fn open(path: &Path) -> Keyspace {
    let options = Options { medium: MediumKind::Shm, len_max: 64 << 20, ..Options::default() };
    let keyspace = Keyspace::open(options.open(path).unwrap(), 1).unwrap();
    keyspace.set_packed_bytes_max(128);
    keyspace
}

fn count(txn: &mut Txn<'_>) -> usize {
    txn.get(0, b"count").unwrap().map_or(0, |count| str::from_utf8(&count).unwrap().parse().unwrap())
}

/// The positions of the marker in a string of pieces, each in its own piece.
const PLACES: [usize; 3] = [10, 5_000, 20_000];

/// One transaction: it says in a plain key, two hashes, a sorted set, a list and a string in pieces that it was done.
fn write(txn: &mut Txn<'_>) -> Result<usize, Error> {
    let round = count(txn) + 1;
    txn.put(0, b"count", round.to_string().as_bytes())?;
    for key in [b"a", b"b"] {
        let mut hash = txn.edit_hash(0, key)?;
        for field in 0..FIELDS {
            let name = format!("{}.{field}", round % ROUNDS);
            hash.insert(name.as_bytes(), round.to_string().as_bytes())?;
        }
        hash.save()?;
    }
    let mut set = txn.edit_sorted_set(0, b"z")?;
    set.insert((round % ROUNDS).to_string().as_bytes(), &(round as f64).to_le_bytes())?;
    set.save()?;
    let mut list = txn.edit_list(0, b"l")?;
    list.push(End::Right, [round.to_string().as_bytes()].into_iter())?;
    if list.len() > ROUNDS {
        list.pop(End::Left, 1, |_| ())?;
    }
    list.save()?;
    for at in PLACES {
        txn.write_string(0, b"s", at, format!("{round:>8}").as_bytes())?;
    }
    // Now and then all is new, or moves.
    if round.is_multiple_of(97) {
        txn.copy(0, b"a", 0, b"copy")?;
        txn.rename(0, b"copy", 0, b"a")?;
    }
    if round.is_multiple_of(211) {
        txn.delete(0, b"l")?;
        txn.put_list(0, b"l", &[&[b'x'; 200]])?;
    }
    Ok(round)
}

#[test]
#[ignore = "run by the other test, in its own process"]
fn writes() {
    let path = PathBuf::from(std::env::var_os(STORE).unwrap());
    let keyspace = open(&path);
    let mut worker = keyspace.worker().unwrap();
    loop {
        worker.group();
        let mut told = 0;
        for _ in 0..3 {
            told = worker.run(NOW, Locks::All, write).unwrap();
        }
        worker.settle().unwrap();
        println!("told: {told}");
        std::io::stdout().flush().unwrap();
    }
}

/// What there must be, when so many transactions were done.
fn check(txn: &mut Txn<'_>, told: usize) -> usize {
    let done = count(txn);
    assert!(done >= told, "{told} were acknowledged, {done} exist");
    let first = (done + 1).saturating_sub(ROUNDS).max(1);
    for key in [b"a", b"b"] {
        let hash = txn.hash(0, key).unwrap().unwrap();
        assert_eq!(hash.len(), (done + 1 - first) * FIELDS, "{done} are there");
        for round in first..=done {
            for field in 0..FIELDS {
                let value = hash.get(format!("{}.{field}", round % ROUNDS).as_bytes()).unwrap().unwrap();
                assert_eq!(str::from_utf8(&value).unwrap(), round.to_string());
            }
        }
    }
    let string = txn.get_string(0, b"s").unwrap().unwrap();
    assert_eq!(string.len(), PLACES[2] + 8);
    assert!(
        PLACES.iter().all(|&at| string[at..at + 8] == *format!("{done:>8}").as_bytes()),
        "{done} are there"
    );
    drop(string);
    let set = txn.sorted_set(0, b"z").unwrap().unwrap();
    let scores: Vec<usize> = set.scored().unwrap().iter().map(|(_, score)| *score as usize).collect();
    assert_eq!(scores, (first..=done).collect::<Vec<_>>());
    let list = txn.list(0, b"l").unwrap().unwrap();
    let anew = done / 211 * 211;
    let wanted = (anew + 1).max(first)..=done;
    let elements = list.list().unwrap();
    let rounds = elements.iter().filter_map(|it| str::from_utf8(it).unwrap().parse::<usize>().ok());
    assert_eq!(rounds.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    done
}

#[test]
fn transactions_over_large_values_count_all_or_not_at_all() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let mut done = 0;
    for kill in 0..8u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes", "--ignored", "--nocapture", "--test-threads=1"])
            .env(STORE, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, first) = std::sync::mpsc::channel();
        let reads = std::thread::spawn(move || {
            let mut told = 0;
            for line in output.lines() {
                let line = line.unwrap_or_default();
                if let Some((_, number)) = line.split_once("told: ") {
                    // The last line may be cut.
                    told = number.parse().unwrap_or(0).max(told);
                    let _ = send.send(());
                }
            }
            told
        });
        first.recv_timeout(Duration::from_secs(60)).unwrap();
        std::thread::sleep(Duration::from_millis(150 + kill * 37));
        child.kill().unwrap();
        child.wait().unwrap();
        let told: usize = reads.join().unwrap();
        assert!(told > done, "nothing was done");
        let keyspace = open(&path);
        assert_eq!(keyspace.store().audit(), Vec::<String>::new());
        let mut worker = keyspace.worker().unwrap();
        done = worker.run::<_, Error>(NOW, Locks::All, |txn| Ok(check(txn, told))).unwrap();
        drop(worker);
        if kill % 3 == 2 {
            let store = keyspace.store().clone();
            drop(keyspace);
            store.close().unwrap();
        }
    }
}
