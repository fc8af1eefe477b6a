//! Media that fail: unreadable ranges, changed bits and lines, ignored syncs, growth that fails.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen::{Batch, ErrorKind, Meta, OnCorruption, Options, StoreOn, check_on, salvage_on};
use duramen_media::sim::{Log, Model, Rng, SimMedium};
use duramen_media::{Bytes, LINE_BYTES, Offset};
use std::collections::BTreeMap;
use support::{alone, image_of, options};

const LEN_MAX: u64 = 64 << 10;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A closed store with every kind of record: its bytes, its length, and its content.
fn closed(model: Model) -> (Vec<[u64; 8]>, u64, Content) {
    let medium = SimMedium::resume(Log::empty(model, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1)).unwrap();
    let mut content = Content::new();
    for i in 0..20u8 {
        let key = vec![i; 9];
        store.put(&key, [9; 30]).unwrap();
        let meta = Meta { tag: i, expires_at: (i % 3 == 0).then_some(5_000), ..Meta::default() };
        store.put_with(&key, [i; 60], meta).unwrap();
        content.insert(key, vec![i; 60]);
    }
    for i in 0..5u8 {
        assert!(store.delete([i; 9]).unwrap());
        content.remove(&vec![i; 9]);
    }
    let mut batch = Batch::new();
    for i in 100..110u8 {
        batch.put([i; 9], [i; 20]);
        content.insert(vec![i; 9], vec![i; 20]);
    }
    let _ = store.apply(&batch).unwrap();
    store.put(b"long long", [77; 1500]).unwrap();
    content.insert(b"long long".to_vec(), vec![77; 1500]);
    store.close().unwrap();
    let len = medium.len();
    (medium.memory().snapshot(), len, content)
}

fn image(model: Model, lines: &[[u64; 8]], len: u64) -> SimMedium {
    image_of(model, lines, LEN_MAX, len)
}

fn content_of(store: &StoreOn<SimMedium>) -> Content {
    let mut content = Content::new();
    store
        .for_each(|value| {
            content.insert(value.key().to_vec(), value.to_vec());
        })
        .unwrap();
    content
}

/// Salvages into a new store; everything saved must have been in the old one.
fn salvaged(medium: &SimMedium, content: &Content) -> usize {
    let target = SimMedium::resume(Log::empty(Model::Byte, 1 << 20));
    let target = StoreOn::open_on(target, &options(1)).unwrap();
    let (saved, report) = salvage_on(medium, &target, &options(2)).unwrap();
    assert!(!report.damage.is_empty());
    let found = content_of(&target);
    assert_eq!(saved as usize, found.len());
    for (key, value) in &found {
        // An older version is the newest valid one if a newer one or a tombstone is damaged, which was reported above.
        let older = value[..] == [9; 30] || value[..] == [key[0]; 60];
        assert!(
            content.get(key) == Some(value) || older,
            "key {:?} differs from the written value",
            &key[..1]
        );
    }
    found.len()
}

/// The rest is served without an access to the unreadable range, and the damage stays known.
fn rest_is_served(medium: &SimMedium, at: u64) {
    let serve = |boot| Options { on_corruption: OnCorruption::Serve, ..options(boot) };
    let whole_head = match StoreOn::open_on(medium.clone(), &serve(3)) {
        Ok(store) => {
            assert!(store.stats().damaged_blocks > 0 || !store.recovery().damage.is_empty(), "{at:#x}");
            for i in 0..20u8 {
                let found = store.get([i; 9]).unwrap_or_else(|error| panic!("{at:#x}: {error}"));
                let is_one = |value: &[u8]| *value == [9; 30] || *value == [i; 60];
                assert!(found.is_none_or(|value| is_one(value.bytes())), "{at:#x}");
            }
            store.put(b"new", b"value").unwrap();
            store.maintain().unwrap();
            store.close().unwrap();
            true
        }
        // With a hole in a superblock nothing is known.
        Err(error) => {
            assert!(error.kind() == ErrorKind::Corrupt && at < 16 << 10, "{at:#x}: {error}");
            false
        }
    };
    assert_eq!(
        StoreOn::open_on(medium.clone(), &options(3)).unwrap_err().kind(),
        ErrorKind::Corrupt,
        "{at:#x}"
    );
    if whole_head {
        let store = StoreOn::open_on(medium.clone(), &serve(4)).unwrap();
        assert_eq!(store.get(b"new").unwrap().as_deref(), Some(&b"value"[..]), "{at:#x}");
    }
}

