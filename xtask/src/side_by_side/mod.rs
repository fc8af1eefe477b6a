//! `cargo xtask side-by-side`: sends the same commands to Debian's redis-server and to `duramen serve`, and compares
//! the replies byte by byte.
//!
//! The transcripts are the text files `testdata/protocol/*.txt` ([`transcript`] describes their language).
//! `testdata/protocol/intended.txt` lists the intended differences with their reasons. Each transcript begins with
//! empty servers and new connections. The reference is asked first: its reply determines how much to wait for from the
//! other server. `--random N` generates commands instead ([`random`]).

mod compare;
mod events;
pub mod intended;
pub mod memcached;
mod random;
mod transcript;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::failure::{Attempt, Failure, Result};
use crate::random::fresh_seed;
use crate::server::{Server, duramen_program, find_program};
use duramen_resp::{Connection, Ended, Reply, encode_command};
use events::Events;
use intended::Intended;
use transcript::{Action, Step, Treatment};

const TRANSCRIPTS: &str = "testdata/protocol";
const INTENDED: &str = "testdata/protocol/intended.txt";

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Raw bytes may get no reply at all: silence this long means that there is none.
const QUIET: Duration = Duration::from_millis(150);

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// The redis-server program [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// Prints redis-server's replies and compares nothing
    #[arg(long)]
    pub record: bool,
    /// Also compares the notifications that each command of the transcripts causes
    #[arg(long)]
    pub notifications: bool,
    /// Sends this many random commands instead of the transcripts
    #[arg(long, value_name = "COUNT")]
    pub random: Option<u64>,
    /// Repeats the random commands of an earlier run
    #[arg(long, requires = "random")]
    pub seed: Option<u64>,
    /// Only the transcripts whose names contain one of these
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// Runs the transcripts and prints the differences. Returns whether all of them are intended.
pub fn run(root: &Path, settings: Settings) -> Result<bool> {
    let Some(redis) = settings.redis.or_else(|| find_program("redis-server")) else {
        return Err(Failure::new(
            "cannot find redis-server in PATH: install Debian's package redis-server, or name one with --redis",
        ));
    };
    let transcripts = read_transcripts(root, &settings.only)?;
    let whole = settings.only.is_empty();
    let intended = Intended::read(root, INTENDED)?;
    // In memory if possible: the replies are compared, not the time that a disk takes.
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .attempt(|| "make a directory for the servers".to_owned())?;

    let duramen = (!settings.record).then(|| duramen_program(settings.duramen)).transpose()?;
    let programs = Programs { redis, duramen, directory: directory.path().to_owned() };
    let (reference, subject) = programs.start("first", &[])?;
    let mut run = Run { programs, reference, subject, intended, events: None, tally: Tally::default() };
    if let Some(count) = settings.random {
        return random::play(&mut run, count, settings.seed.unwrap_or_else(fresh_seed));
    }
    for transcript in &transcripts {
        run.events = match &run.subject {
            Some(subject) if settings.notifications => Some(Events::listen(&run.reference, subject)?),
            _ => None,
        };
        run.play(transcript)?;
        if let Some(server) = &mut run.subject
            && let Some(status) = server.exited()?
        {
            println!("{}: duramen ended unexpectedly ({status}); its last words:", transcript.path);
            println!("{}", server.last_words());
            return Ok(false);
        }
    }
    if settings.record {
        return Ok(true);
    }
    Ok(run.tally.report("side-by-side", transcripts.len(), &run.intended, INTENDED, whole))
}

/// What the servers are started from.
struct Programs {
    redis: PathBuf,
    /// None when recording.
    duramen: Option<PathBuf>,
    directory: PathBuf,
}

impl Programs {
    /// Starts both servers with these arguments, in a directory of this name.
    fn start(&self, name: &str, arguments: &[&str]) -> Result<(Server, Option<Server>)> {
        let directory = self.directory.join(name);
        fs::create_dir(&directory).attempt(|| format!("make {}", directory.display()))?;
        let mut reference = Server::start_redis_with(&self.redis, arguments, &directory)?;
        reference.demand_ready(PATIENCE)?;
        let Some(program) = &self.duramen else { return Ok((reference, None)) };
        let store = directory.join("store").display().to_string();
        let own = ["--duramen-path", &store, "--enable-debug-command", "yes"];
        let arguments: Vec<&str> = own.iter().chain(arguments).copied().collect();
        let mut subject = Server::start_duramen(program, &arguments, &directory.join("duramen.log"))?;
        subject.demand_ready(PATIENCE)?;
        Ok((reference, Some(subject)))
    }
}

