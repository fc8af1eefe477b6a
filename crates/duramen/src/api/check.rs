//! Verifying a store that nobody has open, and saving the valid records of a damaged one.

use crate::api::StoreOn;
use crate::api::collections::ElementOrder;
use crate::damage::claims::{Claim, Said};
use crate::damage::headless;
use crate::get::value::CollectionId;
use crate::options::{IndexKind, Options};
use crate::recover::{self, Recovered};
use crate::{Durability, Error, ErrorKind, Meta, Result};
use duramen_log::format::superblock::{Found, Superblock};
use duramen_log::format::{Owner, OwnerKind};
use duramen_media::{Create, Mapped, Medium};
use std::collections::HashMap;
use std::path::Path;

/// The result of [`check`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Damage, each with its place, and the values found and wanted. Empty for an intact store.
    pub damage: Vec<String>,
    /// The damaged records, as far as they can be recognised, with the keys that they may belong to.
    pub damaged_records: Vec<DamagedRecord>,
    /// Differences between the counts of recovery and the content of the blocks: bugs of the engine, which cost space
    /// or, at worst, restore deleted keys. Empty where anything is damaged.
    pub differences: Vec<String>,
    /// Facts that are not damage but worth knowing.
    pub notes: Vec<String>,
    /// Live keys of all tables.
    pub keys: u64,
    /// The named tables, and the live keys of each. The name is `None` if it was lost to damage.
    pub tables: Vec<(Option<Vec<u8>>, u64)>,
    /// Valid records, superseded ones included.
    pub records: u64,
    /// Blocks that hold records.
    pub blocks: u64,
    /// Bytes that the store takes on the medium.
    pub bytes: u64,
}

/// A damaged record, or bytes in which no record can be recognised.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DamagedRecord {
    /// Its offset on the medium.
    pub at: u64,
    /// Its apparent length.
    pub bytes: u64,
    /// The key that it **may** belong to: one checksum covers header, key and value, so it is unknown which of them is
    /// wrong. `None`: no key can be recognised.
    pub key: Option<Vec<u8>>,
    /// The remaining versions of that key.
    pub remains: Remains,
}

/// The remaining versions of a key with a damaged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remains {
    /// Unknown: no key can be recognised.
    Unknown,
    /// A newer whole version, or a copy of this one: nothing is lost.
    Newer,
    /// An older value, which salvage saves: the newest is lost.
    OlderValue,
    /// The damaged record is a deletion of the key, and an older value is whole: salvage restores that value.
    Undeleted,
    /// An older deletion, so salvage leaves the key out: its value is lost.
    OlderDelete,
    /// No other version: its value is lost.
    Nothing,
    /// No other version, and the damaged record is a deletion of the key: nothing is lost.
    Deleted,
}

impl Remains {
    /// A word for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Newer => "newer",
            Self::OlderValue => "older-value",
            Self::Undeleted => "undeleted",
            Self::OlderDelete => "older-delete",
            Self::Nothing => "nothing",
            Self::Deleted => "deleted",
        }
    }
}

impl std::fmt::Display for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Unknown => "its remaining versions are unknown",
            Self::Newer => "a newer version, or a copy, is whole: nothing is lost",
            Self::OlderValue => "its newest value is lost; salvage saves an older one, which is whole",
            Self::Undeleted => "it was deleted; salvage restores an older value, which is whole",
            Self::OlderDelete => "its value is lost; it had been deleted before, so salvage leaves it out",
            Self::Nothing => "its value is lost; no other version is left",
            Self::Deleted => "it was deleted, and nothing older is left: nothing is lost",
        })
    }
}

/// The damaged records, with the remaining versions of the keys that they claim.
fn damaged_records<M: Medium>(medium: &M, recovered: &Recovered) -> Vec<DamagedRecord> {
    let of = |claim: &Claim| {
        let remains = claim.said.as_ref().map_or(Remains::Unknown, |said: &Said| {
            match (recovered.newest(medium, said.owner, &said.key), said.is_tombstone) {
                (Some((version, _)), _) if version >= said.version => Remains::Newer,
                (Some((_, true)), false) => Remains::OlderDelete,
                (Some((_, false)), false) => Remains::OlderValue,
                (Some((_, false)), true) => Remains::Undeleted,
                (Some((_, true)) | None, true) => Remains::Deleted,
                (None, false) => Remains::Nothing,
            }
        });
        let key = claim.said.as_ref().map(|said| said.key.clone());
        DamagedRecord { at: claim.at, bytes: claim.bytes, key, remains }
    };
    recovered.claims.iter().map(of).collect()
}

