//! The report of a rule.

use std::fmt;

/// One violation of a rule in one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the root of the repository.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// The offending text or state.
    pub found: String,
    /// The rule's requirement.
    pub wanted: String,
    /// The remedy.
    pub action: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { file, line, found, wanted, action } = self;
        write!(f, "{file}:{line}: found {found}; wanted {wanted}; {action}")
    }
}
