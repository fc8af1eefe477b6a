//! Scenarios of a few lines for bugs that seeds do not find in minutes: the order of a handful of steps decides, and it
//! is written down here. Each tells what is wrong: nothing, but with the planted bug that it is for.

use duramen::tuning::{Phase, Tuning};
use duramen::{
    Batch, Durability, ElementOrder, Error, ErrorKind, IndexKind, Meta, OnDamage, Options, Residence,
    StoreOn, UnitOn, check_on, salvage_on,
};
use duramen_media::MediumKind;
use duramen_media::sim::{Log, Memory, Model, Rng, SimMedium, Walker};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Tells what is wrong.
pub type Scenario = fn() -> Result<(), String>;

const LEN_MAX: u64 = 256 << 10;
const IMAGES_AT_ONCE: usize = 300;
// Records of 40 bytes fill a block of 512 so that less than an eighth of it is left: it is sealed, not kept for more.

fn options(boot: u8, durability: Durability) -> Options {
    Options {
        durability,
        granule_bytes: Some(512),
        len_max: LEN_MAX,
        recovery_threads: 1,
        background: false,
        compaction_dead_percent: 5,
        index_image: false,
        clock: Some(Arc::new(|| 1_000)),
        boot_id: Some([boot; 16]),
        tuning: Tuning { compaction_bytes_min: Some(32), ..Tuning::default() },
        ..Options::default()
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What a power failure leaves at least: all that is guaranteed, and nothing else.
fn after_power_failure(medium: &SimMedium, model: Model) -> SimMedium {
    let log = medium.log();
    let mut walker = Walker::new(&log);
    walker.advance(log.events.len());
    let none = walker.none();
    let (memory, len) = walker.form(&none);
    SimMedium::from_image(model, LEN_MAX, memory, len)
}

fn audited(store: &StoreOn<SimMedium>) -> Result<(), String> {
    let differences = store.audit();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
}

/// A key is overwritten more often than a slot counts, and deleted; what follows is not committed.
///
/// # Errors
/// What is wrong.
pub fn behind_the_tail() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let options = Options { granule_bytes: Some(4096), ..options(1, Durability::Manual) };
    let store = StoreOn::open_on(medium.clone(), &options).map_err(told)?;
    let mut writer = store.writer().map_err(told)?;
    (0..60u64).try_for_each(|round| writer.put(b"key", &round.to_le_bytes())).map_err(told)?;
    writer.delete(b"key").map_err(told)?;
    // That fills a block. The next one is nearly all live, so it stays.
    writer.put(b"other", &[0; 1500]).map_err(told)?;
    writer.put(b"another", &[0; 3000]).map_err(told)?;
    store.commit().map_err(told)?;
    // Behind what was committed: these do not count, and lie there for as long as their block is not freed.
    (0..3u64).try_for_each(|round| writer.put(b"key", &round.to_le_bytes())).map_err(told)?;
    drop(writer);
    drop(store);
    let store = StoreOn::open_on(medium, &options).map_err(told)?;
    audited(&store)?;
    for round in 0..40 {
        store.put(b"third", &[round; 500]).map_err(told)?;
        store.commit().map_err(told)?;
        store.maintain().map_err(told)?;
    }
    if store.stats().recounts == 0 {
        return Err("nothing was counted again".into());
    }
    audited(&store)
}

/// Compaction moves keys out of one block and frees it: no other drain comes between the two. Power fails anywhere.
///
/// # Errors
/// What is wrong.
pub fn copied_and_freed() -> Result<(), String> {
    const STAYS: [u8; 40] = [3; 40];
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(told)?;
    let keys = [b"one", b"two"];
    for key in keys {
        store.put(key, &STAYS).map_err(told)?;
        (0..2).try_for_each(|_| store.put(b"filler", &[1; 40])).map_err(told)?;
    }
    // That is the oldest block, behind which all is live for long: it is moved out of, and freed, before those of which all is dead.
    (0..60).try_for_each(|key| store.put(format!("live {key:02}").as_bytes(), &STAYS)).map_err(told)?;
    (0..20).try_for_each(|_| store.put(b"filler", &[2; 40])).map_err(told)?;
    let from = medium.position();
    (0..2).try_for_each(|_| store.maintain()).map_err(told)?;
    let stats = store.stats();
    if stats.compacted_bytes == 0 || stats.freed_granules == 0 {
        return Err("nothing was moved and freed".into());
    }
    let log = medium.log();
    let mut walker = Walker::new(&log);
    let mut rng = Rng::new(1);
    while let Some(at) = walker.next_point() {
        if at < from {
            continue;
        }
        for choice in walker.choices(&mut rng, IMAGES_AT_ONCE) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
            let found = StoreOn::open_on(image, &options(2, Durability::EveryWrite)).map_err(told)?;
            for key in keys {
                if found.get(key).map_err(told)?.is_none_or(|value| *value != STAYS) {
                    return Err(format!("{} is lost at event {at}", String::from_utf8_lossy(key)));
                }
            }
        }
    }
    Ok(())
}

