//! Streams against a model, and against untrusted bytes.

use super::*;
use crate::Error;
use crate::dump::{self, Restored};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMITS: NodeLimits = NodeLimits { bytes: 4096, entries: 100 };
const BYTES_MAX: u64 = 1 << 30;

const fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

/// An entry for each of these milliseconds, with one field.
fn stream_of(times: impl IntoIterator<Item = u64>, limits: NodeLimits) -> Stream<Vec<u8>> {
    let mut stream = Stream::empty();
    for ms in times {
        stream.append(id(ms, 0), &[b"field", ms.to_string().as_bytes()], limits).unwrap();
    }
    stream
}

fn ids<B: Deref<Target = [u8]>>(stream: &Stream<B>) -> Vec<u64> {
    between(stream, StreamId::MIN, StreamId::MAX, false).into_iter().map(|(id, _)| id.ms).collect()
}

type Strings = Vec<Vec<u8>>;

fn between<B: Deref<Target = [u8]>>(
    stream: &Stream<B>,
    from: StreamId,
    to: StreamId,
    is_descending: bool,
) -> Vec<(StreamId, Strings)> {
    let mut found = Vec::new();
    let visited = stream.visit(from, to, is_descending, |entry| {
        found.push((
            entry.id,
            entry.pairs().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect(),
        ));
        ControlFlow::Continue(())
    });
    visited.unwrap();
    found
}

fn reopened(stream: Stream<Vec<u8>>) -> Stream<Vec<u8>> {
    Stream::of(stream.into_run()).unwrap()
}

#[test]
fn a_new_stream_has_only_its_head() {
    let run = Stream::empty().into_run();
    assert_eq!(run.len(), HEAD_BYTES);
    let stream = Stream::of(run).unwrap();
    assert_eq!((stream.len(), stream.last_id(), stream.node_ids().unwrap()), (0, StreamId::MIN, vec![]));
    assert_eq!(stream.groups().unwrap().iter().len(), 0);
}

#[test]
fn a_node_equals_the_listpack_of_redis() {
    // XADD s 5-1 f v; XADD s 5-2 f w; XADD s 6-0 g x y 2; XDEL s 5-2; DUMP s.
    let mut stream = Stream::empty();
    stream.append(id(5, 1), &[b"f", b"v"], LIMITS).unwrap();
    stream.append(id(5, 2), &[b"f", b"w"], LIMITS).unwrap();
    stream.append(id(6, 0), &[b"g", b"x", b"y", b"2"], LIMITS).unwrap();
    assert_eq!(stream.delete(&[id(5, 2)]).unwrap(), 1);
    let mut packs = Vec::new();
    stream.visit_nodes(|id, pack| packs.push((id, pack.to_vec()))).unwrap();
    let pack = b"\x3e\0\0\0\x18\0\x02\x01\x01\x01\x01\x01\x81f\x02\0\x01\
        \x02\x01\0\x01\0\x01\x81v\x02\x04\x01\
        \x03\x01\0\x01\x01\x01\x81w\x02\x04\x01\
        \0\x01\x01\x01\xdf\xff\x02\x02\x01\x81g\x02\x81x\x02\x81y\x02\x02\x01\x08\x01\xff";
    assert_eq!(packs, [(id(5, 1), pack.to_vec())]);
}

#[test]
fn a_node_ends_with_its_hundredth_entry_or_4096_bytes() {
    let nodes = |stream: &Stream<Vec<u8>>| stream.node_ids().unwrap().len();
    assert_eq!(nodes(&stream_of(1..=100, LIMITS)), 1);
    assert_eq!(nodes(&stream_of(1..=101, LIMITS)), 2);
    let no_limits = NodeLimits { bytes: 0, entries: 0 };
    assert_eq!(nodes(&stream_of(1..=500, no_limits)), 1);
    let mut long = Stream::empty();
    for (ms, wanted) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        long.append(id(ms, 0), &[b"f", &[b'x'; 1300]], LIMITS).unwrap();
        assert_eq!(nodes(&long), wanted);
    }
}

