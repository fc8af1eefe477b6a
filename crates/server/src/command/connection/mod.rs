//! Commands about the connection itself.

mod auth;
mod client;
mod echo;
mod hello;
mod ping;
mod quit;
mod reset;
mod select;

use super::{Flags, Spec};

/// The commands of this group.
pub const SPECS: &[Spec] =
    &[auth::SPEC, client::SPEC, echo::SPEC, hello::SPEC, ping::SPEC, quit::SPEC, reset::SPEC, select::SPEC];

/// Allowed to anybody, at any time.
const ALWAYS: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::ALLOW_BUSY);
