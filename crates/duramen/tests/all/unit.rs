//! Units through the public door.

use duramen::{ElementOrder, Error, ErrorKind, IndexKind, Meta, Options, Store};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Options::default().open(dir.path().join("store")).unwrap();
    (dir, store)
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.to_vec())
}

#[test]
fn a_unit_writes_to_tables_and_collections_or_leaves_nothing() {
    let (_dir, store) = store();
    let table = store.table(b"table", IndexKind::Hash).unwrap();
    let mut writer = store.writer().unwrap();
    let collection = store.new_collection(ElementOrder::ByKey);
    writer.put(b"old", b"1").unwrap();
    let given_up: Result<(), Error> = writer.unit(|unit| {
        unit.put(b"new", b"2")?;
        assert!(unit.delete(b"old")?);
        unit.table(&table).put(b"row", b"3")?;
        unit.collection(&collection).put(b"element", b"4")?;
        Err(store.range(..).err().unwrap())
    });
    assert_eq!(given_up.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!((value(&store, b"new"), value(&store, b"old")), (None, Some(b"1".to_vec())));
    assert_eq!((table.len(), collection.len(), store.len()), (0, 0, 1));

    let root = Meta { collection: Some(collection.id()), ..Meta::default() };
    let was = writer
        .unit(|unit| {
            unit.put(b"new", b"2")?;
            unit.table(&table).put(b"row", b"3")?;
            unit.collection(&collection).put(b"element", b"4")?;
            unit.store().put_with(b"root", b"", root)?;
            unit.delete(b"old")
        })
        .unwrap();
    assert!(was);
    assert_eq!((value(&store, b"new"), value(&store, b"old")), (Some(b"2".to_vec()), None));
    assert_eq!(table.get(b"row").unwrap().unwrap().to_vec(), b"3");
    assert_eq!(collection.get(b"element").unwrap().unwrap().to_vec(), b"4");
    assert_eq!((table.len(), collection.len(), store.len()), (1, 1, 2));
}
