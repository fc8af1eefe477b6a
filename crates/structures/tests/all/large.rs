//! The packed and the large form side by side: the same random steps on both, and both must report the same. A step that reports no
//! change is not saved, as commands do not, so it must have stored nothing. One file because all types share the steps.

use crate::support::{now, run, store};
use duramen::MediumKind;
use duramen_structures::dump::{restore, signed};
use duramen_structures::stream::{Entry, NodeLimits, Pending, StreamId, Trim};
use duramen_structures::{
    Collection, Edit, Encoding, End, Error, Keyspace, Locks, Source, Txn, Type, Worker, score_of,
};
use std::ops::{ControlFlow, Deref, RangeInclusive};

pub struct Random(u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn end(&mut self) -> End {
        self.one(&[End::Left, End::Right])
    }
}

/// What a step said.
#[derive(Debug, Default, PartialEq)]
pub struct Said(Vec<String>);

impl Said {
    pub fn say(&mut self, what: impl std::fmt::Debug) {
        self.0.push(format!("{what:?}"));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(bytes.escape_ascii().to_string());
    }
}

/// Runs steps on a keyspace that packs nothing, one that packs small values, and one that packs all; `step` gets a
/// seed.
pub fn on_all_forms(
    seeds: std::ops::Range<u64>,
    steps: u64,
    step: impl Fn(&mut Txn<'_>, &mut Random, &mut Said),
) {
    for seed in seeds {
        let stores = [0, 150, usize::MAX].map(|limit| {
            let dir = tempfile::tempdir().unwrap();
            let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 2).unwrap();
            keyspace.set_small_collection_bytes_max(limit);
            (dir, keyspace)
        });
        let mut workers: Vec<Worker> =
            stores.iter().map(|(_, keyspace)| keyspace.worker().unwrap()).collect();
        for at in 0..steps {
            let mut all = workers.iter_mut().map(|worker| {
                let mut said = Said::default();
                worker.group();
                run(worker, |txn| {
                    said = Said::default();
                    step(txn, &mut Random(seed << 32 | at), &mut said);
                });
                worker.flush_group().unwrap();
                said
            });
            let first = all.next().unwrap();
            for (which, other) in all.enumerate() {
                assert_eq!(first, other, "seed {seed}, step {at}, form {which}");
            }
        }
        let counts: Vec<_> = stores.iter().map(|(_, keyspace)| keyspace.count(0, now())).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }
}