/// Compaction beside a group whose writes are not committed. The group is open, so nothing is freed, which would commit.
///
/// # Errors
/// What is wrong.
pub fn copied_and_shown() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(told)?;
    let mut writer = store.writer().map_err(told)?;
    writer.group();
    writer.put(b"key", b"not committed").map_err(told)?;
    for round in 0..20 {
        writer.put(b"filler", &[round; 40]).map_err(told)?;
    }
    let before = store.stats().compacted_bytes;
    store.maintain().map_err(told)?;
    if store.stats().compacted_bytes == before {
        return Err("nothing was moved".into());
    }
    let shown = store.get(b"key").map_err(told)?.map(|value| value.to_vec());
    let found =
        StoreOn::open_on(after_power_failure(&medium, Model::Page), &options(2, Durability::EveryWrite))
            .map_err(told)?
            .get(b"key")
            .map_err(told)?
            .map(|value| value.to_vec());
    writer.settle().map_err(told)?;
    match shown {
        None => Err("a reader does not wait for the commit, and is shown nothing".into()),
        shown if shown != found => Err("a reader was shown what a power failure undid".into()),
        _ => Ok(()),
    }
}

/// Each maintenance writes the index to the medium, as small as it is.
fn with_images(boot: u8, durability: Durability) -> Options {
    let mut options = options(boot, durability);
    options.index_image = true;
    options.residence = Residence::Persistent;
    options.tuning.image_bytes_min = 0;
    options.tuning.checkpoint_bytes_min = 64;
    options
}

/// A group overwrites a key, whose record lies in a block that recovery does not read again; then the index is written to the medium by
/// another thread. Power fails before the group is settled.
///
/// # Errors
/// What is wrong.
pub fn image_beside_group() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &with_images(1, Durability::EveryWrite)).map_err(told)?;
    store.put(b"key", b"before").map_err(told)?;
    // The block of the key is full, so it is sealed.
    (0..40u8).try_for_each(|key| store.put(&[key], &[key; 40])).map_err(told)?;
    let mut writer = store.writer().map_err(told)?;
    writer.group();
    writer.put(b"key", b"of the group").map_err(told)?;
    let before = store.stats().checkpoints;
    // Another thread: what it waits for to be durable is its own.
    std::thread::scope(|scope| scope.spawn(|| store.maintain()).join())
        .map_err(|_| "maintenance panicked".to_owned())?
        .map_err(told)?;
    if store.stats().checkpoints == before {
        return Err("no image was written".into());
    }
    let failed = after_power_failure(&medium, Model::CacheLine);
    let again = StoreOn::open_on(failed, &with_images(2, Durability::EveryWrite)).map_err(told)?;
    let found = again.get(b"key").map_err(told)?.map(|value| value.to_vec());
    writer.settle().map_err(told)?;
    if !matches!(found.as_deref(), Some(b"before" | b"of the group")) {
        return Err(format!("the key has {found:?} after a crash"));
    }
    audited(&store)
}

