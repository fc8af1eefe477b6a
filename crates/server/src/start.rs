//! How the server starts and ends.
//!
//! Start: listen (so that an address in use is reported before a long recovery) → open the store → workers → accept.
//! End: no more connections → workers finish their turn and close their connections → the store is closed.

use crate::acl::Users;
use crate::acl::commands::Commands;
use crate::acl::users::Source;
use crate::config::{Config, value};
use crate::console::Console;
use crate::error::{Error, ErrorKind};
use crate::in_process::InProcessClient;
use crate::memcached::{self, Memcached};
use crate::metrics::{self, Listening, Observed, Phase};
use crate::net::tls::Settings;
use crate::net::{self, Inbox, Listener, Message, Pair, Protocol, Turn, Worker, accept, open_files};
use crate::observe::keyspace_events::eviction_listener;
use crate::observe::keyspace_events::expiry_listener;
use crate::observe::log;
use crate::observe::systemd::{READY, STOPPING, notify};
use crate::redis::Redis;
use crate::redis::command;
use crate::server::{Server, Stop};
use duramen::{OnCorruption, Options};
use duramen_structures::Keyspace;
use mio::{Poll, Waker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The protocols of the server, each on its own listeners. The first is that of in-process clients.
type Protocols = Pair<Redis, Memcached>;

/// A server that is ready to accept connections.
pub struct Started {
    server: Arc<Server>,
    poll: Poll,
    listeners: Vec<Listener>,
    workers: Vec<JoinHandle<std::io::Result<()>>>,
    pidfile: String,
    metrics: Option<Metrics>,
}

/// The served metrics.
struct Metrics {
    observed: Arc<Observed>,
    listening: Listening,
}

impl Metrics {
    /// Serves them while the store is opened, which may take long.
    fn start(config: &Config, tls: &Arc<Settings>) -> Result<Option<Self>, Error> {
        let refused = |why: String| Error::new(ErrorKind::Configuration, why);
        if config.metrics.is_empty() {
            let why = "duramen-console yes: there is no address for it; set duramen-metrics";
            return if config.console { Err(refused(why.to_owned())) } else { Ok(None) };
        }
        let address =
            metrics::address(&config.metrics).map_err(|why| refused(format!("duramen-metrics {why}")))?;
        let console = config.console.then(|| Console::new(address.ip().is_loopback()));
        if config.console && !config.metrics_tls && !address.ip().is_loopback() {
            return Err(refused(format!(
                "duramen-console yes at {address}, which others reach: passwords and values would cross the network in \
                 the clear; set duramen-metrics-tls yes, or duramen-metrics to a loopback address"
            )));
        }
        let observed = Observed::with(Phase::Loading, console);
        let tls = config.metrics_tls.then(|| Arc::clone(tls));
        let listening = Listening::start(address, Box::new(Arc::clone(&observed)), tls)?;
        Ok(Some(Self { observed, listening }))
    }
}

/// Drops the server once nobody else has it: a call of a listener may still be under way in the store's thread.
fn drop_alone(mut server: Arc<Server>) {
    const CALL_TIME_MAX: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    while begun.elapsed() < CALL_TIME_MAX {
        match Arc::try_unwrap(server) {
            Ok(_) => return,
            Err(shared) => server = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Damaged places that the log of a start lists; `duramen check` lists all.
const DAMAGE_TOLD_MAX: usize = 20;

/// Serves until SIGTERM, SIGINT or SHUTDOWN. The log says what the server promises, what it found, and how it ended.
///
/// # Errors
/// Why it could not start or could not close the store; [`ErrorKind::exit_code`] is the exit code.
pub fn serve(config: Config) -> Result<(), Error> {
    serve_with(config, |_| ())
}

/// Like [`serve`], with code that runs in the server's process. `beside` starts it when the server is ready. Its result
/// is dropped when the server was asked to end and still answers.
///
/// # Errors
/// As [`serve`].
pub fn serve_with<B>(config: Config, beside: impl FnOnce(InProcessClient) -> B) -> Result<(), Error> {
    log::open(config.loglevel, &config.logfile).map_err(|error| {
        Error::new(ErrorKind::Configuration, format!("cannot open logfile {}: {error}", config.logfile))
    })?;
    log::set_format(config.log_format);
    log_panics();
    let logfile = Some(Path::new(&config.logfile)).filter(|_| log::is_to_file());
    duramen::report_faults(logfile);
    // The caller gets the error itself; a reader of the log file would not know why the log ends.
    serve_logged(config, beside).inspect_err(|error| {
        if log::is_to_file() {
            log::warning(format_args!("ends: {error}"));
        }
    })
}

fn serve_logged<B>(config: Config, beside: impl FnOnce(InProcessClient) -> B) -> Result<(), Error> {
    let poll = Poll::new().map_err(|error| system("create an event queue", &error))?;
    let stop = stop_for(&poll)?;
    let _signals = Signals::listen(Arc::clone(&stop))?;
    let started = Started::with(config, poll, stop)?;
    started.greet();
    notify(READY);
    let beside = beside(started.in_process());
    started.run_with(beside)?;
    log::notice("ended: the store is closed cleanly, with all that was acknowledged");
    Ok(())
}

/// A panic is a bug: log it with its place, even if it is caught.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let trace = std::backtrace::Backtrace::force_capture();
        log::warning(format_args!("thread {}: {panic}\n{trace}", thread.name().unwrap_or("without a name")));
    }));
}

