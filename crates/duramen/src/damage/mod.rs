//! Damage of the medium. [`detect`] finds it when a record is read, and [`scrub`] in blocks that recovery took from a
//! checkpoint. [`mend`] frees damaged blocks once no key needs them. [`claims`] names what may be lost, and
//! [`headless`] finds a store whose head is lost.

pub(crate) mod claims;
pub(crate) mod detect;
pub(crate) mod headless;
pub(crate) mod mend;
pub(crate) mod scrub;
