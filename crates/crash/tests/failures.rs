//! Failures around a store: write-backs that fail as in Linux, a power failure within a group, no space, a thread that
//! panics, a damaged record.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen::{Meta, Options, Residence, StoreOn};
use duramen_media::sim::{Log, Memory, Model, Rng, SimMedium, Walker};
use duramen_media::{Bytes, Device, Error, Granularity, Offset, PAGE_BYTES, Persistent, Syncs};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{alone, image_of, options};

const LEN_MAX: u64 = 256 << 10;

/// A checkpoint reads a slot that points to a record of a group that its thread has not drained. The checkpoint then
/// lacks the previous record, whose block it covers, so that recovery does not read that record.
#[test]
fn a_checkpoint_during_an_open_group_loses_no_acknowledged_write() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1)).unwrap();
    for i in 0..20u8 {
        store.put([i], [1; 40]).unwrap();
    }
    store.close().unwrap();
    let medium = SimMedium::resume(medium.log());
    let options_now = Options { residence: Residence::Persistent, checkpoint_bytes: 1, ..options(1) };
    let store = StoreOn::open_on(medium.clone(), &options_now).unwrap();
    let ((wrote, has_written), (go, may_go)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || {
            let mut writer = store.writer().unwrap();
            writer.group();
            writer.put([7], [2; 40]).unwrap();
            wrote.send(()).unwrap();
            may_go.recv().unwrap();
        });
        has_written.recv().unwrap();
        store.maintain().unwrap();
        assert!(store.stats().checkpoints > 0);
        medium.power_off();
        go.send(()).unwrap();
    });
    drop(store);
    let log = medium.log();
    let mut walker = Walker::new(&log);
    walker.advance(log.events.len());
    let mut choices = vec![walker.none()];
    choices.extend(walker.choices(&mut Rng::new(1), 200));
    for choice in choices {
        let (memory, len) = walker.form(&choice);
        let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
        let store =
            StoreOn::open_on(image.clone(), &Options { boot_id: Some([2; 16]), ..options_now.clone() })
                .unwrap();
        let value = store.get([7]).unwrap().map(|value| value.to_vec());
        image.power_off();
        assert!(
            value == Some(vec![1; 40]) || value == Some(vec![2; 40]),
            "acknowledged [1; 40], overwritten by [2; 40] in a group; after a power failure: {value:?}"
        );
    }
}

/// A page cache like that of Linux. A page whose write-back failed counts as clean until the next store to it. The
/// kernel reports the failure to the first `fdatasync` of the open file only. The mapped file uses [`Syncs`] too.
#[derive(Clone)]
struct Kernel {
    cache: SimMedium,
    state: Arc<Mutex<State>>,
    fails_in: Arc<AtomicUsize>,
    syncs: Arc<Syncs>,
    /// Run once by the sync that fails a page, between writing the pages and checking for a failure.
    between: Arc<Mutex<Option<Between>>>,
    /// The dirty page that fails.
    which: Arc<AtomicUsize>,
}

type Between = Box<dyn FnOnce() + Send>;

struct State {
    /// The content of the device.
    device: Vec<[u64; 8]>,
    /// Pages that were stored to since they were last written back.
    dirty: BTreeSet<u64>,
    /// A failure that no sync has reported yet.
    error: bool,
}

impl Kernel {
    fn new(lines: &[[u64; 8]], len: u64) -> Self {
        let memory = Memory::from_lines(lines, LEN_MAX);
        let device = memory.snapshot();
        Self {
            cache: SimMedium::from_image(Model::Page, LEN_MAX, Arc::new(memory), len),
            state: Arc::new(Mutex::new(State { device, dirty: BTreeSet::new(), error: false })),
            fails_in: Arc::new(AtomicUsize::new(usize::MAX)),
            syncs: Arc::default(),
            between: Arc::default(),
            which: Arc::default(),
        }
    }

    /// The sync after `syncs` more cannot write its `which`th dirty page.
    fn fail_in(&self, syncs: usize, which: usize) {
        self.which.store(which, SeqCst);
        self.fails_in.store(syncs, SeqCst);
    }