/// While the index is written to the medium a unit overwrites a key, whose record lies in a block that recovery does
/// not read again. Power fails before the unit is over.
///
/// # Errors
/// What is wrong.
pub fn image_beside_unit() -> Result<(), String> {
    beside_image(
        |store| store.put(b"key", b"before"),
        |unit, ()| unit.put(b"key", b"of the unit"),
        |again| {
            let found = again.get(b"key").map_err(told)?.map(|value| value.to_vec());
            let is_right = found.as_deref() == Some(b"before");
            if is_right { Ok(()) } else { Err(format!("the key has {found:?} after a crash")) }
        },
    )
}

/// The same of an element that has another place in the order of its collection by that.
///
/// # Errors
/// What is wrong.
pub fn image_beside_unit_of_elements() -> Result<(), String> {
    beside_image(
        |store| {
            let elements = store.new_collection(ElementOrder::ByValue);
            let root = Meta { collection: Some(elements.id()), ..Meta::default() };
            let mut batch = Batch::new();
            batch.put_with(b"root", b"", root);
            batch.collection(&elements).put(b"one", &[1; 8]).put(b"two", &[2; 8]);
            store.apply(&batch).map(|_| elements)
        },
        |unit, elements| unit.collection(elements).put(b"one", &[3; 8]),
        |again| elements_are(again, b"root", &[(b"one", &[1; 8]), (b"two", &[2; 8])]),
    )
}

/// Whether the collection under a key has these elements, in this order.
fn elements_are(store: &StoreOn<SimMedium>, root: &[u8], wanted: &[(&[u8], &[u8])]) -> Result<(), String> {
    let names = store.get(root).map_err(told)?.and_then(|root| root.meta().collection);
    let elements = store.collection(names.ok_or("no root is there")?).map_err(told)?;
    let mut found = Vec::new();
    let visit = &mut |element: &duramen::Value<'_>| {
        found.push((element.key().to_vec(), element.to_vec()));
        true
    };
    elements.ranked(0, false, visit).map_err(told)?;
    let is_right = found.iter().map(|(key, value)| (&key[..], &value[..])).eq(wanted.iter().copied());
    if is_right && elements.len() == wanted.len() as u64 {
        return Ok(());
    }
    Err(format!("the collection has {} elements, and {found:?} by rank", elements.len()))
}