struct Transcript {
    /// The path that messages show.
    path: String,
    /// Without directory and extension.
    name: String,
    steps: Vec<Step>,
}

fn read_transcripts(root: &Path, only: &[String]) -> Result<Vec<Transcript>> {
    let parse = |(path, name, text): (String, String, String)| match transcript::parse(&text) {
        Ok(steps) => Ok(Transcript { path, name, steps }),
        Err((line, message)) => Err(Failure::new(format!("cannot read {path}:{line}: {message}"))),
    };
    read_texts(root, TRANSCRIPTS, only)?.into_iter().map(parse).collect()
}

/// Path, name and text of the transcripts in a directory: those whose names contain one of `only`, or all.
fn read_texts(root: &Path, directory: &str, only: &[String]) -> Result<Vec<(String, String, String)>> {
    let listing = fs::read_dir(root.join(directory)).attempt(|| format!("list {directory}"))?;
    let mut names: Vec<String> = listing
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".txt").map(str::to_owned))
        .filter(|name| *name != "intended")
        .filter(|name| only.is_empty() || only.iter().any(|part| name.contains(part.as_str())))
        .collect();
    if names.is_empty() {
        return Err(Failure::new(format!("found no transcript in {directory} to run")));
    }
    names.sort();
    let read = |name: String| {
        let path = format!("{directory}/{name}.txt");
        let text = fs::read_to_string(root.join(&path)).attempt(|| format!("read {path}"))?;
        Ok((path, name, text))
    };
    names.into_iter().map(read).collect()
}

/// What a run has found.
#[derive(Default)]
struct Tally {
    compared: u64,
    differ: u64,
    meant: u64,
}

impl Tally {
    /// Prints it and, if all transcripts ran, the entries of `list` without use. Returns whether all is as intended.
    fn report(&self, run: &str, transcripts: usize, intended: &Intended, list: &str, whole: bool) -> bool {
        let mut stale = 0;
        for (line, pattern) in intended.unused().filter(|_| whole) {
            println!("{list}:{line}: found no difference that {pattern} covers; remove the entry");
            stale += 1;
        }
        let Tally { compared, differ, meant } = self;
        println!(
            "{run}: {compared} replies compared in {transcripts} transcripts, {differ} differ, {meant} differ as intended"
        );
        *differ == 0 && stale == 0
    }
}

struct Run {
    programs: Programs,
    reference: Server,
    /// None when recording.
    subject: Option<Server>,
    intended: Intended,
    /// The listeners to notifications, if these are compared.
    events: Option<Events>,
    tally: Tally,
}

/// The connections of one client, one to each server.
struct Client {
    reference: Connection,
    subject: Option<Connection>,
}

/// A server's reply to one line.
#[derive(Clone, PartialEq, Eq)]
enum Said {
    Reply(Reply),
    /// For raw bytes: the whole reply, and whether the connection was closed.
    Bytes(Ended),
    /// A reply is missing.
    Ended(Ended),
}

impl Run {
    fn play(&mut self, transcript: &Transcript) -> Result<()> {
        self.empty()?;
        let mut usual = None;
        let mut clients: HashMap<u32, Client> = HashMap::new();
        let mut current = 1;
        for step in &transcript.steps {
            match &step.action {
                Action::Client(number) => {
                    current = *number;
                    continue;
                }
                Action::Close => {
                    clients.remove(&current);
                    continue;
                }
                Action::Sleep(time) => {
                    thread::sleep(*time);
                    continue;
                }
                Action::Server(arguments) => {
                    clients.clear();
                    let texts: Vec<_> = arguments.iter().map(|word| String::from_utf8_lossy(word)).collect();
                    let arguments: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
                    let name = format!("{}-{}", transcript.name, step.line);
                    let (reference, subject) = self.programs.start(&name, &arguments)?;
                    let reference = std::mem::replace(&mut self.reference, reference);
                    let subject = std::mem::replace(&mut self.subject, subject);
                    usual.get_or_insert((reference, subject));
                    continue;
                }
                _ => {}
            }
            let client = match clients.remove(&current) {
                Some(client) => client,
                None => self.connect()?,
            };
            let mut client = client;
            let is_good = self.step(transcript, step, &mut client);
            self.judge_events(transcript, step)?;
            if is_good {
                clients.insert(current, client);
            }
        }
        if let Some(usual) = usual {
            (self.reference, self.subject) = usual;
        }
        Ok(())
    }

