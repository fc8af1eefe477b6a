//! `cargo xtask power-cut`: emulates real power cuts.
//!
//! A virtual machine runs Debian's kernel and the real `duramen serve`. Its media are a real `/dev/dax0.0`, ext4
//! mounted with `-o dax`, and ext4 on a disk with a write cache ([`machine`], [`disk`], `init.sh`). The torture's
//! clients run outside the machine and record the acknowledged operations. The machine is killed at random times under
//! load and booted again on the same medium. `duramen check` must then find the store sound, the server must recover
//! it, and its content must match the clients' records ([`round`]). The load then continues on the recovered store. The
//! server must refuse devices that cannot hold a store, with an error that says what to do ([`devices`]).
//!
//! This does not show which unflushed cache lines survive on persistent memory: an emulated NVDIMM keeps every store at
//! once. The simulated medium covers that part (`cargo xtask crash`). The disk of the third medium, however, loses
//! unflushed writes.
//!
//! The seed repeats the operations, the times of the cuts and the disk's losses, not the scheduler's choices.

mod devices;
mod disk;
mod initramfs;
mod kit;
mod machine;
mod programs;
mod round;

use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Result;
use crate::torture::history;
use kit::Outcome;
pub use machine::Accelerator;
use round::Tally;
pub use round::{Durability, Medium};

/// The failure to inject, to see that the check finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// The server acknowledges writes that are not durable
    Server,
    /// The disk acknowledges flushes without flushing
    Disk,
}

#[derive(clap::Args)]
pub struct Settings {
    /// Cuts under load for each medium and durability
    #[arg(long, default_value_t = 3)]
    pub cuts: u64,
    /// Medium of the store [default: all]
    #[arg(long, value_enum)]
    pub medium: Option<Medium>,
    /// The store's durability [default: every-write, and on files also interval]
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Repeats the operations and times of an earlier run [default: from the clock]
    #[arg(long, default_value_t = crate::random::fresh_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Clients that write
    #[arg(long, default_value_t = 4)]
    pub writers: usize,
    /// How the machine runs [default: KVM if a guest runs with it, else translation]
    #[arg(long, value_enum)]
    pub accelerator: Option<Accelerator>,
    /// The duramen program [default: built now, without shared libraries]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// Injects a failure, which must be found
    #[arg(long, value_enum, hide = true)]
    pub fault: Option<Fault>,
}

/// Every medium with the durabilities that differ there. On cache lines an interval is a special case of the engine,
/// which the simulated medium covers; with pages it is the usual setting.
const ALL: [(Medium, Durability); 4] = [
    (Medium::Devdax, Durability::EveryWrite),
    (Medium::Fsdax, Durability::EveryWrite),
    (Medium::File, Durability::EveryWrite),
    (Medium::File, Durability::Interval),
];

/// Runs the power cuts and prints the results. Returns whether there were no findings.
pub fn run(settings: &Settings) -> Result<bool> {
    let kit = match kit::collect(settings.duramen.clone())? {
        Outcome::Ready(kit) => kit,
        Outcome::Missing(why) => {
            println!("power-cut: SKIPPED: {why}");
            return Ok(true);
        }
    };
    let accelerator = match settings.accelerator {
        Some(accelerator) => accelerator,
        None => Accelerator::detect(&kit)?,
    };
    let cells: Vec<(Medium, Durability)> = match (settings.medium, settings.durability) {
        (Some(medium), Some(durability)) => vec![(medium, durability)],
        (medium, durability) => ALL
            .into_iter()
            .filter(|cell| medium.is_none_or(|medium| cell.0 == medium))
            .filter(|cell| durability.is_none_or(|durability| cell.1 == durability))
            .collect(),
    };
    println!(
        "power-cut: {} cuts under load each, {} writers, seed {}, {}",
        settings.cuts,
        settings.writers,
        settings.seed,
        accelerator.name()
    );
    let mut rows = Vec::new();
    let mut clean = true;
    if cells.iter().any(|(medium, _)| *medium == Medium::Devdax) {
        clean &= devices::run(&kit, accelerator)?;
    }
    for (medium, durability) in cells {
        let tally = round::run(&kit, accelerator, settings, medium, durability)?;
        print_findings(settings, medium, durability, &tally);
        clean &= tally.violations.is_empty();
        rows.push((medium, durability, tally));
    }
    print_table(&rows);
    Ok(clean)
}

fn print_findings(settings: &Settings, medium: Medium, durability: Durability, tally: &Tally) {
    let granularity = medium.granularity(&tally.greeting).unwrap_or("unknown");
    println!("{} {}: granularity {granularity}; {}", medium.name(), durability.name(), tally.greeting);
    // A broken store breaks many promises at once; the first few suffice.
    const SHOWN: usize = 12;
    for violation in tally.violations.iter().take(SHOWN) {
        println!("{} {}: {violation}", medium.name(), durability.name());
    }
    if tally.violations.len() > SHOWN {
        println!("{} {}: and {} more", medium.name(), durability.name(), tally.violations.len() - SHOWN);
    }
    if tally.violations.is_empty() {
        return;
    }
    if let Some(kept) = &tally.kept {
        println!("power-cut: image and console are kept in {}", kept.display());
    }
    let fault = match settings.fault {
        None => "",
        Some(Fault::Server) => " --fault server",
        Some(Fault::Disk) => " --fault disk",
    };
    println!(
        "power-cut: run again with: cargo xtask power-cut --medium {} --durability {} --cuts {} --writers {} --seed {}{fault}",
        medium.name(),
        durability.name(),
        settings.cuts,
        settings.writers,
        settings.seed
    );
}

fn print_table(rows: &[(Medium, Durability, Tally)]) {
    println!(
        "| medium | durability | cuts | while starting | acknowledged | reads checked | lost | resurrected | torn \
         | broken batches | holes | refused | sectors lost by the disk | boot, s | start, s | recovery, ms |"
    );
    println!("|{}", "---|".repeat(16));
    for (medium, durability, tally) in rows {
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            medium.name(),
            durability.name(),
            tally.cuts,
            tally.cuts_starting,
            tally.acknowledged,
            tally.reads,
            tally.count(history::Fault::Lost),
            tally.count(history::Fault::Resurrected),
            tally.count(history::Fault::Torn),
            tally.count(history::Fault::BrokenBatch),
            tally.count(history::Fault::Hole),
            tally.count(history::Fault::Refused),
            tally.sectors_lost,
            spread(&tally.boots, 1.0, 1),
            spread(&tally.starts, 1.0, 2),
            spread(&tally.recoveries, 1000.0, 1),
        );
    }
}

/// Median and maximum.
fn spread(durations: &[Duration], per_second: f64, decimals: usize) -> String {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let (Some(median), Some(longest)) = (sorted.get(sorted.len() / 2), sorted.last()) else {
        return "-".to_owned();
    };
    let text = |duration: &Duration| format!("{:.decimals$}", duration.as_secs_f64() * per_second);
    format!("{} (at most {})", text(median), text(longest))
}
