//! Commands about the connection itself.

mod echo;
mod ping;

use super::Spec;

/// The commands of this group.
pub const SPECS: &[Spec] = &[ping::SPEC, echo::SPEC];
