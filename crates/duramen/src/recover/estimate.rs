//! Estimates how many keys a log holds before it is read. The index is created with that many slots, so that none of it
//! need be split while it fills.
//!
//! A hint: nothing here is verified. A wrong estimate costs only time (too low: segments split, as in a store that
//! grows) or memory (too high). So it leans to too low.
//!
//! The headers of some blocks, from the first to a random one, give the mean bytes of a record. With the bytes of all
//! blocks, that gives the number of records. Keys that occur twice in the sample show dead records. If each of `keys`
//! keys has `each` of the `records` records, a sample of `taken` holds `taken`² / 2 / `records` × (`each` minus 1)
//! pairs of one key. Where some keys have more records than others there are more pairs, and the estimate is too low.

use crate::recover::bytes::bytes_of;
use duramen_index::Hasher;
use duramen_index::ordered::Parting;
use duramen_log::format::Owner;
use duramen_log::format::block;
use duramen_log::format::block::DataBlock;
use duramen_log::format::holes::Holes;
use duramen_log::format::record::{Header, Kind};
use duramen_media::Medium;

/// Each is read up to a random place, on average half of it; of a few blocks more is taken.
const BLOCKS_MAX: usize = 1 << 14;
/// With this many, 10 million records, half of them dead, show 200 pairs.
const TAKEN_MIN: usize = 1 << 16;

/// Some records of a log.
#[derive(Default)]
pub(crate) struct Sample<'m> {
    keys: Vec<(Owner, &'m [u8])>,
    /// Records whose headers were read, and their bytes.
    records: u64,
    bytes: u64,
    /// Of all records.
    log_bytes: u64,
}

impl<'m> Sample<'m> {
    /// Of the records of `data`.
    pub(crate) fn of<M: Medium>(
        medium: &'m M,
        extent_bytes: u64,
        data: &[DataBlock],
        holes: &Holes<'_>,
    ) -> Self {
        let used = |block: &DataBlock| {
            let end =
                block.header.seal.map_or(u64::from(block.header.extents) * extent_bytes, |(tail, _)| tail);
            end.saturating_sub(block::HEADER_BYTES)
        };
        let mut sample = Self { log_bytes: data.iter().map(used).sum(), ..Self::default() };
        let each = data.len().div_ceil(BLOCKS_MAX).max(1);
        let chunks = data.chunks(each);
        // Few of one block: records that lie side by side may have been overwritten side by side.
        let take = TAKEN_MIN.div_ceil(chunks.len().max(1));
        for (turn, blocks) in chunks.enumerate() {
            // Not always the same part of each chunk and block: keys may have been written in the same order each time.
            let random = (turn as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let block = &blocks[(random >> 48) as usize % blocks.len()];
            let from = (random >> 32 & 0xffff) * used(block) / (1 << 16);
            sample.take(bytes_of(medium, extent_bytes, block, holes).0, from, take);
        }
        sample
    }

    /// Takes the keys of `take` records of a block, after its first `from` bytes of records.
    fn take(&mut self, block: &'m [u8], from: u64, take: usize) {
        let (mut at, enough) = (block::HEADER_BYTES, self.keys.len() + take);
        while self.keys.len() < enough {
            let Some(bytes) = block.get(at as usize..) else { return };
            let Some(header) = Header::decode(bytes) else { return };
            if !matches!(header.kind, Kind::End | Kind::Void) && at >= block::HEADER_BYTES + from {
                self.keys.push((header.owner, header.key(bytes)));
            }
            at += header.record_bytes();
            self.records += 1;
            self.bytes += header.record_bytes();
        }
    }

    /// The approximate number of records of the log.
    fn records_of_log(&self) -> f64 {
        self.log_bytes as f64 * self.records as f64 / self.bytes.max(1) as f64
    }

    /// The sampled keys of `owner`.
    fn keys_of(&self, owner: Owner) -> impl Iterator<Item = &'m [u8]> {
        self.keys.iter().filter(move |(of, _)| *of == owner).map(|&(_, key)| key)
    }

    /// The approximate number of keys of an owner.
    pub(crate) fn keys_of_log(&self, owner: Owner, hasher: &Hasher) -> u64 {
        let mut hashes: Vec<u64> = self.keys_of(owner).map(|key| hasher.hash(key)).collect();
        if hashes.is_empty() {
            return 0;
        }
        let taken = hashes.len() as f64;
        let records = self.records_of_log() * taken / self.keys.len() as f64;
        hashes.sort_unstable();
        let runs = hashes.chunk_by(|a, b| a == b).map(|run| run.len() as f64);
        let pairs: f64 = runs.map(|keys| keys * (keys - 1.0) / 2.0).sum();
        (records / (1.0 + pairs * 2.0 * records / (taken * taken))) as u64
    }

    /// Parts for the keys of the store's own table.
    pub(crate) fn parting(&self) -> Parting<'m> {
        let keys: Vec<_> = self.keys_of(Owner::STORE).collect();
        let share = keys.len() as f64 / self.keys.len().max(1) as f64;
        Parting::new(&keys, (self.records_of_log() * share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimate from every `step`th record, where `keys` keys were written `copies` times, in another order each
    /// time.
    fn estimate(keys: u64, copies: u64, step: usize) -> u64 {
        let hasher = Hasher::new(7, u64::MAX);
        let hash = |word: u64| hasher.hash(&word.to_le_bytes());
        let in_some_order = |copy: u64| {
            let mut order: Vec<u64> = (0..keys).collect();
            order.sort_by_key(|key| hash(key ^ (copy + 1) << 32));
            order
        };
        let taken: Vec<[u8; 8]> =
            (0..copies).flat_map(in_some_order).step_by(step).map(u64::to_le_bytes).collect();
        let keys_taken = taken.iter().map(|key| (Owner::STORE, &key[..])).collect();
        let records = taken.len() as u64;
        let log_bytes = keys * copies * 100;
        Sample { keys: keys_taken, records, bytes: records * 100, log_bytes }
            .keys_of_log(Owner::STORE, &hasher)
    }

    #[test]
    fn a_log_without_dead_records_has_a_key_per_record() {
        assert_eq!(estimate(100_003, 1, 17), 100_003);
        assert_eq!(estimate(1009, 1, 1), 1009);
    }

    #[test]
    fn repeated_keys_reveal_dead_records() {
        for copies in 2..=6 {
            let found = estimate(100_003, copies, 17);
            assert!((80_000..120_000).contains(&found), "{found} of {copies} copies");
        }
        // The whole log is sampled.
        let found = estimate(1009, 3, 1);
        assert!((900..1100).contains(&found), "{found}");
    }

    #[test]
    fn an_empty_log_has_no_keys() {
        let sample = Sample { log_bytes: 1 << 30, ..Sample::default() };
        assert_eq!(sample.keys_of_log(Owner::STORE, &Hasher::new(7, u64::MAX)), 0);
    }
}
