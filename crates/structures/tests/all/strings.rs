//! Strings that are written in part: as one record, and in pieces.

use crate::large::{Random, on_all_forms};
use crate::support::{keyspace, now, run};
use duramen::MediumKind;
use duramen_structures::{Error, Item, ItemHead, Keyspace, Locks, Txn, Worker, string_until};

const KEYS: [&[u8]; 3] = [b"x", b"y", b"z"];

fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.below(256) as u8).collect()
}

#[test]
fn strings_are_the_same_in_all_forms() {
    on_all_forms(0..12, 150, |txn, random, said| {
        for _ in 0..=random.below(4) {
            let (key, other) = (random.one(&KEYS), random.one(&KEYS));
            let len = txn.string_len(0, key).unwrap();
            match random.below(12) {
                0 => txn.put(0, key, &bytes(random, 3000)).unwrap(),
                1 => said.say(txn.delete(0, key)),
                2 => txn.write_string(0, key, len.unwrap_or(0), &bytes(random, 2000)).unwrap(),
                3 => txn.write_string(0, key, random.below(9000), &bytes(random, 40)).unwrap(),
                4 => txn.write_string(0, key, random.below(3000), &bytes(random, 4000)).unwrap(),
                5 => said.say(txn.copy(0, key, 1, other)),
                6 if key != other => said.say(txn.rename(0, key, 0, other)),
                7 => said.say(txn.set_expiry(0, key, random.one(&[None, Some(now() + 1_000_000)])).is_ok()),
                8 => said.say(txn.add(0, key, 7).is_ok()),
                9 => {
                    // What was read is put back whole.
                    let whole = txn.get_string(0, key).unwrap().map(|found| found.to_vec());
                    txn.put_vec(0, key, whole.unwrap_or_default(), string_until(None)).unwrap();
                }
                _ => {
                    let at = random.below(len.unwrap_or(0) + 10);
                    txn.write_string(0, key, at, &bytes(random, 3)).unwrap();
                }
            }
        }
        for (db, key) in KEYS.into_iter().flat_map(|key| [(0, key), (1, key)]) {
            let whole = txn.get_string(db, key).unwrap().map(|found| found.to_vec());
            let (from, more) = (random.below(10_000), random.below(3_000));
            let part =
                txn.read_string(db, key, |_| from..from + more, |len, part| (len, part.to_vec())).unwrap();
            let expected = whole.as_ref().map(|whole| {
                (whole.len(), whole[from.min(whole.len())..(from + more).min(whole.len())].to_vec())
            });
            assert_eq!(part, expected);
            assert_eq!(txn.string_len(db, key).unwrap(), whole.as_ref().map(Vec::len));
            let seen = txn.look(db, key).unwrap();
            said.say(seen.map(|seen| (seen.tag, seen.expires_at.is_some())));
            said.say(txn.dumped(db, key).unwrap().map(|(value, _)| value));
            said.bytes(&whole.unwrap_or_default());
        }
    });
}

fn of_pieces() -> (tempfile::TempDir, Keyspace, Worker) {
    let (dir, keyspace) = keyspace(MediumKind::Volatile);
    keyspace.set_small_collection_bytes_max(0);
    let worker = keyspace.worker().unwrap();
    (dir, keyspace, worker)
}

#[test]
fn a_part_that_is_written_is_all_that_is_written() {
    let (_dir, keyspace, mut worker) = of_pieces();
    run(&mut worker, |txn| txn.write_string(0, b"s", 0, &[1; 100_000]).unwrap());
    let written = |keyspace: &Keyspace| keyspace.store().stats().written_bytes;
    let before = written(&keyspace);
    run(&mut worker, |txn| txn.write_string(0, b"s", 50_000, &[2]).unwrap());
    let bytes = written(&keyspace) - before;
    assert!((1024..1400).contains(&bytes), "{bytes} bytes were written for one");
    // A gap of half a gigabyte is not written either.
    let before = written(&keyspace);
    run(&mut worker, |txn| txn.write_string(0, b"s", (512 << 20) - 1, &[3]).unwrap());
    let bytes = written(&keyspace) - before;
    assert!(bytes < 1400, "{bytes} bytes were written for one");
    let len = run(&mut worker, |txn| {
        let part = txn.read_string(0, b"s", |len| len - 2..len, |_, part| part.to_vec()).unwrap();
        assert_eq!(part, Some(vec![0, 3]));
        txn.string_len(0, b"s").unwrap()
    });
    assert_eq!(len, Some(512 << 20));
    // The footprint is that of all pieces. To write all of it makes one record of it.
    let footprint = |txn: &mut Txn<'_>| txn.footprint(0, b"s", 0).unwrap().unwrap();
    assert!(run(&mut worker, footprint) > 100_000);
    run(&mut worker, |txn| txn.put(0, b"s", b"short").unwrap());
    assert!(run(&mut worker, footprint) < 100);
}

#[test]
fn a_transaction_without_named_keys_reads_pieces_under_the_keys_lock() {
    let (_dir, _keyspace, mut worker) = of_pieces();
    run(&mut worker, |txn| txn.write_string(0, b"s", 3_000, b"end").unwrap());
    let mut runs = 0;
    let read = worker.run::<_, Error>(now(), Locks::Nothing, |txn| {
        runs += 1;
        Ok(txn.get_string(0, b"s")?.map(|found| found.len()))
    });
    assert_eq!((read.unwrap(), runs), (Some(3_003), 2));
    let seen = worker.run::<_, Error>(now(), Locks::Nothing, |txn| Ok(txn.look(0, b"s")?.is_some()));
    assert!(seen.unwrap());
}

#[test]
fn memcached_reads_pieces_and_distinguishes_their_changes() {
    let (_dir, _keyspace, mut worker) = of_pieces();
    let write = |txn: &mut Txn<'_>, at| txn.write_string(0, b"s", at, b"end").unwrap();
    run(&mut worker, |txn| write(txn, 3_000));
    let of = |item: &Item<'_>| (item.len(), item.head.cas);
    let item = |worker: &Worker| worker.item(now(), 0, b"s").unwrap().as_ref().map(of).unwrap();
    let (len, cas) = item(&worker);
    assert_eq!((len, item(&worker)), (3_003, (len, cas)));
    assert_eq!(run(&mut worker, |txn| txn.item(0, b"s").unwrap().as_ref().map(of)), Some((len, cas)));
    // A change of a piece, another one, and one of all.
    run(&mut worker, |txn| write(txn, 10));
    let second = item(&worker);
    assert!(second.0 == len && second.1 != cas);
    run(&mut worker, |txn| write(txn, 10));
    assert_ne!(item(&worker).1, second.1);
    run(&mut worker, |txn| {
        txn.put_item(0, b"s", &ItemHead { cas: 5, ..ItemHead::default() }, &[b"new"], None).unwrap()
    });
    assert_eq!(item(&worker), (3, 5));
}
