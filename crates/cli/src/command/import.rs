//! `duramen import`: imports Redis's data into a store.

use super::progress_bar;
use crate::place::Place;
use crate::{Answer, Failure};
use duramen_server::import::aof::Files;
use duramen_server::import::replica::Origin;
use duramen_server::import::{Done, Import, Skip};
use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Put the keys of an RDB file, an append-only file or a running Redis into a store, which is created if it does not
/// exist
///
/// Database 3 of Redis becomes database 3 of a server on the store. Existing keys are overwritten. Stops at the first
/// unreadable value and names its byte and key; all values before it are stored.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// dump.rdb, appendonly.aof, or the directory of an append-only file of Redis 7.0 (appendonlydir)
    #[arg(required_unless_present = "from")]
    file: Option<PathBuf>,
    /// A running server instead: its snapshot, as a replica receives it
    #[arg(long, value_name = "redis[s]://[[USER]:PASSWORD@]HOST[:PORT]", conflicts_with = "file")]
    from: Option<Origin>,
    /// With --from: keep replicating until Ctrl-C (SIGINT or SIGTERM), then catch up and exit
    #[arg(long, requires = "from")]
    follow: bool,
    /// Skip values of modules, and list them, instead of stopping
    #[arg(long)]
    skip_modules: bool,
    /// Skip libraries of functions, and list them, instead of stopping
    #[arg(long)]
    skip_functions: bool,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    // Before a store is made.
    let files = args.file.as_deref().map(Files::find).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // A store that was made for an import without keys is removed again.
    let is_new = !args.place.path().exists();
    let store = args.place.open_or_create()?;
    let bar = match &files {
        Some(files) => progress_bar(files.bytes, "bytes"),
        None => ProgressBar::new_spinner(),
    };
    let mut has_snapshot = false;
    let mut told = |done: &Done| {
        if done.has_snapshot && !std::mem::replace(&mut has_snapshot, true) {
            bar.suspend(|| eprintln!("the snapshot is complete: {done}"));
        }
        if let Some(bytes) = done.snapshot_bytes.filter(|bytes| bar.length() != Some(*bytes)) {
            bar.set_length(bytes);
            bar.set_style(progress_bar(bytes, "bytes").style());
        }
        bar.set_position(done.bytes);
        bar.set_message(done.to_string());
    };
    let skip = Skip { modules: args.skip_modules, functions: args.skip_functions };
    let mut import = Import::new(store.clone(), skip, &stop, &mut told)?;
    let imported = match (&files, &args.from) {
        (Some(files), _) => import.files(files),
        (None, Some(origin)) => import.replica(origin, args.follow),
        // clap allows none of this.
        (None, None) => Ok(()),
    };
    let done = import.done().clone();
    // It holds the store.
    drop(import);
    bar.finish_and_clear();
    store.close()?;
    if imported.is_err() && is_new && (done.keys, done.commands) == (0, 0) && args.place.path().is_file() {
        std::fs::remove_file(args.place.path())?;
    }
    imported?;
    report(&done);
    Ok(Answer::Yes)
}

fn report(done: &Done) {
    eprintln!("imported {done}");
    for name in &done.skipped_names {
        eprintln!("left out: {name}");
    }
    let more = done.skipped - done.skipped_names.len() as u64;
    if more > 0 {
        eprintln!("left out: {more} more");
    }
    if let Some(last) = done.databases_beyond_default().last() {
        eprintln!(
            "keys are in databases up to {last}: start the server with --databases {}",
            u16::from(last) + 1
        );
    }
}
