//! `duramen version`.

use crate::{Answer, Failure};

/// Print the versions of the program and of the format it writes
#[derive(clap::Args)]
pub struct Args {}

#[expect(clippy::unnecessary_wraps, reason = "as every command")]
pub fn run(_: &Args) -> Result<Answer, Failure> {
    println!("duramen {} (format {})", env!("CARGO_PKG_VERSION"), duramen::FORMAT_VERSION);
    Ok(Answer::Yes)
}