    fn dirty(&self, at: Offset, bytes: usize) {
        let pages = at.0 / PAGE_BYTES..(at.0 + bytes as u64).div_ceil(PAGE_BYTES);
        self.state.lock().unwrap().dirty.extend(pages);
    }

    /// The file is opened once more, by another process or this one; the page cache stays.
    fn opened_again(&self) -> Self {
        Self { syncs: Arc::default(), ..self.clone() }
    }

    /// As Linux does it, for one open file.
    fn fdatasync(&self) -> duramen_media::Result<()> {
        let left = self.fails_in.load(SeqCst);
        self.fails_in.store(if left == usize::MAX { left } else { left.wrapping_sub(1) }, SeqCst);
        let mut failed = false;
        {
            let mut state = self.state.lock().unwrap();
            let now = self.cache.memory().snapshot();
            let page_lines = PAGE_BYTES as usize / 64;
            for (place, page) in std::mem::take(&mut state.dirty).into_iter().enumerate() {
                let from = page as usize * page_lines;
                let lines = from..(from + page_lines).min(now.len());
                if left == 0 && place == self.which.load(SeqCst) {
                    (failed, state.error) = (true, true);
                } else {
                    state.device[lines.clone()].copy_from_slice(&now[lines]);
                }
            }
        }
        if failed && let Some(between) = self.between.lock().unwrap().take() {
            between();
        }
        if std::mem::take(&mut self.state.lock().unwrap().error) {
            return Err(Error::new(duramen_media::ErrorKind::Io, "EIO"));
        }
        Ok(())
    }

    /// The content after an unmount, which writes the dirty pages.
    fn unmounted(&self) -> Self {
        // No other error is reported for this one.
        let _ = self.fdatasync();
        self.device()
    }

    /// The content after a power failure.
    fn device(&self) -> Self {
        Self::new(&self.state.lock().unwrap().device, self.cache.len())
    }
}

impl Bytes for Kernel {
    fn len(&self) -> u64 {
        self.cache.len()
    }

    fn pointer(&self, at: Offset, bytes: u64) -> *const u8 {
        self.cache.pointer(at, bytes)
    }

    fn load_u64(&self, at: Offset) -> u64 {
        self.cache.load_u64(at)
    }

    fn prefetch(&self, _at: Offset) {}
}

impl Persistent for Kernel {
    fn granularity(&self) -> Granularity {
        Granularity::Page
    }

    fn store_u64(&self, at: Offset, word: u64) {
        self.dirty(at, 8);
        self.cache.store_u64(at, word);
    }

    fn store(&self, at: Offset, parts: &[&[u8]]) {
        self.dirty(at, parts.iter().map(|part| part.len()).sum());
        self.cache.store(at, parts);
    }

    fn write(&self, at: Offset, parts: &[&[u8]]) {
        self.dirty(at, parts.iter().map(|part| part.len()).sum());
        self.cache.write(at, parts);
    }

    fn flush(&self, _at: Offset, _bytes: u64) {}

    fn drain(&self) {}

    fn sync(&self) -> duramen_media::Result<()> {
        self.syncs.run(|| self.fdatasync())
    }
}

impl Device for Kernel {
    fn len_max(&self) -> u64 {
        self.cache.len_max()
    }

    fn grow(&self, len: u64) -> duramen_media::Result<()> {
        self.cache.grow(len)
    }

    fn interleave(&self) -> (u64, u32) {
        (PAGE_BYTES, 1)
    }

    fn survives_process(&self) -> bool {
        true
    }

    fn survives_power(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "a file".into()
    }
}

fn page_options(boot: u8) -> Options {
    Options { extent_bytes: Some(16 << 10), ..options(boot) }
}