#[test]
fn deleted_entries_count_for_the_limit_of_their_node_and_a_node_of_none_goes() {
    let mut stream = stream_of(1..=100, LIMITS);
    assert_eq!(stream.delete(&(2..=100).map(|ms| id(ms, 0)).collect::<Vec<_>>()).unwrap(), 99);
    stream.append(id(101, 0), &[b"field", b"v"], LIMITS).unwrap();
    assert_eq!((ids(&stream), stream.node_ids().unwrap().len()), (vec![1, 101], 2));
    assert_eq!(stream.delete(&[id(1, 0), id(1, 0), id(7, 7)]).unwrap(), 1);
    assert_eq!((ids(&stream), stream.node_ids().unwrap().len()), (vec![101], 1));
    assert_eq!((stream.first_id(), stream.deleted_id()), (id(101, 0), id(100, 0)));
    assert_eq!(stream.delete(&[id(101, 0)]).unwrap(), 1);
    assert_eq!((stream.len(), stream.first_id(), stream.last_id()), (0, StreamId::MIN, id(101, 0)));
    assert_eq!(stream.added(), 101);
    let stream = reopened(stream);
    stream.check().unwrap();
}

#[test]
fn trimming_by_whole_nodes_keeps_a_node_that_would_be_split() {
    let stream = stream_of(1..=350, LIMITS);
    for (trim, whole_nodes, most, removed) in [
        (Trim::Len(120), false, 0, 230),
        (Trim::Len(120), true, 0, 200),
        (Trim::Len(120), true, 150, 100),
        (Trim::Len(120), true, 99, 0),
        (Trim::Len(0), false, 0, 350),
        (Trim::Len(0), true, 0, 350),
        (Trim::Len(350), false, 0, 0),
        (Trim::Len(1000), false, 0, 0),
        (Trim::From(id(101, 0)), true, 0, 100),
        (Trim::From(id(201, 0)), false, 0, 200),
        (Trim::From(id(250, 1)), false, 0, 250),
        (Trim::From(id(250, 1)), true, 0, 200),
        (Trim::From(StreamId::MAX), false, 0, 350),
        (Trim::From(StreamId::MIN), false, 0, 0),
    ] {
        let mut stream = stream.clone();
        assert_eq!(stream.trim(trim, whole_nodes, most).unwrap(), removed, "{trim:?} {whole_nodes} {most}");
        let stream = reopened(stream);
        stream.check().unwrap();
        assert_eq!(ids(&stream), (removed + 1..=350).collect::<Vec<_>>());
        let first = if removed == 350 { StreamId::MIN } else { id(removed + 1, 0) };
        // Trimmed entries are not deleted ones: Redis distinguishes them.
        assert_eq!((stream.first_id(), stream.deleted_id()), (first, StreamId::MIN));
        assert_eq!((stream.added(), stream.last_id()), (350, id(350, 0)));
    }
}

#[test]
fn entries_are_found_from_either_end_and_across_nodes() {
    let mut stream = stream_of((1..=350).map(|ms| ms * 2), LIMITS);
    stream.delete(&[id(200, 0), id(202, 0)]).unwrap();
    let found = |from, to, is_descending| -> Vec<u64> {
        between(&stream, from, to, is_descending).into_iter().map(|(id, _)| id.ms).collect()
    };
    assert_eq!(found(id(197, 0), id(205, 0), false), [198, 204]);
    assert_eq!(found(id(197, 0), id(205, 0), true), [204, 198]);
    assert_eq!(found(id(698, 1), StreamId::MAX, false), [700]);
    assert_eq!(found(StreamId::MIN, id(2, 0), true), [2]);
    assert_eq!(found(id(205, 0), id(197, 0), false), [0u64; 0]);
    assert_eq!(found(StreamId::MIN, StreamId::MAX, true).len(), 348);
    assert_eq!(stream.last_entry_id().unwrap(), Some(id(700, 0)));
}

