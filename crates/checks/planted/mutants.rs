//! Planted bugs: the crash driver and the models must find them, to show that they can. The engine's sources know none
//! of them: `cargo xtask planted` copies the tree, adds this file to the log's crate, and applies the patches beside it,
//! which ask [`planted`] where a bug would be. One build has all bugs, and [`plant`] chooses one.
//!
//! These are bugs of logic: a comparison, a count, an order of steps. A missing call of the medium (a write-back, a
//! drain, a sync) is planted in the simulated medium, by the place of the call (`duramen_media::sim::lose`). A wrong
//! ordering or fence is planted in the primitives of the models. Neither needs a patch.

use crate::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::AtomicU8;

/// A bug, named after the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A block is reused with the generation of its last use.
    GenerationKept = 1,
    /// The check of a record's header does not depend on its place.
    PlaceNotChecked,
    /// Checksums begin with numbers that anybody can compute.
    SecretLeftOut,
    /// Recovery searches for records within the body of a torn one.
    BodySearched,
    /// A long body is written before any header.
    BodyBeforeHeader,
    /// A tombstone is dropped while an older version of its key is on the medium.
    TombstoneDroppedEarly,
    /// A superseded record is not counted, so that a tombstone seems to hide nothing.
    StaleNotCounted,
    /// Recovery does not raise the versions assigned next above those that it found.
    VersionNotRecovered,
    /// For each key, recovery keeps the version that it reads last.
    LastScannedWins,
    /// An overwrite keeps the version of the record that it replaces.
    VersionNotAdvanced,
    /// Recovery accepts a commit mark without the proof of its epoch.
    MarkNotProven,
    /// A seal claims an epoch that was committed long ago.
    SealOfOldEpoch,
    /// A block is freed before the epoch that superseded its records is committed.
    FreedBeforeCommit,
    /// A block is freed while readers may still see it.
    FreedBeforeReadersLeave,
    /// A block is freed although a reader keeps a value in it.
    PinNotChecked,
    /// A kept value also blocks the reuse of all blocks retired later.
    KeptHoldsBackAll,
    /// The records of a block that stays because of a kept value are not counted again.
    KeptNotCounted,
    /// A block that tombstones were dropped from is freed together with the blocks of the records that they hid.
    FreedWithoutOrder,
    /// Compaction copies records that are not committed, and readers do not wait for the copies.
    UncommittedCopied,
    /// Compaction forgets when a value expires.
    ExpiryNotCopied,
    /// An expired key is shown.
    ExpiredShown,
    /// After recovery, headers state that transactions count before the new incarnation is durable.
    TransactionsConfirmedEarly,
    /// The first update of the superblock begins with copy 0, whichever copy was read.
    SuperblockCopyZeroFirst,
    /// Writers of one key do not wait for each other.
    StripeNotLocked,
    /// A segment is changed as if it belonged to one stripe, though keys of several share it.
    SharedSegmentAlone,
    /// A key is put in another bucket, and its own bucket does not record that.
    OverflowNotMarked,
    /// A split copies slots while writers change them.
    SplitWithoutLocks,
    /// A segment that was split is reused while readers are in it.
    SegmentReusedAtOnce,
    /// A writer looks up its segment before it has the lock that keeps it from being split.
    SegmentBeforeLock,
    /// A writer that enters an epoch does not check whether it has ended in the meantime.
    EnterNotRechecked,
    /// A commit does not wait for writers that are in its epoch.
    CommitDoesNotWait,
    /// A commit takes the blocks already marked dirty in the next epoch, and flushes them too early.
    DirtyBlocksInOneList,
    /// The sums that a writer added to the current epoch are lost when the writer ends.
    SumsNotKept,
    /// A partial block stays in the list when a writer has taken it.
    PartialTakenTwice,
    /// Two writers that find no space both grow the store by the same extents.
    GrownTwice,
    /// A writer reports that there is no space, although another one made some since it looked.
    SpaceNotLookedForAgain,
    /// A reader shows a value that its writer has not made durable yet.
    UndurableShown,
    /// A writer in a group writes before a value that it has read from another writer is durable.
    BuiltOnUndrained,
    /// A reader that copied a cell does not check again whether an update of it is under way.
    CellNotLookedAtAgain,
    /// An update in place is not counted, so that readers accept a copy that mixes several moments.
    UpdateNotCounted,
    /// A reader does not check whether a cell was updated during its copy.
    CellCopyNotChecked,
    /// A conditional write compares before it locks, and not again.
    SwapNotRechecked,
    /// A conditional update in place compares before it locks, and not again.
    UpdateNotRechecked,
    /// A split lets the directory point to the halves before the keys are in them.
    SplitPublishedFirst,
    /// A merge of two segments lets the directory point to the new one before the keys are in it.
    MergePublishedFirst,
    /// A merge copies slots while writers change them.
    MergeWithoutLocks,
    /// A scan continues after a segment that was merged, although it had reached only one half of it.
    ScanForgetsMerge,
    /// Writers enter an epoch while others are still in the one before.
    EpochsOverlap,
    /// A leaf is changed without its lock.
    LeafNotLocked,
    /// A reader does not check again whether the leaf that it read has changed.
    LeafNotLookedAtAgain,
    /// Slots of a leaf are moved without a change of its version.
    LeafChangedUnmarked,
    /// A removed node stays linked above level 0.
    NodeLeftLinked,
    /// The end of a commit wakes none of the writers that came in the meantime.
    NextNotWoken,
    /// A block counts as covered by a checkpoint although it was freed since, or has another generation.
    CheckpointKeepsFreed,
    /// Slots of a checkpoint count even if they do not point into covered blocks.
    CheckpointSlotsAllKept,
    /// The roots of collections are not taken from a checkpoint that counts completely ...
    CheckpointNamesForgotten,
    /// ... nor from one that counts in part.
    CheckpointRootsForgotten,
    /// A checkpoint misses roots that are superseded or moved while it is written.
    CheckpointRootsLost,
    /// A collection is reclaimed before the end of the group that superseded its root.
    ReclaimedBesideGroup,
    /// Compaction moves a root and does not report it.
    MovedRootForgotten,
    /// A checkpoint does not record the elements that a collection's tree may lack.
    CheckpointTreeLacks,
    /// A table that nothing names is reclaimed although something is damaged.
    NamelessReclaimed,
    /// A dead table is reclaimed while writers may still put something into it.
    ReclaimedBeforeWritersLeave,
    /// A checkpoint is written while dead tables wait to be reclaimed.
    CheckpointBesideRetired,
    /// The copy made by compaction belongs to the store's own table.
    OwnerNotCopied,
    /// Recovery treats every root as live.
    EveryRootLives,
    /// The elements of a root that was overwritten or deleted stay until the next start.
    RootNotDied,
    /// A handle of a collection that is gone continues to read and write.
    DeadHandleUsed,
    /// Collections whose roots were in a cleared table stay until the next start.
    ClearedRootsKept,
    /// Recovery treats a root as live although nothing names its table.
    RootOfDeadTableLives,
    /// Recovery forgets collections that have no element.
    EmptyForgotten,
    /// A collection is removed with any of its roots, even while another one names it.
    DiesWithAnyRoot,
    /// A collection that is gone may be named again.
    GoneNamedAgain,
    /// The sweep of an expired root does not remove its collection.
    SweptRootKept,
    /// The tree of a collection keeps the previous targets of its elements.
    TreeNotLed,
    /// An element that is repointed is missing from the tree for a moment.
    LedInTwoSteps,
    /// Elements that a walk by ranks finds are treated as durable.
    RankedAsDurable,
    /// A collection is removed when a transaction has superseded its root, before the transaction is shown.
    LostBeforeShown,
    /// Numbers of owners are reused.
    OwnerReused,
    /// Two names are swapped by two writes.
    SwapWrittenInTwo,
    /// A name points to another table before that is written, while the barrier is open.
    NameWrittenLate,
    /// Recovery counts the records of dead tables as live bytes.
    DeadCountedLive,
    /// Reclaiming a table leaves its records among the live bytes.
    DeadNotUncounted,
    /// Recovery ignores the newest record of the catalog.
    NewestNameIgnored,
    /// The versions in a checkpoint are forgotten.
    CheckpointVersionsForgotten,
    /// Two threads that use a page of a checkpoint at once both build a part of the index from it.
    PageReadTwice,
    /// An index checkpoint points to records whose groups are not flushed.
    CheckpointOfPending,
    /// Records that an open by checkpoint did not read are used before they were verified.
    UsedUnverified,
    /// A store whose head is lost is treated as a creation that did not finish.
    LostHeadIsEmpty,
    /// An open that serves the rest of a damaged store ends its damaged blocks after their first whole records.
    DamageForgotten,
    /// Puts take the extents, and the room in open blocks, that are kept for deletes and the compactor.
    ReserveTakenByPuts,
    /// Blocks that the compactor moves to count as kept for deletes.
    MovedIntoReserve,
    /// The compactor does not restore the spare after it moved records there.
    SpareNotRestored,
    /// Recounting stale records reads past the end of a sealed block, where records are that do not count.
    CountedBehindTail,
    /// A writer that locked keys releases them before its last write is published.
    KeysUnlockedEarly,
    /// Keys are locked in the order in which they are named.
    LocksNotSorted,
    /// A writer locks the stripe of its key while it is in an epoch.
    LockedInEpoch,
    /// Keys are locked that an active transaction writes.
    LockedBesideActive,
    /// Closing the barrier does not wait until all threads inside have left.
    BarrierNotWaitedFor,
    /// The target of a name changes while transactions are active.
    BarrierOpenForNames,
    /// The versions of keys that were locked and not written are not raised.
    VersionNotRaised,
    /// Headers of blocks say that a transaction counts before it is durable.
    FinalizedTooEarly,
    /// For a transaction of several blocks, the header of the block with the commit record does not state that it
    /// counts.
    CommitNotConfirmed,
    /// Transaction records that do not count are counted as stale records of their keys.
    VoidCounted,
    /// A transaction continues in a block in which another one has already continued.
    EnteredTwice,
    /// Recovery does not record that a transaction without a commit record does not count.
    TornNotVoided,
    /// Recovery counts transaction records of transactions without a commit record.
    CommitNotLookedFor,
    /// A transaction is shown without its commit record.
    TransactionWithoutCommit,
    /// An aborted transaction does not restore its slots.
    PreviousNotPutBack,
    /// Readers see writes of an active transaction.
    TransactionShownInParts,
    /// A key that was absent when a transaction deleted it may be present when the transaction is shown.
    MissedNotLookedAt,
    /// A reader shows a value that a transaction wrote and then overwrote, if the transaction ends while the reader
    /// walks back along its transaction records.
    StepOfTransactionShown,
    /// A writer writes a key that an active transaction has written.
    ActiveOverwritten,
    /// The record that a transaction record replaced is moved and freed while the transaction is active.
    BeforeTransactionMoved,
    /// An index checkpoint points to transaction records of active transactions.
    CheckpointOfActive,
    /// A key is evicted without a tombstone although older records of it remain.
    EvictedWithStale,
    /// A block with evicted keys is freed before other blocks with older records of them.
    EvictedWithoutOrder,
    /// Keys are evicted without a tombstone before their block is free.
    EvictedBeforeFree,
    /// The tombstone of an evicted key is older than its record.
    EvictedBelow,
    /// All records of a block are evicted, even those of tables that do not allow it.
    EvictedUnasked,
    /// A key is evicted without a tombstone although the original of its newest record, which is a copy, remains.
    EvictedCopyAlone,
    /// The record of a key evicted in place is not counted as an older record of it.
    EvictedInPlaceUncounted,
    /// The slot of a damaged record stays in place among keys that its leaf cannot distinguish, and splits cut there.
    DamagedPlacedByGuess,
    /// A block that was given back is used before it has space again.
    TakenBackWithoutSpace,
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Whether `mutant` is planted.
pub fn planted(mutant: Mutant) -> bool {
    PLANTED.load(Relaxed) == mutant as u8
}

