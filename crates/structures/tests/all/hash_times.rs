//! Fields with expiry times against a model, with a clock of its own: packed and large hashes, converted and not, over
//! copies, dumps, renames and opens.

use crate::support::store;
use duramen::{MediumKind, Options};
use duramen_structures::dump::{Restored, restore, signed};
use duramen_structures::{Compact, Encoding, Error, Keyspace, Locks, Thresholds, Txn, Worker};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const KEY: &[u8] = b"h";
// Beyond the time of the store itself, which is the floor of every time.
const START: u64 = 4_000_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u8),
    SetKept(u8, u8),
    SetUntil(u8, u8, u64),
    Expire(u8, Option<u64>),
    Remove(u8),
    RemoveOver(Vec<u8>),
    /// The clock goes on, or back.
    Clock(i64),
    Copy,
    Rename,
    Dump,
    Open,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let field = || 0u8..12;
    prop_oneof![
        4 => (field(), any::<u8>()).prop_map(|(field, value)| Step::Set(field, value)),
        2 => (field(), any::<u8>()).prop_map(|(field, value)| Step::SetKept(field, value)),
        3 => (field(), any::<u8>(), 1u64..60).prop_map(|(field, value, after)| Step::SetUntil(field, value, after)),
        4 => (field(), prop::option::weighted(0.8, 1u64..60)).prop_map(|(field, after)| Step::Expire(field, after)),
        2 => field().prop_map(Step::Remove),
        2 => prop::collection::vec(field(), 1..12).prop_map(Step::RemoveOver),
        4 => (0i64..40).prop_map(Step::Clock),
        1 => (-60i64..0).prop_map(Step::Clock),
        1 => Just(Step::Copy),
        1 => Just(Step::Rename),
        1 => Just(Step::Dump),
        1 => Just(Step::Open),
        1 => Just(Step::Kill),
    ]
}

fn name(field: u8) -> Vec<u8> {
    format!("field-{field}").into_bytes()
}

fn text(value: u8) -> Vec<u8> {
    vec![b'a' + value % 26; usize::from(value) % 40]
}

/// What a hash is.
#[derive(Default)]
struct Model {
    fields: BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>,
    now: u64,
    /// The greatest time that was seen to be over.
    floor: u64,
}

impl Model {
    fn is_over(&self, at: Option<u64>) -> bool {
        at.is_some_and(|at| at <= self.now.max(self.floor))
    }

    fn shown(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
        self.fields
            .iter()
            .filter(|(_, (_, at))| !self.is_over(*at))
            .map(|(f, v)| (f.clone(), v.clone()))
            .collect()
    }

    fn expiry(&self, field: &[u8]) -> Option<Option<u64>> {
        self.fields.get(field).map(|(_, at)| *at).filter(|at| !self.is_over(*at))
    }

    /// All is read: what is over stays so.
    fn seen(&mut self) {
        let over = self.fields.values().filter_map(|(_, at)| *at).filter(|at| self.is_over(Some(*at))).max();
        self.floor = self.floor.max(over.unwrap_or(0));
    }
}

