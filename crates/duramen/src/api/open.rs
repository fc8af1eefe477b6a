//! Creating and opening a store.

use crate::api::catalog::Catalog;
use crate::api::{Core, Shared, Store, StoreOn};
use crate::checkpoint::state::Checkpoints;
use crate::compact::compactor::Compaction;
use crate::damage::headless;
use crate::maintenance::Maintenance;
use crate::options::{Options, Residence};
use crate::records::Records;
use crate::recover::{self, Recovered};
use crate::tuning::Phase;
use crate::{Error, ErrorKind, Result};
use duramen_log::Log;
use duramen_log::durability::Durability;
use duramen_log::durability::{Activity, DurableState, Epochs, StoreClock};
use duramen_log::format::superblock::{self, Found, Regime, Superblock};
use duramen_log::format::{HEAD_BYTES, Secret, u64_at};
use duramen_log::space::{RESERVE_EXTENTS, write_free_headers};
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::thread::JoinHandle;
use duramen_media::{Medium, Offset};
use std::path::Path;

/// Generations begin with the incarnation. If the first one were always the same, records of another store, of which
/// only the head was erased, would be valid in the blocks of a new one. So it is drawn below 2^22, which leaves 12
/// million opens.
const INCARNATION_FIRST_MAX: u32 = (1 << 22) - 1;

/// A secret from the system's generator for keys: nobody may guess it.
fn random_secret() -> Result<Secret> {
    let bits = getrandom::u64().map_err(|error| {
        Error::new(
            ErrorKind::Io,
            format!("cannot create a store: the system returned no random bits for its secret: {error}"),
        )
    })?;
    Ok(Secret::new(bits))
}

