//! `duramen sql` and `duramen jobs` in a build without SQL: they name the build that has them.

use crate::{Answer, Failure};

/// The message of a build without SQL, for any arguments.
#[derive(clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<std::ffi::OsString>,
}

pub fn run(command: &str) -> Result<Answer, Failure> {
    Err(Box::new(Missing(format!(
        "this build has no `duramen {command}`: continuous SQL needs the feature `sql`, as in `cargo build --release \
         --features sql`"
    ))))
}

/// A command that is not in this build.
#[derive(Debug)]
pub struct Missing(String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}