/// Plants one bug, or none, in place of the previous one.
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.store(mutant.map_or(0, |mutant| mutant as u8), Relaxed);
}

/// Bugs that the models of `cargo xtask loom` find.
pub const MODELLED: [Mutant; 35] = [
    Mutant::PageReadTwice,
    Mutant::StripeNotLocked,
    Mutant::SharedSegmentAlone,
    Mutant::OverflowNotMarked,
    Mutant::SplitWithoutLocks,
    Mutant::SegmentReusedAtOnce,
    Mutant::SegmentBeforeLock,
    Mutant::EnterNotRechecked,
    Mutant::CommitDoesNotWait,
    Mutant::DirtyBlocksInOneList,
    Mutant::SumsNotKept,
    Mutant::PartialTakenTwice,
    Mutant::GrownTwice,
    Mutant::SpaceNotLookedForAgain,
    Mutant::UpdateNotCounted,
    Mutant::CellCopyNotChecked,
    Mutant::MergePublishedFirst,
    Mutant::MergeWithoutLocks,
    Mutant::ScanForgetsMerge,
    Mutant::LeafNotLocked,
    Mutant::LeafNotLookedAtAgain,
    Mutant::LeafChangedUnmarked,
    Mutant::NodeLeftLinked,
    Mutant::NextNotWoken,
    Mutant::TransactionShownInParts,
    Mutant::StepOfTransactionShown,
    Mutant::MissedNotLookedAt,
    Mutant::PreviousNotPutBack,
    Mutant::LockedBesideActive,
    Mutant::BarrierNotWaitedFor,
    Mutant::KeysUnlockedEarly,
    Mutant::LocksNotSorted,
    Mutant::VersionNotRaised,
    Mutant::SplitPublishedFirst,
    Mutant::EpochsOverlap,
];