fn random_id() -> u64 {
    use std::hash::{BuildHasher, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl<M: Medium> StoreOn<M> {
    /// Opens the store on `medium`, or creates one where there is none.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_on(medium: M, options: &Options) -> Result<Self> {
        options.check()?;
        if medium.is_empty() && medium.len_max() >= HEAD_BYTES {
            medium.grow(HEAD_BYTES)?;
        }
        let (superblock, copy, damaged) = match Superblock::find(&medium, headless::opened_block)? {
            Found::Store { superblock, copy, damaged } => (superblock, copy, damaged),
            Found::Nothing => (Self::create(&medium, options)?, 0, None),
        };
        let mut recovered = recover::recover(&medium, superblock, options)?;
        recovered.summary.repaired.extend(damaged);
        Self::run(medium, recovered, 1 - copy, options)
    }

    /// Creates an empty store.
    ///
    /// Order: the first extents' headers are durable before the superblock's magic is written. A crash before leaves no
    /// store, and the next open creates it again. A device's head says before that the rest of the device is unwanted.
    fn create(medium: &M, options: &Options) -> Result<Superblock> {
        let phases = options.tuning.phases();
        let _inside = phases.enter(Phase::Create);
        let extent_bytes = options.extent_for(medium)?;
        let head = HEAD_BYTES.div_ceil(u64::from(extent_bytes)) as u32;
        let extents = (medium.len_max() / u64::from(extent_bytes))
            .min(u64::from(head + options.tuning.extents_initial)) as u32;
        if extents < head + RESERVE_EXTENTS + 1 {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "the medium has room for {} bytes; the smallest store with extents of {extent_bytes} bytes \
                     takes {}: \
                     give it a larger medium or a smaller extent_bytes",
                    medium.len_max(),
                    u64::from(head + RESERVE_EXTENTS + 1) * u64::from(extent_bytes)
                ),
            ));
        }
        medium.grow(u64::from(extents) * u64::from(extent_bytes))?;
        if options.durability == Durability::EveryWrite {
            let (from, to) =
                (u64::from(head) * u64::from(extent_bytes), u64::from(extents) * u64::from(extent_bytes));
            medium.prepare(Offset(from), to - from)?;
        }
        let secret = options.boot_id.map_or_else(random_secret, |id| Ok(Secret::new(u64_at(&id, 8))))?;
        if !medium.unwritten_is_zero() {
            superblock::mark_erased(medium)?;
        }
        write_free_headers(medium, secret, u64::from(extent_bytes), head, extents - head);
        medium.sync()?;
        let now = StoreClock::new(options.clock.clone(), 0).now();
        let store_id = options.boot_id.map_or_else(random_id, |id| u64_at(&id, 0));
        let superblock = Superblock {
            store_id,
            secret,
            sequence: 1,
            extent_bytes,
            clean: true,
            sealed: true,
            regime: Regime::Immediate,
            incarnation: store_id as u32 & INCARNATION_FIRST_MAX,
            boot_id: options.boot_id_now(),
            epoch_base: 1,
            time_floor: 0,
            created: now,
            extents,
            checkpoint: None,
        };
        superblock.persist(medium)?;
        Ok(superblock)
    }

    /// Starts an incarnation on the recovered state.
    fn run(medium: M, recovered: Recovered, copy_first: usize, options: &Options) -> Result<Self> {
        let regime = DurableState::regime_for(options.durability, medium.granularity());
        let keeps_checkpoint = options.residence == Residence::Persistent && !recovered.checkpoint.is_empty();
        let superblock = Self::begin_incarnation(&medium, &recovered, regime, copy_first, options)?;
        let waits = regime == Regime::Epochs && options.durability == Durability::EveryWrite;
        let epochs = Epochs::new(
            regime,
            waits,
            recovered.epoch_base,
            recovered.mark_slot,
            superblock.incarnation,
            superblock.secret,
            Activity::recovered(recovered.dead_bytes),
        );
        let clock = StoreClock::new(options.clock.clone(), recovered.time_floor);
        let compaction = Compaction::new(&epochs, options);
        let durable = DurableState::new(epochs, clock, superblock, options.durability);
        let space = recovered.space.with_incarnation(superblock.incarnation);
        let log = Log::new(medium, recovered.blocks, durable, space, options.tuning.phases());
        log.blocks.list_all(log.space().extents());
        log.note_records(recovered.used_bytes, recovered.summary.records);
        let newest = recovered.tables.version();
        recovered.tables.stripes().begin_clock(newest);
        recovered.tables.elements().begin_clock(newest);
        let records = Records::new(
            log,
            recovered.hasher,
            recovered.tables,
            options.tuning.clone(),
            recovered.cells_unflushed,
            recovered.has_unverified,
        );
        let checkpoints =
            Checkpoints::new(options, recovered.checkpoint, keeps_checkpoint, recovered.summary.estimated);
        let catalog = Catalog::new(&records, recovered.names)?;
        let core = Arc::new(Core::new(
            Maintenance::new(records, compaction, checkpoints),
            catalog,
            recovered.summary,
        ));
        let maintenance = &core.maintenance;
        maintenance.compaction.damaged.store(recovered.damaged, Relaxed);
        // Some damaged blocks that a checkpoint lists may no longer be needed.
        maintenance.records.mends.store(recovered.damaged > 0, Relaxed);
        if maintenance.records.tables.pages_left() == 0 {
            maintenance.leave_checkpoint(&|| false)?;
        }
        maintenance.set_limit(options.limit);
        maintenance.set_eviction(options.eviction);
        if core.recovered.checkpointed > 0 {
            // The same pass also flushes the bytes that a dead process left in the CPU's caches.
            maintenance.begin(!recovered.verified || recovered.cells_unflushed);
        }
        if options.read_only {
            maintenance.records.log.epochs().read_only();
        }
        let thread = match options.background && !options.read_only {
            true => Some(Self::spawn(&core)?),
            false => None,
        };
        Ok(Self { shared: Arc::new(Shared::new(core, thread)) })
    }

    /// Makes durable the decisions of recovery (seals, frees), and then the beginning of a new incarnation: both before
    /// the first write.
    fn begin_incarnation(
        medium: &M,
        recovered: &Recovered,
        regime: Regime,
        copy_first: usize,
        options: &Options,
    ) -> Result<Superblock> {
        let phases = options.tuning.phases();
        let _inside = phases.enter(Phase::Adopt);
        recovered.adopt(medium)?;
        // Recovery began with a checkpoint, which stays valid.
        let keeps_checkpoint = options.residence == Residence::Persistent && !recovered.checkpoint.is_empty();
        let superblock = Superblock {
            sequence: recovered.superblock.sequence + 1,
            clean: false,
            sealed: false,
            regime,
            incarnation: recovered.incarnation,
            boot_id: options.boot_id_now(),
            epoch_base: recovered.epoch_base.0,
            checkpoint: recovered.superblock.checkpoint.filter(|_| keeps_checkpoint),
            ..recovered.superblock
        };
        superblock.persist_from(medium, copy_first)?;
        recovered.confirm_transactions(medium)?;
        Ok(superblock)
    }

    /// Starts the store's background thread.
    fn spawn(core: &Arc<Core<M>>) -> Result<JoinHandle<()>> {
        let core = Arc::clone(core);
        duramen_log::sync::thread::Builder::new()
            .name("duramen".into())
            .spawn(move || core.maintenance.run_background())
            .map_err(|e| {
                Error::new(ErrorKind::Io, format!("cannot start the store's background thread: {e}"))
            })
    }
}

impl Store {
    /// Opens the store at `path` with the default options, or creates it. [`Options::open`] takes others.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::default().open(path)
    }
}

impl Options {
    /// Opens the store at `path`, or creates it.
    ///
    /// # Errors
    /// `InUse` names the owner's pid; `Corrupt` names place, found and wanted, and nothing was changed; `Unsupported`,
    /// `NotFound`, `PermissionDenied`, `OutOfSpace` and `Io` as described at [`ErrorKind`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        self.open_at(path.as_ref())
    }

    // Without a type parameter: the engine on mapped media, which this function reaches, is compiled once, with this
    // crate, and not in each crate, test and example that opens a store.
    fn open_at(&self, path: &Path) -> Result<Store> {
        if self.lock_memory {
            duramen_media::process::lock_memory()?;
        }
        let medium = self.open_medium(path)?;
        StoreOn::open_on(medium, self)
            .map_err(|e| e.context(&format!("cannot open store {}", path.display())))
    }
}