/// The whole content of a collection, in its order if it has one.
fn tell<B: Deref<Target = [u8]>, S: Source>(said: &mut Said, of: &Collection<'_, B, S>) {
    said.say((of.len(), of.is_empty(), of.encoding()));
    let mut all = Vec::new();
    of.visit(|name, value| {
        all.push((name.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    let pairs: Vec<_> = of.pairs().unwrap().into_iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
    assert_eq!(pairs, all);
    let (mut scanned, mut cursor) = (Vec::new(), 0);
    loop {
        let visit = |name: &[u8], value: &[u8]| scanned.push((name.to_vec(), value.to_vec()));
        cursor = of.scan(cursor, 5, visit).unwrap();
        if cursor == 0 {
            break;
        }
    }
    let mut sorted = all.clone();
    sorted.sort();
    scanned.sort();
    scanned.dedup();
    assert_eq!(sorted, scanned);
    let mut sampled = Vec::new();
    for count in [1, all.len() / 5, all.len() / 2, all.len()] {
        sampled.clear();
        of.sample(count, |name, value| sampled.push((name.to_vec(), value.to_vec()))).unwrap();
        sampled.sort();
        sampled.dedup();
        assert_eq!(sampled.len(), count.min(all.len()));
        assert!(sampled.iter().all(|entry| sorted.binary_search(entry).is_ok()));
    }
    of.draw_one(|name, value| assert!(sorted.binary_search(&(name.to_vec(), value.to_vec())).is_ok()))
        .unwrap();
    let is_any = of.encoding() == Encoding::Hashtable;
    said.say(if is_any { sorted } else { all });
}

#[test]
fn hashes_are_the_same_in_both_forms() {
    on_all_forms(0..6, 300, |txn, random, said| {
        let field = |random: &mut Random| format!("f{}", random.below(40)).into_bytes();
        let value = |random: &mut Random| {
            let long = random.below(60) == 0;
            vec![b'a' + random.below(26) as u8; if long { 100 } else { random.below(9) }]
        };
        let key = random.one(&[&b"h"[..], b"i"]);
        match random.below(20) {
            0..9 => {
                let mut hash = txn.edit_hash(0, key).unwrap();
                said.say(hash.insert(&field(random), &value(random)).unwrap());
                hash.save().unwrap();
            }
            9..11 => {
                let new: Vec<_> = (0..random.below(30)).map(|_| (field(random), value(random))).collect();
                let mut hash = txn.edit_hash(0, key).unwrap();
                said.say(hash.insert_all(new.iter().map(|(f, v)| (&f[..], &v[..]))).unwrap());
                hash.save().unwrap();
            }
            11..16 => {
                let old: Vec<_> = (0..random.below(20)).map(|_| field(random)).collect();
                let mut hash = txn.edit_hash(0, key).unwrap();
                let removed = hash.remove_all(old.iter().map(Vec::as_slice)).unwrap();
                let is_removed = hash.remove(&field(random)).unwrap();
                said.say((removed, is_removed));
                if removed > 0 || is_removed {
                    hash.save().unwrap();
                }
            }
            16 => said.say(txn.copy(0, key, 0, b"h").unwrap()),
            17 if key != b"h" => said.say(txn.rename(0, key, 0, b"h").unwrap()),
            18 => said.say(txn.delete(0, key).unwrap()),
            _ => said.say(txn.set_expiry(0, key, Some(now() + 1_000_000)).unwrap()),
        }
        if let Some(hash) = txn.hash(0, key).unwrap() {
            tell(said, &hash);
            let fields: Vec<_> = (0..12).map(|_| field(random)).collect();
            hash.get_each(fields.iter().map(Vec::as_slice), |value| said.say(value)).unwrap();
            said.say(hash.get(&fields[0]).unwrap().as_deref());
            let names = hash.names().unwrap();
            fields.iter().for_each(|field| said.say(names.has(field).unwrap()));
            tell(said, &hash.detached().unwrap());
        }
        said.say(txn.encoding(0, key).unwrap());
        let found = txn.get(0, key).unwrap();
        said.say(found.map(|found| (Type::of_tag(found.tag()), found.expires_at().is_some())));
    });
}

#[test]
fn sets_are_the_same_in_both_forms() {
    on_all_forms(10..16, 300, |txn, random, said| {
        let member = |random: &mut Random| {
            let word = random.below(80) == 0;
            if word { b"word".to_vec() } else { (random.below(60) as i64 - 30).to_string().into_bytes() }
        };
        match random.below(16) {
            0..6 => {
                let new: Vec<_> = (0..1 + random.below(20)).map(|_| member(random)).collect();
                let mut set = txn.edit_set(0, b"s").unwrap();
                let inserted = set.insert_all(new.iter().map(|member| (&member[..], &b""[..]))).unwrap();
                said.say(inserted);
                if inserted > 0 {
                    set.save().unwrap();
                }
            }
            6..12 => {
                let mut set = txn.edit_set(0, b"s").unwrap();
                let is_removed = set.remove(&member(random)).unwrap();
                said.say(is_removed);
                if is_removed {
                    set.save().unwrap();
                }
            }
            12 => {
                let mut set = txn.edit_set(0, b"s").unwrap();
                let count = random.below(4);
                let mut popped = Vec::new();
                set.pop(count, |member| popped.push(member.to_vec())).unwrap();
                popped.sort();
                popped.dedup();
                said.say(popped.len());
                // Which they were is chance: so they come back.
                for member in popped {
                    assert!(set.insert(&member, b"").unwrap());
                }
                set.save().unwrap();
            }
            13 => {
                let mut set = txn.edit_set(0, b"s").unwrap();
                let all = set.len();
                set.pop(all + 3, |_| ()).unwrap();
                set.save().unwrap();
            }
            14 => {
                let members: Vec<Vec<u8>> = (0..random.below(9)).map(|at| vec![b'0' + at as u8]).collect();
                said.say(txn.put_set(0, b"s", members.iter().map(Vec::as_slice).collect()).unwrap());
            }
            _ => said.say(txn.copy(0, b"s", 1, b"s").unwrap()),
        }
        for db in [0, 1] {
            if let Some(set) = txn.set(db, b"s").unwrap() {
                tell(said, &set);
            }
        }
    });
}

fn scored(edit: &mut Edit<'_, '_>, member: &[u8], score: f64) -> bool {
    edit.insert(member, &score.to_le_bytes()).unwrap()
}

#[test]
fn sorted_sets_are_the_same_in_both_forms() {
    on_all_forms(20..26, 300, |txn, random, said| {
        let member = |random: &mut Random| {
            let long = random.below(400) == 0;
            let mut member = format!("m{}", random.below(200)).into_bytes();
            member.resize(if long { 70 } else { member.len() }, b'x');
            member
        };
        let score = |random: &mut Random| {
            random.one(&[0.0, -0.0, 1.0, 1.0, 2.5, -3.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324])
        };
        match random.below(16) {
            0..9 => {
                let mut set = txn.edit_sorted_set(0, b"z").unwrap();
                for _ in 0..1 + random.below(8) {
                    said.say(scored(&mut set, &member(random), score(random)));
                }
                set.save().unwrap();
            }
            9..11 => {
                let mut set = txn.edit_sorted_set(0, b"z").unwrap();
                let is_removed = set.remove(&member(random)).unwrap();
                said.say(is_removed);
                if is_removed {
                    set.save().unwrap();
                }
            }
            11..14 => {
                let mut set = txn.edit_sorted_set(0, b"z").unwrap();
                let start = random.below(set.len() + 1);
                let count = if random.below(30) == 0 { 1000 } else { random.below(5) };
                let removed = set.remove_part(start..start + count).unwrap();
                said.say(removed);
                if removed > 0 {
                    set.save().unwrap();
                }
            }
            14 => said.say(txn.copy(0, b"z", 1, b"z").unwrap()),
            _ => said.say(txn.rename(0, b"z", 1, b"y").unwrap() && txn.copy(1, b"y", 0, b"z").unwrap()),
        }
        if let Some(set) = txn.sorted_set(0, b"z").unwrap() {
            tell(said, &set);
            for _ in 0..4 {
                let member = member(random);
                said.say((set.place(&member).unwrap(), set.score(&member).unwrap()));
                let score = score(random);
                said.say((set.below(score, false).unwrap(), set.below(score, true).unwrap()));
                let start = random.below(set.len() + 2);
                let part = start..start + random.below(6);
                let reversed = random.below(2) == 0;
                set.visit_part(part, reversed, |member, score| {
                    said.bytes(member);
                    said.say(score);
                    ControlFlow::Continue(())
                })
                .unwrap();
            }
            said.say(set.scored().unwrap());
        }
    });
}

#[test]
fn runs_of_members_of_one_score_are_the_same_in_both_forms() {
    on_all_forms(30..32, 12, |txn, random, said| {
        let mut set = txn.edit_sorted_set(0, b"z").unwrap();
        for _ in 0..40 {
            scored(&mut set, &[b'a' + random.below(26) as u8, b'a' + random.below(26) as u8], 1.0);
        }
        set.save().unwrap();
        let set = txn.sorted_set(0, b"z").unwrap().unwrap();
        for bound in [&b""[..], b"a", b"ab", b"m", b"zzz"] {
            said.say(set.run_end(0, |member| member < bound).unwrap());
            said.say(set.run_start(set.len(), |member| member > bound).unwrap());
        }
    });
}

fn elements(txn: &mut Txn<'_>, db: u8, key: &[u8]) -> Vec<Vec<u8>> {
    let Some(list) = txn.list(db, key).unwrap() else { return Vec::new() };
    let mut visited = Vec::new();
    list.visit(0..list.len(), |element| {
        visited.push(element.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(list.list().unwrap(), visited);
    visited
}

#[test]
fn lists_are_the_same_in_both_forms() {
    on_all_forms(40..48, 300, |txn, random, said| {
        // Long ones, so that there are many nodes.
        let element = |random: &mut Random| {
            let len = if random.below(3) == 0 { 60 + random.below(300) } else { 1 + random.below(3) };
            vec![b'a' + random.below(6) as u8; len]
        };
        let mut list = txn.edit_list(0, b"l").unwrap();
        let mut is_changed = true;
        match random.below(20) {
            0..7 => {
                let new: Vec<_> = (0..random.below(6)).map(|_| element(random)).collect();
                list.push(random.end(), new.iter().map(Vec::as_slice)).unwrap();
            }
            7..10 => {
                let count = if random.below(40) == 0 { 1000 } else { random.below(4) };
                list.pop(random.end(), count, |element| said.bytes(element)).unwrap();
            }
            10 => {
                is_changed = list.set(random.below(10), &element(random)).unwrap();
                said.say(is_changed);
            }
            // Often at one place, so that labels run out.
            11..17 => {
                let (side, pivot) =
                    (random.end(), if random.below(3) == 0 { element(random) } else { b"a".to_vec() });
                is_changed = false;
                for at in 0..random.below(9) {
                    let is_inserted = list.insert(side, &pivot, &[b'0' + at as u8]).unwrap();
                    said.say(is_inserted);
                    is_changed |= is_inserted;
                }
            }
            17 => {
                let removed = list.remove(&element(random), random.end(), random.below(4)).unwrap();
                said.say(removed);
                is_changed = removed > 0;
            }
            18 => {
                let start = random.below(list.len() + 1);
                let end = if random.below(2) == 0 {
                    list.len()
                } else {
                    start + random.below(list.len() - start + 1)
                };
                list.trim(start..end).unwrap();
            }
            _ => {}
        }
        if is_changed {
            list.save().unwrap();
        }
        said.say(txn.copy(0, b"l", 1, b"l").unwrap());
        let all = elements(txn, 0, b"l");
        if !all.is_empty() {
            assert_eq!(all, elements(txn, 1, b"l"));
        }
        said.say(&all);
        if let Some(list) = txn.list(0, b"l").unwrap() {
            for index in [0, 1, all.len() / 2, all.len() - 1, all.len()] {
                said.say(list.get(index).unwrap().as_deref());
            }
            for from in [End::Left, End::Right] {
                let within = random.below(all.len() + 2);
                let mut found = Vec::new();
                list.find(b"a", from, within, |position| {
                    found.push(position);
                    if found.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .unwrap();
                said.say(found);
            }
        }
    });
}

#[test]
fn streams_are_the_same_in_both_forms() {
    on_all_forms(0..4, 200, |txn, random, said| {
        let key = random.one(&[&b"x"[..], b"y"]);
        // Several of a millisecond, so that nodes begin in one; and few entries in a node.
        let id = |random: &mut Random| StreamId { ms: random.below(40) as u64, seq: random.below(6) as u64 };
        let limits = NodeLimits { bytes: 300, entries: 5 };
        match random.below(24) {
            0..10 => {
                let mut stream = txn.edit_stream(0, key).unwrap();
                for _ in 0..1 + random.below(12) {
                    let last = stream.last_id();
                    let ms = last.ms + random.below(2) as u64;
                    let seq = if ms == last.ms { last.seq + 1 } else { random.below(3) as u64 };
                    let value = vec![b'v'; random.one(&[1, 1, 9, 400])];
                    let pairs: [&[u8]; 2] = [random.one(&[&b"f"[..], b"f", b"g"]), &value];
                    stream.append(StreamId { ms, seq: seq.max(1) }, &pairs, limits).unwrap();
                }
                stream.save().unwrap();
            }
            10..13 => {
                let mut stream = txn.edit_stream(0, key).unwrap();
                let last = stream.last_id().ms;
                let some = |random: &mut Random| random.below(last as usize + 1) as u64;
                let mut ids: Vec<_> =
                    (0..random.below(30)).map(|_| StreamId { ms: some(random), ..id(random) }).collect();
                if random.below(3) == 0 {
                    ids.extend(stream.last_entry_id().unwrap());
                } else if random.below(3) == 0 {
                    // Of the first node the last ones, so that a trim finds nothing but those.
                    let part = stream.part(StreamId::MIN, StreamId::MAX, false, 5).unwrap();
                    ids.extend(part.entries().unwrap().iter().skip(1).map(|entry| entry.id));
                }
                let deleted = stream.delete(&ids).unwrap();
                said.say(deleted);
                if deleted > 0 {
                    stream.save().unwrap();
                }
            }
            13..15 => {
                let mut stream = txn.edit_stream(0, key).unwrap();
                let trim = match random.below(2) {
                    0 => Trim::Len(random.below(stream.len() as usize + 3) as u64),
                    _ => Trim::From(StreamId {
                        ms: stream.first_id().ms + random.below(5) as u64,
                        ..id(random)
                    }),
                };
                let (whole, most) = (random.below(2) == 0, random.one(&[0, 0, 3, 20]));
                let removed = stream.trim(trim, whole, most).unwrap();
                said.say(removed);
                if removed > 0 {
                    stream.save().unwrap();
                }
            }
            15..17 => {
                let mut stream = txn.edit_stream(0, key).unwrap();
                // Longer than the part by which element keys are distinguished.
                const LONGER: &[u8] = &[b'n'; 601];
                let (long, longer) = (&LONGER[..600], LONGER);
                let name = random.one(&[&b"a"[..], b"b", b"b", long, longer]);
                if random.below(12) == 0 {
                    said.say(stream.remove_group(name).unwrap());
                }
                if random.below(4) == 0 {
                    stream.clear_part(random.below(30)).unwrap();
                }
                said.say(stream.create_group(name, id(random), None).unwrap());
                let group = &mut stream.group(name).unwrap().unwrap();
                for _ in 0..random.below(9) {
                    let at = if random.below(9) == 0 { StreamId::MAX } else { id(random) };
                    let name = random.one(&[&b"c"[..], b"d", b"e", long, longer]);
                    let (consumer, is_new) = stream.see_consumer(group, name, 7).unwrap();
                    said.say(is_new);
                    match random.below(12) {
                        0 => said.say(stream.remove_consumer(group, b"d").unwrap()),
                        1..4 => said.say(stream.acknowledge(group, at).unwrap()),
                        _ => {
                            let pending = Pending { consumer, delivered_at: 7, deliveries: at.ms };
                            let old = stream.pending(group, at).unwrap();
                            stream.set_pending(group, at, old, pending).unwrap();
                        }
                    }
                    let pending = stream.pending(group, id(random)).unwrap();
                    said.say(pending.map(|it| (it.delivered_at, it.deliveries)));
                }
                let consumer = stream.find_consumer(group, b"c").unwrap().filter(|_| random.below(2) == 0);
                let pending = stream.pending_from(group, id(random), consumer, random.below(9)).unwrap();
                for (id, it) in pending {
                    // Numbers are given otherwise in the two forms.
                    let name = stream.consumer(group, it.consumer).unwrap().unwrap().name().to_vec();
                    said.say((id, name, it.delivered_at, it.deliveries));
                }
                stream.read_by(group, id(random));
                said.say(stream.lag(group));
                stream.set_group(group).unwrap();
                stream.save().unwrap();
            }
            17 => drop(txn.delete(0, key).unwrap()),
            18 => drop(txn.copy(0, b"x", 1, b"y").unwrap()),
            19 => drop(txn.rename(0, b"x", 0, b"y").unwrap()),
            20 => {
                if let Some((dumped, _)) = txn.dumped(0, key).unwrap() {
                    let restored = restore(&signed(dumped), u64::MAX).unwrap();
                    txn.put_restored(1, key, &restored, None).unwrap();
                }
            }
            _ => {
                let mut stream = txn.edit_stream(0, key).unwrap();
                let last = stream.last_id();
                stream.set_ids(StreamId { ms: last.ms + 1, seq: 0 }, None, None);
                stream.save().unwrap();
            }
        }
        for (db, key) in [(0, b"x"), (0, b"y"), (1, b"x"), (1, b"y")] {
            let Some(stream) = txn.stream(db, key).unwrap() else { continue };
            said.say((
                stream.len(),
                stream.first_id(),
                stream.last_id(),
                stream.deleted_id(),
                stream.added(),
            ));
            said.say((stream.node_counts().unwrap(), stream.last_entry_id().unwrap()));
            said.say(stream.groups_len().unwrap());
            for group in stream.groups().unwrap().iter() {
                said.say((group.name().to_vec(), stream.pending_ends(group).unwrap()));
                for (number, consumer) in group.consumers() {
                    said.say((consumer.name().to_vec(), consumer.seen_at(), consumer.pending_len()));
                    let its = stream.pending_from(group, StreamId::MIN, Some(number), usize::MAX).unwrap();
                    assert_eq!(its.len(), consumer.pending_len());
                }
                let pending = stream.pending_from(group, StreamId::MIN, None, usize::MAX).unwrap();
                for (id, it) in pending {
                    let name = group.consumer(it.consumer).unwrap().name().to_vec();
                    said.say((id, name, it.delivered_at, it.deliveries));
                }
            }
            let (from, to) = (id(random), StreamId { ms: stream.last_id().ms, ..id(random) });
            for (from, to) in
                [(StreamId::MIN, StreamId::MAX), (from, to), (from, StreamId::MAX), (from, from)]
            {
                for (is_descending, most) in
                    [(false, usize::MAX), (true, usize::MAX), (false, 3), (true, 7), (true, 0)]
                {
                    let part = stream.part(from, to, is_descending, most).unwrap();
                    let pairs = |entry: &Entry<'_>| {
                        entry.pairs().map(|(f, v)| (f.to_vec(), v.to_vec())).collect::<Vec<_>>()
                    };
                    said.say(part.entries().unwrap().iter().map(|it| (it.id, pairs(it))).collect::<Vec<_>>());
                }
            }
            said.bytes(&stream.dumped().unwrap());
        }
    });
}

#[test]
fn inserts_at_one_position_always_find_a_label() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 1).unwrap();
    keyspace.set_small_collection_bytes_max(0);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        let mut list = txn.edit_list(0, b"l").unwrap();
        let many: Vec<Vec<u8>> = (0..100).map(|at: u32| format!("e{at}").into_bytes()).collect();
        list.push(End::Right, many.iter().map(Vec::as_slice)).unwrap();
        list.save().unwrap();
        let mut wanted: Vec<Vec<u8>> = many;
        let mut list = txn.edit_list(0, b"l").unwrap();
        for at in 0..2000 {
            let new = format!("n{at}").into_bytes();
            let side = if at % 2 == 0 { End::Left } else { End::Right };
            assert!(list.insert(side, b"e50", &new).unwrap());
            let place = wanted.iter().position(|element| element == b"e50").unwrap();
            wanted.insert(place + usize::from(side == End::Right), new);
        }
        list.save().unwrap();
        assert_eq!(elements(txn, 0, b"l"), wanted);
    });
}

#[test]
fn large_values_are_there_when_a_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3usize {
        let keyspace = Keyspace::open(store(MediumKind::File, &dir), 16).unwrap();
        keyspace.set_small_collection_bytes_max(100);
        let mut worker = keyspace.worker().unwrap();
        let (new, many) = (format!("{round}"), round * 200);
        run(&mut worker, |txn| {
            assert_eq!(txn.hash(0, b"h").unwrap().map_or(0, |it| it.len()), many);
            assert_eq!(txn.set(0, b"s").unwrap().map_or(0, |it| it.len()), many);
            assert_eq!(elements(txn, 0, b"l").len(), many);
            let ids = txn.stream(0, b"t").unwrap().map_or(Vec::new(), |stream| {
                let part = stream.part(StreamId::MIN, StreamId::MAX, false, usize::MAX).unwrap();
                part.entries().unwrap().iter().map(|entry| entry.id.ms).collect()
            });
            assert_eq!(ids, (1..=many as u64).collect::<Vec<_>>());
            let set = txn.sorted_set(0, b"z").unwrap();
            let scores: Vec<f64> = set.map_or(Vec::new(), |set| {
                set.pairs().unwrap().iter().map(|(_, score)| score_of(score)).collect()
            });
            assert!(scores.len() == many && scores.is_sorted());
        });
        let names: Vec<String> = (0..200).map(|at| format!("{new}.{at}")).collect();
        run(&mut worker, |txn| {
            let mut hash = txn.edit_hash(0, b"h").unwrap();
            hash.insert_all(names.iter().map(|name| (name.as_bytes(), &b"v"[..]))).unwrap();
            hash.save().unwrap();
            let mut set = txn.edit_set(0, b"s").unwrap();
            set.insert_all(names.iter().map(|name| (name.as_bytes(), &b""[..]))).unwrap();
            set.save().unwrap();
            let mut set = txn.edit_sorted_set(0, b"z").unwrap();
            for (at, name) in names.iter().enumerate() {
                scored(&mut set, name.as_bytes(), (at * 7 % 31) as f64);
            }
            set.save().unwrap();
            let mut stream = txn.edit_stream(0, b"t").unwrap();
            for at in 0..200 {
                let id = StreamId { ms: (many + at + 1) as u64, seq: 0 };
                stream.append(id, &[b"f", b"v"], NodeLimits { bytes: 4096, entries: 30 }).unwrap();
            }
            stream.save().unwrap();
            let mut list = txn.edit_list(0, b"l").unwrap();
            list.push(End::Left, names.iter().map(String::as_bytes)).unwrap();
            list.save().unwrap();
        });
        assert_eq!(keyspace.count(0, now()).keys, 5);
    }
}

#[test]
fn edits_of_one_entry_are_the_same_with_and_without_a_transaction() {
    on_all_forms(0..6, 1_500, |txn, random, said| {
        // More entries come than go, until there are some.
        let name = format!("n{}", random.below(220)).into_bytes();
        let value = format!("{}", random.below(5)).into_bytes();
        let grows = random.below(5) < 3;
        txn.edits_one();
        match random.below(4) {
            0 => {
                let mut hash = txn.edit_hash(0, b"h").unwrap();
                said.say(if grows { hash.insert(&name, &value) } else { hash.remove(&name) }.unwrap());
                hash.save().unwrap();
                tell(said, &txn.edit_hash(0, b"h").unwrap());
            }
            1 => {
                let mut set = txn.edit_set(0, b"s").unwrap();
                said.say(if grows { set.insert(&name, b"") } else { set.remove(&name) }.unwrap());
                set.save().unwrap();
                said.say(txn.set(0, b"s").unwrap().map(|set| {
                    let mut members: Vec<_> = set.list().unwrap().into_iter().map(<[u8]>::to_vec).collect();
                    members.sort();
                    members
                }));
            }
            2 => {
                let mut set = txn.edit_sorted_set(0, b"z").unwrap();
                let score = (random.below(9) as f64).to_le_bytes();
                said.say(if grows { set.insert(&name, &score) } else { set.remove(&name) }.unwrap());
                set.save().unwrap();
                let set = txn.sorted_set(0, b"z").unwrap();
                said.say(set.map(|set| {
                    set.pairs()
                        .unwrap()
                        .into_iter()
                        .map(|(n, v)| (n.to_vec(), v.to_vec()))
                        .collect::<Vec<_>>()
                }));
            }
            _ => {
                let mut list = txn.edit_list(0, b"l").unwrap();
                let end = random.end();
                match random.below(4) {
                    0 if !list.is_empty() => said.say(list.set(random.below(list.len()), &value).unwrap()),
                    1 => list.pop(end, 1, |element| said.bytes(element)).unwrap(),
                    _ => list.push(end, [&name[..]].into_iter()).unwrap(),
                }
                list.save().unwrap();
                said.say(elements(txn, 0, b"l"));
            }
        }
    });
}

#[test]
fn an_edit_of_one_element_is_one_record_and_notifies_watchers() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 1).unwrap();
    keyspace.set_small_collection_bytes_max(0);
    let mut worker = keyspace.worker().unwrap();
    let insert = |worker: &mut Worker, name: &[u8], edits_one: bool| {
        let before = keyspace.store().stats().written_bytes;
        run(worker, |txn| {
            if edits_one {
                txn.edits_one();
            }
            let mut set = txn.edit_set(0, b"s").unwrap();
            assert!(set.insert(name, b"").unwrap());
            set.save().unwrap();
        });
        keyspace.store().stats().written_bytes - before
    };
    insert(&mut worker, b"first", true);
    let watched = run(&mut worker, |txn| txn.watch(0, b"s").unwrap().unwrap());
    assert!(run(&mut worker, |txn| txn.expect(&watched).unwrap()));
    let (in_unit, alone) = (insert(&mut worker, b"aaaa", false), insert(&mut worker, b"bbbb", true));
    assert!(alone < in_unit && alone <= 48, "{alone} bytes, {in_unit} in a unit");
    assert!(!run(&mut worker, |txn| txn.expect(&watched).unwrap()));
    // An edit of more than that one is all or nothing all the same.
    let failed = worker.run::<(), Error>(now(), Locks::All, |txn| {
        txn.edits_one();
        txn.put(0, b"other", b"")?;
        let mut set = txn.edit_set(0, b"s")?;
        set.insert(b"cccc", b"")?;
        Err(Error::NoSuchKey)
    });
    assert!(failed.is_err());
    run(&mut worker, |txn| {
        let set = txn.set(0, b"s").unwrap().unwrap();
        assert!(!set.has(b"cccc").unwrap() && set.has(b"bbbb").unwrap() && set.len() == 3);
    });
}

#[test]
fn a_row_of_pushes_of_long_elements_writes_few_nodes() {
    const COUNT: usize = 64;
    const BYTES: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 1).unwrap();
    let mut worker = keyspace.worker().unwrap();
    let element = [b'e'; BYTES];
    let push = |worker: &mut Worker, count: usize| {
        let before = keyspace.store().stats().written_bytes;
        run(worker, |txn| {
            let mut list = txn.edit_list(0, b"l").unwrap();
            list.push(End::Left, std::iter::repeat_n(&element[..], count)).unwrap();
            list.save().unwrap();
        });
        (keyspace.store().stats().written_bytes - before) as usize
    };
    push(&mut worker, COUNT);
    // A node takes some 50 bytes besides its elements, and an element 4: a node for each would take 254.
    let row = push(&mut worker, COUNT);
    assert!(row < COUNT * (BYTES + 15), "{row} bytes for {COUNT} elements");
    // By itself an element is not written with those of the row again.
    let alone = push(&mut worker, 1);
    assert!(alone < 2 * BYTES, "{alone} bytes for an element");
    run(&mut worker, |txn| {
        let list = txn.list(0, b"l").unwrap().unwrap();
        assert_eq!((list.len(), list.list().unwrap()), (2 * COUNT + 1, vec![&element[..]; 2 * COUNT + 1]));
    });
}

