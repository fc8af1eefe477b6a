//! Compaction of blocks: moving, counting, and freeing records.

use super::{LEN_MAX, after_power_failure, audited, each_image_since, options, reported};
use duramen::{Durability, Options, StoreOn};
use duramen_media::sim::{Log, Model, SimMedium};

/// A key is overwritten more often than a slot counts, and deleted; the writes after that are not committed.
///
/// # Errors
/// Returns a description of the violation.
pub fn behind_the_tail() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let options = Options { extent_bytes: Some(4096), ..options(1, Durability::Manual) };
    let store = StoreOn::open_on(medium.clone(), &options).map_err(reported)?;
    let mut writer = store.writer().map_err(reported)?;
    (0..60u64).try_for_each(|round| writer.put(b"key", round.to_le_bytes())).map_err(reported)?;
    writer.delete(b"key").map_err(reported)?;
    // That fills a block. The next one is nearly all live, so it stays.
    writer.put(b"other", [0; 1500]).map_err(reported)?;
    writer.put(b"another", [0; 3000]).map_err(reported)?;
    store.commit().map_err(reported)?;
    // After the last commit: these do not count, and stay until their block is freed.
    (0..3u64).try_for_each(|round| writer.put(b"key", round.to_le_bytes())).map_err(reported)?;
    drop(writer);
    drop(store);
    let store = StoreOn::open_on(medium, &options).map_err(reported)?;
    audited(&store)?;
    for round in 0..40 {
        store.put(b"third", [round; 500]).map_err(reported)?;
        store.commit().map_err(reported)?;
        store.maintain().map_err(reported)?;
    }
    if store.stats().recounts == 0 {
        return Err("nothing was counted again".into());
    }
    audited(&store)
}

/// Compaction moves keys out of one block and frees it: no other drain comes between the two. Power fails anywhere.
///
/// # Errors
/// Returns a description of the violation.
pub fn copied_and_freed() -> Result<(), String> {
    const STAYS: [u8; 40] = [3; 40];
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(reported)?;
    let keys = [b"one", b"two"];
    for key in keys {
        store.put(key, STAYS).map_err(reported)?;
        (0..2).try_for_each(|_| store.put(b"filler", [1; 40])).map_err(reported)?;
    }
    // That is the oldest block, and the blocks after it stay live for long. It is compacted and freed before the blocks
    // that are completely dead.
    (0..60).try_for_each(|key| store.put(format!("live {key:02}").as_bytes(), STAYS)).map_err(reported)?;
    (0..20).try_for_each(|_| store.put(b"filler", [2; 40])).map_err(reported)?;
    let from = medium.position();
    (0..2).try_for_each(|_| store.maintain()).map_err(reported)?;
    let stats = store.stats();
    if stats.compacted_bytes == 0 || stats.freed_extents == 0 {
        return Err("nothing was moved and freed".into());
    }
    each_image_since(&medium, Model::CacheLine, from, |found, at| {
        for key in keys {
            if found.get(key).map_err(reported)?.is_none_or(|value| *value != STAYS) {
                return Err(format!("{} is lost at event {at}", String::from_utf8_lossy(key)));
            }
        }
        Ok(())
    })
}

/// A block of keys, and the block of their tombstones, are freed one after the other. Power fails anywhere.
///
/// # Errors
/// Returns a description of the violation.
pub fn deleted_and_freed() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(reported)?;
    let keys = || (0..24u8).map(|number| [b'k', number]);
    keys().try_for_each(|key| store.put(key, [1; 40])).map_err(reported)?;
    keys().try_for_each(|key| store.delete(key).map(drop)).map_err(reported)?;
    // The block with the last tombstone is sealed.
    (0..12).try_for_each(|_| store.put(b"filler", [2; 40])).map_err(reported)?;
    let from = medium.position();
    (0..6).try_for_each(|_| store.maintain()).map_err(reported)?;
    if store.stats().freed_extents < 4 {
        return Err("the blocks of the keys and of the tombstones were not freed".into());
    }
    each_image_since(&medium, Model::Page, from, |found, at| {
        for key in keys() {
            if found.get(key).map_err(reported)?.is_some() {
                return Err(format!("a deleted key reappeared at event {at}"));
            }
        }
        Ok(())
    })
}

/// Compaction concurrent with a group whose writes are not committed. The group is open, so nothing is freed, because
/// freeing would commit.
///
/// # Errors
/// Returns a description of the violation.
pub fn copied_and_shown() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(reported)?;
    let mut writer = store.writer().map_err(reported)?;
    writer.group();
    writer.put(b"key", b"not committed").map_err(reported)?;
    for round in 0..20 {
        writer.put(b"filler", [round; 40]).map_err(reported)?;
    }
    let before = store.stats().compacted_bytes;
    store.maintain().map_err(reported)?;
    if store.stats().compacted_bytes == before {
        return Err("nothing was moved".into());
    }
    let shown = store.get(b"key").map_err(reported)?.map(|value| value.to_vec());
    let found =
        StoreOn::open_on(after_power_failure(&medium, Model::Page), &options(2, Durability::EveryWrite))
            .map_err(reported)?
            .get(b"key")
            .map_err(reported)?
            .map(|value| value.to_vec());
    writer.flush_group().map_err(reported)?;
    match shown {
        None => Err("a reader does not wait for the commit, and finds no value".into()),
        shown if shown != found => Err("a reader got a value that a power failure undid".into()),
        _ => Ok(()),
    }
}

/// The first record of a key is in a block that a reader pins; all other records are reclaimed, and then the tombstone.
///
/// # Errors
/// Returns a description of the violation.
pub fn kept_and_deleted() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut first = options(1, Durability::EveryWrite);
    // When space is short, pinned blocks are not compacted.
    first.tuning.extents_initial = 256;
    let store = StoreOn::open_on(medium.clone(), &first).map_err(reported)?;
    // These writes fill more than a block, so the block with the earlier records is sealed. Nearly all of it is dead.
    // The live rest fills the compactor's block, so that moved records are moved again.
    let fill = |round: u8| {
        store.put([round], [round; 40])?;
        (0..12).try_for_each(|_| store.put(b"filler", [round; 40]))
    };
    store.put(b"key", [1; 40]).map_err(reported)?;
    let kept = store.get(b"key").map_err(reported)?;
    fill(0).map_err(reported)?;
    store.put(b"key", [2; 40]).map_err(reported)?;
    for round in 1..8 {
        fill(round).map_err(reported)?;
        store.maintain().map_err(reported)?;
    }
    audited(&store)?;
    store.delete(b"key").map_err(reported)?;
    for round in 8..80 {
        fill(round).map_err(reported)?;
        store.maintain().map_err(reported)?;
        let medium = after_power_failure(&medium, Model::CacheLine);
        let again = StoreOn::open_on(medium, &options(2, Durability::EveryWrite)).map_err(reported)?;
        if again.get(b"key").map_err(reported)?.is_some() {
            return Err(format!("round {round}: a deleted key reappeared after a crash"));
        }
    }
    if kept.as_deref() != Some(&[1; 40][..]) {
        return Err("the pinned value changed".into());
    }
    drop(kept);
    audited(&store)
}
