//! Writes records into a block of its own, or into one that writers share.
//!
//! Order in which the bytes of one record become durable (`Immediate` regime):
//!
//! 1. the record, header and body, is stored and its write-back started;
//! 2. `drain`;
//! 3. only then may a slot of the index point to it.
//!
//! A crash before 2 leaves a record whose checksum is wrong, or a whole one that no reply has acknowledged. Both are
//! fine. A long body is written before the key is locked ([`Appender::stage`]), in this order:
//!
//! 1. the header of a *void* of the record's length: recovery passes over it;
//! 2. the body: after a crash, bytes within a void;
//! 3. the checksum after it, and all of the header but the first 8 bytes, which the check of a void leaves out;
//! 4. the first 8 bytes of the header, by one store: the void is a record.
//!
//! If nothing is written after all, the void stays, below the tail. So above the tail of a block there are no user
//! bytes but those of the one record that is being written, after a header. (Where stores are lost in any order, as by
//! a power failure on a cache-line medium, the header may be lost. Then the checks decide, which no client can forge.)
//!
//! Within a group (see `duramen::Writer::group`) step 2 comes once for several records. Their slots are marked pending
//! until then, and a reader of such a record flushes and drains it first.
//!
//! Where every write waits for a commit of pages, writers take turns in one *shared* block, since a commit costs one
//! device write for each place that was written to. A turn is exclusive and lasts until slots point to the appended
//! records:
//!
//! 1. lock the shared block; if it has no room, the writer's own block replaces it;
//! 2. append;
//! 3. slots point to the record;
//! 4. unlock. A writer whose block replaced a full one seals the full one before its next write.
//!
//! So the block has no hole: a killed process leaves at most one torn record in it, at the end, after all acknowledged
//! records of other writers. And each record has its slot when its block is sealed; otherwise the compactor would treat
//! it as dead.
//!
//! Invariants:
//! 1. An open block belongs to one appender, or to the list of partial blocks, or is the shared one. (No line
//!    checks the owner: an [`OpenBlock`] has one, since it is not copied. That the block is open is asserted.)
//! 2. Bytes below the tail never change, except cells by one atomic store.
//! 3. A block is sealed only when everything below its tail is durable, or belongs to an epoch not later
//!    than the seal's.

use crate::Log;
use crate::blocks::Use;
use crate::format::Owner;
use crate::format::block;
use crate::format::record::{Appended, END_BYTES, Encoded, Header, Kind, Trailer, body_crc};
use crate::format::transaction::TransactionSum;
use crate::format::{Epoch, TransactionId, Version};
use crate::open_block::{OpenBlock, Purpose};
use crate::supply::Supply;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::lock;
use crate::sync::time::Instant;
use crate::sync::{Backoff, Mutex, MutexGuard, rank};
use crate::{ErrorKind, Result};
use duramen_media::{Medium, Offset};
use std::time::Duration;

/// A body of this many bytes or more is written before the key is locked.
pub const STAGE_BYTES_MIN: u64 = 4096;

/// How long a delete waits for other writers to return the blocks kept for deletes. Each may wait for a sync, which
/// takes seconds on a busy disk.
const LENT_MAX: Duration = Duration::from_secs(if cfg!(loom) { 0 } else { 10 });

/// See the module.
pub type Shared = Mutex<Option<OpenBlock>, { rank::SHARED }>;

/// A turn in the shared block; it keeps the writer's own block.
#[must_use]
pub struct SharedTurn<'a>(MutexGuard<'a, Option<OpenBlock>, { rank::SHARED }>);

/// Key and value of a record, and their checksum, seeded by [`Appender::seed`].
#[derive(Clone, Copy)]
pub struct Body<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub crc: u32,
}

/// The other fields of a record to append.
#[derive(Clone, Copy)]
pub struct Fields {
    pub kind: Kind,
    pub tag: u8,
    pub expires_at: Option<u64>,
    pub version: crate::format::Version,
    pub epoch: crate::format::Epoch,
    pub owner: Owner,
}

/// Where the appender's transaction has records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SpanPlace {
    /// Nowhere, or there is no such transaction.
    #[default]
    None,
    /// In the current block.
    CurrentBlock,
    /// In other blocks, and not in the current one.
    OtherBlocks,
}

