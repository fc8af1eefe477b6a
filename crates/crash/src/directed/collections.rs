//! Collections: their roots, and the elements that reads show.

use super::threads::{Work, in_all_ways};
use super::{LEN_MAX, after_power_failure, audited, each_image_since, elements_are, options, reported};
use duramen::{Batch, CollectionOn, Durability, ElementOrder, Error, Meta, StoreOn};
use duramen_media::sim::{Log, Model, SimMedium};

/// A writer makes a collection within a group. Another writer, which then locks the key, renames the collection before
/// that group is flushed. Power fails anywhere.
///
/// # Errors
/// Returns a description of the violation.
pub fn renamed_before_durable() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(reported)?;
    let keys = [&b"one"[..], b"two"];
    let elements = store.new_collection(ElementOrder::Unordered);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut writer = store.writer().map_err(reported)?;
    writer.group();
    let made = writer.locked(keys, |writer| {
        writer.transaction(|transaction| {
            transaction.store().put_with(keys[0], b"", root)?;
            transaction.collection(&elements).put(b"element", [1; 100])
        })
    });
    made.map_err(reported)?;
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
        .map_err(reported)?;
    writer.flush_group().map_err(reported)?;
    each_image_since(&medium, Model::CacheLine, 0, |found, at| {
        let mut places = Vec::new();
        for key in keys {
            let names = found.get(key).map_err(reported)?.and_then(|root| root.meta().collection);
            let elements = names.map(|names| found.collection(names)).transpose().map_err(reported)?;
            places.push(elements.map(|elements| elements.len()));
        }
        if !matches!(places[..], [None, None] | [Some(1), None] | [None, Some(1)]) {
            return Err(format!("at event {at} elements are under the keys: {places:?}"));
        }
        Ok(())
    })
}

/// The root of a collection of two elements, and the collection.
fn made(
    store: &StoreOn<SimMedium>,
    root: &[u8],
    order: ElementOrder,
) -> duramen::Result<(Meta, CollectionOn<SimMedium>)> {
    let elements = store.new_collection(order);
    let names = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut batch = Batch::new();
    batch.put_with(root, b"", names).collection(&elements).put(b"first", [1; 8]).put(b"second", [2; 8]);
    let _ = store.apply(&batch)?;
    Ok((names, elements))
}

/// An element of a collection gets another place in its order.
///
/// # Errors
/// Returns a description of the violation.
pub fn overwritten() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium, &options(1, Durability::EveryWrite)).map_err(reported)?;
    let (_, elements) = made(&store, b"root", ElementOrder::ByValue).map_err(reported)?;
    elements.put(b"first", [3; 8]).map_err(reported)?;
    elements_are(&store, b"root", &[(b"second", &[2; 8]), (b"first", &[3; 8])])?;
    audited(&store)
}

/// A thread overwrites an element, and another one iterates over the ranks.
///
/// # Errors
/// Returns a description of the violation.
pub fn counted_beside_overwrites() -> Result<(), String> {
    const ROUNDS: u8 = 10;
    let make: Work = |store| made(store, b"root", ElementOrder::ByKey).map(|_| ());
    let overwrites: Work = |store| {
        let elements = named_by(store, b"root")?;
        (0..ROUNDS).try_for_each(|round| elements.put(b"first", [round; 8]))
    };
    let counts: Work = |store| {
        let elements = named_by(store, b"root")?;
        (0..ROUNDS).try_for_each(|_| {
            let mut found = 0;
            let visit = &mut |_: &duramen::Value<'_>| {
                found += 1;
                true
            };
            elements.ranked(0, false, visit)?;
            if found == 2 { Ok(()) } else { Err(Error::aborted(format!("found {found} elements, wanted 2"))) }
        })
    };
    in_all_ways(Durability::EveryWrite, make, [overwrites, counts])
}

fn named_by(store: &StoreOn<SimMedium>, root: &[u8]) -> duramen::Result<CollectionOn<SimMedium>> {
    let names = store.get(root)?.and_then(|root| root.meta().collection);
    store.collection(names.ok_or_else(|| Error::aborted("found no root"))?)
}

/// A collection is renamed, written under the new name, and gets a second name; then one of the names is deleted.
///
/// # Errors
/// Returns a description of the violation.
pub fn named_anew() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium, &options(1, Durability::EveryWrite)).map_err(reported)?;
    let (names, elements) = made(&store, b"one", ElementOrder::ByKey).map_err(reported)?;
    let mut batch = Batch::new();
    batch.delete(b"one").put_with(b"two", b"", names);
    let _ = store.apply(&batch).map_err(reported)?;
    elements_are(&store, b"two", &[(b"first", &[1; 8]), (b"second", &[2; 8])])?;
    elements.put(b"first", [3; 8]).map_err(reported)?;
    store.put_with(b"three", b"", names).map_err(reported)?;
    store.delete(b"two").map_err(reported)?;
    elements_are(&store, b"three", &[(b"first", &[3; 8]), (b"second", &[2; 8])])?;
    audited(&store)
}

/// A transaction deletes the root of a collection, and is aborted.
///
/// # Errors
/// Returns a description of the violation.
pub fn deleted_absent() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium, &options(1, Durability::EveryWrite)).map_err(reported)?;
    let (_, elements) = made(&store, b"root", ElementOrder::ByKey).map_err(reported)?;
    let are_there = || elements_are(&store, b"root", &[(b"first", &[1; 8]), (b"second", &[2; 8])]);
    let mut meanwhile = Ok(());
    let aborted = store.writer().map_err(reported)?.transaction(|transaction| {
        transaction.delete(b"root")?;
        meanwhile = are_there();
        Err::<(), Error>(Error::aborted("on purpose"))
    });
    if aborted.is_ok() {
        return Err("an aborted transaction commits".into());
    }
    meanwhile.map_err(|what| format!("while the transaction runs, {what}"))?;
    are_there()?;
    elements.put(b"first", [1; 8]).map_err(reported)?;
    audited(&store)
}

/// An element is overwritten by an active transaction and by an unflushed group. A concurrent reader that iterates over
/// the ranks sees the state before the transaction, and nothing that a power failure undoes.
///
/// # Errors
/// Returns a description of the violation.
pub fn ranked_before_durable() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(reported)?;
    let (_, elements) = made(&store, b"root", ElementOrder::ByKey).map_err(reported)?;
    let mut writer = store.writer().map_err(reported)?;
    let mut meanwhile = Ok(());
    let run = writer.transaction(|transaction| {
        transaction.collection(&elements).put(b"first", [3; 8])?;
        meanwhile = elements_are(&store, b"root", &[(b"first", &[1; 8]), (b"second", &[2; 8])]);
        Ok(())
    });
    run.map_err(reported)?;
    meanwhile.map_err(|what| format!("while the transaction runs, {what}"))?;
    writer.group();
    writer.collection(&elements).put(b"first", [4; 8]).map_err(reported)?;
    let wanted: [(&[u8], &[u8]); 2] = [(b"first", &[4; 8]), (b"second", &[2; 8])];
    elements_are(&store, b"root", &wanted)?;
    let failed = after_power_failure(&medium, Model::CacheLine);
    writer.flush_group().map_err(reported)?;
    let again = StoreOn::open_on(failed, &options(2, Durability::EveryWrite)).map_err(reported)?;
    elements_are(&again, b"root", &wanted).map_err(|what| format!("a returned value is undone: {what}"))
}
