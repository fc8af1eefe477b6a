//! Moves money between accounts in one table and records it in another, all or nothing; a payment that is not covered
//! leaves no trace.
//!
//! `cargo run -p duramen --example transfer`

use duramen::{Error, ErrorKind, IndexKind, Options, Result, Table, Writer};

/// Runs in a temporary directory, which is removed at the end.
pub fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Options::default().open(dir.path().join("bank"))?;
    let accounts = store.table(b"accounts", IndexKind::Hash)?;
    let journal = store.table(b"journal", IndexKind::Ordered)?;
    accounts.put(b"alice", 100i64.to_le_bytes())?;
    accounts.put(b"bob", 20i64.to_le_bytes())?;

    let mut writer = store.writer()?;
    for (number, amount) in [30i64, 500, 40].into_iter().enumerate() {
        match transfer(&mut writer, &accounts, &journal, number as u64, amount) {
            Ok(left) => println!("{amount} paid, {left} left"),
            Err(error) if error.kind() == ErrorKind::Aborted => println!("{amount} not paid: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    assert_eq!((balance(accounts.get(b"alice")?), balance(accounts.get(b"bob")?)), (30, 90));
    assert_eq!(journal.len(), 2);
    Ok(())
}

/// Returns alice's remaining balance. Readers see both accounts and the journal either before or after the transfer.
fn transfer(writer: &mut Writer, accounts: &Table, journal: &Table, number: u64, amount: i64) -> Result<i64> {
    writer.transaction(|transaction| {
        journal_entry(transaction, journal, number, amount)?;
        let bob = balance(transaction.table(accounts).get(b"bob")?) + amount;
        transaction.table(accounts).put(b"bob", bob.to_le_bytes())?;
        let alice = balance(transaction.table(accounts).get(b"alice")?) - amount;
        if alice < 0 {
            // Nobody has seen the writes above, and they are undone.
            return Err(Error::aborted(format!("{} are missing", -alice)));
        }
        transaction.table(accounts).put(b"alice", alice.to_le_bytes())?;
        Ok(alice)
    })
}

fn journal_entry(
    transaction: &mut duramen::Transaction<'_>,
    journal: &Table,
    number: u64,
    amount: i64,
) -> Result<()> {
    transaction.table(journal).put(number.to_be_bytes(), format!("alice to bob: {amount}").as_bytes())
}

fn balance(value: Option<duramen::Value<'_>>) -> i64 {
    let bytes = value.and_then(|value| <[u8; 8]>::try_from(&value[..]).ok());
    bytes.map_or(0, i64::from_le_bytes)
}