#[test]
fn an_unreadable_range_is_reported_with_its_place_and_the_rest_is_saved() {
    let _alone = alone();
    for model in [Model::CacheLine, Model::Byte, Model::Page] {
        let (lines, len, content) = closed(model);
        // Real holes are as large as a page; the smallest that there can be is a line.
        for bytes in [LINE_BYTES, 4096] {
            let mut least = usize::MAX;
            for at in (0..len).step_by(bytes as usize) {
                let medium = image(model, &lines, len);
                medium.poison(Offset(at), bytes);
                let opened = StoreOn::open_on(medium.clone(), &options(2));
                let error = opened.err().unwrap_or_else(|| panic!("opened with a hole at {at:#x}"));
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                let place = [format!("{at:#x}"), "superblock cannot be read".into()];
                assert!(place.iter().any(|place| error.to_string().contains(place)), "{at:#x}: {error}");
                // Both superblocks lie in different pages: one hole leaves one of them.
                let report = check_on(&medium, &options(2)).unwrap();
                assert!(report.damage.iter().any(|damage| damage.contains(&format!("{at:#x}"))));
                least = least.min(salvaged(&medium, &content));
                rest_is_served(&medium, at);
            }
            if bytes == LINE_BYTES {
                assert!(
                    least >= content.len() - 11,
                    "a hole of one line cost {} keys",
                    content.len() - least
                );
            }
        }
        let medium = image(model, &lines, len);
        medium.poison(Offset(0), 8192);
        let error = StoreOn::open_on(medium.clone(), &options(2)).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
        // Without a head, the blocks show the content.
        let report = check_on(&medium, &options(2)).unwrap();
        assert!(!report.damage.is_empty() && report.keys == content.len() as u64, "{report:?}");
    }
}

#[test]
fn compaction_skips_an_unreadable_block() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = options(1);
    options.tuning.compaction_bytes_min = Some(64);
    options.compaction_dead_percent = 5;
    let store = StoreOn::open_on(medium.clone(), &options).unwrap();
    for round in 0..4u8 {
        for i in 0..20u8 {
            store.put([i], [round; 59]).unwrap();
        }
    }
    // Extent 32 is the first with records, of the first round: all dead.
    medium.poison(Offset(32 * 512 + 64), 64);
    for _ in 0..8 {
        store.maintain().unwrap();
    }
    let stats = store.stats();
    assert!(stats.compactions > 0 && stats.damaged_blocks == 1, "{stats:?}");
    for i in 0..20u8 {
        assert_eq!(store.get([i]).unwrap().as_deref(), Some(&[3; 59][..]));
    }
}

#[test]
fn a_key_in_an_unreadable_block_is_reported_and_can_be_set_again() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = options(1);
    options.tuning.compaction_bytes_min = Some(64);
    options.compaction_dead_percent = 5;
    let store = StoreOn::open_on(medium.clone(), &options).unwrap();
    for round in 0..4u8 {
        // Each block has one key that is written once.
        for i in (0..20u8).filter(|i| round == 0 || i % 5 != 0) {
            store.put([i], [round; 59]).unwrap();
        }
    }
    medium.poison(Offset(32 * 512 + 64), 128);
    for _ in 0..8 {
        store.maintain().unwrap();
    }
    assert_eq!(store.stats().damaged_blocks, 1, "{:?}", store.stats());
    let reported: Vec<u8> = (0..20u8).filter(|&i| store.get([i]).is_err()).collect();
    assert_eq!(reported, [0]);
    let error = store.get([0]).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("cannot be read"), "{error}");
    assert!(store.delete([0]).unwrap());
    assert!(store.get([0]).unwrap().is_none());
    store.put([0], b"whole").unwrap();
    assert_eq!(store.get([0]).unwrap().as_deref(), Some(&b"whole"[..]));
}