/// While the index is written to the medium a unit does what `write` does, to what `make` has made, which lies in a block that recovery
/// does not read again. Power fails before the unit is over; what is there then has to be as `look` wants it.
fn beside_image<T: Sync>(
    make: impl FnOnce(&StoreOn<SimMedium>) -> duramen::Result<T>,
    write: impl FnOnce(&mut UnitOn<'_, SimMedium>, &T) -> duramen::Result<()> + Send,
    look: impl FnOnce(&StoreOn<SimMedium>) -> Result<(), String>,
) -> Result<(), String> {
    let (store, medium, begins, written) = waiting_at_image()?;
    let (end, ends) = mpsc::channel::<()>();
    let made = make(&store).map_err(told)?;
    // The block of that is full to its end, so it is sealed.
    (0..16u8).try_for_each(|key| store.put(&[key, 0], &[key])).map_err(told)?;
    (0..40u8).try_for_each(|key| store.put(&[key], &[key; 40])).map_err(told)?;
    std::thread::scope(|scope| {
        let (store, made) = (&store, &made);
        let unit = scope.spawn(move || -> duramen::Result<()> {
            store.writer()?.unit(|unit| {
                if begins.recv().is_err() {
                    return Ok(());
                }
                drop(begins);
                write(unit, made)?;
                let _ = written.send(());
                let _ = ends.recv();
                Err(Error::given_up("on purpose"))
            })
        });
        let before = store.stats().checkpoints;
        store.maintain().map_err(told)?;
        if store.stats().checkpoints == before {
            return Err("no image was written".into());
        }
        let medium = after_power_failure(&medium, Model::CacheLine);
        let again = StoreOn::open_on(medium, &with_images(2, Durability::EveryWrite)).map_err(told)?;
        let looked = look(&again);
        drop(end);
        match unit.join() {
            Ok(Err(error)) if error.kind() == ErrorKind::GivenUp => {}
            other => return Err(format!("the unit ended otherwise than by giving up: {other:?}")),
        }
        looked?;
        audited(store)
    })
}

/// A store whose maintenance waits at the beginning of the first image; what tells that it waits, and what has it go on.
type Waiting = (StoreOn<SimMedium>, SimMedium, mpsc::Receiver<()>, mpsc::Sender<()>);

fn waiting_at_image() -> Result<Waiting, String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = with_images(1, Durability::EveryWrite);
    let (begin, begins) = mpsc::channel();
    let (written, is_written) = mpsc::channel();
    let waits = Mutex::new(is_written);
    options.tuning.on_phase = Some(Arc::new(move |phase, is_beginning| {
        // Once: afterwards nobody listens.
        if phase == Phase::Image && is_beginning && begin.send(()).is_ok() {
            let _ = waits.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }));
    let store = StoreOn::open_on(medium.clone(), &options).map_err(told)?;
    Ok((store, medium, begins, written))
}

/// The same with a collection, which lies in blocks that recovery does not read again.
fn with_collection_beside_image() -> Result<Waiting, String> {
    let (store, medium, begins, written) = waiting_at_image()?;
    let elements = store.new_collection(ElementOrder::ByKey);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut batch = Batch::new();
    batch.put_with(b"root", b"", root).collection(&elements).put(b"element", &[1; 8]);
    let _ = store.apply(&batch).map_err(told)?;
    // Blocks are full to their ends, so they are sealed; an element lies in another one than the root.
    let fill = |of: u8| (0..16u8).try_for_each(|key| store.put(&[key, of], &[key])).map_err(told);
    fill(0)?;
    elements.put(b"second", &[2; 8]).map_err(told)?;
    fill(1)?;
    (0..40u8).try_for_each(|key| store.put(&[key], &[key; 40])).map_err(told)?;
    Ok((store, medium, begins, written))
}

/// A group deletes what names a collection, and `then` is called before it is settled. Power fails, and the collection is there.
fn root_deleted(
    (store, medium): (&StoreOn<SimMedium>, &SimMedium),
    then: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let mut writer = store.writer().map_err(told)?;
    writer.group();
    let _ = writer.unit(|unit| unit.delete(b"root")).map_err(told)?;
    then()?;
    let failed = after_power_failure(medium, Model::CacheLine);
    writer.settle().map_err(told)?;
    let again = StoreOn::open_on(failed, &with_images(2, Durability::EveryWrite)).map_err(told)?;
    elements_are(&again, b"root", &[(b"element", &[1; 8]), (b"second", &[2; 8])])?;
    audited(&again)
}

/// While the index is written to the medium a group deletes what names a collection. Power fails before the group is settled.
///
/// # Errors
/// What is wrong.
pub fn root_deleted_beside_image() -> Result<(), String> {
    let (store, medium, begins, written) = with_collection_beside_image()?;
    let before = store.stats().checkpoints;
    std::thread::scope(|scope| {
        let maintained = scope.spawn(|| store.maintain());
        begins.recv().map_err(told)?;
        drop(begins);
        root_deleted((&store, &medium), || {
            written.send(()).map_err(told)?;
            maintained.join().map_err(|_| "maintenance panicked".to_owned())?.map_err(told)?;
            let is_written = store.stats().checkpoints > before;
            if is_written { Ok(()) } else { Err("no image was written".into()) }
        })
    })
}

/// A group deletes what names a collection; then there is maintenance. Power fails before the group is settled.
///
/// # Errors
/// What is wrong.
pub fn root_deleted_before_image() -> Result<(), String> {
    let (store, medium, begins, written) = with_collection_beside_image()?;
    drop((begins, written));
    root_deleted((&store, &medium), || {
        // Another thread: what it waits for to be durable is its own.
        let maintain = || (0..5).try_for_each(|_| store.maintain());
        std::thread::scope(|scope| scope.spawn(maintain).join())
            .map_err(|_| "maintenance panicked".to_owned())?
            .map_err(told)
    })
}

/// Compaction moves what names a collection; then the index is written to the medium, and power fails.
///
/// # Errors
/// What is wrong.
pub fn root_moved_before_image() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = with_images(1, Durability::EveryWrite);
    // Only when it is asked for.
    options.tuning.checkpoint_bytes_min = u64::MAX;
    let store = StoreOn::open_on(medium.clone(), &options).map_err(told)?;
    let put_all = || (0..40u8).try_for_each(|key| store.put(&[key], &[key; 40])).map_err(told);
    let elements = store.new_collection(ElementOrder::ByKey);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut batch = Batch::new();
    batch.put_with(b"root", b"", root).collection(&elements).put(b"element", &[1; 8]);
    let _ = store.apply(&batch).map_err(told)?;
    for _ in 0..3 {
        put_all()?;
        store.maintain().map_err(told)?;
    }
    if store.stats().compacted_bytes == 0 {
        return Err("nothing was moved".into());
    }
    drop(elements);
    store.close().map_err(told)?;
    let store = StoreOn::open_on(medium.clone(), &with_images(1, Durability::EveryWrite)).map_err(told)?;
    let medium = after_power_failure(&medium, Model::CacheLine);
    drop(store);
    let again = StoreOn::open_on(medium, &with_images(2, Durability::EveryWrite)).map_err(told)?;
    if again.recovery().imaged == 0 {
        return Err("no image was read".into());
    }
    elements_are(&again, b"root", &[(b"element", &[1; 8])])?;
    audited(&again)
}

