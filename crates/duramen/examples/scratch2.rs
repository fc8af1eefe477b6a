#![allow(clippy::all, clippy::unwrap_used)]
use duramen::{Create, Options};
fn mix(i: u64) -> u64 {
    let x = (i ^ (i >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(i).to_le_bytes());
    key[8..].copy_from_slice(&i.to_le_bytes());
    key
}
#[inline(never)]
fn phase_get(store: &duramen::Store, n: u64) {
    let mut copy = Vec::with_capacity(256);
    for i in 0..n {
        assert!(store.get_into(&key(mix(i + 5) % n), &mut copy).unwrap());
    }
}
#[inline(never)]
fn phase_insert(w: &mut duramen::Writer, n: u64) {
    for i in 0..n {
        w.put(&key(i), &[7; 200]).unwrap();
    }
}
#[inline(never)]
fn phase_over(w: &mut duramen::Writer, n: u64) {
    for i in 0..n {
        w.put(&key(i), &[8; 200]).unwrap();
    }
}
#[inline(never)]
fn phase_delete(w: &mut duramen::Writer, n: u64) {
    for i in 0..n {
        w.delete(&key(i)).unwrap();
    }
}
fn main() {
    let n: u64 = std::env::args().nth(1).map_or(10_000_000, |a| a.parse().unwrap());
    let path = "/dev/shm/scratch2-store";
    let _ = std::fs::remove_file(path);
    let options = Options {
        len_max: 1 << 30,
        create: Create::CreateNew,
        persist_step: Some(std::env::args().nth(2).unwrap_or("clwb".into()).parse().unwrap()),
        ..Options::default()
    };
    let store = options.open(path).unwrap();
    let mut w = store.writer().unwrap();
    phase_insert(&mut w, n);
    phase_get(&store, n);
    phase_over(&mut w, n);
    phase_delete(&mut w, n);
    drop(w);
    drop(store);
    std::fs::remove_file(path).unwrap();
}
