//! Index checkpoints that are written concurrently with other work.

use super::{LEN_MAX, after_power_failure, audited, elements_are, reported, with_images};
use duramen::tuning::Phase;
use duramen::{Batch, Durability, ElementOrder, Error, ErrorKind, Meta, StoreOn, TransactionOn};
use duramen_media::sim::{Log, Model, SimMedium};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// A group overwrites a key whose record lies in a block that recovery does not read again. Then another thread writes
/// an index checkpoint. Power fails before the group is flushed.
///
/// # Errors
/// Returns a description of the violation.
pub fn checkpoint_beside_group() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store =
        StoreOn::open_on(medium.clone(), &with_images(1, Durability::EveryWrite)).map_err(reported)?;
    store.put(b"key", b"before").map_err(reported)?;
    // The block of the key is full, so it is sealed.
    (0..40u8).try_for_each(|key| store.put([key], [key; 40])).map_err(reported)?;
    let mut writer = store.writer().map_err(reported)?;
    writer.group();
    writer.put(b"key", b"of the group").map_err(reported)?;
    let before = store.stats().checkpoints;
    // Another thread, because each thread waits only for the durability of its own writes.
    std::thread::scope(|scope| scope.spawn(|| store.maintain()).join())
        .map_err(|_| "maintenance panicked".to_owned())?
        .map_err(reported)?;
    if store.stats().checkpoints == before {
        return Err("no checkpoint was written".into());
    }
    let failed = after_power_failure(&medium, Model::CacheLine);
    let again = StoreOn::open_on(failed, &with_images(2, Durability::EveryWrite)).map_err(reported)?;
    let found = again.get(b"key").map_err(reported)?.map(|value| value.to_vec());
    writer.flush_group().map_err(reported)?;
    if !matches!(found.as_deref(), Some(b"before" | b"of the group")) {
        return Err(format!("the key has {found:?} after a crash"));
    }
    audited(&store)
}

/// While an index checkpoint is written, a transaction overwrites a key whose record lies in a block that recovery does
/// not read again. Power fails before the transaction ends.
///
/// # Errors
/// Returns a description of the violation.
pub fn checkpoint_beside_transaction() -> Result<(), String> {
    beside_image(
        |store| store.put(b"key", b"before"),
        |transaction, ()| transaction.put(b"key", b"of the transaction"),
        |again| {
            let found = again.get(b"key").map_err(reported)?.map(|value| value.to_vec());
            let is_right = found.as_deref() == Some(b"before");
            if is_right { Ok(()) } else { Err(format!("the key has {found:?} after a crash")) }
        },
    )
}

/// The same for an element whose place in the order of its collection changes.
///
/// # Errors
/// Returns a description of the violation.
pub fn checkpoint_beside_transaction_of_elements() -> Result<(), String> {
    beside_image(
        |store| {
            let elements = store.new_collection(ElementOrder::ByValue);
            let root = Meta { collection: Some(elements.id()), ..Meta::default() };
            let mut batch = Batch::new();
            batch.put_with(b"root", b"", root);
            batch.collection(&elements).put(b"one", [1; 8]).put(b"two", [2; 8]);
            store.apply(&batch).map(|_| elements)
        },
        |transaction, elements| transaction.collection(elements).put(b"one", [3; 8]),
        |again| elements_are(again, b"root", &[(b"one", &[1; 8]), (b"two", &[2; 8])]),
    )
}