    /// Empties both servers.
    fn empty(&self) -> Result<()> {
        for server in std::iter::once(&self.reference).chain(&self.subject) {
            // A refusal shows in the next reply.
            let _ = server.connect()?.call(&["FLUSHALL"], PATIENCE);
        }
        Ok(())
    }

    fn connect(&self) -> Result<Client> {
        let subject = match &self.subject {
            Some(server) => Some(server.connect()?),
            None => None,
        };
        Ok(Client { reference: self.reference.connect()?, subject })
    }

    /// Returns whether the client's connections are still usable: both open and in step.
    fn step(&mut self, transcript: &Transcript, step: &Step, client: &mut Client) -> bool {
        match &step.action {
            Action::Client(_) | Action::Close | Action::Sleep(_) | Action::Server(_) => true,
            Action::Hello(version) => {
                let hello = ["HELLO".to_owned(), version.to_string()];
                let reference = ask(&mut client.reference, &hello);
                let subject = client.subject.as_mut().map(|connection| ask(connection, &hello));
                self.judge(transcript, step, &Treatment::Any, reference, subject)
            }
            Action::Command(arguments, treatment) => {
                let reference = ask(&mut client.reference, arguments);
                let subject = client.subject.as_mut().map(|connection| ask(connection, arguments));
                self.judge(transcript, step, treatment, reference, subject)
            }
            Action::NoReply(arguments) => {
                let mut sent = client.reference.send_command(arguments).is_ok();
                if let Some(connection) = &mut client.subject {
                    sent &= connection.send_command(arguments).is_ok();
                }
                sent
            }
            Action::Read(treatment) => {
                let reference = said(client.reference.read(PATIENCE));
                let subject = client.subject.as_mut().map(|connection| said(connection.read(PATIENCE)));
                self.judge(transcript, step, treatment, reference, subject)
            }
            Action::Silent => {
                let reference = client.reference.read_all(QUIET, |_| false);
                let subject = client.subject.as_mut().map(|connection| connection.read_all(QUIET, |_| false));
                let open = matches!(reference, Ended::Silent(_));
                let subject = subject.map(Said::Bytes);
                self.judge(transcript, step, &Treatment::Exact, Said::Bytes(reference), subject) && open
            }
            Action::Raw(bytes) => {
                let reference = ask_raw(&mut client.reference, bytes, None);
                let subject =
                    client.subject.as_mut().map(|connection| ask_raw(connection, bytes, Some(&reference)));
                let open = matches!(reference, Ended::Silent(_));
                let subject = subject.map(Said::Bytes);
                self.judge(transcript, step, &Treatment::Exact, Said::Bytes(reference), subject) && open
            }
            Action::Pipeline(steps) => self.pipeline(transcript, steps, client),
            Action::Exchange(from, to) => self.exchange(transcript, step, client, from, to),
        }
    }

    fn pipeline(&mut self, transcript: &Transcript, steps: &[Step], client: &mut Client) -> bool {
        let mut bytes = Vec::new();
        for step in steps {
            if let Action::Command(arguments, _) | Action::NoReply(arguments) = &step.action {
                encode_command(&mut bytes, arguments);
            }
        }
        // A failed send shows as a missing reply.
        let _ = client.reference.send(&bytes);
        if let Some(connection) = &mut client.subject {
            let _ = connection.send(&bytes);
        }
        let mut good = true;
        for step in steps {
            let Action::Command(_, treatment) = &step.action else { continue };
            let reference = said(client.reference.read(PATIENCE));
            let subject = client.subject.as_mut().map(|connection| said(connection.read(PATIENCE)));
            good &= self.judge(transcript, step, treatment, reference, subject);
            if !good {
                break;
            }
        }
        good
    }

    fn exchange(
        &mut self,
        transcript: &Transcript,
        step: &Step,
        client: &mut Client,
        from: &[u8],
        to: &[u8],
    ) -> bool {
        let dump = [b"DUMP", from];
        let restore = |connection: &mut Connection, payload: &Said| match payload {
            Said::Reply(reply) => match reply.bulk().flatten() {
                Some(payload) => ask(connection, &[b"RESTORE", to, b"0", payload, b"REPLACE"]),
                None => Said::Reply(reply.clone()),
            },
            other => other.clone(),
        };
        let of_reference = ask(&mut client.reference, &dump);
        let Some(connection) = &mut client.subject else {
            let reply = restore(&mut client.reference, &of_reference);
            return self.judge(transcript, step, &Treatment::Exact, reply, None);
        };
        let of_subject = ask(connection, &dump);
        let subject = restore(connection, &of_reference);
        let reference = restore(&mut client.reference, &of_subject);
        self.judge(transcript, step, &Treatment::Exact, reference, Some(subject))
    }

