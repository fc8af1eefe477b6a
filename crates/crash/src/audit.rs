//! Reads a medium by the published format, without the engine, as an independent check.
//!
//! Only for sound media of stores that were just recovered: every block is sealed or free.

use crc32c::{crc32c, crc32c_append};
use duramen_media::sim::SimMedium;
use duramen_media::{Bytes, Offset};
use siphasher::sip::SipHasher24;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const HEAD_BYTES: u64 = 16 << 10;
/// Owner of the store's own table, whose records have no owner field.
pub const STORE: u64 = 0;
/// Owner of the catalog: its keys are names of tables, its values are their owners.
const CATALOG: u64 = 8;

/// A record.
#[derive(Clone, Debug)]
struct Record {
    version: u64,
    /// The address of its block.
    generation: u64,
    at: u64,
    bytes: u64,
    tombstone: bool,
    expires_at: Option<u64>,
    value: Vec<u8>,
    /// The owner that a root points to.
    names: Option<u64>,
}

/// The content of a medium.
#[derive(Debug, Default)]
pub struct Audit {
    /// Bytes of the store, from its superblock.
    pub bytes: u64,
    /// Extents with a header that marks them free.
    pub free_extents: u64,
    /// Data blocks without a seal.
    pub unsealed: u64,
    /// Bytes of all records.
    pub record_bytes: u64,
    /// Unused bytes after the records of blocks that are at most half full.
    pub room_bytes: u64,
    keys: BTreeMap<(u64, Vec<u8>), Vec<Record>>,
}

impl Record {
    fn is_absent(&self, now: u64) -> bool {
        self.tombstone || self.expires_at.is_some_and(|at| at <= now)
    }
}

impl Audit {
    fn winner(records: &[Record]) -> Option<&Record> {
        records.iter().max_by_key(|record| (record.version, Reverse(record.generation), record.at))
    }

    /// The value of a key of an owner.
    #[must_use]
    pub fn newest(&self, owner: u64, key: &[u8], now: u64) -> Option<Vec<u8>> {
        let newest = Self::winner(self.keys.get(&(owner, key.to_vec()))?)?;
        (!newest.is_absent(now)).then(|| newest.value.clone())
    }

    /// The content under a key of an owner: the owner that it points to, if it is a root, and the value.
    #[must_use]
    pub fn root(&self, owner: u64, key: &[u8], now: u64) -> Option<(Option<u64>, Vec<u8>)> {
        let newest = Self::winner(self.keys.get(&(owner, key.to_vec()))?)?;
        (!newest.is_absent(now)).then(|| (newest.names, newest.value.clone()))
    }

    /// The owner that a name points to.
    #[must_use]
    pub fn owner(&self, name: &[u8]) -> Option<u64> {
        self.newest(CATALOG, name, 0).map(|value| u64_at(&value, 0))
    }

    /// The names of tables.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<u8>> {
        let names = self.keys.keys().filter(|(owner, _)| *owner == CATALOG).map(|(_, name)| name);
        names.filter(|name| self.owner(name).is_some()).cloned().collect()
    }

    /// Bytes of the newest record of each key of a reachable owner, except tombstones that hide nothing. For each
    /// expired root they include the bytes of its collection. Those are dead, but the store counts them as dead only
    /// once it has reclaimed them, after a look-up for write found the root.
    #[must_use]
    pub fn live_bytes(&self, now: u64) -> (u64, Vec<u64>) {
        let mut owners: Vec<u64> = self.names().iter().filter_map(|name| self.owner(name)).collect();
        owners.extend([STORE, CATALOG]);
        // Roots are elements of no collection.
        let named = self.keys.iter().filter(|((owner, _), _)| owners.contains(owner));
        let roots = named.filter_map(|(_, records)| Self::winner(records).filter(|newest| !newest.tombstone));
        let (expired, roots): (Vec<_>, Vec<_>) = roots.partition(|newest| newest.is_absent(now));
        owners.extend(roots.iter().filter_map(|root| root.names));
        let bytes_of = |owners: &[u64]| {
            let live = |((owner, _), records): (&(u64, Vec<u8>), &Vec<Record>)| {
                let newest = Self::winner(records)?;
                let counts = records.len() > 1 || !newest.is_absent(now);
                (owners.contains(owner) && counts).then_some(newest.bytes)
            };
            self.keys.iter().filter_map(live).sum()
        };
        let unreclaimed =
            expired.iter().filter_map(|root| root.names).map(|owner| bytes_of(&[owner])).collect();
        (bytes_of(&owners), unreclaimed)
    }
}