#[test]
fn groups_are_ordered_by_name_and_move_no_entry() {
    let mut stream = stream_of(1..=150, LIMITS);
    let mut groups = Groups::default();
    for name in [&b"b"[..], b"a", b"", &[b'x'; 300]] {
        let group = groups.create(name, id(3, 0), Some(3)).unwrap();
        let (first, is_new) = group.see_consumer(b"one", 100);
        assert!(is_new && group.see_consumer(b"one", 101) == (first, false));
        let second = group.create_consumer(b"another", 102).unwrap();
        assert!(group.create_consumer(b"one", 103).is_none());
        for (ms, consumer) in [(1, first), (2, second), (3, first)] {
            let pending = Pending { consumer, delivered_at: 7, deliveries: 1 };
            assert!(group.add_pending(id(ms, 0), pending) && !group.add_pending(id(ms, 0), pending));
        }
    }
    assert!(groups.create(b"a", StreamId::MIN, None).is_none());
    stream.set_groups(&groups);
    let mut stream = reopened(stream);
    let mut groups = stream.groups().unwrap();
    let names: Vec<&[u8]> = groups.iter().map(Group::name).collect();
    assert_eq!(names, [&b""[..], b"a", b"b", &[b'x'; 300]]);
    // By name, with indexes that give the order of creation.
    let group = groups.get_mut(b"a").unwrap();
    let report =
        |(number, it): &(u32, &Consumer)| (*number, it.name().to_vec(), it.seen_at(), it.pending_len());
    let consumers: Vec<_> = group.consumers().iter().map(report).collect();
    assert_eq!(consumers, [(1, b"another".to_vec(), 102, 1), (0, b"one".to_vec(), 101, 2)]);
    // The consumers after a removed one keep their pending entries.
    assert_eq!(group.pending_len(), 3);
    for id in [id(1, 0), id(3, 0)] {
        group.change_pending(id, group.known(id).unwrap(), None);
    }
    group.remove_consumer(0);
    let pending: Vec<_> = group.known_from(StreamId::MIN).collect();
    assert_eq!(pending, [(id(2, 0), Some(Pending { consumer: 1, delivered_at: 7, deliveries: 1 }))]);
    assert_eq!(group.consumer(1).unwrap().name(), b"another");
    group.change_pending(id(2, 0), pending[0].1, None);
    assert_eq!((group.pending_len(), group.known(id(2, 0))), (0, Some(None)));
    assert!(groups.remove(b"b").is_some() && groups.remove(b"b").is_none());
    stream.set_groups(&groups);
    stream.append(id(151, 0), &[b"field", b"v"], LIMITS).unwrap();
    let stream = reopened(stream);
    stream.check().unwrap();
    assert_eq!(stream.groups().unwrap().encoded(), groups.encoded());
    assert_eq!(ids(&stream), (1..=151).collect::<Vec<_>>());
}

#[test]
fn the_lag_of_a_group_is_given_only_where_it_is_known() {
    let mut groups = Groups::default();
    let mut stream = stream_of(1..=10, LIMITS);
    let group = groups.create(b"g", StreamId::MIN, None).unwrap();
    // From before the first, up to the first, and from the last on it is known; between it is not.
    for (last, lag) in [(0, Some(10)), (1, Some(9)), (5, None), (10, Some(0)), (11, None)] {
        (group.last_id, group.entries_read) = (id(last, 0), None);
        assert_eq!(stream.lag(group), lag, "{last}");
    }
    group.last_id = StreamId::MIN;
    for ms in 1..=4 {
        stream.read_by(group, id(ms, 0));
    }
    assert_eq!((group.entries_read, stream.lag(group), group.last_id), (Some(4), Some(6), id(4, 0)));
    // A removal after the group's position: the count is unknown.
    stream.delete(&[id(7, 0)]).unwrap();
    assert_eq!(stream.lag(group), None);
    // Trimmed beyond that it is known again.
    stream.trim(Trim::From(id(8, 0)), false, 0).unwrap();
    assert_eq!(stream.lag(group), Some(6));
    stream.trim(Trim::Len(0), false, 0).unwrap();
    assert_eq!(stream.lag(group), Some(6));
}

#[test]
fn a_malformed_stream_is_an_error_with_its_place() {
    let why = |run: &[u8]| Stream::of(run).unwrap_err().to_string();
    assert_eq!(why(b""), "at byte 0: it ends within its head");
    let good = stream_of(1..=3, LIMITS).into_run();
    let mut bad = good.clone();
    bad[0] = 2;
    assert_eq!(why(&bad), "at byte 0: its form is not one that this version knows");
    bad = good.clone();
    bad[GROUPS_BYTES_AT] = 255;
    assert!(why(&bad).contains("its last node is not in it"), "{}", why(&bad));
    let mut with_tail = good.clone();
    with_tail.push(0);
    let mut stream = Stream::of(with_tail).unwrap();
    let error = stream.append(id(9, 0), &[b"f", b"v"], LIMITS).unwrap_err();
    assert!(error.to_string().contains("it has bytes after its last node"), "{error}");
}