impl Started {
    /// Opens the addresses and the store and starts the workers.
    ///
    /// # Errors
    /// As [`serve`].
    pub fn start(config: Config) -> Result<Self, Error> {
        let poll = Poll::new().map_err(|error| system("create an event queue", &error))?;
        let stop = stop_for(&poll)?;
        Self::with(config, poll, stop)
    }

    fn with(mut config: Config, poll: Poll, stop: Arc<Stop>) -> Result<Self, Error> {
        let users = open_users(&config)?;
        command::table_renamed(&config.renamed_commands)
            .map_err(|why| Error::new(ErrorKind::Configuration, why))?;
        let tls = config.speaks_tls().then(|| config.tls()).transpose();
        let tls = tls.map_err(|why| Error::new(ErrorKind::Configuration, why))?;
        // Otherwise the memory of a burst of clients would stay with the process permanently.
        duramen::return_large_allocations();
        let clients = open_files::raise(config.maxclients);
        if clients < config.maxclients {
            config.notices.push(format!(
                "maxclients is {clients} instead of {}: the limit of open files (ulimit -n) allows no more",
                config.maxclients
            ));
            config.maxclients = clients;
        }
        let mut listeners = Listener::open_all(&config, &Protocols::places(&config))?;
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener
                .register(poll.registry(), mio::Token(index))
                .map_err(|error| system("listen", &error))?;
        }
        let settings = Arc::new(Settings::default());
        if let Some(tls) = tls {
            settings.set(tls);
        }
        let metrics = Metrics::start(&config, &settings)?;
        let keyspace = open_store(&config)?;
        // The store raises the limit to its minimum size, in which deletes and compaction have room.
        let least = keyspace.store().limit();
        if least > config.maxmemory {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "maxmemory {}: the smallest store on this medium takes {least} bytes; set it to as much or more, or to 0 for no limit",
                    config.maxmemory
                ),
            ));
        }
        let mut polls = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..config.threads_resolved() {
            let poll = Poll::new().map_err(|error| system("create an event queue", &error))?;
            let waker =
                Waker::new(poll.registry(), net::INBOX).map_err(|error| system("create a waker", &error))?;
            polls.push(poll);
            inboxes.push(Arc::new(Inbox::new(waker)));
        }
        let memcached = memcached::open(&config, &keyspace, inboxes.len())?;
        let pidfile = config.pidfile.clone();
        if !pidfile.is_empty() {
            // As redis-server does: it serves without the file.
            if let Err(error) = std::fs::write(&pidfile, format!("{}\n", std::process::id())) {
                log::warning(format_args!("cannot write pidfile {pidfile}: {error}; going on without it"));
            }
        }
        let mut server = Server::new(config, keyspace, memcached, inboxes, stop, run_id(), users);
        server.tls = settings;
        let server = Arc::new(server);
        server.set_expired_listener(expiry_listener::listener(&server));
        server.keyspace.store().set_on_due(Some(expiry_listener::due_listener(&server)));
        server.keyspace.store().set_on_evicted(eviction_listener::listener(&server));
        let mut started = Self { server, poll, listeners, workers: Vec::new(), pidfile, metrics };
        for (index, poll) in polls.into_iter().enumerate() {
            if let Err(error) = started.start_worker(index, poll) {
                started.server.stop.request();
                // Report the first error.
                let _ = started.finish();
                return Err(error);
            }
        }
        if let Some(metrics) = &started.metrics {
            metrics.observed.enter(Phase::Server(Arc::clone(&started.server)));
        }
        Ok(started)
    }

    /// The address of the metrics, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.listening.address())
    }

    fn start_worker(&mut self, index: usize, poll: Poll) -> Result<(), Error> {
        let server = Arc::clone(&self.server);
        let stats = Arc::clone(&server.stats[index]);
        let inbox = Arc::clone(&server.inboxes[index]);
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("duramen-worker-{index}")).spawn(move || {
            // The end of any worker ends the server; otherwise its connections would wait forever.
            let _guard = StopOnDrop(Arc::clone(&server.stop));
            // The engine's writer belongs to the thread that made it.
            let keys = match server.keyspace.worker() {
                Ok(keys) => {
                    let _ = ready.send(Ok(()));
                    keys
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            let turn = Turn::new(Arc::clone(&server), keys);
            let protocol = Protocols::new(&server, index);
            Worker::new(server, inbox, poll, turn, protocol, stats).run()
        });
        self.workers.push(thread.map_err(|error| system("start a thread", &error))?);
        match started.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Error::new(ErrorKind::Store, error.to_string())),
            Err(_) => Err(Error::new(ErrorKind::System, "a worker thread ended before it began")),
        }
    }

    /// A handle that ends the server.
    pub fn stop(&self) -> Arc<Stop> {
        Arc::clone(&self.server.stop)
    }

    /// The connector for clients within this process.
    pub fn in_process(&self) -> InProcessClient {
        InProcessClient::of(&self.server)
    }

    /// Accepts connections until it is asked to end, then ends.
    ///
    /// # Errors
    /// What failed at the end: a worker, or closing the store.
    pub fn run(self) -> Result<(), Error> {
        self.run_with(())
    }

    fn run_with<B>(mut self, beside: B) -> Result<(), Error> {
        let accepted = accept::<Protocols>(&self.server, &mut self.poll, &self.listeners);
        notify(STOPPING);
        // It may still need replies.
        drop(beside);
        let finished = self.finish();
        accepted.map_err(|error| system("wait for connections", &error))?;
        finished
    }

    fn finish(mut self) -> Result<(), Error> {
        self.listeners.clear();
        for inbox in &self.server.inboxes {
            inbox.send(Message::Stop);
        }
        let mut failed = None;
        for worker in self.workers.drain(..) {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed = Some(error.to_string()),
                Err(_) => failed = Some("it panicked; please report this".to_owned()),
            }
        }
        if failed.is_none() {
            self.put_back_undelivered();
        }
        if !self.pidfile.is_empty() {
            // The process ends anyway; the next start overwrites a leftover file.
            let _ = std::fs::remove_file(&self.pidfile);
        }
        if let Some(metrics) = &self.metrics {
            metrics.observed.enter(Phase::Closing);
        }
        // No other handle is left now, so this closes the store.
        let store = self.server.keyspace.store().clone();
        store.set_on_expired(None);
        store.set_on_due(None);
        self.server.log_damage_at_end();
        drop_alone(self.server);
        // With `manual` durability nothing else would commit: a clean shutdown is one of the requested commits.
        let closed = store.commit().and_then(|()| Ok(store.close()?));
        if let Some(error) = failed {
            return Err(Error::new(ErrorKind::System, format!("a worker thread failed: {error}")));
        }
        closed.map_err(|error| Error::new(ErrorKind::Store, error.to_string()))
    }

    /// Puts back what workers removed for clients of workers that had already ended.
    fn put_back_undelivered(&self) {
        let mail: Vec<_> = self.server.inboxes.iter().flat_map(|inbox| inbox.take_mail()).collect();
        let (false, Ok(keys)) = (mail.is_empty(), self.server.keyspace.worker()) else { return };
        let mut turn = Turn::new(Arc::clone(&self.server), keys);
        let mut protocol = Protocols::new(&self.server, 0);
        mail.iter().for_each(|message| protocol.undeliverable(message));
        // A failure is logged.
        let _ = net::run_alone(&mut turn, &mut protocol);
    }

    /// Warns of an empty store next to data of another server, which is not read automatically.
    fn log_dump(&self, config: &Config) {
        let is_empty = (0..self.server.keyspace.databases()).all(|db| self.server.keyspace.keys(db, 0) == 0);
        let found = [config.dump_file(), Path::new(&config.dir).join("appendonlydir")];
        if let Some(found) = found.iter().find(|found| is_empty && found.exists()) {
            log::notice(format_args!(
                "note: the store is empty, and {} is not read at a start; stop the server and run \"duramen \
                 import --path {} {}\" to load it",
                found.display(),
                config.path.display(),
                found.display()
            ));
        }
    }

    /// Logs the addresses, the store, the durability and the findings of the start.
    fn greet(&self) {
        let config = self.server.config();
        let store = self.server.keyspace.store();
        log::notice(format_args!("Duramen {} starts", env!("CARGO_PKG_VERSION")));
        log::notice(format_args!("medium: {}", store.describe()));
        log::notice(format_args!("durability: {}", value::durability_text(config.durability)));
        if config.maxmemory > 0 {
            let policy = config.policy().name();
            log::notice(format_args!("limit: maxmemory {} bytes, {policy}", config.maxmemory));
        }
        log::notice(opened_text(store.recovery(), store.stats().keys));
        for what in &store.recovery().repaired {
            log::warning(format_args!(
                "repaired at the start: {what}; nothing is lost, but look at the device (dmesg, SMART, ndctl list --media-errors)"
            ));
        }
        for what in store.recovery().damage.iter().take(DAMAGE_TOLD_MAX) {
            log::warning(format_args!("damaged: {what}"));
        }
        self.server.log_damage();
        if !store.is_empty() {
            log::warning(format_args!(
                "the store's own table, which is not a database, holds {}: programs that embed the store put \
                 keys there, and so does \"duramen put\" without --db; clients do not see them. With the \
                 server stopped, \"duramen dump\" writes them out",
                log::counted(store.len(), "key")
            ));
        }
        if let Some(why) = &store.recovery().checkpoint_refused {
            log::notice(format_args!(
                "note: the index checkpoint was not used, all records were read: {why}"
            ));
        }
        if let Some(advice) = store.advice() {
            log::notice(format_args!("advice: {advice}"));
        }
        for notice in &config.notices {
            log::notice(format_args!("note: {notice}"));
        }
        self.log_dump(&config);
        let names: Vec<_> = self.listeners.iter().map(Listener::name).collect();
        log::notice(format_args!("listening: {}", names.join(", ")));
        if let Some(address) = self.metrics_address() {
            let scheme = if config.metrics_tls { "https" } else { "http" };
            log::notice(format_args!("metrics: {scheme}://{address}/metrics"));
            if config.console {
                log::notice(format_args!("console: {scheme}://{address}/"));
            }
        }
        let how = match (config.port, config.unixsocket.as_str()) {
            (0, "") if config.memcached != 0 => format!("memcstat --servers=localhost:{}", config.memcached),
            (0, "") => format!("memcstat --servers={}", config.memcached_socket),
            (0, socket) => format!("redis-cli -s {socket} set greeting hello"),
            (port, _) => format!("redis-cli -p {port} set greeting hello"),
        };
        log::notice(format_args!("ready; try: {how}"));
    }
}