/// Verifies every checksum and invariant of the store at `path`. Changes nothing.
///
/// # Errors
/// When the medium cannot be opened, is in use, or holds no store. Damage is not an error but in the report.
pub fn check(path: impl AsRef<Path>, options: &Options) -> Result<Report> {
    check_at(path.as_ref(), options)
}

// As `Options::open_at`.
fn check_at(path: &Path, options: &Options) -> Result<Report> {
    let medium = open(path, options)?;
    check_on(&medium, options).map_err(|e| e.context(&format!("cannot check store {}", path.display())))
}

/// Opens a medium for reading only; a DAX device can only be opened as if for writing.
fn open(path: &Path, options: &Options) -> Result<Mapped> {
    let options = Options { create: Create::OpenExisting, prefault: false, ..options.clone() };
    match (Options { read_only: true, ..options.clone() }).open_medium(path) {
        Err(error) if error.kind() == ErrorKind::Unsupported => options.open_medium(path),
        medium => medium,
    }
}

/// [`check`] on an open medium.
///
/// # Errors
/// As [`check`].
pub fn check_on<M: Medium>(medium: &M, options: &Options) -> Result<Report> {
    Ok(read(medium, options)?.1)
}

/// All valid records, and the report about the rest.
fn read<M: Medium>(medium: &M, options: &Options) -> Result<(Recovered, Report)> {
    let (mut report, superblock) = look(medium, options)?;
    let recovered = recover::read(medium, superblock, options)?;
    let summary = &recovered.summary;
    report.differences = recovered.accounts(medium).differences();
    report.damaged_records = damaged_records(medium, &recovered);
    report.damage.extend(summary.damage.iter().cloned());
    report.keys = recovered.tables.keys();
    report.tables = tables_of(&recovered);
    report.records = summary.records;
    report.blocks = summary.blocks;
    report.bytes = u64::from(superblock.extents) * u64::from(superblock.extent_bytes);
    if !superblock.clean && superblock.sequence > 0 {
        report.notes.push("the store was not closed cleanly; the next open recovers it".into());
    }
    if summary.torn > 0 {
        report.notes.push(format!(
            "after the records of {} open blocks are bytes that are no records, as is usual after a kill: remains of an earlier use of the block, \
             or an interrupted write that was never acknowledged",
            summary.torn
        ));
    }
    if summary.uncommitted > 0 {
        report
            .notes
            .push(format!("{} records belong to epochs that were not committed", summary.uncommitted));
    }
    Ok((recovered, report))
}

/// Saves the newest valid version of each key of the store at `path` into a new store at `into`. Leaves the old one as
/// it is. Returns the number of keys saved and the report of [`check`] about the old store.
///
/// # Errors
/// As [`check`], and when `into` exists or cannot be written.
pub fn salvage(path: impl AsRef<Path>, into: impl AsRef<Path>, options: &Options) -> Result<(u64, Report)> {
    salvage_at(path.as_ref(), into.as_ref(), options)
}

// As `Options::open_at`.
fn salvage_at(path: &Path, into: &Path, options: &Options) -> Result<(u64, Report)> {
    let medium = open(path, options)?;
    let target = Options { create: Create::CreateNew, durability: Durability::Manual, ..options.clone() };
    // Before the new store is created: an unreadable store leaves nothing behind.
    let (recovered, report) =
        read(&medium, options).map_err(|e| e.context(&format!("cannot read store {}", path.display())))?;
    let target = target.open(into)?;
    let saved = copy(&medium, &recovered, &target)?;
    target.close()?;
    Ok((saved, report))
}

/// [`salvage`] from an open medium into an open store.
///
/// # Errors
/// As [`salvage`].
pub fn salvage_on<M: Medium, N: Medium>(
    medium: &M,
    target: &StoreOn<N>,
    options: &Options,
) -> Result<(u64, Report)> {
    let (recovered, report) = read(medium, options)?;
    Ok((copy(medium, &recovered, target)?, report))
}

