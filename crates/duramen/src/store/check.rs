//! Verifying a store that nobody has open, and saving what is valid of a damaged one.

use super::StoreOn;
use crate::format::superblock::{Found, Superblock};
use crate::options::Options;
use crate::recovery::{self, Recovered, headless};
use crate::{Durability, Error, ErrorKind, Meta, Result};
use duramen_media::{Create, Mapped, Medium};
use std::path::Path;

/// What [`check`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Damage, each with its place, what was found and what was wanted. Empty for a sound store.
    pub damage: Vec<String>,
    /// Where what recovery counted is not what the blocks hold: an error of the engine's, which costs space or, at worst, brings back
    /// deleted keys. Empty where anything is damaged.
    pub differences: Vec<String>,
    /// What is not damage but worth knowing.
    pub notes: Vec<String>,
    /// Live keys.
    pub keys: u64,
    /// Valid records, superseded ones included.
    pub records: u64,
    /// Blocks that hold records.
    pub blocks: u64,
    /// Bytes that the store takes on the medium.
    pub bytes: u64,
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

/// What is only read; a DAX device can be had only as if to be written.
fn open(path: &Path, options: &Options) -> Result<Mapped> {
    let options = Options { create: Create::OpenExisting, prefault: false, ..options.clone() };
    match (Options { read_only: true, ..options.clone() }).open_medium(path) {
        Err(error) if error.kind() == ErrorKind::Unsupported => options.open_medium(path),
        medium => medium,
    }
}

/// [`check`] on a medium that is open.
///
/// # Errors
/// As [`check`].
pub fn check_on<M: Medium>(medium: &M, options: &Options) -> Result<Report> {
    let (mut report, superblock) = look(medium, options)?;
    let recovered = recovery::read(medium, superblock, options)?;
    let summary = &recovered.summary;
    report.differences = recovered.accounts(medium).differences();
    report.damage.extend(summary.damage.iter().cloned());
    report.keys = recovered.keys;
    report.records = summary.records;
    report.blocks = summary.blocks;
    report.bytes = u64::from(superblock.units) * u64::from(superblock.unit_bytes);
    if !superblock.clean && superblock.sequence > 0 {
        report.notes.push("the store was not closed cleanly; the next open recovers it".into());
    }
    if summary.torn > 0 {
        report.notes.push(format!(
            "behind the records of {} open blocks are bytes that are none, as is usual after a kill: what an earlier use of the block \
             left there, or a write that was interrupted, of which nobody was told that it is done",
            summary.torn
        ));
    }
    if summary.uncommitted > 0 {
        report
            .notes
            .push(format!("{} records belong to epochs that were not committed", summary.uncommitted));
    }
    Ok(report)
}

/// Saves what is valid of the store at `path`, of each key the newest valid version, into a new store at
/// `into`. Leaves the old one as it is. Returns the number of keys saved and the damage found.
///
/// # Errors
/// As [`check`], and when `into` exists or cannot be written.
pub fn salvage(
    path: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: &Options,
) -> Result<(u64, Vec<String>)> {
    salvage_at(path.as_ref(), into.as_ref(), options)
}

// As `Options::open_at`.
fn salvage_at(path: &Path, into: &Path, options: &Options) -> Result<(u64, Vec<String>)> {
    let medium = open(path, options)?;
    let target = Options { create: Create::CreateNew, durability: Durability::Manual, ..options.clone() };
    // Before the new store is made: what cannot be read at all leaves nothing behind.
    let (recovered, damage) =
        read(&medium, options).map_err(|e| e.context(&format!("cannot read store {}", path.display())))?;
    let target = target.open(into)?;
    let saved = copy(&medium, &recovered, &target)?;
    target.close()?;
    Ok((saved, damage))
}

/// [`salvage`] from a medium that is open into a store that is.
///
/// # Errors
/// As [`salvage`].
pub fn salvage_on<M: Medium, N: Medium>(
    medium: &M,
    target: &StoreOn<N>,
    options: &Options,
) -> Result<(u64, Vec<String>)> {
    let (recovered, damage) = read(medium, options)?;
    Ok((copy(medium, &recovered, target)?, damage))
}

/// All that is valid, and all damage.
fn read<M: Medium>(medium: &M, options: &Options) -> Result<(Recovered, Vec<String>)> {
    let (report, superblock) = look(medium, options)?;
    let recovered = recovery::read(medium, superblock, options)?;
    let mut damage = report.damage;
    damage.extend(report.notes);
    damage.extend(recovered.summary.damage.iter().cloned());
    Ok((recovered, damage))
}

fn look<M: Medium>(medium: &M, options: &Options) -> Result<(Report, Superblock)> {
    let mut report = Report::default();
    let found = match Superblock::find(medium, headless::opened_block) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            // Of a store whose head is lost the blocks tell enough to read it.
            let Some((superblock, told)) = headless::superblock_of(medium, options.unit_bytes) else {
                return Err(error);
            };
            report.damage.push(format!("{error}"));
            report.notes.push(told);
            return Ok((report, superblock));
        }
        found => found?,
    };
    match found {
        Found::Store { superblock, damaged, .. } => {
            report.damage.extend(damaged.map(|copy| {
                format!("superblock {copy}; the other copy is whole, and the next open writes both anew")
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
    recovered.for_each(medium, |key, value, meta: Meta| {
        if failed.is_none() {
            match writer.put_with(key, value, meta) {
                Ok(()) => saved += 1,
                Err(error) => failed = Some(error),
            }
        }
    });
    drop(writer);
    failed.map_or_else(|| target.commit().map(|()| saved), Err)
}