/// A unit of two blocks begins in an epoch that is committed, and ends in one that is not. The process dies, and power
/// fails while the next one opens the store.
///
/// # Errors
/// What is wrong.
pub fn confirmed_by_recovery() -> Result<(), String> {
    // Nothing is committed by itself, and after a process died all counts.
    let options = |boot| options(boot, Durability::Interval(Duration::from_secs(1_000_000)));
    let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(told)?;
    let written = store.writer().map_err(told)?.unit(|unit| {
        unit.put(b"a", &[1; 300])?;
        store.commit()?;
        unit.put(b"b", &[2; 300])
    });
    written.map_err(told)?;
    let whole = |log: &Log| log.up_to(log.events.len());
    let log = whole(&medium.log());
    medium.power_off();
    drop(store);
    let begin = log.events.len();
    let medium = SimMedium::resume(log);
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(told)?;
    let found = |store: &StoreOn<SimMedium>| -> Result<[bool; 2], String> {
        let is_there = |key: &[u8]| store.get(key).map(|value| value.is_some()).map_err(told);
        Ok([is_there(b"a")?, is_there(b"b")?])
    };
    if found(&store)? != [true, true] {
        return Err("a process that dies takes a unit with it".into());
    }
    let log = whole(&medium.log());
    medium.power_off();
    drop(store);
    let mut walker = Walker::new(&log);
    walker.advance(begin);
    while let Some(position) = walker.next_point() {
        let (memory, len) = walker.form(&walker.none());
        let medium = SimMedium::from_image(Model::Page, LEN_MAX, memory, len);
        let again = StoreOn::open_on(medium.clone(), &options(2)).map_err(told)?;
        let found = found(&again)?;
        if found[0] != found[1] {
            return Err(format!(
                "at event {position} of {begin} to {}: half of a unit, {found:?}",
                log.events.len()
            ));
        }
        medium.power_off();
        drop(again);
    }
    Ok(())
}

