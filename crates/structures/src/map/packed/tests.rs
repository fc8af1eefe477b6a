use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn all<B: Deref<Target = [u8]>>(entries: &PackedMap<B>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    entries
        .visit(|name, value| {
            all.push((name.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    all
}

fn names<B: Deref<Target = [u8]>>(entries: &PackedMap<B>) -> Vec<Vec<u8>> {
    all(entries).into_iter().map(|(name, _)| name).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Retain(u8),
    InsertAll(Vec<(Vec<u8>, Vec<u8>)>),
    RemoveAll(Vec<Vec<u8>>),
}

/// For calls with many.
fn borrowed(pairs: &[(Vec<u8>, Vec<u8>)]) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
    pairs.iter().map(|(name, value)| (&name[..], &value[..]))
}

/// Few names, so that they repeat; integers among them; and sometimes one that Redis calls long.
fn name() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        6 => number(),
        3 => "[ab]{0,2}".prop_map(String::into_bytes),
        1 => prop_oneof![Just(vec![b'x'; 64]), Just(vec![b'y'; 65]), Just(vec![b'z'; 300])],
    ]
    .boxed()
}

fn number() -> BoxedStrategy<Vec<u8>> {
    (-20i64..20).prop_map(|number| number.to_string().into_bytes()).boxed()
}

fn steps(names: BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (names.clone(), name()).prop_map(|(name, value)| Step::Insert(name, value)),
        2 => names.clone().prop_map(Step::Remove),
        2 => prop::collection::vec((names.clone(), name()), 0..24).prop_map(Step::InsertAll),
        1 => prop::collection::vec(names, 0..24).prop_map(Step::RemoveAll),
        1 => any::<u8>().prop_map(Step::Retain),
    ];
    prop::collection::vec(step, 0..60)
}

/// Few scores, so that some members have equal ones; no -0, which the model would distinguish from 0.
fn score(by: &[u8]) -> f64 {
    match by {
        b"" => f64::NEG_INFINITY,
        [b'x'..=b'z', ..] => f64::INFINITY,
        _ => f64::from(by.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 5) / 4.0 - 0.5,
    }
}

fn kept(name: &[u8], by: u8) -> bool {
    name.first().is_none_or(|first| !(first ^ by).is_multiple_of(5))
}

