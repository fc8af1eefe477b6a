//! Commands that make several commands one. The queue is the dispatcher's.

mod discard;
mod exec;
mod multi;
mod unwatch;
mod watch;

use super::Spec;

/// The commands of this group.
pub const SPECS: &[Spec] = &[multi::SPEC, exec::SPEC, discard::SPEC, watch::SPEC, unwatch::SPEC];