#[test]
fn a_large_stream_of_an_earlier_build_is_refused_with_the_way_to_migrate_it() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 1).unwrap();
    keyspace.set_small_collection_bytes_max(0);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        let mut stream = txn.edit_stream(0, b"s").unwrap();
        let id = StreamId { ms: 1, seq: 0 };
        stream.append(id, &[b"f", b"v"], NodeLimits { bytes: 4096, entries: 30 }).unwrap();
        stream.save().unwrap();
    });
    // Its groups were in one element then, which the second flag of the root denies.
    let table = keyspace.store().table(b"redis.0", duramen::IndexKind::Hash).unwrap();
    let root = table.get(b"s").unwrap().unwrap();
    let (meta, form) = (root.meta(), root[0] & !(2 << 4));
    assert_ne!(form, root[0]);
    drop(root);
    keyspace.store().writer().unwrap().table(&table).put_with(b"s", [form], meta).unwrap();
    let said = run(&mut worker, |txn| match txn.stream(0, b"s") {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    });
    assert!(
        said.contains("\"duramen export\" of that build") && said.contains("\"duramen import\""),
        "{said}"
    );
    assert!(run(&mut worker, |txn| txn.delete(0, b"s").unwrap()));
}

/// Entries 1-1 to 300-1 of `x` pending for `consumer` in `group`, in the large form.
fn pending_for(txn: &mut Txn<'_>, group: &[u8], consumer: &[u8], ids: RangeInclusive<u64>) {
    let mut stream = txn.edit_stream(0, b"x").unwrap();
    let limits = NodeLimits { bytes: 4096, entries: 100 };
    for at in stream.last_id().ms + 1..=300 {
        stream.append(StreamId { ms: at, seq: 1 }, &[b"f", b"v"], limits).unwrap();
    }
    stream.create_group(group, StreamId::MIN, None).unwrap();
    let mut group = stream.group(group).unwrap().unwrap();
    let (consumer, _) = stream.see_consumer(&mut group, consumer, 7).unwrap();
    for at in ids {
        let (id, pending) =
            (StreamId { ms: at, seq: 1 }, Pending { consumer, delivered_at: 7, deliveries: 1 });
        let old = stream.pending(&group, id).unwrap();
        stream.set_pending(&mut group, id, old, pending).unwrap();
    }
    stream.set_group(&group).unwrap();
    stream.save().unwrap();
}

