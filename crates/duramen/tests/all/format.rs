//! Promise P11: every build opens the images of earlier builds. `testdata/format/` holds an image of each version, and
//! this test opens it. After a change of the format, add a version: never overwrite an image.
//!
//! An image was made by `DURAMEN_WRITE_IMAGE=1 cargo test -p duramen --test all format::`, which refuses to overwrite.
use duramen::{Batch, ElementOrder, Error, ErrorKind, IndexKind, MediumKind, Meta, Options, Swap, Update};
use std::path::PathBuf;
use std::sync::Arc;

const EXPIRES_AT: u64 = 2_000_000;
/// The first version that a build still reads.
const FIRST: u32 = 4;
/// The last version before it that there is an image of.
const BEFORE: u32 = 3;
const COLLECTIONS: [(&[u8], ElementOrder); 3] = [
    (b"map", ElementOrder::Unordered),
    (b"by value", ElementOrder::ByValue),
    (b"by key", ElementOrder::ByKey),
];

fn options(now: u64) -> Options {
    let mut options = Options {
        medium: MediumKind::File,
        extent_bytes: Some(512),
        background: false,
        clock: Some(Arc::new(move || now)),
        ..Options::default()
    };
    options.tuning.growth_bytes_min = 512;
    options
}

fn image(version: u32) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/format");
    root.join(format!("version-{version}.duramen"))
}

/// Every kind of record: value, tombstone, cell, transaction records and commit records of transactions in one block
/// and in several, and of an aborted one. Also a void, expiry, tags, owners, roots and elements of collections, and a
/// block of several extents; as a killed process leaves it.
fn write(path: &std::path::Path) {
    let store = options(1_000_000).open(path).unwrap();
    let mut writer = store.writer().unwrap();
    writer.put(b"plain", b"old").unwrap();
    writer.put(b"plain", b"new").unwrap();
    writer.put_with(b"tagged", b"", Meta { tag: 200, ..Meta::default() }).unwrap();
    writer.put_with(b"expires", b"soon", Meta { expires_at: Some(EXPIRES_AT), ..Meta::default() }).unwrap();
    writer.put(b"deleted", b"gone").unwrap();
    assert!(writer.delete(b"deleted").unwrap());
    writer.put_with(b"updated", [0; 16], Meta { updatable: true, ..Meta::default() }).unwrap();
    assert_ne!(writer.update(b"updated", 8, &[1; 8]).unwrap(), Update::Absent);
    let mut batch = Batch::new();
    batch.put(b"batch 1", b"one").put(b"batch 2", b"two").delete(b"nothing");
    assert_eq!(writer.apply(&batch).unwrap(), Swap::Done);
    writer.put(b"long", [9; 3000]).unwrap();
    // Its body is written before it turns out that nothing is to be written: a void.
    let stamp = store.get(b"batch 1").unwrap().unwrap().stamp();
    assert_eq!(
        writer.compare_and_swap(b"long", stamp, Some((&[8; 6000], Meta::default()))).unwrap(),
        Swap::Changed
    );
    let table = store.table(b"a table", IndexKind::Ordered).unwrap();
    let gone = store.table(b"cleared", IndexKind::Hash).unwrap();
    gone.put(b"plain", b"gone").unwrap();
    gone.clear().unwrap();
    let meta = Meta { expires_at: Some(EXPIRES_AT), ..Meta::default() };
    writer.table(&table).put_with(b"plain", b"of the table", meta).unwrap();
    let mut batch = Batch::new();
    batch.put(b"batch 1", b"one again").table(Some(&table)).put(b"batch 1", b"three");
    assert_eq!(writer.apply(&batch).unwrap(), Swap::Done);
    let aborted: Result<(), Error> = writer.transaction(|transaction| {
        transaction.put(b"given up", b"")?;
        transaction.delete(b"plain")?;
        Err(Error::aborted("on purpose"))
    });
    assert_eq!(aborted.unwrap_err().kind(), ErrorKind::Aborted);
    for (key, order) in COLLECTIONS {
        let made = store.new_collection(order);
        let named = Meta { tag: 7, collection: Some(made.id()), ..Meta::default() };
        let mut batch = Batch::new();
        batch
            .put_with(key, b"state", named)
            .collection(&made)
            .put(b"element 1", b"8 bytes.")
            .put(b"element 2", b"");
        assert_eq!(writer.apply(&batch).unwrap(), Swap::Done);
        writer.collection(&made).put(b"element 3", b"alone").unwrap();
    }
    writer
        .transaction(|transaction| (0..20u8).try_for_each(|key| transaction.put([b'u', key], [key; 100])))
        .unwrap();
    let bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().rposition(|&b| b != 0).unwrap() + 1;
    std::fs::write(path.with_extension("image"), &bytes[..end.next_multiple_of(512)]).unwrap();
}