/// The background thread raised the time floor once a second and ignored errors. Its sync lost a page with a record
/// that waited for its commit. The sync of the commit then found nothing dirty, and the write was acknowledged.
#[test]
fn a_failed_sync_of_the_time_floor_poisons_the_store() {
    let _alone = alone();
    let medium = Kernel::new(&[], 0);
    let store = StoreOn::open_on(medium.clone(), &page_options(1)).unwrap();
    let meta = Meta { expires_at: Some(500), ..Meta::default() };
    store.put_with(b"expired", b"x", meta).unwrap();
    // Raises the floor, which `persist_time` is to write.
    assert!(store.get(b"expired").unwrap().is_none());
    // As another thread between its append and its commit.
    let mut writer = store.writer().unwrap();
    writer.group();
    writer.put(b"key", [7; 9000]).unwrap();
    // Page 0 is the superblock, then come the record's.
    medium.fail_in(0, 2);
    let reported = store.maintain();
    let flushed = writer.flush_group();
    let next = medium.device();
    drop(writer);
    drop(store);
    let found =
        StoreOn::open_on(next, &page_options(2)).unwrap().get(b"key").unwrap().map(|value| value.to_vec());
    assert!(reported.is_err(), "the test is wrong: that sync did not fail");
    assert!(
        flushed.is_err() || found == Some(vec![7; 9000]),
        "acknowledged, and after a power failure: {found:?}"
    );
}

/// Two concurrent syncs, where one failure concerns both: the kernel reports it to one of them.
#[test]
fn a_failed_sync_that_the_kernel_reports_to_another_thread_acknowledges_nothing() {
    let _alone = alone();
    let medium = Kernel::new(&[], 0);
    let store = StoreOn::open_on(medium.clone(), &page_options(1)).unwrap();
    store.put(b"a", [1; 100]).unwrap();
    let other = store.clone();
    let (report, reported) = channel();
    *medium.between.lock().unwrap() = Some(Box::new(move || {
        // Opening a block of several extents syncs it: the kernel could report the failure to that sync.
        std::thread::spawn(move || report.send(other.put(b"large", [3; 40_000])));
        std::thread::sleep(Duration::from_millis(300));
    }));
    // The second put commits: mark and record. The record's page is the one that fails.
    medium.fail_in(0, 1);
    let put = store.put(b"b", [2; 100]);
    let other = reported.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(put.is_err() && other.is_err(), "{put:?}, {other:?}");
    let next = medium.device();
    drop(store);
    let found =
        StoreOn::open_on(next, &page_options(2)).unwrap().get(b"b").unwrap().map(|value| value.to_vec());
    assert!(
        put.is_err() || found == Some(vec![2; 100]),
        "acknowledged, and after a power failure: {found:?}"
    );
}

