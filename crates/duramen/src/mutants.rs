//! Planted bugs: what the crash driver must find, to show that it can. Without the feature `mutants`
//! [`planted`] is a constant, and nothing of them is left in the code.
//!
//! Here are those of logic: a comparison, a count, an order of steps. What is about a call of the medium that is missing (a write-back, a
//! drain, a sync) is planted in the simulated medium, by the place of the call (`duramen_media::sim::lose`), and what is about an
//! ordering or a fence in the primitives of the models; the sources say nothing of these.

/// A bug, named after what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code))]
pub enum Mutant {
    /// A block is used again with the generation of its last use.
    GenerationKept = 1,
    /// The check of a record's header does not depend on its place.
    PlaceNotChecked,
    /// Checksums begin with numbers that anybody can make.
    SecretLeftOut,
    /// Recovery looks for records within the body of one that is torn.
    BodySearched,
    /// A long body is written before any header.
    BodyBeforeHeader,
    /// A tombstone is dropped while an older version of its key is on the medium.
    TombstoneDroppedEarly,
    /// A superseded record is not counted, so that a tombstone seems to hide nothing.
    StaleNotCounted,
    /// Recovery does not raise the versions that are given out next above those that it met.
    VersionNotRecovered,
    /// Recovery keeps of each key the version that it reads last.
    LastScannedWins,
    /// An overwrite keeps the version of what it replaces.
    VersionNotAdvanced,
    /// Recovery takes a commit mark for proof of its epoch.
    MarkNotProven,
    /// A seal claims to be of an epoch long committed.
    SealOfOldEpoch,
    /// A block is freed before the epoch that superseded its records is committed.
    FreedBeforeCommit,
    /// A block is freed while readers may still see it.
    FreedBeforeReadersLeave,
    /// A block is freed though a value that was read in it is kept.
    PinNotChecked,
    /// A value that is kept holds back all blocks that are retired later.
    KeptHoldsBackAll,
    /// The records of a block that stays because of a value are not counted again.
    KeptNotCounted,
    /// A block that tombstones were dropped from is freed together with those that hold what they hid.
    FreedWithoutOrder,
    /// Compaction copies records that are not committed, and readers do not wait for the copies.
    UncommittedCopied,
    /// Compaction forgets when a value expires.
    ExpiryNotCopied,
    /// An expired key is shown.
    ExpiredShown,
    /// Recovery's headers say that transactions count before the new incarnation is durable.
    TransactionsConfirmedEarly,
    /// The first update of the superblock begins with copy 0, whichever was read.
    SuperblockCopyZeroFirst,
    /// Writers of one key do not wait for each other.
    StripeNotLocked,
    /// A segment is changed as if it belonged to one stripe, though keys of several share it.
    SharedSegmentAlone,
    /// A key is put elsewhere and its bucket does not say so.
    OverflowNotMarked,
    /// A split copies slots while writers change them.
    SplitWithoutLocks,
    /// A segment that was split is used again while readers are in it.
    SegmentReusedAtOnce,
    /// A writer looks up its segment before it has the lock that keeps it from being split.
    SegmentBeforeLock,
    /// Who enters an epoch does not look whether it has ended meanwhile.
    EnterNotRechecked,
    /// A commit does not wait for writers that are in its epoch.
    CommitDoesNotWait,
    /// A commit takes the blocks that the next epoch has told of already, and flushes them too early.
    DirtyBlocksInOneList,
    /// What a writer added to the current epoch goes with it.
    SumsNotKept,
    /// A partial block stays in the list when a writer has taken it.
    PartialTakenTwice,
    /// Two writers that find no space both grow the store by the same extents.
    GrownTwice,
    /// A writer says that there is no space, though another made some since it looked.
    SpaceNotLookedForAgain,
    /// A reader shows what a writer has not made durable yet.
    UndurableShown,
    /// Who is in a group writes before that is durable what it has read of another.
    BuiltOnUndrained,
    /// A reader that copied a cell does not look again whether an update of it is under way.
    CellNotLookedAtAgain,
    /// An update in place is not counted, so that readers take a copy for one moment's that was made beside several.
    UpdateNotCounted,
    /// A reader does not look whether a cell was updated while it copied it.
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
    /// A scan goes on behind a segment that was merged, though it had come to a half of it only.
    ScanForgetsMerge,
    /// Writers enter an epoch while others are still in the one before.
    EpochsOverlap,
    /// A leaf is changed without its lock.
    LeafNotLocked,
    /// A reader does not look again whether the leaf that it read has changed.
    LeafNotLookedAtAgain,
    /// Slots of a leaf are moved and its version does not tell.
    LeafChangedUnmarked,
    /// A node that is gone stays linked above level 0.
    NodeLeftLinked,
    /// Who ends a commit wakes nobody that came meanwhile.
    NextNotWoken,
    /// A block counts as kept by a checkpoint though it was freed since, or is of another generation.
    CheckpointKeepsFreed,
    /// Slots of a checkpoint count that do not point into kept blocks.
    CheckpointSlotsAllKept,
    /// What names a collection is not taken from a checkpoint of which all counts ...
    CheckpointNamesForgotten,
    /// ... nor from one of which a part counts.
    CheckpointRootsForgotten,
    /// A checkpoint passes over roots that are superseded or moved while it is written.
    CheckpointRootsLost,
    /// A collection is reclaimed before the group has ended that superseded its root.
    ReclaimedBesideGroup,
    /// Compaction moves a root and does not say so.
    MovedRootForgotten,
    /// A checkpoint does not say what a collection's tree may lack.
    CheckpointTreeLacks,
    /// A table that nothing names is given up though something is damaged.
    NamelessReclaimed,
    /// A dead table is reclaimed while writers may still put something into it.
    ReclaimedBeforeWritersLeave,
    /// A checkpoint is written while dead tables wait to be reclaimed.
    CheckpointBesideRetired,
    /// The copy that compaction makes belongs to the store's own table.
    OwnerNotCopied,
    /// Recovery takes every root for one that lives.
    EveryRootLives,
    /// The elements of a root that was overwritten or deleted stay until the next start.
    RootNotDied,
    /// A handle of a collection that is gone goes on reading and writing.
    DeadHandleUsed,
    /// Collections whose roots lay in a cleared table stay until the next start.
    ClearedRootsKept,
    /// Recovery takes a root for living whose table nothing names.
    RootOfDeadTableLives,
    /// Recovery forgets collections that have no element.
    EmptyForgotten,
    /// A collection dies with any of its roots, also while another names it.
    DiesWithAnyRoot,
    /// A collection that is gone may be named again.
    GoneNamedAgain,
    /// A root that is swept since it has expired does not take its collection with it.
    SweptRootKept,
    /// The tree of a collection keeps what its elements pointed to before.
    TreeNotLed,
    /// An element that is led elsewhere is out of the tree for a moment.
    LedInTwoSteps,
    /// Elements that a walk by ranks meets are taken for settled ones.
    RankedAsDurable,
    /// A collection dies when a transaction has superseded its root, before the transaction is shown.
    LostBeforeShown,
    /// Numbers of owners are used again.
    OwnerReused,
    /// Two names are swapped by two writes.
    SwapWrittenInTwo,
    /// A name points elsewhere before that is written, and the gate is open meanwhile.
    NameWrittenLate,
    /// Recovery leaves the records of dead tables among the live bytes.
    DeadCountedLive,
    /// Burying a table leaves its records among the live bytes.
    DeadNotUncounted,
    /// Recovery passes over the newest record of the catalog.
    NewestNameIgnored,
    /// The versions in a checkpoint are forgotten.
    CheckpointVersionsForgotten,
    /// Two threads that touch a page of a checkpoint at once both make a part of the index of it.
    PageReadTwice,
    /// An index checkpoint points to records that their groups have not settled.
    CheckpointOfPending,
    /// Records that an open by checkpoint did not read are used before they were verified.
    UsedUnverified,
    /// A store whose head is lost is taken for a creation that did not finish.
    LostHeadIsEmpty,
    /// Who serves the rest of a damaged store ends its damaged blocks where their first whole records end.
    DamageForgotten,
    /// Puts take the extents, and the room in open blocks, that are kept for deletes and the compactor.
    ReserveTakenByPuts,
    /// Blocks that the compactor moves to count as kept for deletes.
    MovedIntoReserve,
    /// The compactor does not make the spare whole again that it moved to.
    SpareNotRestored,
    /// Counting stale records anew reads on behind the end of a sealed block, where records lie that do not count.
    CountedBehindTail,
    /// A writer that locked keys gives them up before its last write is published.
    KeysUnlockedEarly,
    /// Keys are locked in the order in which they are named.
    LocksNotSorted,
    /// A writer locks the stripe of its key when it is in an epoch.
    LockedInEpoch,
    /// Keys are held that a transaction writes which runs.
    LockedBesideActive,
    /// Who closes the gate does not wait until those have left who are inside.
    BarrierNotWaitedFor,
    /// What a name points to changes while transactions are active.
    BarrierOpenForNames,
    /// Of keys that were locked and not written the versions are not raised.
    VersionNotRaised,
    /// Headers of blocks say that a transaction counts before it is durable.
    FinalizedTooEarly,
    /// Of a transaction of several blocks the header of the one with the end does not say that it counts.
    CommitNotConfirmed,
    /// Members that do not count are counted as stale records of their keys.
    VoidCounted,
    /// A transaction goes on to a block that another one went on to before.
    EnteredTwice,
    /// Recovery does not write down that a transaction does not count whose end was not found.
    TornNotVoided,
    /// Recovery counts transaction records whose transaction has no end.
    CommitNotLookedFor,
    /// A transaction is shown without its end.
    TransactionWithoutCommit,
    /// A transaction that is aborted leaves its slots where they are.
    PreviousNotPutBack,
    /// Readers see what a transaction writes while it runs.
    TransactionShownInParts,
    /// A key that was absent when a transaction deleted it may be there when the transaction is shown.
    MissedNotLookedAt,
    /// A reader shows what a transaction wrote and then wrote again, when the transaction ends while the reader goes
    /// back along its transaction records.
    StepOfTransactionShown,
    /// A writer writes a key that a transaction writes which runs.
    ActiveOverwritten,
    /// What a transaction took the place of is moved and freed while it runs.
    BeforeTransactionMoved,
    /// An index checkpoint points to transaction records of transactions that run.
    CheckpointOfActive,
    /// A key is evicted without a tombstone though older records of it are left.
    EvictedWithStale,
    /// A block that keys were evicted from is freed before others that have older records of them.
    EvictedWithoutOrder,
    /// Keys are evicted without a tombstone before their block is free.
    EvictedBeforeFree,
    /// The tombstone of an evicted key is older than its record.
    EvictedBelow,
    /// Everything of a block is evicted, also what is in no table that may evict.
    EvictedUnasked,
    /// A key is evicted without a tombstone though the record that its newest one is a copy of is left.
    EvictedCopyAlone,
    /// The record of a key that was evicted in place is not counted as an older one of it.
    EvictedInPlaceUncounted,
    /// The slot of a damaged record stays where it is among keys that its leaf cannot tell apart, and splits cut there.
    DamagedPlacedByGuess,
}

/// Whether `mutant` is to misbehave.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn planted(_mutant: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use planting::*;

#[cfg(feature = "mutants")]
mod planting {
    use super::Mutant;
    use crate::sync::atomic::Ordering::Relaxed;
    use crate::sync::statics::AtomicU8;

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Whether `mutant` is to misbehave.
    pub(crate) fn planted(mutant: Mutant) -> bool {
        PLANTED.load(Relaxed) == mutant as u8
    }

    /// Plants one bug, or none, in place of the one before.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.store(mutant.map_or(0, |mutant| mutant as u8), Relaxed);
    }

    /// Those that the models of `cargo xtask loom` find.
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

    /// Those that the crash driver finds.
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
        Mutant::FreedWithoutOrder,
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
    ];
}
