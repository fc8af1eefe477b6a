//! Several threads on one store: the short form of the scheduled runs, and the schedule itself.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen::tuning::Tuning;
use duramen::{Batch, Durability, ErrorKind, Options, StoreOn, Swap};
use duramen_crash::Case;
use duramen_crash::setup::{CASES, Change};
use duramen_crash::threads::plan::{Kind, Op};
use duramen_crash::threads::touch::{Touch, Way};
use duramen_crash::threads::{Counts, Plan, run_plan, scheduled};
use duramen_media::sim::schedule::{self, Point, Report, Settings, Strategy};
use duramen_media::sim::{Log, Model, SimMedium};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// One run at a time: all threads of the process together decide when memory is reclaimed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(seed: u64, strategy: Strategy) -> Settings {
    Settings { seed, strategy, steps_max: 10_000 }
}

const WALK: Strategy = Strategy::Walk { one_in: 2 };

/// Two threads increment a number by a read and a write. Returns the number of increments and the result.
fn racing(seed: u64, strategy: Strategy) -> (Report, u64) {
    let number = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&number);
    let report = schedule::run(&settings(seed, strategy), move || {
        let adders: Vec<_> = (0..2)
            .map(|_| {
                let number = Arc::clone(&theirs);
                schedule::spawn("adder", move || {
                    for _ in 0..3 {
                        let seen = number.load(Relaxed);
                        schedule::point(Point::Other, seen);
                        number.store(seen + 1, Relaxed);
                        schedule::point(Point::Other, seen + 1);
                    }
                })
                .unwrap_or_else(|_| panic!("no schedule"))
            })
            .collect();
        adders.iter().for_each(schedule::Spawned::join);
    });
    (report, number.load(Relaxed))
}

#[test]
fn a_schedule_repeats_by_its_seed_and_another_seed_gives_another() {
    let _alone = alone();
    for strategy in [WALK, Strategy::Priorities { depth: 3, steps: 20 }] {
        let mut sums = std::collections::BTreeSet::new();
        let mut digests = std::collections::BTreeSet::new();
        for seed in 0..60 {
            let (first, sum) = racing(seed, strategy);
            let (second, again) = racing(seed, strategy);
            assert_eq!((first.digest, first.steps, sum), (second.digest, second.steps, again));
            assert_eq!(first.failure, None);
            sums.insert(sum);
            digests.insert(first.digest);
        }
        assert!(sums.contains(&6) && sums.len() > 2, "{strategy:?} loses updates in several ways: {sums:?}");
        assert!(digests.len() > 10, "{strategy:?}: {} schedules", digests.len());
    }
}

#[test]
fn a_deadlock_is_reported_with_what_each_thread_did() {
    let _alone = alone();
    let report = schedule::run(&settings(1, WALK), || {
        schedule::say("waits for nobody");
        let _ = schedule::block(7);
    });
    let failure = report.failure.unwrap();
    assert!(failure.starts_with("deadlock") && failure.contains("waits for nobody"), "{failure}");
}

#[test]
fn a_livelock_is_reported_and_ended() {
    let _alone = alone();
    let report = schedule::run(&settings(1, WALK), || while schedule::relax() {});
    let failure = report.failure.unwrap();
    assert!(failure.starts_with("livelock: no end after 10000 steps"), "{failure}");
}

#[test]
fn a_panic_of_one_thread_is_reported_and_ends_the_others() {
    let _alone = alone();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let report = schedule::run(&settings(1, WALK), || {
        let other = schedule::spawn("other", || while schedule::relax() {});
        schedule::say("adding");
        assert!(other.is_err(), "one and one");
    });
    std::panic::set_hook(hook);
    let failure = report.failure.unwrap();
    assert!(failure.contains("one and one") && failure.contains("adding"), "{failure}");
    assert_eq!(report.threads, 2);
}

#[test]
fn sleepers_wake_in_simulated_time() {
    let _alone = alone();
    let slept = Arc::new(OnceLock::new());
    let reported = Arc::clone(&slept);
    let began = std::time::Instant::now();
    let report = schedule::run(&settings(1, WALK), move || {
        let before = schedule::now().unwrap();
        assert!(schedule::sleep(Duration::from_secs(3600)));
        reported.set(schedule::now().unwrap() - before).unwrap();
    });
    assert_eq!(report.failure, None);
    assert!(slept.get().unwrap().as_secs() >= 3600);
    assert!(began.elapsed().as_secs() < 60);
}