fn look<M: Medium>(medium: &M, options: &Options) -> Result<(Report, Superblock)> {
    let mut report = Report::default();
    let found = match Superblock::find(medium, headless::opened_block) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            // If the head of a store is lost, the blocks contain enough to read it.
            let Some((superblock, note)) = headless::superblock_of(medium, options.extent_bytes) else {
                return Err(error);
            };
            report.damage.push(format!("{error}"));
            report.notes.push(note);
            return Ok((report, superblock));
        }
        found => found?,
    };
    match found {
        Found::Store { superblock, damaged, .. } => {
            report.damage.extend(damaged.map(|copy| {
                format!("superblock {copy}; the other copy is whole, and the next open rewrites both")
            }));
            Ok((report, superblock))
        }
        Found::Nothing => Err(Error::new(
            ErrorKind::NotFound,
            format!("{} holds no store: it is empty, or its creation did not finish", medium.describe()),
        )),
    }
}

fn copy<M: Medium, N: Medium>(medium: &M, recovered: &Recovered, target: &StoreOn<N>) -> Result<u64> {
    let mut writer = target.writer()?;
    let mut saved = 0;
    let mut failed = None;
    let mut collections = Collections { medium, recovered, target, copied: HashMap::new() };
    recovered.for_each(medium, Owner::STORE, |key, value, meta: Meta| {
        if failed.is_none() {
            match collections.copy(meta).and_then(|meta| writer.put_with(key, value, meta)) {
                Ok(()) => saved += 1,
                Err(error) => failed = Some(error),
            }
        }
    });
    let nameless = recovered.nameless.iter().map(|&owner| (lost_name(owner), owner));
    for (name, owner) in recovered.names.iter().cloned().chain(nameless) {
        let kind = if owner.is_ordered() { IndexKind::Ordered } else { IndexKind::Hash };
        let table = target.table(&name, kind)?;
        let mut writer = writer.table(&table);
        recovered.for_each(medium, owner, |key, value, meta: Meta| {
            if failed.is_none() {
                match collections.copy(meta).and_then(|meta| writer.put_with(key, value, meta)) {
                    Ok(()) => saved += 1,
                    Err(error) => failed = Some(error),
                }
            }
        });
    }
    drop(writer);
    failed.map_or_else(|| target.commit().map(|()| saved), Err)
}

/// Copies collections, each once, however many roots name it.
struct Collections<'a, M: Medium, N: Medium> {
    medium: &'a M,
    recovered: &'a Recovered,
    target: &'a StoreOn<N>,
    copied: HashMap<Owner, CollectionId>,
}

impl<M: Medium, N: Medium> Collections<'_, M, N> {
    /// The metadata of a value; for a root, with the copy of its collection.
    fn copy(&mut self, meta: Meta) -> Result<Meta> {
        let Some(CollectionId(owner)) = meta.collection else { return Ok(meta) };
        if let Some(&copied) = self.copied.get(&owner) {
            return Ok(Meta { collection: Some(copied), ..meta });
        }
        let order = match owner.kind() {
            Some(OwnerKind::ByValue) => ElementOrder::ByValue,
            Some(OwnerKind::ByKey) => ElementOrder::ByKey,
            _ => ElementOrder::Unordered,
        };
        let copy = self.target.new_collection(order);
        let mut failed = None;
        self.recovered.for_each(self.medium, owner, |key, value, meta| {
            if failed.is_none() {
                failed = copy.put_with(key, value, meta).err();
            }
        });
        self.copied.insert(owner, copy.id());
        failed.map_or(Ok(Meta { collection: Some(copy.id()), ..meta }), Err)
    }
}

/// The new name of a table whose name is lost.
fn lost_name(owner: Owner) -> Vec<u8> {
    format!("lost-{:x}", owner.0).into_bytes()
}

fn tables_of(recovered: &Recovered) -> Vec<(Option<Vec<u8>>, u64)> {
    let keys = |owner| recovered.tables.of(owner).map_or(0, |table| table.keys());
    let named = recovered.names.iter().map(|(name, owner)| (Some(name.clone()), keys(*owner)));
    named.chain(recovered.nameless.iter().map(|&owner| (None, keys(owner)))).collect()
}
