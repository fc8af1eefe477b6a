//! Short scenarios for bugs that seeds do not find in minutes, because they depend on the order of a few steps. Each
//! returns an error only with its planted bug.

mod checkpoints;
mod collections;
mod compaction;
mod damage;
mod eviction;
mod forged;
mod threads;
mod transactions;
mod writers;

pub use checkpoints::{
    checkpoint_beside_group, checkpoint_beside_transaction, checkpoint_beside_transaction_of_elements,
    root_deleted_before_checkpoint, root_deleted_beside_checkpoint, root_moved_before_checkpoint,
};
pub use collections::{
    counted_beside_overwrites, deleted_absent, named_anew, overwritten, ranked_before_durable,
    renamed_before_durable,
};
pub use compaction::{
    behind_the_tail, copied_and_freed, copied_and_shown, deleted_and_freed, kept_and_deleted,
};
pub use damage::{name_lost, written_around_damage};
pub use eviction::moved_and_evicted;
pub use forged::{
    aborted_forged_value, copied_value_without_header, damaged_forged_value, guessed_value_without_header,
    killed_within_a_forged_value,
};
pub use transactions::{checked_before_recovery, confirmed_by_recovery, two_transactions_in_one_block};
pub use writers::{committed_beside_locks, flushed_group, locked_in_any_order};

use duramen::tuning::Tuning;
use duramen::{Durability, Options, Residence, StoreOn};
use duramen_media::sim::{Model, Rng, SimMedium, Walker};
use std::sync::Arc;

/// Returns a description of the violation.
pub type Scenario = fn() -> Result<(), String>;

const LEN_MAX: u64 = 256 << 10;
const IMAGES_AT_ONCE: usize = 300;
// Records of 40 bytes fill a block of 512 to more than seven eighths: it is sealed, not kept for more records.

fn options(boot: u8, durability: Durability) -> Options {
    Options {
        durability,
        extent_bytes: Some(512),
        len_max: LEN_MAX,
        recovery_threads: 1,
        background: false,
        compaction_dead_percent: 5,
        index_checkpoint: false,
        clock: Some(Arc::new(|| 1_000)),
        boot_id: Some([boot; 16]),
        tuning: Tuning { compaction_bytes_min: Some(32), ..Tuning::default() },
        ..Options::default()
    }
}

fn reported(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The minimum that a power failure leaves: the guaranteed bytes and nothing else.
fn after_power_failure(medium: &SimMedium, model: Model) -> SimMedium {
    let log = medium.log();
    let mut walker = Walker::new(&log);
    walker.advance(log.events.len());
    let none = walker.none();
    let (memory, len) = walker.form(&none);
    SimMedium::from_image(model, LEN_MAX, memory, len)
}

/// Opens images of power failures at every point from the event `from` on, and calls `check` with each store and the
/// event.
fn each_image_since(
    medium: &SimMedium,
    model: Model,
    from: usize,
    check: impl Fn(&StoreOn<SimMedium>, usize) -> Result<(), String>,
) -> Result<(), String> {
    let log = medium.log();
    let mut walker = Walker::new(&log);
    let mut rng = Rng::new(1);
    while let Some(at) = walker.next_point() {
        if at < from {
            continue;
        }
        for choice in walker.choices(&mut rng, IMAGES_AT_ONCE) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(model, LEN_MAX, memory, len);
            let found = StoreOn::open_on(image, &options(2, Durability::EveryWrite)).map_err(reported)?;
            check(&found, at)?;
        }
    }
    Ok(())
}

fn audited(store: &StoreOn<SimMedium>) -> Result<(), String> {
    let differences = store.audit();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
}

/// Each maintenance writes the index to the medium, as small as it is.
fn with_images(boot: u8, durability: Durability) -> Options {
    let mut options = options(boot, durability);
    options.index_checkpoint = true;
    options.residence = Residence::Persistent;
    options.tuning.close_checkpoint_bytes_min = 0;
    options.tuning.checkpoint_bytes_min = 64;
    options
}

/// Whether the collection under a key has these elements, in this order.
fn elements_are(store: &StoreOn<SimMedium>, root: &[u8], wanted: &[(&[u8], &[u8])]) -> Result<(), String> {
    let names = store.get(root).map_err(reported)?.and_then(|root| root.meta().collection);
    let elements = store.collection(names.ok_or("found no root")?).map_err(reported)?;
    let mut found = Vec::new();
    let visit = &mut |element: &duramen::Value<'_>| {
        found.push((element.key().to_vec(), element.to_vec()));
        true
    };
    elements.ranked(0, false, visit).map_err(reported)?;
    let is_right = found.iter().map(|(key, value)| (&key[..], &value[..])).eq(wanted.iter().copied());
    if is_right && elements.len() == wanted.len() as u64 {
        return Ok(());
    }
    Err(format!("the collection has {} elements, and {found:?} by rank", elements.len()))
}
