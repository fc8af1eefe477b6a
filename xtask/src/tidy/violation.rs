//! What a rule reports.

use std::fmt;

/// One rule broken in one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the root of the repository.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What stands there.
    pub found: String,
    /// What the rule asks for.
    pub wanted: String,
    /// What to do about it.
    pub action: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { file, line, found, wanted, action } = self;
        write!(f, "{file}:{line}: found {found}; wanted {wanted}; {action}")
    }
}
