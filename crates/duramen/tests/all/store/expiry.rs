//! Keys that expire, and the listeners that are notified.

use super::for_each_store;
use duramen::{Meta, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn no_later_write_of_a_key_comes_before_its_expiry_is_reported() {
    for_each_store(|name, options, path| {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let clock = Arc::clone(&now);
        let options = Options { clock: Some(Arc::new(move || clock.load(Relaxed))), ..options.clone() };
        let store = Arc::new(options.open(path).unwrap());
        store.put_with(b"k", b"v", Meta { expires_at: Some(1_000_500), ..Meta::default() }).unwrap();
        now.store(1_002_000, Relaxed);
        let (written, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (writer, by) = (Arc::downgrade(&store), Arc::clone(&written));
        let seen = Arc::clone(&told);
        store.set_on_expired(Some(Arc::new(move |_| {
            let (store, written) = (writer.upgrade().unwrap(), Arc::clone(&by));
            std::thread::spawn(move || {
                store.put(b"k", b"again").unwrap();
                written.store(1, Relaxed);
            });
            // A put that does not wait for this call finishes within this time.
            std::thread::sleep(Duration::from_millis(30));
            seen.store(1 + by.load(Relaxed), Relaxed);
        })));
        store.maintain().unwrap();
        assert_eq!(
            told.load(Relaxed),
            1,
            "{name}: written before its expiry was reported, or never reported"
        );
        while written.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"again"[..]));
        while Arc::strong_count(&store) > 1 {
            std::thread::yield_now();
        }
    });
}