    /// Compares the notifications since the last step.
    fn judge_events(&mut self, transcript: &Transcript, step: &Step) -> Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        let Ok((reference, subject)) = events.since() else {
            // A transcript may close the listeners' connections.
            println!("{}:{}: the listener for notifications has ended", transcript.path, step.line);
            self.events = None;
            return Ok(());
        };
        self.tally.compared += reference.len() as u64;
        if reference != subject {
            self.tally.differ += 1;
            let (path, line, text) = (&transcript.path, step.line, shortened(&step.text));
            println!("{path}:{line}: {text}\n    redis:   {reference:?}\n    duramen: {subject:?}");
        }
        Ok(())
    }

    /// Counts and prints; returns whether both connections are still usable.
    fn judge(
        &mut self,
        transcript: &Transcript,
        step: &Step,
        treatment: &Treatment,
        reference: Said,
        subject: Option<Said>,
    ) -> bool {
        let place = format!("{}:{}: {}", transcript.path, step.line, shortened(&step.text));
        let Some(subject) = subject else {
            println!("{place}\n    {}", shown(&reference));
            return !matches!(reference, Said::Ended(_));
        };
        self.tally.compared += 1;
        let same = match (&reference, &subject) {
            (Said::Reply(reference), Said::Reply(subject)) => compare::same(treatment, reference, subject),
            (reference, subject) => reference == subject,
        };
        if !same {
            if self.intended.covers(&transcript.name, &step.text) {
                self.tally.meant += 1;
            } else {
                self.tally.differ += 1;
                println!("{place}\n    redis:   {}\n    duramen: {}", shown(&reference), shown(&subject));
            }
        }
        let can_go_on = |said: &Said| !matches!(said, Said::Ended(_) | Said::Bytes(Ended::Closed(_)));
        can_go_on(&reference) && can_go_on(&subject)
    }
}

fn said(read: std::result::Result<Reply, Ended>) -> Said {
    match read {
        Ok(reply) => Said::Reply(reply),
        Err(ended) => Said::Ended(ended),
    }
}

fn ask<A: AsRef<[u8]>>(connection: &mut Connection, arguments: &[A]) -> Said {
    said(connection.call(arguments, PATIENCE))
}

/// Sends raw bytes and reads the reply. With the reference's reply given, waits for as many bytes.
fn ask_raw(connection: &mut Connection, bytes: &[u8], reference: Option<&Ended>) -> Ended {
    // A server may close before it has read everything; its earlier replies still count.
    let _ = connection.send(bytes);
    match reference {
        None => connection.read_all(QUIET, |_| false),
        Some(Ended::Closed(_)) => connection.read_all(PATIENCE, |_| false),
        Some(Ended::Silent(wanted) | Ended::Malformed(wanted)) => {
            let mut said = match wanted.len() {
                0 => Vec::new(),
                len => match connection.read_all(PATIENCE, |received| received.len() >= len) {
                    Ended::Silent(said) => said,
                    closed => return closed,
                },
            };
            // Any bytes beyond the reference's reply are a difference too.
            match connection.read_all(QUIET, |_| false) {
                Ended::Closed(more) => {
                    said.extend(more);
                    Ended::Closed(said)
                }
                more => {
                    said.extend(more.bytes());
                    Ended::Silent(said)
                }
            }
        }
    }
}

// 400: the beginning of a long reply is enough to recognize it.
const SHOWN_BYTES: usize = 400;

fn shown(said: &Said) -> String {
    let (bytes, end) = match said {
        Said::Reply(reply) => (reply.encode(), ""),
        Said::Bytes(Ended::Closed(bytes)) => (bytes.clone(), " (closed)"),
        Said::Bytes(ended) => (ended.bytes().to_vec(), " (open)"),
        Said::Ended(Ended::Closed(bytes)) => (bytes.clone(), " (closed, no whole reply)"),
        Said::Ended(Ended::Silent(bytes)) => (bytes.clone(), " (no whole reply in time)"),
        Said::Ended(Ended::Malformed(bytes)) => (bytes.clone(), " (no reply of the protocol)"),
    };
    let dots = if bytes.len() > SHOWN_BYTES { "…" } else { "" };
    format!("{}{dots}{end}", bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii())
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(120).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