/// Two units go on to one block, each from another: one that commits, and one that is given up. Then power fails.
///
/// # Errors
/// What is wrong.
pub fn two_units_in_one_block() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let options = |boot| Options { granule_bytes: Some(4096), ..options(boot, Durability::EveryWrite) };
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(told)?;
    let mut writer = store.writer().map_err(told)?;
    writer.put(b"fills the first block", &[0; 2800]).map_err(told)?;
    writer
        .unit(|unit| {
            unit.put(b"a", &[1; 400])?;
            unit.put(b"b", &[1; 2000])
        })
        .map_err(told)?;
    // Does not fit beside them, and leaves little.
    writer.put(b"fills the third block", &[0; 3500]).map_err(told)?;
    let given_up = writer.unit(|unit| {
        unit.put(b"c", &[2; 100])?;
        unit.put(b"d", &[2; 1200])?;
        Err::<(), Error>(Error::given_up("on purpose"))
    });
    if given_up.is_ok() {
        return Err("a unit that is given up commits".into());
    }
    audited(&store)?;
    let medium = after_power_failure(&medium, Model::CacheLine);
    let again = StoreOn::open_on(medium, &options(2)).map_err(told)?;
    for (key, wanted) in [(&b"a"[..], Some(400)), (b"b", Some(2000)), (b"c", None), (b"d", None)] {
        let found = again.get(key).map_err(told)?.map(|value| value.len());
        if found != wanted {
            return Err(format!(
                "{} has {found:?} bytes after a crash, wanted {wanted:?}",
                key.escape_ascii()
            ));
        }
    }
    audited(&again)
}

/// The first record of a key is in a block that stays because somebody reads it; all others go, and then the tombstone.
///
/// # Errors
/// What is wrong.
pub fn kept_and_deleted() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut first = options(1, Durability::EveryWrite);
    // Where room is short nothing is moved out of blocks that stay.
    first.tuning.granules_initial = 256;
    let store = StoreOn::open_on(medium.clone(), &first).map_err(told)?;
    // More than fill a block, so that what was before is sealed, and nearly all of it is dead: but for what fills the compactor's
    // block, so that what was moved there is moved on.
    let fill = |round: u8| {
        store.put(&[round], &[round; 40])?;
        (0..12).try_for_each(|_| store.put(b"filler", &[round; 40]))
    };
    store.put(b"key", &[1; 40]).map_err(told)?;
    let kept = store.get(b"key").map_err(told)?;
    fill(0).map_err(told)?;
    store.put(b"key", &[2; 40]).map_err(told)?;
    for round in 1..8 {
        fill(round).map_err(told)?;
        store.maintain().map_err(told)?;
    }
    audited(&store)?;
    store.delete(b"key").map_err(told)?;
    for round in 8..80 {
        fill(round).map_err(told)?;
        store.maintain().map_err(told)?;
        let medium = after_power_failure(&medium, Model::CacheLine);
        let again = StoreOn::open_on(medium, &options(2, Durability::EveryWrite)).map_err(told)?;
        if again.get(b"key").map_err(told)?.is_some() {
            return Err(format!("round {round}: a deleted key came back in a crash"));
        }
    }
    if kept.as_deref() != Some(&[1; 40][..]) {
        return Err("the value that was kept changed".into());
    }
    drop(kept);
    audited(&store)
}

