//! Damage of the medium: found, isolated, reported, mended.

pub(crate) mod claims;
pub(crate) mod detect;
pub(crate) mod headless;
pub(crate) mod mend;
pub(crate) mod scrub;