#[derive(Clone, Debug)]
enum Op {
    Add { step: u64, seq: u64, pairs: Vec<(u8, usize)> },
    Delete(Vec<usize>),
    Trim { left: u64, from: Option<usize>, whole_nodes: bool },
    Groups(u8, Vec<(usize, bool)>),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let pairs = prop::collection::vec((0u8..4, prop_oneof![9 => 0usize..10, 1 => 300usize..2000]), 1..4);
    prop_oneof![
        10 => (0u64..3, any::<u64>(), pairs).prop_map(|(step, seq, pairs)| Op::Add { step, seq, pairs }),
        2 => prop::collection::vec(any::<usize>(), 1..5).prop_map(Op::Delete),
        1 => (0u64..40, prop::option::of(any::<usize>()), any::<bool>())
            .prop_map(|(left, from, whole_nodes)| Op::Trim { left, from, whole_nodes }),
        1 => (0u8..4, prop::collection::vec((any::<usize>(), any::<bool>()), 0..6))
            .prop_map(|(name, pending)| Op::Groups(name, pending)),
        1 => Just(Op::Reopen),
    ]
}

fn limits() -> impl Strategy<Value = NodeLimits> {
    (prop::sample::select(&[0usize, 100, 4096][..]), prop::sample::select(&[0u64, 1, 3, 100][..]))
        .prop_map(|(bytes, entries)| NodeLimits { bytes, entries })
}