/// Opens a damaged image: either the damage is reported or nothing changed. Returns whether it was reported.
fn reported_or_the_same(medium: &SimMedium, content: &Content, what: &str) -> bool {
    let report = check_on(medium, &options(2));
    let opened = StoreOn::open_on(medium.clone(), &options(2));
    match opened {
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{what}: {error}");
            assert!(report.is_err() || !report.unwrap().damage.is_empty(), "{what}: check sees nothing");
            true
        }
        Ok(store) => {
            assert!(content_of(&store) == *content, "{what}: damage was returned");
            for (key, value) in content {
                assert_eq!(store.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
            }
            medium.power_off();
            false
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_reported_and_never_returned() {
    let _alone = alone();
    let mut rng = Rng::new(11);
    for model in [Model::CacheLine, Model::Page] {
        let (lines, len, content) = closed(model);
        let mut reported = 0;
        for _ in 0..3_000 {
            let bit = rng.below(len * 8);
            let medium = image(model, &lines, len);
            medium.memory().flip_bit(bit);
            reported += u32::from(reported_or_the_same(&medium, &content, &format!("bit {bit}")));
        }
        assert!(reported > 100, "{reported}");
    }
}

#[test]
fn a_line_that_changed_is_reported_and_never_returned() {
    let _alone = alone();
    let mut rng = Rng::new(12);
    let (lines, len, content) = closed(Model::CacheLine);
    let count = (len / LINE_BYTES) as usize;
    let mut reported = 0;
    for at in 0..count {
        let other = lines[rng.below(count as u64) as usize];
        let noise = std::array::from_fn(|_| rng.bits());
        for (how, line) in [("zeros", [0; 8]), ("noise", noise), ("another line", other)] {
            if line == lines[at] {
                continue;
            }
            let medium = image(Model::CacheLine, &lines, len);
            medium.memory().set_line(at as u32, u8::MAX, &line);
            reported +=
                u32::from(reported_or_the_same(&medium, &content, &format!("line {at} became {how}")));
        }
    }
    assert!(reported > 100, "{reported}");
}

#[test]
fn growth_that_fails_in_the_device_is_an_error_and_the_store_continues() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, 4 << 20));
    let mut options = options(1);
    options.tuning.growth_bytes_min = 4096;
    let store = StoreOn::open_on(medium.clone(), &options).unwrap();
    let (mut failed, mut written) = (0, 0u32);
    for i in 0..2_000u32 {
        if i % 100 == 0 {
            medium.fail_growth_in(0);
        }
        match store.put(i.to_le_bytes(), [1; 100]) {
            Ok(()) => written += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 5 && written > 1_900, "{failed} failed, {written} written");
    assert_eq!(store.len(), u64::from(written));
    store.close().unwrap();
    let next = SimMedium::resume(medium.log());
    assert_eq!(StoreOn::open_on(next, &options).unwrap().len(), u64::from(written));
}

#[test]
fn an_ignored_sync_leaves_whole_written_values_or_is_reported() {
    let _alone = alone();
    let mut reported = 0;
    for lie in 0..16 {
        let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
        let store = StoreOn::open_on(medium.clone(), &options(1)).unwrap();
        medium.lie_sync_in(lie);
        for i in 0..16u8 {
            store.put([i % 4], [i; 100]).unwrap();
        }
        medium.power_off();
        drop(store);
        let log = medium.log();
        let mut walker = duramen_media::sim::Walker::new(&log);
        walker.advance(log.events.len());
        for choice in walker.choices(&mut Rng::new(u64::from(lie)), 60) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(Model::Page, LEN_MAX, memory, len);
            match StoreOn::open_on(image.clone(), &options(2)) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    reported += 1;
                }
                Ok(store) => {
                    for (key, value) in content_of(&store) {
                        let i = value[0];
                        assert!(i % 4 == key[0] && i < 16 && value == [i; 100], "key {key:?}: {i}");
                    }
                }
            }
            image.power_off();
        }
    }
    assert!(reported > 0, "no ignored sync was reported");
}