#[derive(Default)]
pub struct Appender {
    block: Option<OpenBlock>,
    staged: Option<Staged>,
    /// Within a group or a transaction: records may be read before they are drained.
    pub grouped: bool,
    /// Where the active transaction has records.
    span_place: SpanPlace,
    /// Blocks kept for deletes that unfinalized transactions have filled.
    kept_filled: u32,
    /// The seed of the shared block at this writer's last turn.
    pub shared_seed: u32,
}

/// A body that was written to a void, before its header.
#[derive(Clone, Copy, Debug)]
struct Staged {
    /// Length of the void.
    bytes: u64,
}

impl Appender {
    /// Ensures that a record of `bytes` fits. May open a block, grow the store or compact, so the caller must hold no
    /// index lock.
    #[inline]
    pub fn reserve<M: Medium>(
        &mut self,
        log: &Log<M>,
        supply: &dyn Supply,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<()> {
        debug_assert!(self.staged.is_none(), "room must not be reserved while a body is staged");
        if self.has_room(bytes, purpose) {
            return Ok(());
        }
        self.reserve_slow(log, supply, bytes, 0, purpose)
    }

    /// Like [`Appender::reserve`], for the compactor. `rest` is the number of bytes that it has still to move: they are
    /// kept together.
    pub fn reserve_to_move<M: Medium>(
        &mut self,
        log: &Log<M>,
        supply: &dyn Supply,
        bytes: u64,
        rest: u64,
    ) -> Result<()> {
        debug_assert!(self.staged.is_none(), "room must not be reserved while a body is staged");
        if self.has_room(bytes, Purpose::Compaction) {
            return Ok(());
        }
        self.reserve_slow(log, supply, bytes, rest, Purpose::Compaction)
    }

    #[cold]
    fn reserve_slow<M: Medium>(
        &mut self,
        log: &Log<M>,
        supply: &dyn Supply,
        bytes: u64,
        rest: u64,
        purpose: Purpose,
    ) -> Result<()> {
        if let Some(block) = &mut self.block
            && block.room() >= bytes
        {
            let mut space = log.space();
            if space.allows(purpose) {
                space.returned(block.purpose);
                space.lend(block, purpose);
                return Ok(());
            }
        }
        let _reserving = if purpose == Purpose::Compaction { None } else { Some(log.reserving.begin()?) };
        self.put_aside(log);
        let (begun, mut backoff) = (Instant::now(), Backoff::default());
        let block = loop {
            let continues_transaction = self.span_place == SpanPlace::OtherBlocks;
            let (partial, was_lent) = {
                let mut space = log.space();
                (
                    space.take_partial(bytes, purpose, continues_transaction),
                    space.is_lent(self.kept_filled > 0),
                )
            };
            if let Some(block) = partial {
                break block;
            }
            match log.open_block(supply, bytes, rest, purpose) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && purpose.is_kept_for() => {
                    // Other writers have, or had, the blocks kept for deletes: blocks returned after the look above
                    // were not seen.
                    let is_lent = was_lent || log.space().is_lent(self.kept_filled > 0);
                    if !supply.may_wait() || !is_lent || begun.elapsed() > LENT_MAX {
                        return Err(error);
                    }
                    backoff.wait();
                }
                opened => break opened?,
            }
        };
        self.block = Some(block);
        Ok(())
    }

    /// Returns the block: to the next writer if it has room, else sealed.
    pub fn put_aside<M: Medium>(&mut self, log: &Log<M>) {
        self.advance_durable_tail(log);
        let Some(block) = self.block.take() else { return };
        let full = {
            let mut space = log.space();
            if self.span_place == SpanPlace::CurrentBlock {
                self.kept_filled += u32::from(space.filled_by_transaction(block.purpose));
            } else {
                space.returned(block.purpose);
            }
            // Only the compactor may fill its own block: sealed, it can be moved again. And a transaction that
            // continues in another block must have the last records of this one.
            let is_partial =
                block.purpose != Purpose::Compaction && self.span_place != SpanPlace::CurrentBlock;
            if block.room() >= block.bytes / 8 && is_partial {
                space.give_partial(block)
            } else {
                Some(block)
            }
        };
        if self.span_place == SpanPlace::CurrentBlock {
            assert!(
                full.is_some(),
                "records come after those of a transaction (transaction::write, invariant 3)"
            );
            self.span_place = SpanPlace::OtherBlocks;
        }
        if let Some(full) = full {
            log.seal(full);
        }
    }