#[test]
fn a_run_of_the_engine_repeats_by_its_seed() {
    let _alone = alone();
    for seed in 1..=24 {
        let plan = Plan::new(seed, None, None, None);
        let runs: Vec<_> = (0..2)
            .map(|_| {
                let (report, ended, log) = scheduled(&plan);
                let ended = ended.unwrap_or_else(|what| panic!("{}: {what}", plan.describe()));
                let calls: Vec<String> = ended.history.calls.iter().map(|call| call.show()).collect();
                (report.digest, report.steps, log.events.len(), calls)
            })
            .collect();
        assert_eq!(runs[0], runs[1], "{}", plan.describe());
    }
}

/// Seeds of all cases.
#[test]
fn replies_to_several_threads_hold_after_a_crash_at_any_persist_point() {
    let _alone = alone();
    let mut counts = Counts::default();
    for seed in 1..=48 {
        counts.add(
            &run_plan(&Plan::new(seed, None, None, None), 40)
                .unwrap_or_else(|violation| panic!("{violation}")),
        );
    }
    assert!(counts.images > 1_000 && counts.switches > 1_500, "{counts:?}");
}

/// Elements, roots and plain keys that are written in one step, with compaction, readers and crashes, also of
/// recoveries.
#[test]
fn collections_that_several_threads_write_survive_a_crash_at_any_persist_point() {
    let _alone = alone();
    let mut counts = Counts::default();
    for seed in 1..=32 {
        let plan = Plan::new(seed, Some(Kind::Collections), None, None);
        counts.add(&run_plan(&plan, 30).unwrap_or_else(|violation| panic!("{violation}")));
    }
    assert!(counts.images > 600 && counts.switches > 1_000 && counts.nested > 5, "{counts:?}");
}

/// Given threads, through many schedules.
fn crashed(case: &str, keys: usize, threads: &[&[Op]], seeds: u64) {
    let _alone = alone();
    for seed in 1..=seeds {
        let mut plan = Plan::new(seed, Some(Kind::Mixed), Some(Case::named(case).unwrap()), Some(2));
        plan.setup.keys = (0..keys).map(|key| vec![b'k', key as u8]).collect();
        plan.setup.numbers = OnceLock::new();
        plan.setup.places = 2;
        plan.setup.hash_mask = u64::MAX;
        plan.setup.tuning = Tuning::default();
        plan.setup.extent_bytes = 512;
        plan.setup.len_max = 96 << 10;
        plan.background = false;
        plan.threads = threads.iter().map(|ops| (false, ops.to_vec())).collect();
        plan.first = (0..keys).collect();
        run_plan(&plan, 60).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

fn put(key: usize) -> Op {
    Op::Put { key, bytes: 16, updatable: false }
}

/// A writer that was slow to finish in its epoch wrote after others had written in the next one. A crash between the
/// two commits left its write, and not theirs that came before.
#[test]
fn a_write_belongs_to_no_earlier_epoch_than_the_writes_before_it() {
    let get = Op::Get { key: 0, hold: 0 };
    let slow = [put(0), put(0), put(0), put(0)];
    let next = [put(1), get.clone(), put(1), get.clone(), put(1), get.clone(), put(1), get];
    let commits = [Op::Commit, Op::Commit, Op::Commit];
    for case in ["page/interval", "line/interval"] {
        crashed(case, 2, &[&slow, &next, &commits], 60);
    }
}

/// A batch deleted keys that other writers had deleted, and returned before those deletes were durable.
#[test]
fn a_batch_that_writes_nothing_waits_until_the_deletes_it_observed_are_durable() {
    let delete = [Op::Delete { key: 0 }];
    let batch = [Op::Batch { writes: vec![(0, None)], expects: Vec::new() }];
    let group = [Op::Group(vec![Op::Delete { key: 0 }, put(1)])];
    crashed("page/every-write", 2, &[&delete, &batch], 60);
    crashed("line/every-write", 2, &[&group, &batch], 60);
}

/// A writer renamed a collection whose elements another writer had put in a group that was not flushed yet. The rename
/// survived a crash, and the elements did not.
#[test]
fn a_rename_survives_only_with_the_elements_that_it_renamed() {
    let step =
        |change| Op::Touch(Touch::Change { changes: vec![change], keys: Vec::new(), way: Way::Transaction });
    let elements = vec![(0, 24), (1, 24)];
    let make = [step(Change::Make { place: 0, kind: 1, elements, ttl: None })];
    let rename = [0, 1].map(|_| step(Change::Rename { from: 0, to: 1 }));
    crashed("line/every-write", 1, &[&make, &rename], 60);
}

/// An update in place reported the key as absent, while the delete was in a group that was not flushed yet.
#[test]
fn an_update_that_reports_a_key_as_absent_waits_for_its_delete() {
    let group = [Op::Group(vec![Op::Delete { key: 0 }, put(1), put(1)])];
    let update = [false, true].map(|on_condition| Op::Update { key: 0, at: 0, size: 3, on_condition });
    crashed("line/every-write", 2, &[&group, &update], 60);
}

/// The store's thread compacted without a pause where nothing could be moved: with `Manual`, nothing is freed before
/// the caller commits. It was found as a livelock: with the highest priority, it let no other thread run.
#[test]
fn a_background_thread_sleeps_while_no_garbage_can_be_freed() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, 48 << 10));
    let options = Options {
        durability: Durability::Manual,
        extent_bytes: Some(512),
        compaction_dead_percent: 5,
        tuning: Tuning { compaction_bytes_min: Some(512), ..Tuning::default() },
        ..Options::default()
    };
    let store = StoreOn::open_on(medium, &options).unwrap();
    let full = (0..1_000u32).find_map(|i| store.put(i.to_le_bytes(), [7; 100]).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::OutOfSpace);
    for i in (0..1_000u32).step_by(3) {
        let _ = store.delete(i.to_le_bytes());
    }
    std::thread::sleep(Duration::from_millis(200));
    let before = store.stats().compactions;
    std::thread::sleep(Duration::from_millis(500));
    let rounds = store.stats().compactions - before;
    // The thread checks every 100 ms.
    assert!((1..=20).contains(&rounds), "{rounds} rounds in half a second");
}

