//! Verifying a store that nobody has open, and saving what is valid of a damaged one.

use crate::format::superblock::{Found, Superblock};
use crate::options::Options;
use crate::recovery::{self, Recovered};
use crate::{Durability, Error, ErrorKind, Meta, Result};
use duramen_media::{Create, Mapped};
use std::path::Path;

/// What [`check`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Damage, each with its place, what was found and what was wanted. Empty for a sound store.
    pub damage: Vec<String>,
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
    let (medium, mut report, superblock) = look(path.as_ref(), options)?;
    let recovered = recovery::read(&medium, superblock, options)?;
    let summary = &recovered.summary;
    report.damage.extend(summary.damage.iter().cloned());
    report.keys = recovered.keys;
    report.records = summary.records;
    report.blocks = summary.blocks;
    report.bytes = u64::from(superblock.units) * u64::from(superblock.unit_bytes);
    if !superblock.clean {
        report.notes.push("the store was not closed cleanly; the next open recovers it".into());
    }
    if summary.torn > 0 {
        report.notes.push(format!(
            "{} blocks end in an unfinished write: writes that a crash interrupted (or damage to the very last record of \
             an open block, which cannot be told from one)",
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
    let (medium, report, superblock) = look(path.as_ref(), options)?;
    let recovered = recovery::read(&medium, superblock, options)?;
    let target = Options { create: Create::CreateNew, durability: Durability::Manual, ..options.clone() };
    let target = target.open(into)?;
    let mut damage = report.damage;
    damage.extend(recovered.summary.damage.iter().cloned());
    let saved = copy(&medium, &recovered, &target)?;
    target.commit()?;
    target.close()?;
    Ok((saved, damage))
}

fn look(path: &Path, options: &Options) -> Result<(Mapped, Report, Superblock)> {
    let options = Options { create: Create::OpenExisting, prefault: false, ..options.clone() };
    let medium = options.open_medium(path)?;
    let mut report = Report::default();
    match Superblock::find(&medium)
        .map_err(|e| e.context(&format!("cannot read store {}", path.display())))?
    {
        Found::Store { superblock, damaged, .. } => {
            report.damage.extend(damaged.map(|copy| {
                format!("superblock {copy}; the other copy is whole, and the next open writes both anew")
            }));
            Ok((medium, report, superblock))
        }
        Found::Nothing => Err(Error::new(
            ErrorKind::NotFound,
            format!("{} holds no store: it is empty, or its creation did not finish", path.display()),
        )),
    }
}

fn copy(medium: &Mapped, recovered: &Recovered, target: &crate::Store) -> Result<u64> {
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
    failed.map_or(Ok(saved), Err)
}