#[test]
fn a_consumer_with_much_pending_is_removed_at_once_and_cleared_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 2).unwrap();
    keyspace.set_small_collection_bytes_max(0);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| pending_for(txn, b"g", b"gone", 1..=250));
    run(&mut worker, |txn| pending_for(txn, b"g", b"other", 251..=260));
    // The entries of each consumer, and the first and the last.
    let pending = |txn: &mut Txn<'_>| {
        let stream = txn.stream(0, b"x").unwrap().unwrap();
        let mut group = stream.group(b"g").unwrap().unwrap();
        let all = stream.pending_from(&group, StreamId::MIN, None, usize::MAX).unwrap();
        let ends = stream.pending_ends(&group).unwrap().map(|(first, last)| (first.ms, last.ms));
        let mut of = |name: &[u8]| {
            let consumer = stream.find_consumer(&mut group, name).unwrap()?;
            let its = stream.pending_from(&group, StreamId::MIN, Some(consumer), usize::MAX).unwrap();
            assert_eq!(
                its,
                all.iter().filter(|(_, it)| it.consumer == consumer).copied().collect::<Vec<_>>()
            );
            Some(its.len())
        };
        (of(b"gone"), of(b"other"), all.len(), ends)
    };
    run(&mut worker, |txn| assert_eq!(pending(txn), (Some(250), Some(10), 260, Some((1, 260)))));
    run(&mut worker, |txn| {
        let mut stream = txn.edit_stream(0, b"x").unwrap();
        let mut group = stream.group(b"g").unwrap().unwrap();
        assert_eq!(stream.remove_consumer(&mut group, b"gone").unwrap(), 250);
        stream.set_group(&group).unwrap();
        assert!(stream.has_leftovers().unwrap());
        stream.save().unwrap();
    });
    run(&mut worker, |txn| assert_eq!(pending(txn), (None, Some(10), 10, Some((251, 260)))));
    // An entry that was its is nobody's, may become another's, and stays that. One of the same name begins with nothing.
    run(&mut worker, |txn| {
        let mut stream = txn.edit_stream(0, b"x").unwrap();
        let mut group = stream.group(b"g").unwrap().unwrap();
        assert!(!stream.acknowledge(&mut group, StreamId { ms: 4, seq: 1 }).unwrap());
        assert_eq!(stream.remove_consumer(&mut group, b"gone").unwrap(), 0);
        stream.set_group(&group).unwrap();
        stream.save().unwrap();
    });
    run(&mut worker, |txn| pending_for(txn, b"g", b"gone", 3..=5));
    run(&mut worker, |txn| pending_for(txn, b"g", b"other", 8..=9));
    let expected = (Some(3), Some(12), 15, Some((3, 260)));
    run(&mut worker, |txn| {
        assert_eq!(pending(txn), expected);
        assert!(txn.copy(0, b"x", 1, b"x").unwrap());
        let stream = txn.edit_stream(1, b"x").unwrap();
        assert!(!stream.has_leftovers().unwrap());
        stream.save().unwrap();
    });
    let (mut parts, mut has_more) = (0, true);
    while has_more {
        run(&mut worker, |txn| {
            let mut stream = txn.edit_stream(0, b"x").unwrap();
            has_more = stream.clear_part(100).unwrap();
            stream.save().unwrap();
        });
        run(&mut worker, |txn| assert_eq!(pending(txn), expected));
        parts += 1;
    }
    assert_eq!(parts, 6);
    run(&mut worker, |txn| {
        let mut stream = txn.edit_stream(0, b"x").unwrap();
        assert!(!stream.has_leftovers().unwrap());
        // With its group all goes.
        let mut group = stream.group(b"g").unwrap().unwrap();
        stream.remove_consumer(&mut group, b"other").unwrap();
        stream.set_group(&group).unwrap();
        assert!(stream.remove_group(b"g").unwrap());
        while stream.clear_part(1000).unwrap() {}
        assert!(!stream.has_leftovers().unwrap());
        stream.save().unwrap();
    });
}