/// The findings of the open, and how long it took.
fn opened_text(recovery: &duramen::Summary, keys: u64) -> String {
    let seconds = recovery.nanos as f64 / 1e9;
    let duramen::Summary { records, checkpointed, uncommitted, threads, .. } = recovery;
    let (keys, read) = (log::counted(keys, "key"), log::counted(records - checkpointed, "record"));
    match (recovery.clean, records) {
        (true, 0) => "opened: the store is empty".to_owned(),
        (true, _) => format!(
            "opened in {seconds:.3} s: the store was closed cleanly; {keys}, {read} read, {checkpointed} known from the index checkpoint"
        ),
        (false, _) => format!(
            "recovered in {seconds:.3} s: the previous process did not close the store (a kill, a crash or a \
             power failure); {keys}, {read} by {}, {checkpointed} known from the index checkpoint, {} left out",
            log::counted(*threads as u64, "thread"),
            log::counted(*uncommitted, "uncommitted record")
        ),
    }
}

fn open_users(config: &Config) -> Result<Users, Error> {
    let file = config.aclfile.as_str();
    let source = Source {
        password: &config.requirepass,
        users: &config.users,
        file: (!file.is_empty()).then(|| Path::new(&config.dir).join(file)),
        all_channels: config.acl_pubsub_default,
    };
    let commands = Commands::of(command::table().all().map(|entry| &entry.spec));
    Users::new(commands, source).map_err(|why| Error::new(ErrorKind::Configuration, why))
}

