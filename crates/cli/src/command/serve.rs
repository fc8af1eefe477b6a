//! `duramen serve`: serves a store to Redis clients.
//!
//! Its command line is the server's: clap passes it on unchanged, `--help` included.

use crate::{Answer, Failure};
use duramen_server::{Config, config};
use std::io::Write;

/// Serves, with the jobs of `duramen-sql`.
#[cfg(feature = "sql")]
fn served(config: Config) -> Result<(), Failure> {
    let jobs = super::hosted_jobs::Settings::of(&config)?;
    Ok(duramen_server::serve_with(config, |in_process| jobs.start(in_process))?)
}

/// Serves; there are no jobs in this build.
#[cfg(not(feature = "sql"))]
fn served(config: Config) -> Result<(), Failure> {
    if !config.sql.is_empty() {
        let message = "duramen-sql: this build has no continuous SQL; build it with --features sql";
        return Err(duramen_server::Error::new(duramen_server::ErrorKind::Configuration, message).into());
    }
    Ok(duramen_server::serve(config)?)
}

/// Serve a store to Redis clients, by default on 127.0.0.1:6379 from ./duramen-data
///
/// Takes the same arguments as redis-server: a configuration file and directives. Every directive can also be set in
/// the environment, as DURAMEN_PORT for port. `--help` and duramen.conf(5) list them.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// [FILE.conf] [--directive value]...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    if args.args.iter().any(|argument| argument == "--help")
        || args.args.first().is_some_and(|first| first == "-h")
    {
        std::io::stdout().lock().write_all(config::help().as_bytes())?;
        return Ok(Answer::Yes);
    }
    let environment = std::env::vars().filter(|(name, _)| name.starts_with("DURAMEN_"));
    let config = Config::from_args(args.args.iter().cloned(), environment)?;
    served(config)?;
    Ok(Answer::Yes)
}
