//! DEBUG DIGEST and DEBUG DIGEST-VALUE: the digests that redis-server 7.0 computes of the same keys, whatever holds them.

use crate::redis::command::{Call, CommandError};
use duramen_structures::Type;
use duramen_structures::stream::StreamId;
use duramen_structures::string::double;
use sha1_smol::{DIGEST_LENGTH, Sha1};

/// The bytes that redis-server mixes in for a key that expires.
const EXPIRES: &[u8] = b"!!expire!!";
// Keys that are looked for at once.
const SCAN_KEYS: usize = 1024;

fn sha1(bytes: &[u8]) -> [u8; DIGEST_LENGTH] {
    Sha1::from(bytes).digest().bytes()
}

#[derive(Default)]
struct Digest([u8; DIGEST_LENGTH]);

impl Digest {
    /// Adds one of several pieces that have no order.
    fn add_any(&mut self, piece: &[u8]) {
        self.0.iter_mut().zip(sha1(piece)).for_each(|(byte, other)| *byte ^= other);
    }

    /// Adds the next piece.
    fn add(&mut self, piece: &[u8]) {
        self.add_any(piece);
        self.0 = sha1(&self.0);
    }

    /// Adds several parts as one element without an order.
    fn add_group(&mut self, pieces: &[&[u8]]) {
        let mut group = Self::default();
        pieces.iter().for_each(|piece| group.add(piece));
        self.add_any(&group.0);
    }

    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// DEBUG DIGEST: of all keys of all databases.
pub fn all(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut digest = Digest::default();
    for db in 0..call.txn.databases() {
        if call.txn.keys(db)? == 0 {
            continue;
        }
        let (mut cursor, mut is_empty) = (0, true);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            keys.clear();
            cursor = call.txn.scan(db, cursor, SCAN_KEYS, |key, _| keys.push(key.to_vec()))?;
            for key in &keys {
                if std::mem::take(&mut is_empty) {
                    digest.add(&u32::from(db).to_be_bytes());
                }
                let mut of_key = Digest::default();
                of_key.add(key);
                add_value(call, db, key, &mut of_key)?;
                digest.add_any(&of_key.0);
            }
            call.txn.forget_reads();
            if cursor == 0 {
                break;
            }
        }
    }
    call.reply.simple(&digest.hex());
    Ok(())
}

/// DEBUG DIGEST-VALUE key [key …]: of each value, without its key.
pub fn values(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.db(), call.args);
    call.reply.array(args.len() - 2);
    for key in args.from(2) {
        let mut digest = Digest::default();
        add_value(call, db, key, &mut digest)?;
        call.reply.simple(&digest.hex());
    }
    Ok(())
}

fn add_value(call: &mut Call<'_, '_>, db: u8, key: &[u8], digest: &mut Digest) -> Result<(), CommandError> {
    let Some(found) = call.txn.get(db, key)? else { return Ok(()) };
    let Some(type_) = Type::of_tag(found.tag()) else { return Ok(()) };
    let expires = found.expires_at().is_some();
    let string = if type_ == Type::String { found.to_vec() } else { Vec::new() };
    let number: u32 = match type_ {
        Type::String => 0,
        Type::List => 1,
        Type::Set => 2,
        Type::SortedSet => 3,
        Type::Hash => 4,
        Type::Stream => 6,
    };
    digest.add(&number.to_be_bytes());
    match type_ {
        Type::String => digest.add(&string),
        Type::List => {
            let list = call.txn.list(db, key)?;
            list.iter()
                .try_for_each(|list| list.list().map(|all| all.iter().for_each(|it| digest.add(it))))?;
        }
        Type::Set => {
            let set = call.txn.set(db, key)?;
            set.iter()
                .try_for_each(|set| set.list().map(|all| all.iter().for_each(|it| digest.add_any(it))))?;
        }
        Type::SortedSet => {
            if let Some(set) = call.txn.sorted_set(db, key)? {
                for (member, score) in set.scored()? {
                    digest.add_group(&[member, double::text(score).as_bytes()]);
                }
            }
        }
        Type::Hash => {
            if let Some(hash) = call.txn.hash(db, key)? {
                hash.pairs()?.iter().for_each(|(field, value)| digest.add_group(&[field, value]));
            }
        }
        Type::Stream => {
            if let Some(stream) = call.txn.stream(db, key)? {
                let part = stream.part(StreamId::MIN, StreamId::MAX, false, usize::MAX)?;
                for entry in &part.entries()? {
                    digest.add(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                    for (field, value) in entry.pairs() {
                        digest.add(&field);
                        digest.add(&value);
                    }
                }
            }
        }
    }
    if expires {
        digest.add_any(EXPIRES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        sha1(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