    /// The active transaction has a record in the current block.
    pub fn enter_transaction(&mut self) {
        if let Some(block) = &mut self.block {
            assert!(
                !block.entered || self.span_place != SpanPlace::OtherBlocks,
                "two transactions continue in the block at extent {} (transaction::write, invariant 3)",
                block.extent.0
            );
            block.entered |= self.span_place == SpanPlace::OtherBlocks;
        }
        self.span_place = SpanPlace::CurrentBlock;
    }

    /// The active transaction ends.
    pub fn leave_transaction(&mut self) {
        self.span_place = SpanPlace::None;
    }

    /// The finished transactions are finalized: the records they replaced are dead.
    pub fn transactions_finalized<M: Medium>(&mut self, log: &Log<M>) {
        if self.kept_filled > 0 {
            log.space().transactions_finalized(std::mem::take(&mut self.kept_filled));
        }
    }

    /// The current block, and where its records end.
    pub fn place(&self) -> Option<(crate::format::Extent, u64)> {
        self.block.as_ref().map(|block| (block.extent, block.tail))
    }

    /// Seals the current block: nobody writes to it again.
    pub fn seal<M: Medium>(&mut self, log: &Log<M>) {
        self.advance_durable_tail(log);
        if let Some(block) = self.block.take() {
            log.space().returned(block.purpose);
            log.seal(block);
        }
    }

