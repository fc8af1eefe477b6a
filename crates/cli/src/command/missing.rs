//! Commands of other builds: `duramen sql`, `jobs` and `bench` name the feature that has them.

use crate::{Answer, Failure};

/// The arguments of a command that this build has not: any.
#[derive(clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<std::ffi::OsString>,
}

pub fn run(command: &str, feature: &str) -> Result<Answer, Failure> {
    Err(Box::new(Missing(format!(
        "this build has no `duramen {command}`: it needs the feature `{feature}`, as in `cargo build --release \
         --features {feature}`"
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
