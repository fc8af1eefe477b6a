//! The reasons why a check could not be run at all, as opposed to the findings of a check.
//!
//! A [`Failure`] ends the program with exit code 2. A finding (a tidy violation, a differing reply, a lost write) is
//! printed by its own check, and the exit code is 1.

use std::fmt;

/// A message: the attempt, its object, and the outcome.
#[derive(Debug)]
pub struct Failure(String);

/// The result type of every check.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Adds a description of the attempt to an error of a lower layer.
pub trait Attempt<T> {
    /// `attempt` completes the sentence "cannot …".
    fn attempt(self, attempt: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Attempt<T> for std::result::Result<T, E> {
    fn attempt(self, attempt: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("cannot {}: {error}", attempt())))
    }
}
