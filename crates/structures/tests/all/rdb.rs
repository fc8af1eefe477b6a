//! RDB files: what real ones hold, through a keyspace and back, and damaged ones.

use crate::support::{keyspace, now, run};
use duramen::MediumKind;
use duramen_structures::dump::Restored;
use duramen_structures::dump::file::{Flaw, Item, Key, Reader, Skip, Writer};
use duramen_structures::stream::{Stream, StreamId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BYTES_MAX: u64 = 1 << 20;
const REDIS_7: &[u8] = include_bytes!("../../../../testdata/rdb/redis-7.0.rdb");
const REDIS_5: &[u8] = include_bytes!("../../../../testdata/rdb/redis-5.0.rdb");
const STREAMS_7_0: &[u8] = include_bytes!("../../../../testdata/rdb/streams-7.0.rdb");
const STREAMS_5: &[u8] = include_bytes!("../../../../testdata/rdb/streams-5.0.rdb");
const STREAMS_7_2: &[u8] = include_bytes!("../../../../testdata/rdb/streams-7.2.rdb");

fn read(bytes: &[u8]) -> Result<Vec<Key>, Flaw> {
    let mut reader = Reader::new(bytes, Skip::default(), BYTES_MAX)?;
    let mut keys = Vec::new();
    while let Some(item) = reader.next()? {
        let Item::Key(key) = item else { panic!("{item:?}") };
        keys.push(key);
    }
    Ok(keys)
}

/// By database and name, without the order that means nothing.
fn ordered(keys: Vec<Key>) -> BTreeMap<(u64, String), Key> {
    let order = |mut key: Key| {
        match &mut key.value {
            Restored::Set(members) => members.sort(),
            Restored::SortedSet(members) => members.sort_by(|a, b| a.0.cmp(&b.0)),
            Restored::Hash(strings) => {
                let mut pairs: Vec<_> = strings.chunks(2).map(<[_]>::to_vec).collect();
                pairs.sort();
                *strings = pairs.concat();
            }
            Restored::TimedHash(fields) => fields.sort(),
            Restored::String(_) | Restored::List(_) | Restored::Stream(_) => {}
        }
        ((key.db, String::from_utf8(key.key.clone()).unwrap()), key)
    };
    keys.into_iter().map(order).collect()
}

fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn a_file_of_redis_7_is_read() {
    let keys = ordered(read(REDIS_7).unwrap());
    assert_eq!(keys.len(), 22);
    let key = |db, name: &str| keys[&(db, name.to_owned())].clone();
    let value = |name| key(0, name).value;
    for (name, text) in [
        ("string", "hello"),
        ("int8", "-100"),
        ("int16", "30000"),
        ("int32", "-2000000000"),
        ("int64", "4611686018427387904"),
        ("numstr", "007"),
        ("empty", ""),
    ] {
        assert_eq!(value(name), Restored::String(text.as_bytes().to_vec()), "{name}");
    }
    assert_eq!(value("lzf"), Restored::String(b"ab".repeat(200)));
    assert_eq!(value("binary"), Restored::String((0..=255).collect()));
    assert_eq!(key(0, "expiring").expires_at, Some(4_102_444_800_123));
    assert_eq!(key(0, "hash:listpack").expires_at, Some(4_102_444_800_000));
    let x60 = "x".repeat(60);
    assert_eq!(
        value("hash:listpack"),
        Restored::Hash(strings(&["f", "v", "long", &x60, "n", "12", "neg", "-5"]))
    );
    let Restored::Hash(table) = value("hash:table") else { panic!() };
    assert_eq!((table.len(), &table[0]), (42, &b"big".to_vec()));
    assert_eq!(value("set:intset16"), Restored::Set(strings(&["-3", "1", "2"])));
    assert_eq!(value("set:intset32"), Restored::Set(strings(&["1", "70000"])));
    assert_eq!(value("set:intset64"), Restored::Set(strings(&["1", "1099511627776"])));
    assert_eq!(value("set:table"), Restored::Set(strings(&["7", "a", "b"])));
    let scored = |name, score| (str::as_bytes(name).to_vec(), score);
    assert_eq!(
        value("zset:listpack"),
        Restored::SortedSet(vec![
            scored("a", 1.0),
            scored("b", 2.5),
            scored("c", f64::NEG_INFINITY),
            scored("d", f64::INFINITY),
        ])
    );
    let Restored::SortedSet(members) = value("zset:skiplist") else { panic!() };
    assert_eq!((members.len(), &members[3]), (13, &scored("m11", 13.75)));
    let x70 = "x".repeat(70);
    assert_eq!(
        value("list:small"),
        Restored::List(strings(&["a", "1", "-1", "300", "70000", "10000000", "5000000000", &x70]))
    );
    let nodes: Vec<Vec<u8>> = (0..20).map(|i| format!("e{i}").repeat(10).into_bytes()).collect();
    assert_eq!(value("list:nodes"), Restored::List(nodes));
    let (p, q) = ("p".repeat(200), "q".repeat(200));
    assert_eq!(value("list:plain"), Restored::List(strings(&["a", &p, "b", &q])));
    assert_eq!(key(3, "elsewhere").value, Restored::String(b"1".to_vec()));
}

#[test]
fn a_file_with_the_encodings_before_redis_7_is_read() {
    let keys = ordered(read(REDIS_5).unwrap());
    assert_eq!(keys.len(), 8);
    let key = |name: &str| keys[&(0, name.to_owned())].clone();
    let x300 = "x".repeat(300);
    let list = ["a", "1", "-1", "300", "70000", "10000000", "5000000000", &x300, "end"];
    assert_eq!(key("list:ziplist").value, Restored::List(strings(&list)));
    assert_eq!(key("list:ziplist").expires_at, Some(2_000_000_000_000));
    assert_eq!(key("list:quicklist").value, Restored::List(strings(&["a", "b", "c", "12"])));
    assert_eq!(key("list:quicklist").expires_at, None);
    assert_eq!(key("list:plain").value, Restored::List(strings(&["p", "12345"])));
    assert_eq!(key("list:plain").expires_at, Some(4_102_444_800_123));
    assert_eq!(key("hash:ziplist").value, Restored::Hash(strings(&["f", "v", "n", "5"])));
    assert_eq!(key("hash:zipmap").value, Restored::Hash(strings(&["foo", "bar", "hello", "world"])));
    let scored = |name: &str, score| (name.as_bytes().to_vec(), score);
    let members = vec![scored("a", 1.0), scored("b", 2.5), scored("c", f64::INFINITY)];
    assert_eq!(key("zset:ziplist").value, Restored::SortedSet(members));
    let members = vec![scored("a", 2.5), scored("b", f64::NEG_INFINITY), scored("c", f64::INFINITY)];
    assert_eq!(key("zset:text").value, Restored::SortedSet(members));
    assert_eq!(key("set:intset").value, Restored::Set(strings(&["-5", "1", "9"])));
}

#[test]
fn rdb_streams_are_read_in_all_three_forms() {
    for (file, is_old, seen_at) in
        [(STREAMS_7_0, false, None), (STREAMS_5, true, Some(10_000)), (STREAMS_7_2, false, Some(10_000))]
    {
        let keys = ordered(read(file).unwrap());
        assert_eq!(keys.len(), 5);
        let key = |name: &str| keys[&(0, name.to_owned())].clone();
        let stream = |name| match key(name).value {
            Restored::Stream(run) => Stream::of(run).unwrap(),
            other => panic!("{other:?}"),
        };
        let id = |ms, seq| StreamId { ms, seq };
        let entries = |stream: &Stream<Vec<u8>>| {
            let mut entries = Vec::new();
            let visited = stream.visit(StreamId::MIN, StreamId::MAX, false, |entry| {
                let pairs = entry.pairs().map(|(name, value)| (name.to_vec(), value.to_vec()));
                entries.push((entry.id, pairs.collect::<Vec<_>>()));
                std::ops::ControlFlow::Continue(())
            });
            visited.unwrap();
            entries
        };
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let fields = stream("stream:fields");
        assert_eq!(
            entries(&fields),
            [(id(5, 1), vec![pair("f", "v")]), (id(6, 0), vec![pair("g", "x"), pair("y", "2")])]
        );
        // The fields that the old form lacks.
        let (deleted, added) = if is_old { (id(0, 0), 2) } else { (id(5, 2), 3) };
        assert_eq!((fields.deleted_id(), fields.added(), fields.first_id()), (deleted, added, id(5, 1)));
        let nodes = stream("stream:nodes");
        let found = entries(&nodes);
        assert_eq!((nodes.len(), nodes.node_ids().unwrap().len(), found.len()), (248, 3, 248));
        assert_eq!(found[247], (id(250, 0), vec![pair("n", "250"), pair("square", "62500")]));
        let groups = stream("stream:groups").groups().unwrap();
        let group = groups.get(b"g").unwrap();
        assert_eq!((group.last_id, group.entries_read), (id(3, 0), Some(3)));
        let pending: Vec<_> = group
            .known_from(StreamId::MIN)
            .filter_map(|(id, pending)| Some((id, pending?)))
            .map(|(id, it)| {
                let name = group.consumer(it.consumer).unwrap().name().to_vec();
                (id.ms, name, it.delivered_at, it.deliveries)
            })
            .collect();
        let (one, two) = (b"one".to_vec(), b"two".to_vec());
        assert_eq!(pending, [(1, one.clone(), 1000, 5), (2, one, 2000, 1), (3, two, 3000, 2)]);
        if let Some(seen_at) = seen_at {
            let seen: Vec<_> = group.consumers().iter().map(|(_, consumer)| consumer.seen_at()).collect();
            assert_eq!(seen, [seen_at, seen_at + 1]);
        }
        assert_eq!(groups.get(b"unread").unwrap().entries_read, Some(3));
        assert_eq!(stream("stream:empty").groups().unwrap().iter().len(), 1);
        assert_eq!(key("stream:expiring").expires_at, Some(4_102_444_800_123));
    }
}

#[test]
fn a_value_put_into_a_keyspace_is_returned() {
    for file in [REDIS_7, REDIS_5, STREAMS_7_0, STREAMS_5, STREAMS_7_2] {
        let (_dir, keyspace) = keyspace(MediumKind::Volatile);
        let mut worker = keyspace.worker().unwrap();
        let keys = ordered(read(file).unwrap());
        for key in keys.values() {
            run(&mut worker, |txn| {
                txn.put_restored(key.db as u8, &key.key, &key.value, key.expires_at).unwrap();
            });
        }
        let mut writer = Writer::new(Vec::new(), now() / 1000, false).unwrap();
        let mut db = None;
        for key in keys.values() {
            if db != Some(key.db) {
                db = Some(key.db);
                writer.database(key.db, 1, 0).unwrap();
            }
            let (value, expires_at) = worker.begin(now()).dumped(key.db as u8, &key.key).unwrap().unwrap();
            writer.key(&key.key, expires_at, &value).unwrap();
        }
        assert_eq!(ordered(read(&writer.finish().unwrap()).unwrap()), keys);
        // Times that have passed, and collections of nothing.
        for (value, expires_at) in
            [(Restored::String(b"x".to_vec()), Some(now())), (Restored::Set(vec![]), None)]
        {
            run(&mut worker, |txn| txn.put_restored(0, b"string", &Restored::String(vec![]), None).unwrap());
            run(&mut worker, |txn| txn.put_restored(0, b"string", &value, expires_at).unwrap());
            assert_eq!(worker.begin(now()).dumped(0, b"string").unwrap(), None);
        }
    }
}

proptest! {
    #[test]
    fn mutated_files_are_errors_with_an_offset_and_never_panic(
        which in 0usize..5, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let file = [REDIS_5, REDIS_7, STREAMS_5, STREAMS_7_0, STREAMS_7_2][which];
        let mut bytes = file.to_vec();
        // Without a checksum, so that the error must come from the content.
        let end = bytes.len() - 8;
        bytes[end..].fill(0);
        for (at, byte) in changes {
            let at = at.index(end);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(flaw) = read_any(&bytes) {
            let Flaw::Content { offset, .. } = &flaw else { return Err(TestCaseError::fail("no offset")) };
            prop_assert!(*offset <= bytes.len() as u64);
            prop_assert!(flaw.to_string().starts_with("at byte "), "{}", flaw);
        }
    }
}

fn read_any(bytes: &[u8]) -> Result<(), Flaw> {
    let mut reader = Reader::new(bytes, Skip { modules: true, functions: true }, BYTES_MAX)?;
    while reader.next()?.is_some() {}
    Ok(())
}
