//! Crashes the engine on a simulated medium, by seed, and checks what it recovers.
//!
//! ```text
//!  seed ──▶ Setup, ops ──▶ Session: the engine runs them on a medium that records
//!                             │
//!           Walker: at every drain, sync (with byte granularity: store) the images that a power
//!                             │                                   failure could leave there
//!           look: open each image, read everything, compare with what the Oracle allows,
//!                 read the medium independently (audit), go on writing, reopen
//!                             │
//!           and from some images, or after a mere process crash: a Session again, crashed again
//! ```
//!
//! What is allowed after a crash ([`oracle`]): every acknowledged write, and any state of what was in flight; with
//! `Interval` on media with epochs a prefix in time from the last commit on; with `Manual` the last commit.
//!
//! Everything follows from the seed, and every [`Violation`] prints the command that repeats it.

#![forbid(unsafe_code)]

pub mod audit;
pub mod check;
pub mod collections;
pub mod directed;
pub mod entry;
pub mod evicting;
pub mod explore;
pub mod hostile;
pub mod measure;
#[cfg(planted)]
pub mod mutants;
pub mod oracle;
pub mod phases;
pub mod session;
pub mod setup;
pub mod soak;
pub mod threads;

pub use explore::{Effort, Totals, Violation, run_seed};
pub use setup::{Case, Setup};