/// The record of the catalog that names a table is damaged while the store is closed. Its table must be told of, and its records must stay,
/// over opens that serve the rest, maintenance, and closes.
///
/// # Errors
/// What is wrong.
pub fn name_lost() -> Result<(), String> {
    const KEYS: u64 = 30;
    let options = |boot, on_damage| Options { on_damage, ..options(boot, Durability::EveryWrite) };
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, OnDamage::Refuse)).map_err(told)?;
    let table = store.table(b"the-one-that-is-lost", IndexKind::Hash).map_err(told)?;
    let other = store.table(b"the-other", IndexKind::Ordered).map_err(told)?;
    for key in 0..KEYS {
        table.put(&key.to_le_bytes(), b"lost").map_err(told)?;
        other.put(&key.to_le_bytes(), b"kept").map_err(told)?;
    }
    drop((table, other));
    store.close().map_err(told)?;
    let mut lines = medium.memory().snapshot();
    let mut hurt = 0;
    let name = u64::from_le_bytes(*b"the-one-");
    for word in lines.iter_mut().flatten().filter(|word| **word == name) {
        *word ^= 1;
        hurt += 1;
    }
    if hurt == 0 {
        return Err("no record names the table".into());
    }
    let len = duramen_media::Bytes::len(&medium);
    let again = |lines: &[[u64; 8]]| {
        SimMedium::from_image(Model::CacheLine, LEN_MAX, Arc::new(Memory::from_lines(lines, LEN_MAX)), len)
    };
    for boot in 2..5 {
        if StoreOn::open_on(again(&lines), &options(boot, OnDamage::Refuse)).is_ok() {
            return Err(format!("boot {boot}: a store that lost the name of a table opens"));
        }
        let report = check_on(&again(&lines), &options(boot, OnDamage::Refuse)).map_err(told)?;
        let wanted = [(Some(b"the-other".to_vec()), KEYS), (None, KEYS)];
        if report.tables != wanted {
            return Err(format!("boot {boot}: a check tells of the tables {:?}", report.tables));
        }
        let medium = again(&lines);
        let store = StoreOn::open_on(medium.clone(), &options(boot, OnDamage::Serve)).map_err(told)?;
        let names: Vec<Vec<u8>> = store.tables().into_iter().map(|table| table.name).collect();
        if names != [b"the-other".to_vec()] {
            return Err(format!("boot {boot}: the tables {names:?} are served"));
        }
        // Blocks come to be mostly dead, and are compacted.
        for key in 0..200u64 {
            store.put(b"filler", &key.to_le_bytes()).map_err(told)?;
            store.maintain().map_err(told)?;
        }
        store.close().map_err(told)?;
        lines = medium.memory().snapshot();
    }
    let target = Options { medium: MediumKind::Volatile, ..options(9, OnDamage::Refuse) };
    let target = target.open("none").map_err(told)?;
    let (saved, _) = salvage_on(&again(&lines), &target, &options(9, OnDamage::Refuse)).map_err(told)?;
    let found: Vec<(String, u64)> = target
        .tables()
        .into_iter()
        .map(|table| (String::from_utf8_lossy(&table.name).into_owned(), table.keys))
        .collect();
    match &found[..] {
        [(lost, KEYS), (other, KEYS)] if lost.starts_with("lost-") && other == "the-other" => {}
        _ => return Err(format!("{saved} keys were saved, in the tables {found:?}")),
    }
    Ok(())
}

/// Values of some keys of an ordered index are damaged while the store is closed: of their keys it knows the place alone, and the first
/// bytes, which others have too. Keys are written around them. Each that was written since is found, and in order.
///
/// # Errors
/// What is wrong.
pub fn written_around_damage() -> Result<(), String> {
    (1..=60).try_for_each(|seed| around_damage(seed).map_err(|what| format!("seed {seed}: {what}")))
}