fn on<T>(worker: &mut Worker, now: u64, commands: impl FnMut(&mut Txn<'_>) -> Result<T, Error>) -> T {
    worker.run(now, Locks::All, commands).unwrap()
}

/// Reads all by every means.
fn check(worker: &mut Worker, model: &Model) {
    on(worker, model.now, |txn| {
        let Some(hash) = txn.hash(0, KEY)? else {
            assert!(model.fields.is_empty(), "it is gone");
            return Ok(());
        };
        assert!(!model.fields.is_empty(), "a hash of nothing");
        let shown = model.shown();
        assert_eq!((hash.len(), hash.shown()?), (model.fields.len(), shown.len()));
        for field in (0..12).map(name) {
            assert_eq!(hash.expiry(&field)?, model.expiry(&field));
            let value = shown.get(&field).map(|(value, _)| value.clone());
            assert_eq!(hash.get(&field)?.map(|value| value.to_vec()), value);
        }
        let pairs: BTreeMap<_, _> =
            shown.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect();
        let mut visited = Vec::new();
        hash.visit(|field, value| {
            visited.push((field.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        if hash.encoding() == Encoding::ListpackEx {
            let times: Vec<_> = visited.iter().map(|(field, _)| shown[field].1.unwrap_or(u64::MAX)).collect();
            assert!(times.is_sorted(), "the first to go comes first: {times:?}");
        }
        assert_eq!(visited.len(), pairs.len());
        assert_eq!(visited.into_iter().collect::<BTreeMap<_, _>>(), pairs);
        let timed = hash.timed()?.into_iter().map(|(field, value, at)| (field, (value, at)));
        assert_eq!(timed.collect::<BTreeMap<_, _>>(), shown);
        let (mut scanned, mut cursor) = (BTreeMap::new(), 0);
        loop {
            cursor = hash.scan(cursor, 3, |field, value| {
                scanned.insert(field.to_vec(), value.to_vec());
            })?;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(scanned, pairs);
        for count in 0..=hash.len() {
            let mut drawn = BTreeMap::new();
            let mut draws = 0;
            hash.sample(count, |field, value| {
                draws += 1;
                drawn.insert(field.to_vec(), value.to_vec());
            })?;
            assert_eq!((draws, drawn.len()), (count.min(pairs.len()), count.min(pairs.len())));
            assert!(drawn.iter().all(|(field, value)| pairs.get(field) == Some(value)));
        }
        let mut left = 5;
        hash.draw(|field, value| {
            assert_eq!(pairs.get(field).map(Vec::as_slice), Some(value));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        assert_eq!(left == 0, !pairs.is_empty());
        Ok(())
    });
}

fn apply(worker: &mut Worker, model: &mut Model, step: &Step) {
    let now = model.now;
    match step {
        Step::Clock(by) => model.now = now.saturating_add_signed(*by),
        Step::Set(field, value) | Step::SetKept(field, value) | Step::SetUntil(field, value, _) => {
            let (field, value) = (name(*field), text(*value));
            let is_new = on(worker, now, |txn| {
                let mut hash = txn.edit_hash(0, KEY)?;
                let is_new = match step {
                    Step::SetKept(..) => hash.insert_kept(&field, &value)?,
                    Step::SetUntil(.., after) => hash.insert_until(&field, &value, Some(now + after))?,
                    _ => hash.insert(&field, &value)?,
                };
                hash.save()?;
                Ok(is_new)
            });
            assert_eq!(is_new, !model.fields.contains_key(&field));
            let at = match step {
                Step::SetKept(..) => model.expiry(&field).flatten(),
                Step::SetUntil(.., after) => Some(now + after),
                _ => None,
            };
            model.fields.insert(field, (value, at));
        }
        Step::Expire(field, after) => {
            let (field, at) = (name(*field), after.map(|after| now + after));
            let is_there = model.expiry(&field).is_some();
            on(worker, now, |txn| {
                let mut hash = txn.edit_hash(0, KEY)?;
                assert_eq!(hash.expiry(&field)?.is_some(), is_there);
                if is_there {
                    hash.set_expiry(&[&field], at)?;
                    hash.save()?;
                }
                Ok(())
            });
            if let Some(found) = model.fields.get_mut(&field).filter(|_| is_there) {
                found.1 = at;
            }
        }
        Step::Remove(field) => {
            let field = name(*field);
            let removed = on(worker, now, |txn| {
                let mut hash = txn.edit_hash(0, KEY)?;
                let removed = hash.remove(&field)?;
                hash.save()?;
                Ok(removed)
            });
            assert_eq!(removed, model.fields.remove(&field).is_some());
        }
        Step::RemoveOver(fields) => {
            let fields: Vec<_> = fields.iter().map(|field| name(*field)).collect();
            let removed = on(worker, now, |txn| {
                let mut hash = txn.edit_hash(0, KEY)?;
                let removed = hash.remove_over(fields.iter().map(Vec::as_slice))?;
                hash.save()?;
                Ok(removed)
            });
            let before = model.fields.len();
            let over: Vec<_> = fields
                .iter()
                .filter(|f| model.fields.contains_key(*f) && model.expiry(f).is_none())
                .collect();
            over.iter().for_each(|field| drop(model.fields.remove(*field)));
            assert_eq!(removed, before - model.fields.len());
        }
        Step::Copy | Step::Rename => on(worker, now, |txn| {
            if txn.exists(0, KEY)? {
                if matches!(step, Step::Copy) {
                    assert!(txn.copy(0, KEY, 1, b"copy")?);
                    txn.delete(0, KEY)?;
                } else {
                    assert!(txn.rename(0, KEY, 1, b"copy")?);
                }
                assert!(txn.rename(1, b"copy", 0, KEY)?);
            }
            Ok(())
        }),
        Step::Dump => {
            on(worker, now, |txn| {
                let dumped = txn.dumped(0, KEY)?.map(|(value, _)| signed(value));
                let restored = match dumped {
                    Some(payload) => restore(&payload, u64::MAX)?,
                    None => Restored::Hash(Vec::new()),
                };
                txn.put_restored(0, KEY, &restored, None)
            });
            // What is over is not written.
            model.fields = model.shown();
        }
        Step::Open | Step::Kill => {}
    }
}

fn run(steps: &[Step], packed: usize, entries: usize) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let open = |at: usize| {
        let options = Options { medium: MediumKind::Shm, ..Options::default() };
        let store = options.open(dir.path().join(format!("store-{at}"))).unwrap();
        let keyspace = Keyspace::open(store, 2).unwrap();
        keyspace.set_small_collection_bytes_max(packed);
        let hash = Compact { entries, bytes: 64 };
        keyspace.set_thresholds(Thresholds { hash, ..Thresholds::default() });
        keyspace
    };
    let (mut kills, mut keyspace) = (0, open(0));
    let mut worker = keyspace.worker().unwrap();
    let mut model = Model { now: START, ..Model::default() };
    for step in steps {
        match step {
            // That the clock is set back too is not promised.
            Step::Clock(by) if *by < 0 && kills > 0 => continue,
            Step::Open => {
                drop(worker);
                drop(keyspace);
                keyspace = open(kills);
                worker = keyspace.worker().unwrap();
            }
            Step::Kill => {
                let at = |at| dir.path().join(format!("store-{at}"));
                std::fs::copy(at(kills), at(kills + 1)).unwrap();
                kills += 1;
                model.now = model.now.max(model.floor);
                drop(worker);
                drop(keyspace);
                keyspace = open(kills);
                worker = keyspace.worker().unwrap();
            }
            _ => {}
        }
        apply(&mut worker, &mut model, step);
        check(&mut worker, &model);
        model.seen();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn fields_with_times_are_what_a_model_says(
        steps in prop::collection::vec(step(), 1..60), packed in prop::sample::select(vec![0usize, 150, 100_000]),
        entries in prop::sample::select(vec![0usize, 4, 512]),
    ) {
        run(&steps, packed, entries);
    }
}

#[test]
fn an_overdue_field_stays_over_when_the_clock_is_set_back_and_the_store_opened_again() {
    let until = Step::SetUntil(1, 1, 50);
    run(&[Step::Set(0, 1), until, Step::Clock(100), Step::Open, Step::Clock(-90), Step::Open], 150, 512);
}

#[test]
fn a_field_too_long_for_an_element_has_no_time_beside_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let keyspace = Keyspace::open(store(MediumKind::Shm, &dir), 2).unwrap();
    let mut worker = keyspace.worker().unwrap();
    let long = vec![b'x'; 70_000];
    on(&mut worker, START, |txn| {
        let mut hash = txn.edit_hash(0, KEY)?;
        hash.insert(&long, b"v")?;
        hash.insert(b"f", b"v")?;
        assert!(matches!(hash.set_expiry(&[b"f"], Some(START + 5)), Err(Error::FieldTooLong)));
        hash.save()?;
        let mut hash = txn.edit_hash(0, b"timed")?;
        hash.insert_until(b"f", b"v", Some(START + 5))?;
        assert!(matches!(hash.insert(&long, b"v"), Err(Error::FieldTooLong)));
        hash.save()
    });
    on(&mut worker, START, |txn| {
        assert_eq!(txn.hash(0, KEY)?.unwrap().expiry(b"f")?, Some(None));
        assert_eq!(
            txn.hash(0, b"timed")?.unwrap().timed()?,
            [(b"f".to_vec(), b"v".to_vec(), Some(START + 5))]
        );
        assert!(txn.has_timed_hashes(0)? && !txn.has_timed_hashes(1)?);
        Ok(())
    });
}
