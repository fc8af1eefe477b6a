//! Batches at the limits. In a separate program: while a batch of many keys is applied, no store of the process gets
//! space back.

use duramen::{Batch, ErrorKind, Options, Swap};

#[test]
fn batches_of_critical_counts_and_sizes_survive_a_reopen() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options { extent_bytes: Some(4096), background: false, ..Options::default() };
    let path = dir.path().join("store");
    // 2,052 operations were too many for another transactional memory; 2^16 is where a count may end.
    for count in [1, 2_051, 2_052, 2_053, 65_535, 65_536, 65_537u32] {
        let store = options.open(&path).unwrap();
        let mut batch = Batch::new();
        for key in 0..count {
            batch.put(key.to_le_bytes(), count.to_le_bytes());
        }
        assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
        store.close().unwrap();
        let store = options.open(&path).unwrap();
        assert_eq!(store.len(), u64::from(count));
        for key in 0..count {
            assert_eq!(store.get(key.to_le_bytes()).unwrap().as_deref(), Some(&count.to_le_bytes()[..]));
        }
    }
    if std::env::var_os("DURAMEN_FULL").is_none() {
        return; // What follows takes some 4 GB.
    }
    // A batch has at most 2^30 - 1 bytes with its headers; records are multiples of 8.
    let store = options.open(&path).unwrap();
    let largest: usize = (1 << 30) - 8;
    for (bytes, fits) in [(largest - 8, true), (largest, true), (largest + 8, false)] {
        // The batch's header, two members' headers and keys; a value has at most 512 MiB.
        let second = bytes - 24 - 2 * 32 - (512 << 20);
        let half = vec![1; 512 << 20];
        let mut batch = Batch::new();
        batch.put(b"first   ", &half).put(b"second  ", &half[..second]);
        match store.apply(&batch) {
            Ok(_) => assert!(fits, "{bytes}"),
            Err(error) => {
                assert!(!fits, "{bytes}: {error}");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            }
        }
    }
}
