//! Functions of a library, as it registers them.

use crate::flags::ScriptFlags;
use std::ffi::c_int;

/// A function that a library registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its name, unique in the library.
    pub name: Vec<u8>,
    /// What it is for.
    pub description: Option<Vec<u8>>,
    /// What it does and does not.
    pub flags: ScriptFlags,
    /// Where it is in the registry.
    pub(crate) reference: c_int,
}

/// A library that is being loaded.
#[derive(Default)]
pub struct Loading {
    /// Its functions so far.
    pub functions: Vec<Registered>,
}
