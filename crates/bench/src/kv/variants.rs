//! Variants of Duramen: the choices of its design, changed one at a time.
//!
//! | variant | differs from `duramen` in |
//! |---|---|
//! | `hybrid` | nothing: records on the medium, index in DRAM |
//! | `in-dram` | records in anonymous memory too: nothing survives |
//! | `step-…` | how lines are flushed: each instruction that the CPU has |
//! | `no-persist` | nothing is flushed or drained |
//! | `unaligned` | extents begin anywhere, not at stripes of the device |
//! | `new-versions` | updates of 8 bytes write the whole value again |
//! | `hash`, `ordered` | the kind of index |
//! | `persistent`, `ordered-persistent` | the same with residence `persistent`: checkpoints are written while it runs |
//! | `table`, `table-ordered` | records in a named table |
//! | `collection`, `collection-ordered` | records as elements of a collection: a map, or a map also ordered by value |
//! | `ordered-cache-N` | an ordered index with N slots in its cache: 0, 16Ki, 64Ki, 256Ki, 1Mi, 4Mi |
//!
//! The engine does not offer two other choices: the index in place on the medium, and one block to which all threads
//! append. (A writer belongs to its thread.)

use crate::kv::contender::{Contender, Duramen, Held, Opened};
use crate::kv::elsewhere::{Elsewhere, Kind};
use crate::kv::engine::Engine;
use crate::kv::place::{Place, Remove};
use crate::kv::probe::{Meter, Mode, Probe};
use crate::kv::workload::unknown;
use crate::kv::{DuramenEngine, Result};
use duramen::{Create, ElementOrder, FlushInstruction, IndexKind, MediumKind, Options, Residence, StoreOn};
use duramen_media::{Mapped, MediaOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

// A multiple of 64, as an extent must be, but of no device's stripe: 401 lines.
const UNALIGNED_EXTENT_BYTES: u32 = 401 * 64;

/// Slots of the ordered index's cache.
const CACHES: [(&str, usize); 6] =
    [("0", 0), ("16Ki", 1 << 14), ("64Ki", 1 << 16), ("256Ki", 1 << 18), ("1Mi", 1 << 20), ("4Mi", 1 << 22)];

/// The names of all variants on this machine.
#[must_use]
pub fn names() -> Vec<String> {
    let fixed = [
        "hybrid",
        "in-dram",
        "no-persist",
        "unaligned",
        "new-versions",
        "hash",
        "ordered",
        "persistent",
        "ordered-persistent",
        "table",
        "table-ordered",
        "collection",
        "collection-ordered",
    ];
    let steps = FlushInstruction::available().into_iter().map(|step| format!("step-{step}"));
    let caches = CACHES.into_iter().map(|(name, _)| format!("ordered-cache-{name}"));
    fixed.into_iter().map(str::to_owned).chain(steps).chain(caches).collect()
}

/// The variant called `name`, based on the options of `place`.
///
/// # Errors
/// Usage, with the nearest name and all names.
pub fn named(name: &str, place: &Place) -> Result<Box<dyn Contender>> {
    let place = &Place { path: path_of(name, &place.path), ..place.clone() };
    let plain = |options: Options, in_place| -> Result<Box<dyn Contender>> {
        let place = Place { path: place.path.clone(), options };
        Ok(Box::new(Duramen { name: name.into(), place, in_place }))
    };
    let options = place.options.clone();
    match name {
        "duramen" | "hybrid" => plain(options, true),
        "in-dram" => plain(Options { medium: MediumKind::Volatile, ..options }, true),
        "unaligned" => plain(Options { extent_bytes: Some(UNALIGNED_EXTENT_BYTES), ..options }, true),
        "new-versions" => plain(options, false),
        "hash" => plain(Options { index: IndexKind::Hash, ..options }, true),
        "ordered" => plain(Options { index: IndexKind::Ordered, ..options }, true),
        "persistent" => plain(Options { residence: Residence::Persistent, ..options }, true),
        "ordered-persistent" => {
            let (index, residence) = (IndexKind::Ordered, Residence::Persistent);
            plain(Options { index, residence, ..options }, true)
        }
        "table" => Ok(elsewhere(name, place, Kind::Table(IndexKind::Hash))),
        "table-ordered" => Ok(elsewhere(name, place, Kind::Table(IndexKind::Ordered))),
        "collection" => Ok(elsewhere(name, place, Kind::Collection(ElementOrder::Unordered))),
        "collection-ordered" => Ok(elsewhere(name, place, Kind::Collection(ElementOrder::ByValue))),
        "no-persist" => Ok(Box::new(NoPersist { place: place.clone() })),
        _ => {
            let step = FlushInstruction::available().into_iter().find(|step| name == format!("step-{step}"));
            let cache = CACHES.into_iter().find(|(cache, _)| name == format!("ordered-cache-{cache}"));
            if let Some((_, index_cache_slots)) = cache {
                return plain(Options { index: IndexKind::Ordered, index_cache_slots, ..options }, true);
            }
            let names = names();
            match step {
                Some(step) => plain(Options { flush_instruction: Some(step), ..options }, true),
                None => Err(unknown(name, "variant", names.iter().map(String::as_str))),
            }
        }
    }
}

fn elsewhere(name: &str, place: &Place, kind: Kind) -> Box<dyn Contender> {
    Box::new(Elsewhere { name: name.into(), place: place.clone(), kind })
}

/// A separate path for the variant, so that other variants can be open at the same time. A device has only one place.
fn path_of(name: &str, path: &Path) -> PathBuf {
    let is_device = path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
    if name == "duramen" || is_device {
        return path.to_owned();
    }
    let mut own = path.as_os_str().to_owned();
    own.push(format!(".{name}"));
    own.into()
}

/// Opens a new store under a probe, on a medium as its options say. The store is removed with the files next to it.
///
/// # Errors
/// A usage error if something is already there; an error of the store.
pub fn probed(place: &Place, mode: Mode, meter: &Arc<Meter>) -> Result<(StoreOn<Probe<Mapped>>, Remove)> {
    let options = &place.options;
    let media = MediaOptions {
        kind: options.medium,
        create: Create::CreateNew,
        len_max: options.len_max,
        flush_instruction: options.flush_instruction,
        prefault: options.prefault,
        ..MediaOptions::default()
    };
    let medium = Mapped::open(&place.path, &media).map_err(crate::kv::place::occupied)?;
    let remove = Remove::at(&place.path);
    Ok((StoreOn::open_on(Probe::new(medium, mode, Arc::clone(meter)), options)?, remove))
}

struct NoPersist {
    place: Place,
}

impl Contender for NoPersist {
    fn name(&self) -> String {
        "no-persist".into()
    }

    fn durability(&self) -> String {
        "none".into()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.place.path)
    }

    fn distinguishes_updates(&self) -> bool {
        true
    }

    fn open(&self, updates: bool) -> Result<Box<dyn Opened + '_>> {
        let (store, remove) = probed(&self.place, Mode::NoPersist, &Arc::default())?;
        Ok(Box::new(Held {
            describe: store.describe(),
            engine: Removed { engine: DuramenEngine::new(store, updates), _remove: remove },
            medium_bytes: |held: &Removed<DuramenEngine<Probe<Mapped>>>| {
                Some(held.engine.store().stats().used_bytes)
            },
        }))
    }
}

/// An engine whose file is removed after it is dropped.
struct Removed<E> {
    engine: E,
    _remove: Remove,
}

impl<E: Engine> Engine for Removed<E> {
    type Session<'a>
        = E::Session<'a>
    where
        Self: 'a;

    fn session(&self) -> Result<E::Session<'_>> {
        self.engine.session()
    }
}