#[test]
fn images_of_all_versions_open() {
    if std::env::var_os("DURAMEN_WRITE_IMAGE").is_some() {
        let target = image(duramen::FORMAT_VERSION);
        assert!(!target.exists(), "{} exists: images are never overwritten", target.display());
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("store"));
        std::fs::copy(dir.path().join("store.image"), target).unwrap();
    }
    for version in FIRST..=duramen::FORMAT_VERSION {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        std::fs::copy(image(version), &path).unwrap();
        let report = duramen::check(&path, &options(1_500_000)).unwrap();
        assert!(report.damage.is_empty(), "version {version}: {report:?}");
        let store = options(1_500_000).open(&path).unwrap();
        let value = |key: &[u8]| store.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(value(b"plain").unwrap(), b"new");
        assert_eq!(value(b"expires").unwrap(), b"soon");
        assert_eq!(value(b"deleted"), None);
        assert_eq!(value(b"updated").unwrap(), [[0; 8], [1; 8]].concat());
        assert_eq!(value(b"batch 1").unwrap(), b"one again");
        assert_eq!(value(b"batch 2").unwrap(), b"two");
        assert_eq!(value(b"given up"), None);
        assert_eq!(value(b"long").unwrap(), [9; 3000]);
        for key in 0..20u8 {
            assert_eq!(value(&[b'u', key]).unwrap(), [key; 100]);
        }
        assert_eq!(store.get(b"tagged").unwrap().unwrap().tag(), 200);
        for (key, order) in COLLECTIONS {
            let root = store.get(key).unwrap().unwrap();
            assert_eq!((&*root, root.tag()), (&b"state"[..], 7));
            let collection = store.collection(root.meta().collection.unwrap()).unwrap();
            assert_eq!((collection.len(), collection.order()), (3, order));
            assert_eq!(collection.get(b"element 1").unwrap().as_deref(), Some(&b"8 bytes."[..]));
            assert_eq!(collection.get(b"element 3").unwrap().as_deref(), Some(&b"alone"[..]));
        }
        assert_eq!(store.len(), 30);
        assert_eq!(store.tables().len(), 2);
        let table = store.table(b"a table", IndexKind::Ordered).unwrap();
        assert_eq!(table.get(b"batch 1").unwrap().as_deref(), Some(&b"three"[..]));
        assert_eq!(table.get(b"plain").unwrap().as_deref(), Some(&b"of the table"[..]));
        assert_eq!(store.find_table(b"cleared").unwrap().unwrap().len(), 0);
        drop(table);
        store.close().unwrap();
        let store = options(EXPIRES_AT).open(&path).unwrap();
        assert!(store.get(b"expires").unwrap().is_none());
    }
}

#[test]
fn a_store_of_an_earlier_version_is_refused_with_what_to_do() {
    for version in 1..FIRST {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let mut bytes = std::fs::read(image(BEFORE)).unwrap();
        for copy in [0, 4096] {
            bytes[copy + 8..copy + 12].copy_from_slice(&version.to_le_bytes());
            bytes[copy + 12..copy + 16].fill(0);
            let crc = crc32c::crc32c(&bytes[copy..copy + 128]);
            bytes[copy + 12..copy + 16].copy_from_slice(&crc.to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        let error = options(0).open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let says = error.to_string();
        assert!(says.contains(&format!("format version is {version}")), "{says}");
        assert!(says.contains("duramen dump") && says.contains("duramen load"), "{says}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
