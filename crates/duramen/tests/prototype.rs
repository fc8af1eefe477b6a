#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.
use duramen::*;
#[test]
fn a_full_store_of_large_blocks_takes_deletes_spread_over_all_of_them() {
    for bytes in [1000usize, 3900, 9000] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options =
            Options { unit_bytes: Some(4096), background: false, len_max: 16 << 20, ..Options::default() };
        let store = options.open(dir.path().join("store")).unwrap();
        let mut writer = store.writer().unwrap();
        let mut count = 0u32;
        while writer.put(&count.to_le_bytes(), &vec![1; bytes]).is_ok() {
            count += 1;
        }
        for from in 0..9 {
            for i in (from..count).step_by(9) {
                assert!(
                    writer
                        .delete(&i.to_le_bytes())
                        .unwrap_or_else(|e| panic!("{bytes}: delete {i} of {count}, {from}: {e}"))
                );
            }
        }
        for i in 0..count / 2 {
            writer.put(&i.to_le_bytes(), &vec![1; bytes]).unwrap();
        }
    }
}