fn open_store(config: &Config) -> Result<Keyspace, Error> {
    let options = Options {
        medium: config.medium,
        flush_instruction: config.flush_instruction,
        durability: config.durability,
        index: config.index,
        index_cache_slots: config.index_cache_slots,
        residence: config.residence,
        checkpoint_bytes: config.checkpoint_bytes,
        recovery_threads: config.recovery_threads,
        compaction_bytes_per_second: config.compaction_rate,
        compaction_dead_percent: config.compaction_dead_percent,
        compactors: config.compactors,
        lock_memory: config.lock_memory,
        keep_free_bytes: config.keep_free,
        on_corruption: config.on_corruption,
        verify_at_open: config.verify_at_start,
        len_max: config.maxmemory.max(Options::default().len_max),
        limit: config.maxmemory,
        eviction: config.policy().eviction(),
        ..Options::default()
    };
    let store = options.open(&config.path).map_err(|error| {
        let more = match error.kind() {
            duramen::ErrorKind::Corrupt if config.on_corruption == OnCorruption::Refuse => {
                "; copy the store before you try anything else, and read Damage in docs/operations.md before \
                 \"duramen-on-corruption serve\": it may bring back older values and deleted keys"
            }
            _ => "",
        };
        Error::new(ErrorKind::Store, format!("{error}{more}"))
    })?;
    let keyspace = Keyspace::open(store, config.databases);
    let keyspace = keyspace.map_err(|error| Error::new(ErrorKind::Store, error.to_string()))?;
    keyspace.set_thresholds(config.thresholds);
    keyspace.set_small_collection_bytes_max(
        usize::try_from(config.small_collection_bytes_max).unwrap_or(usize::MAX),
    );
    Ok(keyspace)
}