#[test]
fn entries_are_found_by_ids_in_any_order_in_both_forms() {
    for small_collection_bytes_max in [0, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 1).unwrap();
        keyspace.set_small_collection_bytes_max(small_collection_bytes_max);
        let mut worker = keyspace.worker().unwrap();
        let id = |ms| StreamId { ms, seq: 1 };
        run(&mut worker, |txn| {
            let mut stream = txn.edit_stream(0, b"x").unwrap();
            let limits = NodeLimits { bytes: 4096, entries: 10 };
            (1..=1000).for_each(|ms| stream.append(id(ms), &[b"f", b"v"], limits).unwrap());
            let deleted: Vec<_> = (1..=1000).filter(|ms: &u64| ms.is_multiple_of(7)).map(id).collect();
            assert_eq!(stream.delete(&deleted).unwrap(), 142);
            let mixed =
                [id(1000), id(1), id(3), id(2), id(2), id(7), id(2000), id(21), id(22), id(500), id(1)];
            assert_eq!(stream.delete(&mixed).unwrap(), 6);
            assert_eq!((stream.len(), stream.first_id()), (852, id(4)));
            stream.save().unwrap();
        });
        let gone = |ms: u64| {
            ms.is_multiple_of(7) || [1, 2, 3, 22, 500, 1000].contains(&ms) || !(1..=1000).contains(&ms)
        };
        run(&mut worker, |txn| {
            let stream = txn.stream(0, b"x").unwrap().unwrap();
            let ascending: Vec<u64> = (0..1100).collect();
            let sparse: Vec<u64> = (0..1100).step_by(90).collect();
            let mixed = vec![5, 4, 4, 900, 1, 6, 7, 8, 1500, 3, 3];
            for wanted in [ascending, sparse, mixed, vec![9], vec![]] {
                let (ids, mut found) = (wanted.iter().copied().map(id).collect::<Vec<_>>(), Vec::new());
                stream
                    .visit_at(&ids, |asked, entry| -> Result<bool, Error> {
                        assert!(entry.is_none_or(|entry| entry.id == asked));
                        found.push((asked.ms, entry.is_none()));
                        Ok(true)
                    })
                    .unwrap();
                assert_eq!(found, wanted.iter().map(|&ms| (ms, gone(ms))).collect::<Vec<_>>());
            }
            let mut asked = 0;
            let ids: Vec<_> = (1..=1000).map(id).collect();
            stream
                .visit_at(&ids, |_, _| -> Result<bool, Error> {
                    asked += 1;
                    Ok(asked < 70)
                })
                .unwrap();
            assert_eq!(asked, 70);
        });
    }
}

