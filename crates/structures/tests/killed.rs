//! Transactions over several large values in a process that is killed: each counts completely or not at all, and
//! acknowledged ones exist.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen::{MediumKind, Options};
use duramen_structures::stream::{NodeLimits, Pending, StreamId};
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
    keyspace.set_small_collection_bytes_max(128);
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
        worker.flush_group().unwrap();
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
fn killed_transactions_over_large_values_are_applied_whole_or_not_at_all() {
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

/// Entries that are pending in each group.
const ENTRIES: u64 = 600;
/// Elements that a part deletes.
const PART: usize = 40;
/// Names how many parts the process clears that is killed.
const PARTS: &str = "DURAMEN_KILLED_PARTS";

/// A stream of a group that stays, with two consumers that have half of the entries each, and of one that goes.
fn fill_stream(txn: &mut Txn<'_>) -> Result<(), Error> {
    let mut stream = txn.edit_stream(0, b"x")?;
    let limits = NodeLimits { bytes: 4096, entries: 100 };
    for ms in 1..=ENTRIES {
        stream.append(StreamId { ms, seq: 1 }, &[b"f", b"v"], limits)?;
    }
    for name in [&b"goes"[..], b"stays"] {
        stream.create_group(name, StreamId::MIN, None)?;
        let Some(mut group) = stream.group(name)? else { continue };
        let consumers = [b"a", b"b"].map(|name| stream.see_consumer(&mut group, name, 7).unwrap().0);
        for ms in 1..=ENTRIES {
            let consumer = consumers[usize::from(ms > ENTRIES / 2)];
            let pending = Pending { consumer, delivered_at: 7, deliveries: 1 };
            stream.set_pending(&mut group, StreamId { ms, seq: 1 }, None, pending)?;
        }
        stream.set_group(&group)?;
    }
    stream.save()
}

/// Removes the one group, and a consumer of the other.
fn remove_group_and_consumer(txn: &mut Txn<'_>) -> Result<(), Error> {
    let mut stream = txn.edit_stream(0, b"x")?;
    stream.remove_group(b"goes")?;
    if let Some(mut group) = stream.group(b"stays")? {
        stream.remove_consumer(&mut group, b"b")?;
        stream.set_group(&group)?;
    }
    stream.save()
}

fn clear_part(txn: &mut Txn<'_>) -> Result<bool, Error> {
    let mut stream = txn.edit_stream(0, b"x")?;
    let has_more = stream.clear_part(PART)?;
    stream.save()?;
    Ok(has_more)
}

#[test]
#[ignore = "run by the other test, in a separate process"]
fn clears_parts() {
    let path = PathBuf::from(std::env::var_os(STORE).unwrap());
    let keyspace = open(&path);
    let mut worker = keyspace.worker().unwrap();
    worker.run(NOW, Locks::All, fill_stream).unwrap();
    worker.run(NOW, Locks::All, remove_group_and_consumer).unwrap();
    let parts: usize = std::env::var(PARTS).unwrap().parse().unwrap();
    for _ in 0..parts {
        worker.run(NOW, Locks::All, clear_part).unwrap();
    }
    println!("told: {parts}");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// What everybody sees of the groups, whatever is deleted yet of those that went.
fn check_groups(txn: &mut Txn<'_>) -> Result<(), Error> {
    let stream = txn.stream(0, b"x")?.unwrap();
    assert_eq!((stream.groups_len()?, stream.group(b"goes")?.is_none()), (1, true));
    let mut group = stream.group(b"stays")?.unwrap();
    assert_eq!(stream.find_consumer(&mut group, b"b")?, None);
    let pending = stream.pending_from(&group, StreamId::MIN, None, usize::MAX)?;
    assert_eq!(
        pending.iter().map(|(id, _)| id.ms).collect::<Vec<_>>(),
        (1..=ENTRIES / 2).collect::<Vec<_>>()
    );
    Ok(())
}

#[test]
fn a_kill_during_the_cleanup_of_a_group_leaves_it_removed_and_frees_its_space() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    // Without a kill: how many parts there are, and what the stream takes then.
    let (mut parts, mut footprint) = (None, None);
    for killed_at in [None, Some(0), Some(1), Some(9), Some(28), Some(29), Some(40)] {
        let path = dir.path().join(format!("store {killed_at:?}"));
        if let Some(killed_at) = killed_at {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "clears_parts", "--ignored", "--nocapture", "--test-threads=1"])
                .env(STORE, &path)
                .env(PARTS, killed_at.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            assert!(lines.any(|line| line.contains("told: ")));
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            let mut worker = open(&path).worker().unwrap();
            worker.run(NOW, Locks::All, fill_stream).unwrap();
            worker.run(NOW, Locks::All, remove_group_and_consumer).unwrap();
        }
        let keyspace = open(&path);
        assert_eq!(keyspace.store().audit(), Vec::<String>::new());
        let mut worker = keyspace.worker().unwrap();
        worker.run(NOW, Locks::All, check_groups).unwrap();
        let mut cleared = 1;
        while worker.run(NOW, Locks::All, clear_part).unwrap() {
            cleared += 1;
            worker.run(NOW, Locks::All, check_groups).unwrap();
        }
        let all = *parts.get_or_insert(cleared);
        assert_eq!(cleared, all - killed_at.unwrap_or(0), "killed after {killed_at:?} of {all} parts");
        worker.run(NOW, Locks::All, check_groups).unwrap();
        let bytes = worker.run::<_, Error>(NOW, Locks::All, |txn| txn.footprint(0, b"x", 0)).unwrap();
        assert_eq!(*footprint.get_or_insert(bytes), bytes, "killed after {killed_at:?} parts");
    }
    assert!(parts.is_some_and(|all| all > 40), "{parts:?}");
}
