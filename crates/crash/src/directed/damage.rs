//! Stores that are damaged while they are closed.

use super::{LEN_MAX, audited, options, reported, with_images};
use duramen::{Durability, ErrorKind, IndexKind, OnCorruption, Options, StoreOn, check_on, salvage_on};
use duramen_media::MediumKind;
use duramen_media::sim::{Log, Memory, Model, Rng, SimMedium};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The catalog record of a table's name is damaged while the store is closed. The check must report the table, and the
/// table's records must survive opens that serve the rest, maintenance, and closes.
///
/// # Errors
/// Returns a description of the violation.
pub fn name_lost() -> Result<(), String> {
    const KEYS: u64 = 30;
    let options = |boot, on_corruption| Options { on_corruption, ..options(boot, Durability::EveryWrite) };
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, OnCorruption::Refuse)).map_err(reported)?;
    let table = store.table(b"the-one-that-is-lost", IndexKind::Hash).map_err(reported)?;
    let other = store.table(b"the-other", IndexKind::Ordered).map_err(reported)?;
    for key in 0..KEYS {
        table.put(key.to_le_bytes(), b"lost").map_err(reported)?;
        other.put(key.to_le_bytes(), b"kept").map_err(reported)?;
    }
    drop((table, other));
    store.close().map_err(reported)?;
    let mut lines = medium.memory().snapshot();
    let mut hurt = 0;
    let name = u64::from_le_bytes(*b"the-one-");
    for word in lines.iter_mut().flatten().filter(|word| **word == name) {
        *word ^= 1;
        hurt += 1;
    }
    if hurt == 0 {
        return Err("found no record with the name of the table".into());
    }
    let len = duramen_media::Bytes::len(&medium);
    let again = |lines: &[[u64; 8]]| {
        SimMedium::from_image(Model::CacheLine, LEN_MAX, Arc::new(Memory::from_lines(lines, LEN_MAX)), len)
    };
    for boot in 2..5 {
        if StoreOn::open_on(again(&lines), &options(boot, OnCorruption::Refuse)).is_ok() {
            return Err(format!("boot {boot}: a store with a damaged table name opens without an error"));
        }
        let report = check_on(&again(&lines), &options(boot, OnCorruption::Refuse)).map_err(reported)?;
        let wanted = [(Some(b"the-other".to_vec()), KEYS), (None, KEYS)];
        if report.tables != wanted {
            return Err(format!("boot {boot}: a check reports the tables {:?}", report.tables));
        }
        let medium = again(&lines);
        let store =
            StoreOn::open_on(medium.clone(), &options(boot, OnCorruption::Serve)).map_err(reported)?;
        let names: Vec<Vec<u8>> = store.tables().into_iter().map(|table| table.name).collect();
        if names != [b"the-other".to_vec()] {
            return Err(format!("boot {boot}: the tables {names:?} are served"));
        }
        // Blocks become mostly dead, and are compacted.
        for key in 0..200u64 {
            store.put(b"filler", key.to_le_bytes()).map_err(reported)?;
            store.maintain().map_err(reported)?;
        }
        store.close().map_err(reported)?;
        lines = medium.memory().snapshot();
    }
    let target = Options { medium: MediumKind::Volatile, ..options(9, OnCorruption::Refuse) };
    let target = target.open("none").map_err(reported)?;
    let (saved, _) =
        salvage_on(&again(&lines), &target, &options(9, OnCorruption::Refuse)).map_err(reported)?;
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

/// Values of some keys of an ordered index are damaged while the store is closed. The index knows only the place of
/// these keys and their first bytes, which other keys share. Keys are written around them. Each key written since is
/// found, and in order; each damaged one still answers `Corrupt`.
///
/// # Errors
/// Returns a description of the violation.
pub fn written_around_damage() -> Result<(), String> {
    (1..=60).try_for_each(|seed| around_damage(seed).map_err(|what| format!("seed {seed}: {what}")))
}