proptest! {
    #[test]
    fn a_hash_is_a_map_that_keeps_the_order_of_its_fields(steps in steps(name())) {
        let mut hash = PackedMap::empty(Shape::Hash);
        let (mut model, mut order, mut was_long) = (BTreeMap::new(), Vec::new(), false);
        for step in steps {
            match step {
                Step::Insert(name, value) => {
                    was_long |= name.len().max(value.len()) > 64;
                    let is_new = model.insert(name.clone(), value.clone()).is_none();
                    if is_new {
                        order.push(name.clone());
                    }
                    prop_assert_eq!(hash.insert(&name, &value), Ok(is_new));
                }
                Step::Remove(name) => {
                    order.retain(|other| *other != name);
                    prop_assert_eq!(hash.remove(&name), Ok(model.remove(&name).is_some()));
                }
                Step::Retain(by) => {
                    hash.retain(|name, _| kept(name, by)).unwrap();
                    model.retain(|name, _| kept(name, by));
                    order.retain(|name| kept(name, by));
                }
                Step::InsertAll(pairs) => {
                    let before = model.len();
                    for (name, value) in pairs.clone() {
                        was_long |= name.len().max(value.len()) > 64;
                        if model.insert(name.clone(), value).is_none() {
                            order.push(name);
                        }
                    }
                    prop_assert_eq!(hash.insert_all(borrowed(&pairs)), Ok(model.len() - before));
                }
                Step::RemoveAll(names) => {
                    let before = model.len();
                    model.retain(|name, _| !names.contains(name));
                    order.retain(|name| !names.contains(name));
                    prop_assert_eq!(hash.remove_all(names.iter().map(Vec::as_slice)), Ok(before - model.len()));
                }
            }
            prop_assert_eq!(hash.len(), model.len());
            let pairs: Vec<_> = order.iter().map(|name| (name.clone(), model[name].clone())).collect();
            prop_assert_eq!(&all(&hash), &pairs);
            for (name, value) in &pairs {
                prop_assert_eq!(hash.get(name), Ok(Some(&value[..])));
            }
            prop_assert_eq!(hash.get(b"absent"), Ok(None));
            let mut each = Vec::new();
            let asked = order.iter().map(Vec::as_slice).chain([&b"absent"[..]]).collect::<Vec<_>>();
            hash.get_each(asked.into_iter(), |value| each.push(value.map(<[u8]>::to_vec))).unwrap();
            let values = pairs.iter().map(|(_, value)| Some(value.clone())).chain([None]);
            prop_assert!(values.eq(each));
            let encoding = if was_long { Encoding::Hashtable } else { Encoding::Listpack };
            prop_assert_eq!(hash.encoding(), encoding);
        }
        // A stored value is opened unchanged.
        let again = PackedMap::of(Shape::Hash, hash.clone().into_run()).unwrap();
        prop_assert_eq!(all(&again), all(&hash));
    }

    #[test]
    fn a_set_of_integers_is_in_order_until_something_else_is_added(
        steps in prop_oneof![steps(name()), steps(number())]
    ) {
        let mut set = PackedMap::empty(Shape::Set);
        let (mut model, mut was_other) = (BTreeSet::new(), false);
        for step in steps {
            match step {
                Step::Insert(name, _) => {
                    was_other |= integer::parse(&name).is_none();
                    prop_assert_eq!(set.insert(&name, b""), Ok(model.insert(name)));
                }
                Step::Remove(name) => prop_assert_eq!(set.remove(&name), Ok(model.remove(&name))),
                Step::Retain(by) => {
                    set.retain(|name, _| kept(name, by)).unwrap();
                    model.retain(|name| kept(name, by));
                }
                Step::InsertAll(pairs) => {
                    let before = model.len();
                    was_other |= pairs.iter().any(|(name, _)| integer::parse(name).is_none());
                    model.extend(pairs.iter().map(|(name, _)| name.clone()));
                    let new = pairs.iter().map(|(name, _)| (&name[..], &b""[..]));
                    prop_assert_eq!(set.insert_all(new), Ok(model.len() - before));
                }
                Step::RemoveAll(names) => {
                    let before = model.len();
                    model.retain(|name| !names.contains(name));
                    prop_assert_eq!(set.remove_all(names.iter().map(Vec::as_slice)), Ok(before - model.len()));
                }
            }
            let mut found = names(&set);
            if !was_other {
                prop_assert!(found.is_sorted_by_key(|name| integer::parse(name)));
            }
            prop_assert_eq!(set.encoding(), if was_other { Encoding::Hashtable } else { Encoding::Intset });
            found.sort();
            prop_assert!(found.iter().eq(&model), "{:?} {:?}", found, model);
            for name in &model {
                prop_assert_eq!(set.get(name), Ok(Some(&b""[..])));
            }
        }
        // Made at once it is the same set, or a smaller form of it.
        let members = model.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let at_once = PackedMap::set_of(Shape::Set, members);
        if !was_other {
            prop_assert_eq!(&at_once.run, &set.run);
        }
        set.renew().unwrap();
        prop_assert_eq!(set.encoding(), at_once.encoding());
        prop_assert_eq!(names(&set).into_iter().collect::<BTreeSet<_>>(), model);
    }

    #[test]
    fn a_sorted_set_is_ordered_by_score_and_member(steps in steps(name())) {
        let mut set = PackedMap::empty(Shape::SortedSet);
        let (mut model, mut was_long) = (BTreeMap::new(), false);
        for step in steps {
            match step {
                Step::Insert(member, by) => {
                    was_long |= member.len() > 64;
                    let is_new = model.insert(member.clone(), score(&by)).is_none();
                    prop_assert_eq!(set.insert(&member, &score(&by).to_le_bytes()), Ok(is_new));
                }
                Step::Remove(member) => {
                    prop_assert_eq!(set.remove(&member), Ok(model.remove(&member).is_some()));
                }
                Step::Retain(by) => {
                    set.retain(|member, _| kept(member, by)).unwrap();
                    model.retain(|member, _| kept(member, by));
                }
                Step::InsertAll(pairs) => {
                    let before = model.len();
                    let mut new = Vec::new();
                    for (member, by) in pairs {
                        was_long |= member.len() > 64;
                        model.insert(member.clone(), score(&by));
                        new.push((member, score(&by).to_le_bytes().to_vec()));
                    }
                    prop_assert_eq!(set.insert_all(borrowed(&new)), Ok(model.len() - before));
                }
                Step::RemoveAll(members) => {
                    let before = model.len();
                    model.retain(|member, _| !members.contains(member));
                    let removed = set.remove_all(members.iter().map(Vec::as_slice));
                    prop_assert_eq!(removed, Ok(before - model.len()));
                }
            }
            let mut wanted: Vec<Scored<'_>> = model.iter().map(|(member, score)| (&member[..], *score)).collect();
            wanted.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(b.0)));
            let found = set.scored().unwrap();
            prop_assert_eq!(&found, &wanted);
            for (member, score) in wanted {
                prop_assert_eq!(set.get(member).unwrap().map(score_of), Some(score));
            }
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.encoding(), if was_long { Encoding::Skiplist } else { Encoding::Listpack });
        }
        // Made at once it is the same.
        let at_once = PackedMap::sorted_set_of(Shape::SortedSet, model.iter().map(|(member, score)| (&member[..], *score)).collect());
        prop_assert_eq!(at_once.scored(), set.scored());
        if !was_long {
            prop_assert_eq!(&at_once.run, &set.run);
        }
    }

    #[test]
    fn a_scan_returns_lasting_entries_once(
        stays in prop::collection::btree_set("[a-e]{1,3}", 0..60),
        comes in prop::collection::vec("[f-h]{1,2}", 0..30),
        count in 1usize..12,
    ) {
        let mut set = PackedMap::empty(Shape::Set);
        for member in &stays {
            set.insert(member.as_bytes(), b"").unwrap();
        }
        let (mut told, mut cursor, mut comes) = (Vec::new(), 0, comes.into_iter());
        loop {
            let before = told.len();
            cursor = set.scan(cursor, count, |name, _| told.push(String::from_utf8(name.to_vec()).unwrap())).unwrap();
            prop_assert!(cursor < 1 << 53);
            prop_assert!(cursor == 0 || told.len() - before == count);
            if cursor == 0 {
                break;
            }
            // Others come and go meanwhile.
            if let Some(name) = comes.next() && !set.insert(name.as_bytes(), b"").unwrap() {
                set.remove(name.as_bytes()).unwrap();
            }
        }
        told.retain(|name| name < &"f".to_owned());
        told.sort();
        prop_assert_eq!(told, stays.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn drawn_entries_exist_and_a_sample_has_each_once(
        members in prop::collection::btree_set("[a-z]{1,3}", 1..40), count in 0usize..50, seed: u64,
    ) {
        let set = PackedMap::set_of(Shape::Set, members.iter().map(|member| member.as_bytes()).collect());
        let random = &mut Random::new(seed);
        let mut sample = Vec::new();
        set.sample(count, random, |name, _| sample.push(name)).unwrap();
        prop_assert_eq!(sample.len(), count.min(members.len()));
        prop_assert_eq!(sample.iter().collect::<BTreeSet<_>>().len(), sample.len());
        let mut drawn = Vec::new();
        set.draw(random, |name, _| {
            drawn.push(name);
            if drawn.len() > count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }).unwrap();
        prop_assert_eq!(drawn.len(), count + 1);
        for index in 0..members.len() {
            drawn.push(set.nth(index).unwrap().0);
        }
        prop_assert!(sample.iter().chain(&drawn).all(|name| members.contains(str::from_utf8(name).unwrap())));
        prop_assert!(set.nth(members.len()).is_err());
    }

    #[test]
    fn any_bytes_are_an_error_or_entries(mut bytes in prop::collection::vec(any::<u8>(), 0..60), good: bool, hash: bool) {
        if good && let Some(first) = bytes.first_mut() {
            *first = 1 | *first & 0x10;
        }
        if good && let Some(count) = bytes.get_mut(1..5) {
            count[1..].fill(0);
        }
        let shape = if hash { Shape::Hash } else { Shape::Set };
        if let Ok(mut entries) = PackedMap::of(shape, bytes) {
            let random = &mut Random::new(1);
            let _ = (entries.len(), entries.encoding(), entries.get(b"a").is_ok(), entries.nth(3).is_ok());
            let _ = entries.scan(0, 3, |_, _| ());
            let _ = entries.sample(3, random, |_, _| ());
            let _ = entries.draw(random, |_, _| ControlFlow::Break(()));
            let _ = entries.names().map(|names| names.has(b"a"));
            let _ = entries.insert(b"7", b"b");
            let _ = entries.remove(b"7");
            let names: Vec<&[u8]> = (0..20).map(|_| &b"x"[..]).collect();
            let _ = entries.get_each(names.iter().copied(), |_| ());
            let _ = entries.insert_all(names.iter().map(|name| (*name, &b""[..])));
            let _ = entries.remove_all(names.iter().copied());
            let _ = entries.retain(|name, _| name.len() > 1);
            let _ = entries.renew();
        }
    }
}

#[test]
fn a_collection_becomes_a_hash_table_where_redis_makes_one() {
    let mut hash = PackedMap::empty(Shape::Hash);
    for field in 0..512 {
        hash.insert(field.to_string().as_bytes(), b"v").unwrap();
    }
    hash.insert(b"0", &[b'v'; 64]).unwrap();
    assert_eq!(hash.encoding(), Encoding::Listpack);
    hash.insert(b"one more", b"v").unwrap();
    assert_eq!(hash.encoding(), Encoding::Hashtable);
    hash.remove(b"one more").unwrap();
    assert_eq!(hash.encoding(), Encoding::Hashtable);

    let mut set = PackedMap::empty(Shape::Set);
    for member in (0..512).rev() {
        set.insert(member.to_string().as_bytes(), b"").unwrap();
    }
    assert_eq!(set.encoding(), Encoding::Intset);
    let members = names(&set);
    assert_eq!(PackedMap::set_of(Shape::Set, members.iter().map(Vec::as_slice).collect()).run, set.run);
    set.insert(b"512", b"").unwrap();
    assert_eq!(set.encoding(), Encoding::Hashtable);
    let members = names(&set);
    assert_eq!(
        PackedMap::set_of(Shape::Set, members.iter().map(Vec::as_slice).collect()).encoding(),
        Encoding::Hashtable
    );
}

#[test]
fn a_sample_gives_each_the_same_chance() {
    let members: Vec<String> = (0..10).map(|member| member.to_string()).collect();
    let set = PackedMap::set_of(Shape::Set, members.iter().map(|member| member.as_bytes()).collect());
    let (random, mut counts) = (&mut Random::new(7), [0u32; 10]);
    let mut count = |name: &[u8]| counts[usize::from(name[0] - b'0')] += 1;
    for _ in 0..10_000 {
        set.sample(3, random, |name, _| count(name)).unwrap();
        let mut left = 3;
        set.draw(random, |name, _| {
            count(name);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    }
    // 6,000 each; 500 is more than six standard deviations.
    assert!(counts.iter().all(|count| count.abs_diff(6000) < 500), "{counts:?}");
}

#[test]
fn a_head_that_no_collection_has_is_refused() {
    let why = |shape, bytes: &[u8]| PackedMap::of(shape, bytes).unwrap_err().to_string();
    assert_eq!(why(Shape::Set, b"\x21\0\0\0\0"), "at byte 0: it has flags that this version does not know");
    assert_eq!(why(Shape::Hash, b"\x01\x01\0\0\0\x01a"), "at byte 1: a field has no value");
}

#[test]
fn a_sorted_set_is_a_skiplist_from_129_members_or_65_bytes_on() {
    let members: Vec<Vec<u8>> = (0..129).map(|at: u32| at.to_string().into_bytes()).collect();
    let score = 1f64.to_le_bytes();
    let mut set = PackedMap::empty(Shape::SortedSet);
    for (at, member) in members.iter().enumerate() {
        set.insert(member, &score).unwrap();
        assert_eq!(set.encoding(), if at < 128 { Encoding::Listpack } else { Encoding::Skiplist }, "{at}");
    }
    set.remove(b"0").unwrap();
    assert_eq!(set.encoding(), Encoding::Skiplist);
    for count in [128, 129] {
        let wanted = if count == 128 { Encoding::Listpack } else { Encoding::Skiplist };
        let mut set = PackedMap::empty(Shape::SortedSet);
        set.insert_all(members[..count].iter().map(|member| (&member[..], &score[..]))).unwrap();
        assert_eq!(set.encoding(), wanted);
        let scored = members[..count].iter().map(|member| (&member[..], 1.0)).collect();
        assert_eq!(PackedMap::sorted_set_of(Shape::SortedSet, scored).encoding(), wanted);
    }
    let long = [b'x'; 65];
    assert_eq!(
        PackedMap::sorted_set_of(Shape::SortedSet, vec![(&long[..64], 0.0)]).encoding(),
        Encoding::Listpack
    );
    assert_eq!(PackedMap::sorted_set_of(Shape::SortedSet, vec![(&long, 0.0)]).encoding(), Encoding::Skiplist);
}

#[test]
fn bytes_that_are_no_score_are_an_error() {
    for (value, is_good) in [
        (&1f64.to_le_bytes()[..], true),
        (&f64::INFINITY.to_le_bytes(), true),
        (&f64::NAN.to_le_bytes(), false),
        (b"1", false),
        (b"", false),
        (&[0; 9], false),
    ] {
        let mut run = packed::empty(0);
        packed::push(&mut run, &[b"m", value]);
        let set = PackedMap::of(Shape::SortedSet, run).unwrap();
        assert_eq!(set.scored().is_ok(), is_good, "{value:?}");
        assert_eq!(set.get(b"m").is_ok(), is_good, "{value:?}");
    }
    let mut run = packed::empty(0);
    packed::push(&mut run, &[b"m"]);
    assert!(PackedMap::of(Shape::SortedSet, run).is_err());
}

#[test]
fn thresholds_are_those_that_it_was_made_with() {
    let kind = |shape, entries, bytes| Kind { shape, compact: Compact { entries, bytes } };
    let mut hash = PackedMap::empty(kind(Shape::Hash, 2, 3));
    hash.insert_all([(&b"a"[..], &b"123"[..]), (b"b", b"")].into_iter()).unwrap();
    assert_eq!(hash.encoding(), Encoding::Listpack);
    let mut other = hash.clone();
    other.insert(b"c", b"").unwrap();
    assert_eq!(other.encoding(), Encoding::Hashtable);
    hash.insert(b"a", b"1234").unwrap();
    assert_eq!(hash.encoding(), Encoding::Hashtable);

    let mut set = PackedMap::empty(kind(Shape::Set, 1, 0));
    set.insert(b"100", b"").unwrap();
    assert_eq!(set.encoding(), Encoding::Intset);
    set.insert(b"2", b"").unwrap();
    assert_eq!(set.encoding(), Encoding::Hashtable);
    let members = vec![&b"2"[..], b"1"];
    assert_eq!(PackedMap::set_of(kind(Shape::Set, 1, 0), members.clone()).encoding(), Encoding::Hashtable);
    assert_eq!(PackedMap::set_of(kind(Shape::Set, 2, 0), members).encoding(), Encoding::Intset);

    // Only a member's bytes count, not those of its score.
    let one = || vec![(&b"m"[..], 1.5)];
    let made = |entries, bytes| PackedMap::sorted_set_of(kind(Shape::SortedSet, entries, bytes), one());
    assert_eq!(made(1, 1).encoding(), Encoding::Listpack);
    assert_eq!(made(1, 0).encoding(), Encoding::Skiplist);
    assert_eq!(made(0, 1).encoding(), Encoding::Skiplist);
    let mut set = made(1, 1);
    set.insert(b"n", &2.5f64.to_le_bytes()).unwrap();
    assert_eq!(set.encoding(), Encoding::Skiplist);
}