#[test]
fn threads_take_turns_in_every_case() {
    let _alone = alone();
    for case in CASES {
        for threads in 2..=4 {
            let counts = run_plan(&Plan::new(7, None, Some(case), Some(threads)), 20)
                .unwrap_or_else(|v| panic!("{v}"));
            assert!(counts.switches > 0 && counts.images > 0, "{}: {counts:?}", case.name);
        }
    }
}

/// Applied with all locks held, a batch kept every other writer waiting until all of it was written.
#[test]
fn puts_continue_during_a_long_batch() {
    const KEYS: u64 = 300;
    let _alone = alone();
    for seed in 1..=6 {
        let puts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&puts);
        let settings = Settings { steps_max: 1_000_000, ..settings(seed, WALK) };
        let report = schedule::run(&settings, move || {
            let medium = SimMedium::resume(Log::empty(Model::CacheLine, 1 << 20));
            let options = Options { background: false, extent_bytes: Some(4096), ..Options::default() };
            let store = StoreOn::open_on(medium, &options).unwrap();
            let mut batch = Batch::new();
            (0..KEYS).for_each(|key| {
                batch.put(key.to_le_bytes(), [1; 16]);
            });
            let over = Arc::new(AtomicBool::new(false));
            let putting = {
                let (store, over, counted) = (store.clone(), Arc::clone(&over), Arc::clone(&counted));
                schedule::spawn("puts", move || {
                    while !over.load(Relaxed) {
                        let key = counted.fetch_add(1, Relaxed) % 40 + KEYS;
                        store.put(key.to_le_bytes(), b"value").unwrap();
                    }
                })
                .unwrap_or_else(|_| panic!("no schedule"))
            };
            assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
            over.store(true, Relaxed);
            putting.join();
            assert_eq!(store.audit(), Vec::<String>::new());
        });
        assert_eq!(report.failure, None);
        let puts = puts.load(Relaxed);
        eprintln!("seed {seed}: {puts} puts during a batch of {KEYS}");
        assert!(puts > KEYS, "seed {seed}: {puts} puts during a batch of {KEYS}");
    }
}

/// A run that failed once.
fn repeated(kind: Kind, seed: u64, case: &str) {
    let plan = Plan::new(seed, Some(kind), Some(Case::named(case).unwrap()), Some(3));
    run_plan(&plan, 60).unwrap_or_else(|violation| panic!("{violation}"));
}

/// No event reports when the last user of a retired table leaves. The background thread checks again later, and does
/// not spin until then.
#[test]
fn a_background_thread_sleeps_while_a_retired_table_is_in_use() {
    let _alone = alone();
    repeated(Kind::Swaps, 137, "byte/every-write");
    repeated(Kind::Swaps, 128, "line/every-write");
}

/// With an interval: a write that precedes a visible change of tables belongs to no later epoch than the change.
#[test]
fn all_writes_before_a_surviving_change_of_tables_survive() {
    let _alone = alone();
    repeated(Kind::Swaps, 213, "line/interval");
}

/// A batch of several writes to a named table is wholly before or wholly after a `clear` of the table.
#[test]
fn a_batch_is_wholly_before_or_after_a_clear() {
    let _alone = alone();
    repeated(Kind::Tables, 5131, "page/interval");
}