fn around_damage(seed: u64) -> Result<(), String> {
    // A value of this many equal bytes has a whole word of them in memory, wherever the value begins.
    const VALUE_BYTES: usize = 24;
    const HURT: u8 = b'-';
    let mut rng = Rng::new(seed);
    let (leaf_slots, numbers) = ([2, 4, 14][rng.below(3) as usize], [20, 60, 200][rng.below(3) as usize]);
    let options = |boot| {
        let mut options = with_images(boot, Durability::EveryWrite);
        (options.index, options.index_cache_slots) = (IndexKind::Ordered, 0);
        options.on_corruption = OnCorruption::Serve;
        options.tuning.leaf_slots = leaf_slots;
        options
    };
    let key = |number: u64| format!("{number:030}").into_bytes();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(reported)?;
    let mut known = BTreeMap::new();
    for _ in 0..numbers / 2 {
        let (key, is_hurt) = (key(rng.below(numbers)), rng.one_in(3));
        if known.contains_key(&key) {
            continue;
        }
        let value = [if is_hurt { HURT } else { b'+' }; VALUE_BYTES];
        store.put(&key, value).map_err(reported)?;
        known.insert(key, (!is_hurt).then_some(value));
    }
    // What the damaged keys have is unknown until they are written.
    let mut hurt = BTreeSet::new();
    known.retain(|key: &Vec<u8>, value| value.is_some() || !hurt.insert(key.clone()));
    store.close().map_err(reported)?;
    let mut lines = medium.memory().snapshot();
    let damaged = u64::from_le_bytes([HURT; 8]);
    lines.iter_mut().flatten().filter(|word| **word == damaged).for_each(|word| *word ^= 1);
    let len = duramen_media::Bytes::len(&medium);
    let medium =
        SimMedium::from_image(Model::CacheLine, LEN_MAX, Arc::new(Memory::from_lines(&lines, LEN_MAX)), len);
    let store = StoreOn::open_on(medium, &options(2)).map_err(reported)?;
    for step in 0..numbers * 3 {
        let key = key(rng.below(numbers));
        match rng.below(12) {
            0 => store.maintain().map_err(reported)?,
            1..4 => {
                store.delete(&key).map_err(reported)?;
                hurt.remove(&key);
                known.insert(key, None);
            }
            _ => {
                let value = [b'a' + (step % 26) as u8; VALUE_BYTES];
                store.put(&key, value).map_err(reported)?;
                hurt.remove(&key);
                known.insert(key, Some(value));
            }
        }
    }
    for key in &hurt {
        match store.get(key) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            found => {
                return Err(format!(
                    "{:?} is damaged, and a get returns {found:?}",
                    String::from_utf8_lossy(key)
                ));
            }
        }
    }
    for (key, value) in &known {
        let found = match store.get(key) {
            Ok(found) => found.map(|found| found.to_vec()),
            // A key deleted since may still have a damaged record.
            Err(error) if value.is_none() && error.kind() == ErrorKind::Corrupt => continue,
            Err(error) => return Err(format!("{:?}: {error}", String::from_utf8_lossy(key))),
        };
        if found.as_deref() != value.as_ref().map(|value| &value[..]) {
            return Err(format!("{:?} has {found:?}, wanted {value:?}", String::from_utf8_lossy(key)));
        }
    }
    let mut seen = Vec::new();
    for value in store.range(..).map_err(reported)? {
        match value {
            Ok(value) => seen.push(value.key().to_vec()),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(reported(error)),
        }
    }
    if !seen.is_sorted() {
        return Err("keys are not in order".into());
    }
    let missing = known.iter().find(|(key, value)| value.is_some() && seen.binary_search(key).is_err());
    if let Some((key, _)) = missing {
        return Err(format!("{:?} is not among all", String::from_utf8_lossy(key)));
    }
    // Damaged records count until their block is freed.
    for _ in 0..40 {
        store.maintain().map_err(reported)?;
    }
    audited(&store)
}
