//! Changes several keys at once, all or nothing, and only if nobody else has changed them in the meantime.
//!
//! `cargo run -p duramen --example batch`

use duramen::{Batch, Options, Result, Store, Swap, Writer};

/// Runs in a temporary directory, which is removed at the end.
pub fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Options::default().open(dir.path().join("accounts"))?;
    store.put(b"alice", 100i64.to_le_bytes())?;
    store.put(b"bob", 20i64.to_le_bytes())?;

    // Four threads move money at the same time. In any order, the sum stays the same.
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| move_often(&store))).collect();
        for thread in threads {
            match thread.join() {
                Ok(moved) => moved?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;

    let writer = store.writer()?;
    let (alice, bob) = (balance(&writer, b"alice")?.1, balance(&writer, b"bob")?.1);
    println!("alice {alice}, bob {bob}");
    assert_eq!((alice, bob), (60, 60));
    Ok(())
}

fn move_often(store: &Store) -> Result<()> {
    let mut writer = store.writer()?;
    for _ in 0..10 {
        transfer(&mut writer, b"alice", b"bob", 1)?;
    }
    Ok(())
}

/// Moves `amount`; repeats until no other write comes between reading and writing.
fn transfer(writer: &mut Writer, from: &[u8], to: &[u8], amount: i64) -> Result<()> {
    loop {
        let (from_stamp, from_balance) = balance(writer, from)?;
        let (to_stamp, to_balance) = balance(writer, to)?;
        let mut batch = Batch::new();
        batch.expect(from, from_stamp).expect(to, to_stamp);
        batch.put(from, (from_balance - amount).to_le_bytes());
        batch.put(to, (to_balance + amount).to_le_bytes());
        if writer.apply(&batch)? == Swap::Done {
            return Ok(());
        }
    }
}

/// The key's stamp, for [`Batch::expect`], and its balance.
fn balance(writer: &Writer, key: &[u8]) -> Result<(duramen::Stamp, i64)> {
    let (stamp, value) = writer.get_stamped(key)?;
    let bytes = value.and_then(|value| <[u8; 8]>::try_from(&value[..]).ok());
    Ok((stamp, bytes.map_or(0, i64::from_le_bytes)))
}