/// While an index checkpoint is written, a transaction runs `write` on the content that `make` has made, in a block
/// that recovery does not read again. Power fails before the transaction ends; `look` then checks the content.
fn beside_image<T: Sync>(
    make: impl FnOnce(&StoreOn<SimMedium>) -> duramen::Result<T>,
    write: impl FnOnce(&mut TransactionOn<'_, SimMedium>, &T) -> duramen::Result<()> + Send,
    look: impl FnOnce(&StoreOn<SimMedium>) -> Result<(), String>,
) -> Result<(), String> {
    let (store, medium, begins, written) = waiting_at_image()?;
    let (end, ends) = mpsc::channel::<()>();
    let made = make(&store).map_err(reported)?;
    // The block of that content is full, so it is sealed.
    (0..16u8).try_for_each(|key| store.put([key, 0], [key])).map_err(reported)?;
    (0..40u8).try_for_each(|key| store.put([key], [key; 40])).map_err(reported)?;
    std::thread::scope(|scope| {
        let (store, made) = (&store, &made);
        let transaction = scope.spawn(move || -> duramen::Result<()> {
            store.writer()?.transaction_unchecked(|transaction| {
                if begins.recv().is_err() {
                    return Ok(());
                }
                drop(begins);
                write(transaction, made)?;
                let _ = written.send(());
                let _ = ends.recv();
                Err(Error::aborted("on purpose"))
            })
        });
        let before = store.stats().checkpoints;
        store.maintain().map_err(reported)?;
        if store.stats().checkpoints == before {
            return Err("no checkpoint was written".into());
        }
        let medium = after_power_failure(&medium, Model::CacheLine);
        let again = StoreOn::open_on(medium, &with_images(2, Durability::EveryWrite)).map_err(reported)?;
        let looked = look(&again);
        drop(end);
        match transaction.join() {
            Ok(Err(error)) if error.kind() == ErrorKind::Aborted => {}
            other => return Err(format!("found {other:?} at the end of the transaction, wanted an abort")),
        }
        looked?;
        audited(store)
    })
}

/// A store whose maintenance waits at the beginning of the first image, a signal that it waits, and a signal that lets
/// it continue.
type Waiting = (StoreOn<SimMedium>, SimMedium, mpsc::Receiver<()>, mpsc::Sender<()>);

fn waiting_at_image() -> Result<Waiting, String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = with_images(1, Durability::EveryWrite);
    let (begin, begins) = mpsc::channel();
    let (written, is_written) = mpsc::channel();
    let waits = Mutex::new(is_written);
    options.tuning.on_phase = Some(Arc::new(move |phase, is_beginning| {
        // Only once: afterwards no thread listens.
        if phase == Phase::Checkpoint && is_beginning && begin.send(()).is_ok() {
            let _ = waits.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }));
    let store = StoreOn::open_on(medium.clone(), &options).map_err(reported)?;
    Ok((store, medium, begins, written))
}

/// The same with a collection, which lies in blocks that recovery does not read again.
fn with_collection_beside_image() -> Result<Waiting, String> {
    let (store, medium, begins, written) = waiting_at_image()?;
    let elements = store.new_collection(ElementOrder::ByKey);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut batch = Batch::new();
    batch.put_with(b"root", b"", root).collection(&elements).put(b"element", [1; 8]);
    let _ = store.apply(&batch).map_err(reported)?;
    // Blocks are full to their ends, so they are sealed; an element lies in another one than the root.
    let fill = |of: u8| (0..16u8).try_for_each(|key| store.put([key, of], [key])).map_err(reported);
    fill(0)?;
    elements.put(b"second", [2; 8]).map_err(reported)?;
    fill(1)?;
    (0..40u8).try_for_each(|key| store.put([key], [key; 40])).map_err(reported)?;
    Ok((store, medium, begins, written))
}

/// A group deletes the root of a collection, and `then` is called before the group is flushed. Power fails, and the
/// collection is still there.
fn root_deleted(
    (store, medium): (&StoreOn<SimMedium>, &SimMedium),
    then: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let mut writer = store.writer().map_err(reported)?;
    writer.group();
    let _ = writer.transaction(|transaction| transaction.delete(b"root")).map_err(reported)?;
    then()?;
    let failed = after_power_failure(medium, Model::CacheLine);
    writer.flush_group().map_err(reported)?;
    let again = StoreOn::open_on(failed, &with_images(2, Durability::EveryWrite)).map_err(reported)?;
    elements_are(&again, b"root", &[(b"element", &[1; 8]), (b"second", &[2; 8])])?;
    audited(&again)
}

/// While an index checkpoint is written, a group deletes the root of a collection. Power fails before the group is
/// flushed.
///
/// # Errors
/// Returns a description of the violation.
pub fn root_deleted_beside_checkpoint() -> Result<(), String> {
    let (store, medium, begins, written) = with_collection_beside_image()?;
    let before = store.stats().checkpoints;
    std::thread::scope(|scope| {
        let maintained = scope.spawn(|| store.maintain());
        begins.recv().map_err(reported)?;
        drop(begins);
        root_deleted((&store, &medium), || {
            written.send(()).map_err(reported)?;
            maintained.join().map_err(|_| "maintenance panicked".to_owned())?.map_err(reported)?;
            let is_written = store.stats().checkpoints > before;
            if is_written { Ok(()) } else { Err("no checkpoint was written".into()) }
        })
    })
}

/// A group deletes the root of a collection; then maintenance runs. Power fails before the group is flushed.
///
/// # Errors
/// Returns a description of the violation.
pub fn root_deleted_before_checkpoint() -> Result<(), String> {
    let (store, medium, begins, written) = with_collection_beside_image()?;
    drop((begins, written));
    root_deleted((&store, &medium), || {
        // Another thread, because each thread waits only for the durability of its own writes.
        let maintain = || (0..5).try_for_each(|_| store.maintain());
        std::thread::scope(|scope| scope.spawn(maintain).join())
            .map_err(|_| "maintenance panicked".to_owned())?
            .map_err(reported)
    })
}

/// Compaction moves the root of a collection; then an index checkpoint is written, and power fails.
///
/// # Errors
/// Returns a description of the violation.
pub fn root_moved_before_checkpoint() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = with_images(1, Durability::EveryWrite);
    // Only on request.
    options.tuning.checkpoint_bytes_min = u64::MAX;
    let store = StoreOn::open_on(medium.clone(), &options).map_err(reported)?;
    let put_all = || (0..40u8).try_for_each(|key| store.put([key], [key; 40])).map_err(reported);
    let elements = store.new_collection(ElementOrder::ByKey);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut batch = Batch::new();
    batch.put_with(b"root", b"", root).collection(&elements).put(b"element", [1; 8]);
    let _ = store.apply(&batch).map_err(reported)?;
    for _ in 0..3 {
        put_all()?;
        store.maintain().map_err(reported)?;
    }
    if store.stats().compacted_bytes == 0 {
        return Err("nothing was moved".into());
    }
    drop(elements);
    store.close().map_err(reported)?;
    let store =
        StoreOn::open_on(medium.clone(), &with_images(1, Durability::EveryWrite)).map_err(reported)?;
    let medium = after_power_failure(&medium, Model::CacheLine);
    drop(store);
    let again = StoreOn::open_on(medium, &with_images(2, Durability::EveryWrite)).map_err(reported)?;
    if again.recovery().checkpointed == 0 {
        return Err("no checkpoint was read".into());
    }
    elements_are(&again, b"root", &[(b"element", &[1; 8])])?;
    audited(&again)
}
