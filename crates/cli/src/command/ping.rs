//! `duramen ping`: whether a server answers, for health checks of containers and service managers.

use crate::{Answer, Failure};
use duramen_server::import::replica::Origin;
use std::time::Duration;

/// Ask a running server whether it answers: exit code 0 if it does, else 1
///
/// Sends PING, by default to this machine. A server that asks for a login counts as alive. A server that still recovers
/// its store does not answer yet.
#[derive(clap::Args)]
pub struct Args {
    /// The server [default: port 6379 of 127.0.0.1]
    #[arg(value_name = "redis[s]://[[USER]:PASSWORD@]HOST[:PORT]", conflicts_with = "port")]
    server: Option<Origin>,
    /// The port of a server on this machine
    #[arg(long, env = "DURAMEN_PORT", default_value_t = 6379)]
    port: u16,
    /// Seconds that the connection, the login and the reply may each take
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

#[expect(clippy::unnecessary_wraps, reason = "as every command")]
pub fn run(args: &Args) -> Result<Answer, Failure> {
    let server = args.server.clone().unwrap_or_else(|| Origin::local(args.port));
    match server.ping(Duration::from_secs(args.timeout)) {
        Ok(reply) => {
            println!("{reply}");
            Ok(Answer::Yes)
        }
        Err(why) => {
            eprintln!("duramen: {why}");
            Ok(Answer::No)
        }
    }
}