fn around_damage(seed: u64) -> Result<(), String> {
    // Of any value of so many equal bytes a whole word is in the memory, wherever the value begins.
    const VALUE_BYTES: usize = 24;
    const HURT: u8 = b'-';
    let mut rng = Rng::new(seed);
    let (leaf_slots, numbers) = ([2, 4, 14][rng.below(3) as usize], [20, 60, 200][rng.below(3) as usize]);
    let options = |boot| {
        let mut options = with_images(boot, Durability::EveryWrite);
        (options.index, options.index_cache_slots) = (IndexKind::Ordered, 0);
        options.on_damage = OnDamage::Serve;
        options.tuning.leaf_slots = leaf_slots;
        options
    };
    let key = |number: u64| format!("{number:030}").into_bytes();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(told)?;
    let mut known = BTreeMap::new();
    for _ in 0..numbers / 2 {
        let (key, is_hurt) = (key(rng.below(numbers)), rng.one_in(3));
        if known.contains_key(&key) {
            continue;
        }
        let value = [if is_hurt { HURT } else { b'+' }; VALUE_BYTES];
        store.put(&key, &value).map_err(told)?;
        known.insert(key, (!is_hurt).then_some(value));
    }
    // What is damaged is not known any more.
    known.retain(|_, value| value.is_some());
    store.close().map_err(told)?;
    let mut lines = medium.memory().snapshot();
    let hurt = u64::from_le_bytes([HURT; 8]);
    lines.iter_mut().flatten().filter(|word| **word == hurt).for_each(|word| *word ^= 1);
    let len = duramen_media::Bytes::len(&medium);
    let medium =
        SimMedium::from_image(Model::CacheLine, LEN_MAX, Arc::new(Memory::from_lines(&lines, LEN_MAX)), len);
    let store = StoreOn::open_on(medium, &options(2)).map_err(told)?;
    for step in 0..numbers * 3 {
        let key = key(rng.below(numbers));
        match rng.below(12) {
            0 => store.maintain().map_err(told)?,
            1..4 => {
                store.delete(&key).map_err(told)?;
                known.insert(key, None);
            }
            _ => {
                let value = [b'a' + (step % 26) as u8; VALUE_BYTES];
                store.put(&key, &value).map_err(told)?;
                known.insert(key, Some(value));
            }
        }
    }
    for (key, value) in &known {
        let found = match store.get(key) {
            Ok(found) => found.map(|found| found.to_vec()),
            // Of one that was deleted since, a damaged record beside it may be.
            Err(error) if value.is_none() && error.kind() == ErrorKind::Corrupt => continue,
            Err(error) => return Err(format!("{:?}: {error}", String::from_utf8_lossy(key))),
        };
        if found.as_deref() != value.as_ref().map(|value| &value[..]) {
            return Err(format!("{:?} has {found:?}, not {value:?}", String::from_utf8_lossy(key)));
        }
    }
    let mut seen = Vec::new();
    for value in store.range(..).map_err(told)? {
        match value {
            Ok(value) => seen.push(value.key().to_vec()),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(told(error)),
        }
    }
    if !seen.is_sorted() {
        return Err("keys are not in order".into());
    }
    let missing = known.iter().find(|(key, value)| value.is_some() && seen.binary_search(key).is_err());
    if let Some((key, _)) = missing {
        return Err(format!("{:?} is not among all", String::from_utf8_lossy(key)));
    }
    // What is damaged counts until its block is freed.
    for _ in 0..40 {
        store.maintain().map_err(told)?;
    }
    audited(&store)
}

/// A writer makes a collection within a group; another one, which holds the key then, gives it another name, before that group is
/// settled. Power fails anywhere.
///
/// # Errors
/// What is wrong.
pub fn renamed_before_settled() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(told)?;
    let keys = [&b"one"[..], b"two"];
    let elements = store.new_collection(ElementOrder::Unordered);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut writer = store.writer().map_err(told)?;
    writer.group();
    let made = writer.locked(keys, |writer| {
        writer.unit(|unit| {
            unit.store().put_with(keys[0], b"", root)?;
            unit.collection(&elements).put(b"element", &[1; 100])
        })
    });
    made.map_err(told)?;
    let rename = || -> duramen::Result<()> {
        let mut writer = store.writer()?;
        writer.locked(keys, |writer| {
            let found = writer.get(keys[0])?.map(|found| found.meta());
            let mut batch = Batch::new();
            batch.delete(keys[0]).put_with(keys[1], b"", found.unwrap_or_default());
            writer.apply(&batch).map(|_| ())
        })
    };
    // Another thread: what it drains is its own.
    std::thread::scope(|scope| scope.spawn(rename).join())
        .map_err(|_| "the rename panicked".to_owned())?
        .map_err(told)?;
    writer.settle().map_err(told)?;
    let log = medium.log();
    let mut walker = Walker::new(&log);
    let mut rng = Rng::new(1);
    while let Some(at) = walker.next_point() {
        for choice in walker.choices(&mut rng, IMAGES_AT_ONCE) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
            let found = StoreOn::open_on(image, &options(2, Durability::EveryWrite)).map_err(told)?;
            let mut places = Vec::new();
            for key in keys {
                let names = found.get(key).map_err(told)?.and_then(|root| root.meta().collection);
                let elements = names.map(|names| found.collection(names)).transpose().map_err(told)?;
                places.push(elements.map(|elements| elements.len()));
            }
            if !matches!(places[..], [None, None] | [Some(1), None] | [None, Some(1)]) {
                return Err(format!("at event {at} elements are under the keys: {places:?}"));
            }
        }
    }
    Ok(())
}