fn is_collection(owner: u64) -> bool {
    owner & 7 > 1
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The seeds of checksums, by purpose.
#[derive(Clone, Copy)]
pub(crate) struct Secret(u64);

/// The seed of the checksums of a block's records.
#[derive(Clone, Copy)]
pub(crate) struct Seeds {
    head: u32,
    pub body: u32,
}

impl Secret {
    /// The secret of the store with these bytes.
    pub fn of(medium: &[u8]) -> Self {
        Self(u64_at(medium, 128))
    }

    /// A guess of a reader that does not know the secret.
    pub fn none() -> Self {
        Self(0)
    }

    fn number(self, made_for: u64, of: u64) -> u64 {
        let bytes = [made_for.to_le_bytes(), of.to_le_bytes()].concat();
        SipHasher24::new_with_keys(self.0, 0).hash(&bytes)
    }

    pub fn seeds(self, generation: u64) -> Seeds {
        let number = self.number(1, generation);
        Seeds { head: number as u32, body: (number >> 32) as u32 }
    }

    fn of_blocks(self) -> u32 {
        self.number(2, 0) as u32
    }

    fn tie(self, extent: u64) -> u64 {
        self.number(3, extent)
    }
}

impl Seeds {
    /// The seed of a header that lies `at` bytes after the beginning of its block.
    pub fn head(self, at: usize) -> u32 {
        self.head ^ (at / 8) as u32
    }
}

/// Reads a medium.
///
/// # Errors
/// Returns a description of the first deviation from the format.
pub fn read(medium: &SimMedium) -> Result<Audit, String> {
    let memory = medium.memory().snapshot();
    let bytes: Vec<u8> = memory.into_iter().flatten().flat_map(u64::to_le_bytes).collect();
    let head = |copy: usize| &bytes[copy * 4096..copy * 4096 + 192];
    let sequence = |copy: usize| {
        let mut zeroed = head(copy).to_vec();
        zeroed[12..16].fill(0);
        let whole = zeroed[..8] == *b"DURAMEN1" && crc32c(&zeroed) == u32_at(head(copy), 12);
        whole.then(|| u64_at(head(copy), 24))
    };
    let copy = match (sequence(0), sequence(1)) {
        (None, None) => return Err("neither superblock is valid".into()),
        (a, b) => usize::from(b > a),
    };
    let secret = Secret(u64_at(head(copy), 128));
    let extent_bytes = u64::from(u32_at(head(copy), 32));
    let extents = u64_at(head(copy), 88);
    let mut audit = Audit { bytes: extents * extent_bytes, ..Audit::default() };
    if audit.bytes > medium.len() {
        return Err(format!("the superblock says {} bytes, the medium has {}", audit.bytes, medium.len()));
    }
    let mut extent = HEAD_BYTES.div_ceil(extent_bytes);
    // Only blocks follow the head: their bytes are used or free, the head's are used.
    while extent < extents {
        let at = extent * extent_bytes;
        let block = &bytes[at as usize..];
        let word = u64_at(block, 0);
        let generation = u64_at(block, if word & 16 != 0 { 16 } else { 8 });
        let low = word as u32;
        let check =
            [&(extent as u32).to_le_bytes()[..], &low.to_le_bytes(), &generation.to_le_bytes()].concat();
        if crc32c_append(secret.of_blocks(), &check) != (word >> 32) as u32 {
            return Err(format!("the header of extent {extent} has a wrong check"));
        }
        if (u64_at(block, 48), u64_at(block, 56)) != (secret.0, secret.tie(extent)) {
            return Err(format!("the header of extent {extent} belongs to another place"));
        }
        let length = u64::from(low >> 5);
        match low & 15 {
            1 => audit.free_extents += length,
            2 => records(&mut audit, at, &block[..(length * extent_bytes) as usize], generation, secret)?,
            other => return Err(format!("extent {extent} has state {other}")),
        }
        extent += length;
    }
    if extent != extents {
        return Err(format!("the last block ends at extent {extent} of {extents}"));
    }
    Ok(audit)
}

fn records(
    audit: &mut Audit,
    base: u64,
    block: &[u8],
    generation: u64,
    secret: Secret,
) -> Result<(), String> {
    let seal = u64_at(block, 24);
    let check = [&(seal as u32).to_le_bytes()[..], &block[32..40], &generation.to_le_bytes()].concat();
    if crc32c_append(secret.of_blocks(), &check) != (seal >> 32) as u32 {
        audit.unsealed += 1;
        return Ok(());
    }
    let tail = u64::from(seal as u32) * 8;
    audit.record_bytes += tail - 64;
    if tail > 64 && tail * 2 <= block.len() as u64 {
        audit.room_bytes += block.len() as u64 - tail;
    }
    run(audit, base, &block[..tail as usize], generation, secret)
}

/// Consecutive records of one transaction.
#[derive(Default)]
struct OfTransaction {
    transaction: u64,
    records: Vec<((u64, Vec<u8>), Record)>,
    /// Their number, and a sum over them.
    sum: (u64, u64),
}

impl OfTransaction {
    /// Adopts the records if they count, by the transaction's commit record or by the block's header.
    fn end(
        self,
        audit: &mut Audit,
        end: Option<(u64, u64)>,
        transaction_outcomes: u32,
    ) -> Result<(), String> {
        let transaction_outcome = match end {
            Some((0, _)) => 2,
            Some(end) if end == self.sum => 1,
            Some(_) => transaction_outcomes & 3,
            None => transaction_outcomes >> 2 & 3,
        };
        match transaction_outcome {
            _ if self.records.is_empty() => {}
            1 => self
                .records
                .into_iter()
                .for_each(|(key, record)| audit.keys.entry(key).or_default().push(record)),
            2 => {}
            _ => return Err(format!("the outcome of transaction {:#x} is not recorded", self.transaction)),
        }
        Ok(())
    }
}

/// The contribution of a record to a sum.
fn summand(at: u64, crc: u32) -> u64 {
    let mix = |x: u64| (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = mix(mix(at << 20 ^ u64::from(crc)));
    x ^ x >> 32
}

fn run(audit: &mut Audit, base: u64, bytes: &[u8], generation: u64, secret: Secret) -> Result<(), String> {
    let seeds = secret.seeds(generation);
    let word = u64_at(bytes, 40);
    let check = [&(word as u32).to_le_bytes()[..], b"UNIT", &generation.to_le_bytes()].concat();
    let is_known = crc32c_append(secret.of_blocks(), &check) == (word >> 32) as u32;
    let transaction_outcomes = if is_known { word as u32 } else { 0 };
    let mut of_transaction = OfTransaction::default();
    let mut at = 64;
    while at < bytes.len() {
        let record = &bytes[at..];
        let (kind, flags) = (record[4] & 15, record[4] >> 4);
        let sizes = u64_at(record, 8);
        let key_bytes =
            usize::from(u16::from_le_bytes([record[6], record[7]])) | ((sizes >> 30 & 1) as usize) << 16;
        let value_bytes = (sizes & ((1 << 30) - 1)) as usize;
        let (expires, member, owned) = (flags & 1 != 0, flags & 2 != 0, flags & 8 != 0);
        let head = 24 + 8 * usize::from(expires) + 8 * usize::from(owned);
        let value_end = head + key_bytes + value_bytes;
        let sums = if matches!(kind, 3 | 4) { 8 } else { 4 };
        let trailer = (value_end + sums + 7) & !7;
        let end = trailer + 16 * usize::from(member);
        if end > record.len() {
            return Err(format!("the record at {:#x} ends beyond its block", base + at as u64));
        }
        let summed = if kind == 4 { key_bytes } else { key_bytes + value_bytes };
        let crc = u32_at(record, 0);
        let checked = if kind == 7 { 12 } else { head };
        if crc32c_append(seeds.head(at), &record[4..checked]) != crc {
            return Err(format!("the header at {:#x} has a wrong check", base + at as u64));
        }
        if kind == 7 {
            at += end;
            continue;
        }
        let body = crc32c_append(seeds.body, &record[head..head + summed]);
        let sum = crc32c_append(crc32c_append(body, &record[..4]), &record[trailer..end]);
        if sum != u32_at(record, if kind == 4 { value_end + 4 } else { value_end }) {
            return Err(format!("the record at {:#x} has a wrong checksum", base + at as u64));
        }
        let value = &record[head + key_bytes..head + key_bytes + value_bytes];
        let names = (kind == 6).then(|| u64_at(value, 0));
        let transaction = if member { u64_at(record, trailer) } else { 0 };
        if transaction != of_transaction.transaction {
            std::mem::replace(&mut of_transaction, OfTransaction { transaction, ..OfTransaction::default() })
                .end(audit, None, transaction_outcomes)?;
        }
        if kind == 5 {
            let sum = (u64_at(value, 0), u64_at(value, 8));
            std::mem::take(&mut of_transaction).end(audit, Some(sum), transaction_outcomes)?;
        } else {
            let version = u64_at(record, 16) & ((1 << 52) - 1);
            let owner = if owned { u64_at(record, head - 8) } else { STORE };
            let key = record[head..head + key_bytes].to_vec();
            if owned && owner == STORE {
                return Err(format!(
                    "the catalog record at {:#x} has the owner of the store's own table",
                    base + at as u64
                ));
            }
            let record = Record {
                version,
                generation,
                at: base + at as u64,
                bytes: end as u64,
                tombstone: kind == 2,
                // The expiry of an element ends nothing.
                expires_at: (expires && !is_collection(owner)).then(|| u64_at(record, 24)),
                value: if kind == 6 { value[8..].to_vec() } else { value.to_vec() },
                names,
            };
            if member {
                of_transaction.records.push(((owner, key), record));
                of_transaction.sum.0 += 1;
                of_transaction.sum.1 = of_transaction.sum.1.wrapping_add(summand(base + at as u64, crc));
            } else {
                audit.keys.entry((owner, key)).or_default().push(record);
            }
        }
        at += end;
    }
    of_transaction.end(audit, None, transaction_outcomes)
}

/// A word of the medium, for tests that damage it.
#[must_use]
pub fn word(medium: &SimMedium, at: u64) -> u64 {
    medium.load_u64(Offset(at))
}