/// A stream that these steps make, and its expected content.
fn played(ops: &[Op], limits: NodeLimits) -> (Stream<Vec<u8>>, BTreeMap<StreamId, Strings>) {
    let (mut stream, mut model) = (Stream::empty(), BTreeMap::<StreamId, Strings>::new());
    let some =
        |model: &BTreeMap<StreamId, Strings>, at: usize| model.keys().nth(at % model.len().max(1)).copied();
    let (mut deleted, mut added) = (StreamId::MIN, 0);
    for op in ops {
        match op {
            Op::Add { step, seq, pairs } => {
                let last = stream.last_id();
                let next = match step {
                    0 => last.next().unwrap(),
                    step => id(last.ms + step, *seq),
                };
                let strings: Strings = pairs
                    .iter()
                    .flat_map(|(name, len)| [vec![b'a' + name], len.to_string().repeat(*len).into_bytes()])
                    .collect();
                stream.append(next, &strings.iter().map(Vec::as_slice).collect::<Vec<_>>(), limits).unwrap();
                model.insert(next, strings);
                added += 1;
            }
            Op::Delete(places) => {
                let going: Vec<StreamId> = places.iter().filter_map(|at| some(&model, *at)).collect();
                let before = model.len();
                for id in &going {
                    deleted = deleted.max(*id);
                    model.remove(id);
                }
                assert_eq!(stream.delete(&going).unwrap(), (before - model.len()) as u64);
            }
            Op::Trim { left, from, whole_nodes } => {
                let trim = match from.and_then(|at| some(&model, at)) {
                    Some(from) => Trim::From(from),
                    None => Trim::Len(*left),
                };
                let removed = stream.trim(trim, *whole_nodes, 0).unwrap() as usize;
                let goes = match trim {
                    Trim::Len(left) => model.len().saturating_sub(left as usize),
                    Trim::From(from) => model.range(..from).count(),
                };
                assert!(if *whole_nodes { removed <= goes } else { removed == goes });
                model = model.into_iter().skip(removed).collect();
            }
            Op::Groups(name, pending) => {
                let mut groups = stream.groups().unwrap();
                if groups.remove(&[*name; 3]).is_none() {
                    let group = groups.create(&[*name; 3], stream.last_id(), Some(3)).unwrap();
                    let consumers = [b"x", b"y"].map(|name| group.see_consumer(name, 5).0);
                    for (at, which) in pending {
                        let Some(id) = some(&model, *at) else { continue };
                        let consumer = consumers[usize::from(*which)];
                        group.add_pending(id, Pending { consumer, delivered_at: 9, deliveries: 2 });
                    }
                }
                stream.set_groups(&groups);
                assert_eq!(stream.groups().unwrap().encoded(), groups.encoded());
            }
            Op::Reopen => stream = reopened(stream),
        }
        assert_eq!(stream.len(), model.len() as u64);
        assert_eq!((stream.added(), stream.deleted_id()), (added, deleted));
        assert_eq!(stream.first_id(), model.keys().next().copied().unwrap_or_default());
    }
    (stream, model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_is_changed_as_a_map_is(
        ops in prop::collection::vec(op(), 0..60), limits in limits(), ends in (any::<usize>(), any::<usize>()),
    ) {
        let (stream, model) = played(&ops, limits);
        let stream = reopened(stream);
        prop_assert!(stream.check().is_ok());
        let entries: Vec<_> = model.clone().into_iter().collect();
        prop_assert_eq!(&between(&stream, StreamId::MIN, StreamId::MAX, false), &entries);
        let backwards: Vec<_> = entries.iter().rev().cloned().collect();
        prop_assert_eq!(&between(&stream, StreamId::MIN, StreamId::MAX, true), &backwards);
        prop_assert_eq!(stream.last_entry_id().unwrap(), entries.last().map(|(id, _)| *id));
        if !entries.is_empty() {
            let (from, to) = (entries[ends.0 % entries.len()].0, entries[ends.1 % entries.len()].0);
            if from <= to {
                let part: Vec<_> = model.range(from..=to).map(|(id, it)| (*id, it.clone())).collect();
                prop_assert_eq!(between(&stream, from, to, false), part);
            }
        }
    }

    #[test]
    fn a_stream_that_is_dumped_is_restored(ops in prop::collection::vec(op(), 0..40), limits in limits()) {
        let (stream, _) = played(&ops, limits);
        let payload = dump::signed(dump::stream(&stream).unwrap());
        let restored = dump::restore(&payload, BYTES_MAX).unwrap();
        prop_assert_eq!(restored, Restored::Stream(stream.into_run()));
    }

    #[test]
    fn damage_of_a_record_is_an_error_or_another_stream(
        ops in prop::collection::vec(op(), 1..30), limits in limits(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4), cut in prop::option::of(any::<usize>()),
    ) {
        let (stream, _) = played(&ops, limits);
        let last = stream.last_id();
        let mut run = stream.into_run();
        for (at, byte) in damage {
            let at = at % run.len();
            run[at] = byte;
        }
        if let Some(cut) = cut {
            run.truncate(cut % run.len());
        }
        let Ok(stream) = Stream::of(run) else { return Ok(()) };
        let _ = (stream.groups(), stream.check(), stream.node_ids(), dump::stream(&stream));
        for is_descending in [false, true] {
            let _ = stream.visit(StreamId::MIN, StreamId::MAX, is_descending, |entry| {
                entry.pairs().for_each(drop);
                ControlFlow::Continue(())
            });
        }
        if let Ok(mut groups) = stream.groups() {
            groups.iter().for_each(|group| {
                let _ = (stream.lag(group), group.pending_len(), group.consumers());
            });
            let names: Vec<_> = groups.iter().map(|group| group.name().to_vec()).collect();
            for name in names {
                let group = groups.get_mut(&name).unwrap();
                stream.read_by(group, last);
                let pending: Vec<_> = group.known_from(StreamId::MIN).collect();
                pending.into_iter().for_each(|(id, old)| group.change_pending(id, old, None));
                if let Some(at) = group.find_consumer(b"x") {
                    group.remove_consumer(at);
                }
            }
        }
        let _ = stream.clone().append(last.next().unwrap_or(last), &[b"f", b"v"], limits);
        let _ = stream.clone().delete(&[last, id(1, 0)]);
        for trim in [Trim::Len(1), Trim::From(last)] {
            let _ = stream.clone().trim(trim, false, 0);
            let _ = stream.clone().trim(trim, true, 2);
        }
    }

    #[test]
    fn damage_of_a_payload_is_an_error_or_a_whole_stream(
        ops in prop::collection::vec(op(), 1..20), limits in limits(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3), rdb_type in prop::sample::select(&[15u8, 19, 21][..]),
    ) {
        let (stream, _) = played(&ops, limits);
        let mut value = dump::stream(&stream).unwrap();
        for (at, byte) in damage {
            let at = at % value.len();
            value[at] = byte;
        }
        value[0] = rdb_type;
        match dump::restore(&dump::signed(value), BYTES_MAX) {
            Ok(Restored::Stream(run)) => {
                let stream = Stream::of(run).unwrap();
                stream.check().unwrap();
                stream.groups().unwrap();
            }
            Ok(other) => panic!("{other:?}"),
            Err(Error::DumpFormat) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