    /// Whether the current block was taken below the limit of puts. Such a block is returned at the end of each write,
    /// so that a few serve the deletes of all writers.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.purpose != Purpose::Write)
    }

    /// Begins a turn: until [`Appender::end_turn`] the appender's block is the shared one. Only after
    /// [`Appender::reserve`] of `bytes`.
    pub fn begin_turn<'a, M: Medium>(&mut self, log: &'a Log<M>, bytes: u64) -> SharedTurn<'a> {
        let mut shared = lock(&log.shared);
        if shared.as_ref().is_some_and(|block| block.room() >= bytes) {
            std::mem::swap(&mut *shared, &mut self.block);
        }
        self.shared_seed = self.seed();
        SharedTurn(shared)
    }

    /// Ends a turn: slots point to the appended records.
    pub fn end_turn(&mut self, mut turn: SharedTurn<'_>) {
        std::mem::swap(&mut *turn.0, &mut self.block);
    }

    /// The seed of the body's checksum in the block of the next record. Only after [`Appender::reserve`].
    #[inline]
    pub fn seed(&self) -> u32 {
        self.block.as_ref().map_or(0, |b| b.seeds.body)
    }

    /// The seed of a header's check at this place of the current block.
    pub fn seed_at(&self, at: Offset) -> u32 {
        self.block.as_ref().map_or(0, |b| b.seeds.head(at.0 - b.offset))
    }

    /// Writes the body of the next record, not a cell, before its version is known, after the header of a void: see the
    /// module. `kind`, `expires_at` and `owner` are those of the later record. Only after [`Appender::reserve`].
    pub fn stage<M: Medium>(&mut self, log: &Log<M>, fields: Fields, key: &[u8], value: &[u8]) {
        let Some(block) = &self.block else { return };
        debug_assert!(!fields.kind.is_updatable(), "a cell must not be staged: it is longer than a void");
        let header =
            Self::header(Fields { kind: Kind::Void, ..fields }, key.len(), value.len(), false, false);
        let at = Offset(block.offset + block.tail);
        let head = header.encode(block.seeds.head(block.tail));
        let body_at = at.plus(header.head_bytes());
        self.write(log, at, &[head.bytes()]);
        // Neither the compiler nor the CPU may store any of the body first.
        fence(Ordering::Release);
        self.write(log, body_at, &[key, value]);
        self.staged = Some(Staged { bytes: header.record_bytes() });
    }

    /// Abandons the staged record: its void stays. Returns the void's length in bytes.
    pub fn unstage(&mut self) -> u64 {
        let Some(Staged { bytes }) = self.staged.take() else { return 0 };
        if let Some(block) = &mut self.block {
            block.unflushed = block.unflushed.min(block.tail);
            block.tail += bytes;
        }
        bytes
    }

    /// Whether a record of `bytes` fits without opening a block.
    #[inline]
    pub fn has_room(&self, bytes: u64, purpose: Purpose) -> bool {
        let may_use = |block: &OpenBlock| block.purpose <= purpose;
        self.block.as_ref().is_some_and(|block| block.room() >= bytes && may_use(block))
    }

    /// Bytes of records in the current block.
    pub fn filled(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.tail - block::HEADER_BYTES)
    }

    /// Bytes of room in the current block.
    pub fn room(&self) -> u64 {
        self.block.as_ref().map_or(0, OpenBlock::room)
    }

    #[inline]
    fn header(
        fields: Fields,
        key_bytes: usize,
        value_bytes: usize,
        transactional: bool,
        drained: bool,
    ) -> Header {
        Header {
            crc: 0,
            kind: fields.kind,
            tag: fields.tag,
            transactional,
            drained,
            key_bytes: key_bytes as u32,
            value_bytes: value_bytes as u32,
            epoch: fields.epoch,
            version: fields.version,
            expires_at: fields.expires_at,
            owner: fields.owner,
        }
    }

    #[inline(always)]
    fn write<M: Medium>(&self, log: &Log<M>, at: Offset, parts: &[&[u8]]) {
        if log.epochs().in_use() {
            // The committer flushes, once for all writes.
            log.medium.store(at, parts);
        } else if self.grouped {
            // Non-temporal stores must not be visible to others before a drain, and here they would be.
            log.medium.store(at, parts);
            log.medium.flush(at, parts.iter().map(|p| p.len() as u64).sum());
        } else {
            log.medium.write(at, parts);
        }
    }

    /// Appends a record. Only after [`Appender::reserve`] of its size. Not drained.
    #[inline(always)]
    pub fn append<M: Medium>(&mut self, log: &Log<M>, fields: Fields, body: Body<'_>) -> Appended {
        self.append_with(log, fields, body, None)
    }

    /// Like [`Appender::append`], for a transaction record.
    pub fn append_transaction_record<M: Medium>(
        &mut self,
        log: &Log<M>,
        fields: Fields,
        body: Body<'_>,
        trailer: Trailer,
    ) -> Appended {
        self.append_with(log, fields, body, Some(trailer))
    }

    /// Appends the commit record of a transaction, or for an aborted one an end without transaction records. Always
    /// fits: room for it is reserved with each transaction record.
    pub fn append_commit<M: Medium>(
        &mut self,
        log: &Log<M>,
        transaction: TransactionId,
        sum: TransactionSum,
        epoch: Epoch,
    ) -> Appended {
        let (version, owner) = (Version(0), Owner::STORE);
        let fields = Fields { kind: Kind::End, tag: 0, expires_at: None, version, epoch, owner };
        let value = sum.bytes();
        let body = Body { key: &[], value: &value, crc: body_crc(self.seed(), &[&value]) };
        let appended = self.append_with(log, fields, body, Some(Trailer { transaction, previous: 0 }));
        debug_assert_eq!(appended.bytes, END_BYTES, "the reserved room (transaction::write, invariant 4)");
        appended
    }

    #[inline(always)]
    fn append_with<M: Medium>(
        &mut self,
        log: &Log<M>,
        fields: Fields,
        Body { key, value, crc }: Body<'_>,
        trailer: Option<Trailer>,
    ) -> Appended {
        debug_assert_ne!(
            fields.kind,
            Kind::CellOpen,
            "a cell is appended sealed, and then opened (cell, invariant 4; compact::records, invariant 3)"
        );
        let staged = self.staged.take();
        let block = self.block.as_ref().map(|b| (b.offset, b.tail, b.durable_tail, b.room(), b.seeds));
        let (offset, tail, durable_tail, room, seeds) = block.unwrap_or_default();
        let header = Self::header(fields, key.len(), value.len(), trailer.is_some(), durable_tail == tail);
        let bytes = header.record_bytes();
        assert!(bytes <= room, "record of {bytes} bytes in {room} bytes of room");
        let at = Offset(offset + tail);
        let head = header.encode(seeds.head(tail));
        debug_assert_eq!(
            Header::decode_within(head.bytes(), bytes),
            Some(Header { crc: head.crc, ..header }),
            "recovery must decode the appended header"
        );
        let open = fields.kind.is_updatable().then(|| {
            let open = Header { kind: Kind::CellOpen, ..header };
            (open.encode(seeds.head(tail)).crc, body_crc(seeds.body, &[key]))
        });
        let rest = header.rest(head.crc, crc, open, trailer);
        match trailer {
            None if staged.is_some() => self.write_around(log, at, &header, &head, rest.bytes()),
            None => self.write(log, at, &[head.bytes(), key, value, rest.bytes()]),
            Some(trailer) => {
                self.write(log, at, &[head.bytes(), key, value, rest.bytes(), &trailer.bytes()]);
            }
        }
        debug_assert!(
            staged.is_none_or(|staged| staged.bytes == bytes),
            "a record must be as long as its void"
        );
        if let Some(block) = &mut self.block {
            block.tail += bytes;
            block.records += 1;
            let entry = log.blocks.at(block.extent);
            debug_assert!(
                cfg!(loom) || entry.state() == Use::Open,
                "a record is appended to an open block, found {:?} (invariant 1)",
                entry.state()
            );
            debug_assert!(
                cfg!(loom) || entry.tail() <= tail,
                "a record at {tail} overwrites what ends at {} (invariant 2)",
                entry.tail()
            );
            // Other threads read the block up to here; bytes after it may be written concurrently.
            entry.set_tail(block.tail);
            if let Some(at) = fields.expires_at {
                entry.expiry_add(at);
            }
            if fields.kind.is_updatable() {
                entry.set_cells(true);
            }
            log.dirty_blocks.mark_dirty(block, tail, fields.epoch);
        }
        Appended { at, bytes, crc: head.crc }
    }

    /// Makes the void that holds the body a record: steps 3 and 4 of the module.
    #[inline(never)]
    fn write_around<M: Medium>(
        &self,
        log: &Log<M>,
        at: Offset,
        header: &Header,
        head: &Encoded,
        rest: &[u8],
    ) {
        self.write(log, at.plus(header.value_at() + u64::from(header.value_bytes)), &[rest]);
        self.write(log, at.plus(8), &[&head.bytes()[8..]]);
        // Neither the compiler nor the CPU may store the first word before.
        fence(Ordering::Release);
        log.medium.store_u64(at, head.first_word());
        if !log.epochs().in_use() {
            log.medium.flush(at, 8);
        }
    }

    /// Drains the appended records; afterwards all of them are durable (in the `Immediate` regime).
    #[inline]
    pub fn drain<M: Medium>(&mut self, log: &Log<M>) {
        log.medium.drain();
        if let Some(block) = &mut self.block
            && !log.epochs().in_use()
        {
            block.durable_tail = block.tail;
        }
    }

    /// Whether an appended record is drained, or need not be; blocks before the current one are.
    pub(crate) fn has_drained<M: Medium>(&self, log: &Log<M>, appended: Appended) -> bool {
        let end = appended.at.0 + appended.bytes;
        log.epochs().in_use()
            || self.block.as_ref().is_none_or(|block| {
                !(block.offset..block.offset + block.bytes).contains(&appended.at.0)
                    || end <= block.offset + block.durable_tail
            })
    }

    /// Ends a group: drains, and publishes the durable tail to readers that would flush.
    pub fn advance_durable_tail<M: Medium>(&mut self, log: &Log<M>) {
        self.drain(log);
        if let Some(block) = &self.block
            && !log.epochs().in_use()
        {
            log.blocks.at(block.extent).set_durable_tail(block.durable_tail);
        }
    }

    /// The record last appended is reachable: it counts as live.
    #[inline]
    pub fn count_live(&mut self, bytes: u64) {
        if let Some(block) = &mut self.block {
            block.live += bytes;
        }
    }
}