/// Bugs that the crash driver finds.
pub const ALL: [Mutant; 40] = [
    Mutant::GenerationKept,
    Mutant::TombstoneDroppedEarly,
    Mutant::StaleNotCounted,
    Mutant::VersionNotRecovered,
    Mutant::LastScannedWins,
    Mutant::VersionNotAdvanced,
    Mutant::MarkNotProven,
    Mutant::SealOfOldEpoch,
    Mutant::FreedBeforeCommit,
    Mutant::FreedBeforeReadersLeave,
    Mutant::PinNotChecked,
    Mutant::ExpiryNotCopied,
    Mutant::ExpiredShown,
    Mutant::SuperblockCopyZeroFirst,
    Mutant::UndurableShown,
    Mutant::CellNotLookedAtAgain,
    Mutant::SwapNotRechecked,
    Mutant::UpdateNotRechecked,
    Mutant::CheckpointKeepsFreed,
    Mutant::CheckpointSlotsAllKept,
    Mutant::CheckpointNamesForgotten,
    Mutant::CheckpointRootsForgotten,
    Mutant::CheckpointVersionsForgotten,
    Mutant::OwnerNotCopied,
    Mutant::OwnerReused,
    Mutant::SwapWrittenInTwo,
    Mutant::DeadCountedLive,
    Mutant::DeadNotUncounted,
    Mutant::NewestNameIgnored,
    Mutant::DeadHandleUsed,
    Mutant::RootNotDied,
    Mutant::FinalizedTooEarly,
    Mutant::CommitNotConfirmed,
    Mutant::VoidCounted,
    Mutant::EnteredTwice,
    Mutant::TornNotVoided,
    Mutant::CommitNotLookedFor,
    Mutant::TransactionWithoutCommit,
    Mutant::PreviousNotPutBack,
    Mutant::TakenBackWithoutSpace,
];
