//! JSON with the options of Flink's format: fields of an object into columns (`read`) and from rows (`write`).

mod read;
mod write;

pub use self::read::Reader;
pub use self::write::write_string;

/// The JSON options of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json {
    /// Whether a missing field is an error instead of NULL.
    pub fail_on_missing: bool,
    /// Whether timestamps are written with a `T`.
    pub iso: bool,
    /// Whether DECIMAL is written with all its digits, and never with an exponent.
    pub plain: bool,
}

impl Default for Json {
    fn default() -> Self {
        Json { fail_on_missing: false, iso: false, plain: true }
    }
}