/// Close, unmount, open again, under the same boot.
#[test]
fn a_store_opens_again_after_a_failed_write_back_and_an_unmount() {
    let _alone = alone();
    let mut refused = Vec::new();
    for which in 0..5 {
        let medium = Kernel::new(&[], 0);
        let store = StoreOn::open_on(medium.clone(), &page_options(1)).unwrap();
        store.put(b"a", [1; 100]).unwrap();
        let mut writer = store.writer().unwrap();
        writer.group();
        for i in 0..3u8 {
            writer.put([i], [i; 3900]).unwrap();
        }
        medium.fail_in(0, which);
        assert!(writer.flush_group().is_err());
        drop(writer);
        drop(store);
        match StoreOn::open_on(medium.unmounted(), &page_options(1)) {
            Ok(store) => assert!(store.get(b"a").unwrap().is_some()),
            Err(error) => refused.push(format!("page {which}: {error}")),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Killed as soon as the write was refused, unmounted, opened again, under the same boot.
#[test]
fn a_failed_write_back_is_noted_on_the_medium_before_a_kill() {
    let _alone = alone();
    let mut refused = Vec::new();
    for which in 0..5 {
        let medium = Kernel::new(&[], 0);
        let store = StoreOn::open_on(medium.clone(), &page_options(1)).unwrap();
        store.put(b"a", [1; 100]).unwrap();
        let mut writer = store.writer().unwrap();
        writer.group();
        for i in 0..3u8 {
            writer.put([i], [i; 3900]).unwrap();
        }
        medium.fail_in(0, which);
        assert!(writer.flush_group().is_err());
        let _killed = std::mem::ManuallyDrop::new((store, writer));
        match StoreOn::open_on(medium.unmounted(), &page_options(1)) {
            Ok(store) => assert!(store.get(b"a").unwrap().is_some()),
            Err(error) => refused.push(format!("page {which}: {error}")),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A checkpoint holds its lock and waits for the compactor, and a compactor without room wants to drop that checkpoint.
#[test]
fn a_full_store_with_a_persistent_index_does_not_hang() {
    let _alone = alone();
    let options = Options {
        medium: duramen::MediumKind::Volatile,
        extent_bytes: Some(4096),
        len_max: 1 << 20,
        residence: Residence::Persistent,
        checkpoint_bytes: 1,
        clock: None,
        background: true,
        ..options(1)
    };
    let store = options.open("full").unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let maintained = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for thread in 0..2u64 {
        let (store, done, over) = (store.clone(), Arc::clone(&done), Arc::clone(&over));
        threads.push(std::thread::spawn(move || {
            let mut rng = Rng::new(thread + 5);
            while !over.load(SeqCst) {
                let key = rng.below(400).to_le_bytes();
                let bytes = if rng.one_in(4) { 3000 + rng.below(9000) } else { rng.below(600) };
                let _ = match rng.one_in(3) {
                    true => store.delete(key).map(|_| ()),
                    false => store.put(key, vec![1; bytes as usize]),
                };
                done.fetch_add(1, SeqCst);
            }
        }));
    }
    {
        let (store, maintained, over) = (store.clone(), Arc::clone(&maintained), Arc::clone(&over));
        threads.push(std::thread::spawn(move || {
            while !over.load(SeqCst) {
                let _ = store.maintain();
                maintained.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
    }
    let begun = Instant::now();
    let mut last = (0, 0);
    // The deadlock showed within three seconds.
    while begun.elapsed() < Duration::from_secs(8) {
        std::thread::sleep(Duration::from_secs(2));
        let now = (done.load(SeqCst), maintained.load(SeqCst));
        assert!(now.0 > last.0 && now.1 > last.1, "stuck at {now:?}");
        last = now;
    }
    over.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(store.stats().checkpoints > 10);
}

/// Salvage continues after the damage and saves the newest valid version of every key.
#[test]
fn salvage_saves_batches_that_follow_damage() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let options = Options { extent_bytes: Some(4096), ..options(1) };
    let store = StoreOn::open_on(medium.clone(), &options).unwrap();
    store.put(b"before", b"old").unwrap();
    store.put(b"damaged", [0xAB; 64]).unwrap();
    let mut batch = duramen::Batch::new();
    batch.put(b"member", b"value").put(b"before", b"new");
    let _ = store.apply(&batch).unwrap();
    store.put(b"alone", b"value").unwrap();
    store.close().unwrap();
    let lines = medium.memory().snapshot();
    let bytes: Vec<u8> = lines.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let at = bytes.windows(64).position(|window| window == [0xAB; 64]).unwrap();
    let image = image_of(Model::CacheLine, &lines, LEN_MAX, medium.len());
    image.memory().flip_bit(at as u64 * 8);
    let target = StoreOn::open_on(SimMedium::resume(Log::empty(Model::Byte, LEN_MAX)), &options).unwrap();
    let (_, report) = duramen::salvage_on(&image, &target, &options).unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let get = |key: &[u8]| target.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap());
    assert_eq!(get(b"alone").as_deref(), Some("value"), "a key after the batch");
    assert_eq!((get(b"member").as_deref(), get(b"before").as_deref()), (Some("value"), Some("new")));
}

/// After an open by checkpoint, any call may find a damaged record until the background thread has verified it. That
/// includes a put within an epoch, for which commits wait.
#[test]
fn a_put_over_a_damaged_record_neither_panics_nor_stops_others() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
    let mut options = Options { extent_bytes: Some(4096), ..options(1) };
    options.tuning.close_checkpoint_bytes_min = 0;
    let store = StoreOn::open_on(medium.clone(), &options).unwrap();
    store.put(b"damaged!", [0xAB; 64]).unwrap();
    store.close().unwrap();
    let lines = medium.memory().snapshot();
    let bytes: Vec<u8> = lines.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let at = bytes.windows(64).position(|window| window == [0xAB; 64]).unwrap() - 8 - 24;
    let image = image_of(Model::Page, &lines, LEN_MAX, medium.len());
    image.memory().flip_bit((at as u64 + 11) * 8 + 4);
    let store = StoreOn::open_on(image, &options).unwrap();
    assert!(store.recovery().checkpointed > 0);
    let first = store.clone();
    let (report, reported) = channel();
    std::thread::spawn(move || {
        // As a worker of the server, all of whose writes are in a group.
        let put = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut writer = first.writer().unwrap();
            writer.group();
            writer.put(b"sound", b"new").unwrap();
            writer.put(b"damaged!", b"new")
        }));
        report.send(put.is_err()).unwrap();
        let _ = std::mem::ManuallyDrop::new(first);
    });
    assert_eq!(reported.recv_timeout(Duration::from_secs(5)), Ok(false), "a panic");
    let second = store.clone();
    let (report, reported) = channel();
    std::thread::spawn(move || {
        report.send(second.put(b"other", b"value")).unwrap();
        let _ = std::mem::ManuallyDrop::new(second);
    });
    let put = reported.recv_timeout(Duration::from_secs(5));
    let _ = std::mem::ManuallyDrop::new(store);
    assert!(put.is_ok(), "a put of another key hangs");
}

/// Close, and open again at once. The pages that did not reach the device are still in the page cache, and clean.
#[test]
fn a_store_reopened_after_a_failed_write_back_returns_only_durable_values() {
    let _alone = alone();
    let mut wrong = Vec::new();
    for which in 0..5 {
        let medium = Kernel::new(&[], 0);
        let store = StoreOn::open_on(medium.clone(), &page_options(1)).unwrap();
        let mut writer = store.writer().unwrap();
        writer.group();
        for i in 0..3u8 {
            writer.put([i], [i; 3900]).unwrap();
        }
        medium.fail_in(0, which);
        assert!(writer.flush_group().is_err());
        drop(writer);
        drop(store);
        let store = StoreOn::open_on(medium.opened_again(), &page_options(1)).unwrap();
        let shown: Vec<u8> = (0..3).filter(|&i| store.get([i]).unwrap().is_some()).collect();
        store.put(b"later", b"acknowledged").unwrap();
        let next = medium.device();
        drop(store);
        match StoreOn::open_on(next, &page_options(2)) {
            Ok(store) => {
                let lost: Vec<_> = shown.into_iter().filter(|&i| store.get([i]).unwrap().is_none()).collect();
                if !lost.is_empty() || store.get(b"later").unwrap().is_none() {
                    wrong.push(format!("page {which}: shown, and lost: {lost:?}"));
                }
            }
            Err(error) => wrong.push(format!("page {which}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Reads of keys without recent writes ran the commits for which compaction's copies waited.
#[test]
fn a_read_of_a_moved_record_waits_for_no_commit() {
    let _alone = alone();
    for index in [duramen::IndexKind::Hash, duramen::IndexKind::Ordered] {
        let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
        let mut options = Options { index, compaction_dead_percent: 5, ..options(1) };
        options.tuning.compaction_bytes_min = Some(512);
        let store = StoreOn::open_on(medium.clone(), &options).unwrap();
        for i in 0..200u8 {
            store.put([i], [1; 40]).unwrap();
        }
        for i in (0..200u8).filter(|i| i % 4 != 0) {
            store.put([i], [2; 40]).unwrap();
        }
        // While a value is pinned, compaction frees nothing, so it does not commit.
        let kept = store.get([0]).unwrap().unwrap();
        for _ in 0..8 {
            store.maintain().unwrap();
        }
        let stats = store.stats();
        assert!(stats.compactions > 0 && stats.compacted_bytes > 0, "{stats:?}");
        let committed = stats.epoch_committed;
        let mut writer = store.writer().unwrap();
        for i in 0..200u8 {
            let wanted = if i % 4 == 0 { [1; 40] } else { [2; 40] };
            assert_eq!(store.get([i]).unwrap().as_deref(), Some(&wanted[..]));
            assert_eq!(store.get_many(&[&[i]]).unwrap()[0].as_deref(), Some(&wanted[..]));
            let mut into = Vec::new();
            assert!(store.get_into([i], &mut into).unwrap());
            writer.group();
            assert_eq!(writer.get([i]).unwrap().as_deref(), Some(&wanted[..]));
            writer.flush_group().unwrap();
        }
        store.for_each(|_| {}).unwrap();
        assert_eq!(store.stats().epoch_committed, committed, "{index}: reads led commits");
        drop(kept);
    }
}
