//! Embeds a store: writes, closes, opens again, and finds everything.
//!
//! `cargo run -p duramen --example embed`

use duramen::{Meta, Options, Result};

/// Runs in a temporary directory, which is removed at the end.
pub fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    write(&path)?;
    read(&path)?;
    Ok(())
}

fn write(path: &std::path::Path) -> Result<()> {
    let store = Options::default().open(path)?;
    println!("{}", store.describe());

    // Durable when it returns: to the device on a file, to persistent memory on a DAX device.
    store.put(b"greeting", b"hello")?;
    store.put(b"greeting", b"hello again")?;
    store.put(b"mistake", b"...")?;
    assert!(store.delete(b"mistake")?);

    // A value that expires in an hour.
    let hour_from_now = unix_millis() + 3_600_000;
    store.put_with(b"session", b"alice", Meta { expires_at: Some(hour_from_now), ..Meta::default() })?;

    // Many writes from one thread: one drain, or one wait for the device, for the whole group.
    let mut writer = store.writer()?;
    writer.group();
    for number in 0..1000u32 {
        writer.put(format!("item:{number}").as_bytes(), number.to_le_bytes())?;
    }
    // Nothing of the group may be acknowledged to anybody before this returns.
    writer.flush_group()?;
    drop(writer);

    // Reports errors; dropping the last handle closes too, but cannot report them.
    Ok(store.close()?)
}

fn read(path: &std::path::Path) -> Result<()> {
    let store = Options::default().open(path)?;
    println!("recovered {} records", store.recovery().records);

    // Not a copy: the value pins its space for as long as it is kept.
    assert_eq!(store.get(b"greeting")?.as_deref(), Some(&b"hello again"[..]));
    assert!(!store.contains(b"mistake")?);
    assert!(store.contains(b"session")?);

    // The cache misses of these overlap.
    let values = store.get_many(&["item:7", "item:8", "item:none"])?;
    assert_eq!(values.iter().filter(|value| value.is_some()).count(), 2);
    drop(values);

    let mut keys = 0;
    store.for_each(|_| keys += 1)?;
    println!("{keys} keys");
    assert_eq!(keys, 1002);
    Ok(store.close()?)
}

fn unix_millis() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}
