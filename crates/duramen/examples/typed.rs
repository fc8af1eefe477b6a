//! Plain structs as keys and values, with fields that are updated in place.
//!
//! `cargo run -p duramen --example typed`

use duramen::{Options, TypedStore, Update};

/// A sensor's state: plain old data without padding, stored in its own byte layout.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Reading {
    last: f64,
    count: u64,
}

// The field of `Reading` that is updated in place.
const COUNT_AT: usize = std::mem::offset_of!(Reading, count);

/// Runs in a temporary directory, which is removed at the end.
pub fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("readings");
    let readings: TypedStore<u64, Reading> = TypedStore::new(Options::default().open(&path)?);

    readings.put(&7, &Reading { last: 20.5, count: 1 })?;

    // One atomic store of 8 bytes where each write is durable alone (a DAX device, /dev/shm); a new version of the
    // record on ordinary files.
    let how = readings.update(&7, COUNT_AT, &2u64)?;
    println!("updated: {how:?}");
    assert_ne!(how, Update::Absent);
    assert_eq!(readings.get(&7)?, Some(Reading { last: 20.5, count: 2 }));

    assert!(readings.delete(&7)?);
    assert_eq!(readings.get(&7)?, None);
    Ok(())
}
