#![allow(missing_docs)]
fn main() {
    let _ = rocksdb::Options::default();
}
