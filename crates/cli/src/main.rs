//! The `duramen` program. One file per command; every error on standard error says what to do.
//!
//! Exit codes: 0 done; 1 the answer is "no" (key absent, store damaged), or the system refused something to `serve`; 2
//! wrong usage or configuration; 3 the store or a file could not be used; 4 `serve` cannot listen on an address.
#![forbid(unsafe_code)]

mod command;
mod entry;
mod output;
mod place;
#[cfg(any(feature = "bench", feature = "sql"))]
mod signals;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

// Its first line of help is the package's description.
#[derive(Parser)]
#[command(name = "duramen", version, about)]
#[command(
    after_help = "Exit codes: 0 done; 1 the answer is no (key absent, store damaged), or the system refused \
                  something to serve; 2 wrong usage or configuration; 3 the store or a file could not be \
                  used; 4 serve cannot listen on an address."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(command::serve::Args),
    #[cfg(feature = "bench")]
    Bench(command::bench::Args),
    #[cfg(not(feature = "bench"))]
    #[command(hide = true, disable_help_flag = true)]
    Bench(command::missing::Args),
    Check(command::check::Args),
    Stats(command::stats::Args),
    Get(command::get::Args),
    Put(command::put::Args),
    Del(command::del::Args),
    Scan(command::scan::Args),
    Dump(command::dump::Args),
    Load(command::load::Args),
    Import(command::import::Args),
    Export(command::export::Args),
    Erase(command::erase::Args),
    Compact(command::compact::Args),
    #[cfg(feature = "sql")]
    Sql(command::sql::Args),
    #[cfg(feature = "sql")]
    Jobs(command::jobs::Args),
    #[cfg(not(feature = "sql"))]
    #[command(hide = true, disable_help_flag = true)]
    Sql(command::missing::Args),
    #[cfg(not(feature = "sql"))]
    #[command(hide = true, disable_help_flag = true)]
    Jobs(command::missing::Args),
    Ping(command::ping::Args),
    Manual(command::manual::Args),
    Version(command::version::Args),
}

/// The result of a command.
enum Answer {
    Yes,
    No,
}

/// The error of a command, already in words.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args = Args::parse();
    duramen::look_hosts_up_without_modules();
    // The server adds its log.
    duramen::report_faults(None);
    let answer = match args.command {
        Command::Serve(args) => command::serve::run(&args),
        #[cfg(feature = "bench")]
        Command::Bench(args) => command::bench::run(args),
        #[cfg(not(feature = "bench"))]
        Command::Bench(_) => command::missing::run("bench", "bench"),
        Command::Check(args) => command::check::run(&args),
        Command::Stats(args) => command::stats::run(&args),
        Command::Get(args) => command::get::run(&args),
        Command::Put(args) => command::put::run(&args),
        Command::Del(args) => command::del::run(&args),
        Command::Scan(args) => command::scan::run(&args),
        Command::Dump(args) => command::dump::run(&args),
        Command::Load(args) => command::load::run(&args),
        Command::Import(args) => command::import::run(&args),
        Command::Export(args) => command::export::run(&args),
        Command::Erase(args) => command::erase::run(&args),
        Command::Compact(args) => command::compact::run(&args),
        #[cfg(feature = "sql")]
        Command::Sql(args) => command::sql::run(&args),
        #[cfg(feature = "sql")]
        Command::Jobs(args) => command::jobs::run(&args),
        #[cfg(not(feature = "sql"))]
        Command::Sql(_) => command::missing::run("sql", "sql"),
        #[cfg(not(feature = "sql"))]
        Command::Jobs(_) => command::missing::run("jobs", "sql"),
        Command::Ping(args) => command::ping::run(&args),
        Command::Manual(args) => command::manual::run(&args, <Args as CommandFactory>::command()),
        Command::Version(args) => command::version::run(&args),
    };
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        // The reader of our output has ended: not an error.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("duramen: {error}");
            ExitCode::from(code(&*error))
        }
    }
}

/// Errors of a benchmark and of the server name their cause; all others concern a store or a file.
fn code(error: &(dyn std::error::Error + 'static)) -> u8 {
    #[cfg(feature = "bench")]
    if let Some(code) = command::bench::code(error) {
        return code;
    }
    #[cfg(feature = "sql")]
    if error.is::<command::sql::Refused>() {
        return 2;
    }
    #[cfg(not(all(feature = "bench", feature = "sql")))]
    if error.is::<command::missing::Missing>() {
        return 2;
    }
    error.downcast_ref::<duramen_server::Error>().map_or(3, |error| error.kind().exit_code())
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_help_names_all_commands() {
        let program = Args::command();
        let about = program.get_about().map(ToString::to_string).unwrap_or_default();
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(about.split([' ', ',', ':']).any(|word| word == name), "{name} is not in: {about}");
        }
    }
}
