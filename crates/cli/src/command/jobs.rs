//! `duramen jobs`: the jobs in a store.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use duramen::{ErrorKind, MediumKind};
use duramen_server::log::counted;
use duramen_stream::run::{Existing, Kept, forget, jobs};
use rustix::process::{Pid, Signal, kill_process};

use super::sql::{Note, Open, Script, open, runs};
use crate::{Answer, Failure};

/// List the jobs in a store; stop the process that runs them; resume one, or forget it
#[derive(clap::Args)]
pub struct Args {
    /// The store, as given to `duramen sql --store`
    #[arg(long, value_name = "PATH")]
    store: PathBuf,
    /// Medium of the store: auto, file, shm, fsdax, devdax
    #[arg(long, default_value_t = MediumKind::Auto)]
    medium: MediumKind,
    /// Stop the process that runs the store's jobs, with a last checkpoint
    #[arg(long, conflicts_with_all = ["resume", "forget"])]
    stop: bool,
    /// Resume this job from its last checkpoint, with its script
    #[arg(long, value_name = "NAME", conflicts_with = "forget")]
    resume: Option<String>,
    /// Forget this job
    #[arg(long, value_name = "NAME")]
    forget: Option<String>,
}

pub fn run(args: &Args) -> Result<Answer, Failure> {
    if !args.store.exists() {
        return Err(format!("found no store at {}", args.store.display()).into());
    }
    if args.stop {
        stop(args)?;
    }
    let mut opened = open(&args.store, args.medium);
    // The kernel may still be closing what the process had open.
    let is_closing = |opened: &duramen::Result<_>| {
        args.stop && opened.as_ref().is_err_and(|error: &duramen::Error| error.kind() == ErrorKind::InUse)
    };
    for _ in 0..200 {
        if !is_closing(&opened) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        opened = open(&args.store, args.medium);
    }
    let store = match opened {
        Err(error) if error.kind() == ErrorKind::InUse => {
            if args.resume.is_some() || args.forget.is_some() {
                return Err(error.into());
            }
            match running(args) {
                Some(pid) => {
                    println!("process {} runs the jobs of {}", pid.as_raw_nonzero(), args.store.display())
                }
                None => return Err(error.into()),
            }
            return Ok(Answer::Yes);
        }
        opened => opened?,
    };
    let kept = jobs(&store)?;
    let find = |name: &str| {
        kept.iter().find(|job| job.name == name).ok_or_else(|| {
            let names: Vec<&str> = kept.iter().map(|job| job.name.as_str()).collect();
            format!("the store has no job {name:?}; it has: {}", names.join(", "))
        })
    };
    if let Some(name) = &args.forget {
        find(name)?;
        forget(&store, name)?;
        return Ok(Answer::Yes);
    }
    if let Some(name) = &args.resume {
        let note: Note = serde_json::from_str(&find(name)?.note).map_err(|_| {
            format!("job {name:?} was not started by `duramen sql`: only its program can resume it")
        })?;
        let path = std::path::absolute(&args.store)?;
        std::env::set_current_dir(&note.directory).map_err(|error| {
            format!("cannot change the directory to {}: {error}", note.directory.display())
        })?;
        let script = Script {
            title: note.title,
            text: note.script,
            name: name.clone(),
            only: Some(note.number),
            every: Duration::from_millis(note.every),
            from_start: false,
            existing: Existing::Refuse,
            threads: None,
            attach: note.attach,
            memory: note.memory,
            metrics: None,
        };
        drop(store);
        return script.run(Some(&Open::new(&path, args.medium)?));
    }
    for job in &kept {
        println!("{}", line(job));
    }
    Ok(if kept.is_empty() { Answer::No } else { Answer::Yes })
}

fn line(job: &Kept) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let age = (now.as_micros() as i64).saturating_sub(job.at) / 1_000_000;
    let state = if job.finished { "ended" } else { "stopped" };
    let records = counted(job.records, "record");
    format!("{}: {state} after {records}; checkpoint {}, {age} s ago", job.name, job.epoch)
}

/// The process that has the store.
fn running(args: &Args) -> Option<Pid> {
    let pid: i32 = std::fs::read_to_string(runs(&args.store)).ok()?.trim().parse().ok()?;
    // The file may be left from a killed process, whose number another one may have now.
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = command.split(|byte| *byte == 0);
    words.any(|word| matches!(word, b"sql" | b"jobs")).then(|| Pid::from_raw(pid)).flatten()
}

/// How long a last checkpoint may take.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// Whether a process has ended, and so released its store, which happens after it removes the file that names it.
fn has_ended(pid: Pid) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) else {
        return true;
    };
    // The name before it, in parentheses, may have any characters. A zombie waits for its parent, and has nothing open.
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

fn stop(args: &Args) -> Result<(), Failure> {
    let Some(pid) = running(args) else {
        return Err(format!("no process of `duramen sql` has opened {}", args.store.display()).into());
    };
    kill_process(pid, Signal::TERM)
        .map_err(|error| format!("cannot stop process {}: {error}", pid.as_raw_nonzero()))?;
    let began = Instant::now();
    while !has_ended(pid) {
        if began.elapsed() > STOP_PATIENCE {
            let seconds = STOP_PATIENCE.as_secs();
            return Err(format!("process {} still runs after {seconds} seconds", pid.as_raw_nonzero()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