fn stop_for(poll: &Poll) -> Result<Arc<Stop>, Error> {
    let waker = Waker::new(poll.registry(), net::WAKE).map_err(|error| system("create a waker", &error))?;
    Ok(Arc::new(Stop::new(waker)))
}

fn run_id() -> String {
    // Keyed by the process's own random state: it differs in every run, and uniqueness is all that is needed.
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32)
}

fn system(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::System, format!("cannot {what}: {error}"))
}

struct StopOnDrop(Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// A second signal within this time is the same request, sent to the process and to its group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// The thread that waits for signals.
struct Signals {
    handle: signal_hook::iterator::Handle,
}

impl Signals {
    fn listen(stop: Arc<Stop>) -> Result<Self, Error> {
        // SIGXFSZ, sent beyond `ulimit -f`, would end the process; without it the write fails with a reason.
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ])
            .map_err(|error| system("handle signals", &error))?;
        let handle = signals.handle();
        let mut asked: Option<Instant> = None;
        let wait = move || {
            for signal in signals.forever() {
                let name = match signal {
                    // As in Redis: the server outlives its terminal.
                    SIGHUP | SIGXFSZ => continue,
                    SIGTERM => "SIGTERM",
                    _ => "SIGINT",
                };
                if asked.is_some_and(|asked| asked.elapsed() < SAME_REQUEST) {
                    continue;
                }
                if stop.is_requested() {
                    log::warning(format_args!(
                        "{name} again: ending at once, without closing the store; the next start recovers \
                         all acknowledged writes"
                    ));
                    std::process::exit(i32::from(ErrorKind::System.exit_code()));
                }
                log::notice(format_args!(
                    "{name}: ending; the store is closed when all workers have finished"
                ));
                asked = Some(Instant::now());
                stop.request();
            }
        };
        std::thread::Builder::new()
            .name("duramen-signals".to_owned())
            .spawn(wait)
            .map_err(|error| system("start a thread", &error))?;
        Ok(Self { handle })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}