#[test]
fn a_large_group_is_removed_at_once_and_cleared_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Volatile, &dir), 2).unwrap();
    keyspace.set_small_collection_bytes_max(0);
    let mut worker = keyspace.worker().unwrap();
    let limits = NodeLimits { bytes: 4096, entries: 100 };
    let id = |at| StreamId { ms: at, seq: 1 };
    run(&mut worker, |txn| {
        let mut stream = txn.edit_stream(0, b"x").unwrap();
        (1..=300).for_each(|at| stream.append(id(at), &[b"f", b"v"], limits).unwrap());
        for name in [&b"g"[..], b"other"] {
            assert!(stream.create_group(name, StreamId::MIN, None).unwrap());
            let mut group = stream.group(name).unwrap().unwrap();
            let (consumer, _) = stream.see_consumer(&mut group, b"c", 7).unwrap();
            for at in 1..=300 {
                let pending = Pending { consumer, delivered_at: 7, deliveries: 1 };
                stream.set_pending(&mut group, id(at), None, pending).unwrap();
            }
            stream.set_group(&group).unwrap();
        }
        stream.save().unwrap();
    });
    let pending = |txn: &mut Txn<'_>, name: &[u8]| {
        let stream = txn.stream(0, b"x").unwrap().unwrap();
        let group = stream.group(name).unwrap()?;
        Some(stream.pending_from(&group, StreamId::MIN, None, usize::MAX).unwrap().len())
    };
    run(&mut worker, |txn| {
        let mut stream = txn.edit_stream(0, b"x").unwrap();
        assert!(stream.remove_group(b"g").unwrap() && stream.has_leftovers().unwrap());
        stream.save().unwrap();
    });
    run(&mut worker, |txn| {
        assert_eq!((pending(txn, b"g"), pending(txn, b"other")), (None, Some(300)));
        // One of the same name begins with nothing, and its number is another.
        let mut stream = txn.edit_stream(0, b"x").unwrap();
        assert!(!stream.remove_group(b"g").unwrap());
        assert!(stream.create_group(b"g", StreamId::MIN, None).unwrap());
        stream.save().unwrap();
        assert_eq!((pending(txn, b"g"), pending(txn, b"other")), (Some(0), Some(300)));
        // A copy has none of the remaining elements.
        assert!(txn.copy(0, b"x", 1, b"x").unwrap());
        let stream = txn.edit_stream(1, b"x").unwrap();
        assert!(!stream.has_leftovers().unwrap());
        stream.save().unwrap();
    });
    let mut parts = 0;
    let mut has_more = true;
    while has_more {
        run(&mut worker, |txn| {
            let mut stream = txn.edit_stream(0, b"x").unwrap();
            has_more = stream.clear_part(50).unwrap();
            stream.save().unwrap();
        });
        run(&mut worker, |txn| {
            assert_eq!((pending(txn, b"g"), pending(txn, b"other")), (Some(0), Some(300)));
        });
        parts += 1;
    }
    // 602 elements; 64 went with the group.
    assert_eq!(parts, 11);
    run(&mut worker, |txn| assert!(!txn.edit_stream(0, b"x").unwrap().has_leftovers().unwrap()));
}
