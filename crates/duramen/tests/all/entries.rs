//! Keys and values of any type that is bytes, iteration over all entries, and lifetimes.

use duramen::{Batch, IndexKind, Meta, Swap};

#[test]
fn text_and_bytes_are_keys_and_an_iterator_gives_all_entries_of_its_table() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = duramen::Store::open(dir.path().join("store")).unwrap();
    let table = store.table("names", IndexKind::Ordered).unwrap();
    for number in 0..200u32 {
        store.put(number.to_string(), vec![number as u8; 3]).unwrap();
        table.put(number.to_be_bytes(), "of the table").unwrap();
    }
    store.writer().unwrap().put("200", [200; 3]).unwrap();
    let mut batch = Batch::new();
    batch.put("201", [201; 3]).delete(String::from("0"));
    assert!(store.apply(&batch).unwrap() == Swap::Done);
    let mut entries = store.iter().collect::<Result<Vec<_>, _>>().unwrap();
    entries.sort_by_key(|(_, value)| value[0]);
    let wanted = (1..=201u8).map(|number| (number.to_string().into_bytes(), vec![number; 3]));
    assert!(entries.into_iter().eq(wanted));
    assert_eq!(table.iter().map(|entry| entry.unwrap().0.len()).collect::<Vec<_>>(), [4; 200]);
    // An iterator that was begun sees no more than its table.
    let mut begun = table.iter();
    assert!(begun.next().is_some());
    table.clear().unwrap();
    assert!(begun.all(|entry| entry.is_ok()));
}

#[test]
fn a_value_expires_after_its_lifetime() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = duramen::Store::open(dir.path().join("store")).unwrap();
    let lifetime = std::time::Duration::from_millis(300);
    store.put_with("short", "value", Meta::expiring(lifetime)).unwrap();
    store.put_with("long", "value", Meta::expiring(std::time::Duration::MAX)).unwrap();
    assert!(store.contains("short").unwrap());
    std::thread::sleep(lifetime);
    assert!(!store.contains("short").unwrap() && store.contains("long").unwrap());
}
