//! Get: from a key to the value that may be shown.

pub(crate) mod barrier;
pub(crate) mod lookup;
pub(crate) mod many;
pub(crate) mod stamp;
pub(crate) mod value;
pub(crate) mod visibility;
