//! The state that all connections of a running server share.

use crate::acl::{User, Users};
use crate::clients::{Client, Clients};
use crate::command_error::CommandError;
use crate::config::{ClientsMemory, Config};
use crate::hosted_jobs::HostedJobs;
use crate::key_list::KeyList;
use crate::memcached::Shared;
use crate::messages::{Delivery, Monitors, Subscriptions};
use crate::net::Inbox;
use crate::net::tls::Settings;
use crate::observe::keyspace_events::expiry_timers::ExpiryTimers;
use crate::observe::keyspace_events::{Classes, EXPIRED};
use crate::observe::log;
use crate::observe::stats::{Totals, WorkerStats};
use crate::observe::times::{HistogramSums, Times};
use crate::redis::blocking::Waiting;
use crate::redis::tracking::Tracking;
use crate::scripts::{Known, Running, Scripts};
use duramen::{OnCorruption, OnExpired};
use duramen_structures::Keyspace;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The state that all connections share. A command that only reads or writes keys takes none of its locks.
pub struct Server {
    /// The databases.
    pub keyspace: Keyspace,
    /// State of memcached's protocols, if they are enabled.
    pub memcached: Option<Arc<Shared>>,
    /// All connections.
    pub clients: Clients,
    /// All users.
    pub users: Users,
    /// TLS of new connections.
    pub tls: Arc<Settings>,
    /// Subscribers and their channels.
    pub subscriptions: Subscriptions,
    /// Clients that sent MONITOR.
    pub monitors: Monitors,
    /// Clients with CLIENT TRACKING.
    pub tracking: Tracking,
    /// Clients that wait for keys.
    pub waiting: Waiting,
    /// Texts of scripts.
    pub scripts: Scripts,
    /// Libraries of functions.
    pub libraries: Known,
    /// Scripts that run too long.
    pub running_scripts: Running,
    /// Expiry times of keys whose events are wanted.
    pub expiry_timers: ExpiryTimers,
    /// When fields of hashes end, as far as there is room.
    pub field_timers: ExpiryTimers,
    /// Whether fields whose time has come are deleted.
    pub deletes_fields: AtomicBool,
    /// Messages on their way.
    pub delivery: Delivery,
    /// When it started.
    pub started: Instant,
    /// Forty hexadecimal digits, unique to this run.
    pub run_id: String,
    /// Each worker's counters.
    pub stats: Vec<Arc<WorkerStats>>,
    /// Each worker's inbox.
    pub inboxes: Vec<Arc<Inbox>>,
    /// Ends the server.
    pub stop: Arc<Stop>,
    /// The sum of the clients' large buffers.
    pub buffers: Buffers,
    /// Latencies.
    pub times: Times,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// In-process jobs.
    pub hosted_jobs: HostedJobs,
    /// Unix seconds of the last SAVE or BGSAVE, or of the start.
    pub saved_at: AtomicU64,
    // The number of changes at that time.
    saved_changes: AtomicU64,
    // Keys that had expired and been evicted as of the last CONFIG RESETSTAT.
    removed_reset: Mutex<(u64, u64)>,
    // The peak of the used space.
    used_bytes_max: AtomicU64,
    // The value of `notify-keyspace-events`, for every command that writes.
    notifications: AtomicU32,
    // The store's listener for expired keys, while their events are wanted.
    on_expired: OnceLock<OnExpired>,
    listening: Mutex<()>,
    /// Keys that the store swept during a CLIENT PAUSE; they are reported when it ends.
    pub swept: KeyList,
    /// Streams with removed groups that are not cleared yet.
    pub leftovers: KeyList,
    config: RwLock<Arc<Config>>,
    // Counts changes of `config`, so that workers see without a lock that nothing changed.
    config_generation: AtomicU64,
    reset: Mutex<Totals>,
    // By command, as of the last CONFIG RESETSTAT.
    histograms_reset: Mutex<HashMap<usize, HistogramSums>>,
    samples: Mutex<Samples>,
    // The number of damaged blocks that the log reported, and whether it reported the store's failure.
    damage_told: AtomicU64,
    failure_told: AtomicBool,
    // A write was refused for lack of space, or the limit was lowered, since free space was last found.
    may_be_full: AtomicBool,
    // The state found by the last check.
    store_deleted: AtomicBool,
    deleted_told: Told,
    full_told: Told,
    refused_told: Told,
    evicting: Mutex<()>,
}

impl Server {
    /// A server without connections, for these users and the commands that they know.
    pub fn new(
        config: Config,
        keyspace: Keyspace,
        memcached: Option<Arc<Shared>>,
        inboxes: Vec<Arc<Inbox>>,
        stop: Arc<Stop>,
        run_id: String,
        users: Users,
    ) -> Self {
        Self {
            keyspace,
            memcached,
            clients: Clients::default(),
            stats: inboxes.iter().map(|_| Arc::new(WorkerStats::new(users.commands().count()))).collect(),
            users,
            tls: Arc::default(),
            subscriptions: Subscriptions::default(),
            monitors: Monitors::default(),
            tracking: Tracking::default(),
            waiting: Waiting::default(),
            scripts: Scripts::default(),
            libraries: Known::default(),
            running_scripts: Running::default(),
            expiry_timers: ExpiryTimers::default(),
            field_timers: ExpiryTimers::of_fields(),
            deletes_fields: AtomicBool::new(true),
            delivery: Delivery::default(),
            started: Instant::now(),
            run_id,
            inboxes,
            stop,
            buffers: Buffers::default(),
            times: Times::new(&config),
            pause: Pause::default(),
            hosted_jobs: HostedJobs::default(),
            saved_at: AtomicU64::new(crate::clients::unix_seconds()),
            saved_changes: AtomicU64::default(),
            removed_reset: Mutex::default(),
            used_bytes_max: AtomicU64::default(),
            notifications: AtomicU32::new(config.notify_keyspace_events),
            may_be_full: AtomicBool::new(config.maxmemory > 0),
            on_expired: OnceLock::new(),
            listening: Mutex::default(),
            swept: KeyList::default(),
            leftovers: KeyList::default(),
            config: RwLock::new(Arc::new(config)),
            config_generation: AtomicU64::new(0),
            reset: Mutex::default(),
            histograms_reset: Mutex::default(),
            samples: Mutex::default(),
            damage_told: AtomicU64::new(0),
            failure_told: AtomicBool::new(false),
            store_deleted: AtomicBool::new(false),
            deleted_told: Told::default(),
            full_told: Told::default(),
            refused_told: Told::default(),
            evicting: Mutex::default(),
        }
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes with every change of the configuration.
    #[inline]
    pub fn config_generation(&self) -> u64 {
        // Acquire: pairs with the Release in `config_change`.
        self.config_generation.load(Ordering::Acquire)
    }

    /// The enabled classes of keyspace events.
    #[inline]
    pub fn notifications(&self) -> Classes {
        self.notifications.load(Ordering::Relaxed)
    }

    /// Whether the expiry of any key is of interest.
    #[inline]
    pub fn follows_expiries(&self) -> bool {
        self.notifications() & EXPIRED != 0 || self.tracking.follows_prefixes()
    }

    /// Changes the configuration, or leaves it unchanged if `change` returns an error.
    ///
    /// # Errors
    /// `change`'s.
    pub fn config_change<E>(&self, change: impl FnOnce(&mut Config) -> Result<(), E>) -> Result<(), E> {
        let mut current = self.config.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Config::clone(&current);
        change(&mut changed)?;
        // Relaxed: a command that runs at this moment may come before or after.
        self.notifications.store(changed.notify_keyspace_events, Ordering::Relaxed);
        if (changed.notify_keyspace_events ^ current.notify_keyspace_events) & EXPIRED != 0 {
            self.listen_to_store();
        }
        self.times.configure(&changed);
        *current = Arc::new(changed);
        self.config_generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Sets the listener for keys that the store sweeps; it is called while their events are wanted.
    pub fn set_expired_listener(&self, listener: OnExpired) {
        // Only the first one counts.
        let _ = self.on_expired.set(listener);
        self.listen_to_store();
    }

    /// Updates the store's listener after the interest in swept keys changed.
    pub fn listen_to_store(&self) {
        // The last update sees the changes of all others.
        let _one = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.on_expired.get().filter(|_| self.follows_expiries());
        self.keyspace.store().set_on_expired(told.cloned());
    }

    /// Has another connection closed by its worker. After this returned, it begins no further command. False if it was
    /// killed before.
    pub fn kill(&self, client: &Client) -> bool {
        let first = client.kill();
        if first && let Some(inbox) = self.inboxes.get(client.worker) {
            inbox.kill(client.id);
        }
        first
    }

    /// A login failed: how long its answer waits. The log names one in a second.
    pub fn failed_login(&self, address: &str, name: &[u8]) -> Duration {
        let seconds = crate::clients::unix_seconds();
        if let Some(more) = self.users.failures.is_logged(seconds) {
            let name = name[..name.len().min(64)].escape_ascii();
            let more = if more > 0 { format!("; {more} more before it") } else { String::new() };
            log::notice(format_args!("{address} failed to log in as '{name}'{more}"));
        }
        self.users.failures.note(address, seconds)
    }

    /// Kills the clients of a user, except one. Returns whether that one is among them.
    pub fn kill_user(&self, user: &Arc<User>, except: &Client) -> bool {
        let mut is_own = false;
        for client in self.clients.list().iter().filter(|client| client.is_user(user)) {
            match client.id == except.id {
                true => is_own = true,
                false => drop(self.kill(client)),
            }
        }
        is_own
    }

    /// Kills the clients with the largest buffers, of any worker, until the rest is within `maxmemory-clients`. Returns
    /// their number.
    pub fn evict(&self, config: &Config) -> u64 {
        // One worker at a time: two would see the same excess and kill twice for it.
        let _alone = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut evicted = 0;
        while self.buffers.excess(config) > 0
            && let Some(client) = self.clients.largest()
        {
            evicted += u64::from(self.kill(&client));
            // Its worker frees them soon; do not kill another client for them.
            self.buffers.charge(&client, 0);
        }
        evicted
    }

    /// Sums over all workers since the last CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        // Take the lock first: a later sum under it is never smaller than an earlier one.
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        self.totals_ever().since(&reset)
    }

    /// Latencies of a command since then, by its position in the table.
    pub fn histogram(&self, command: usize) -> HistogramSums {
        let reset = self.histograms_reset.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = self.histogram_ever(command);
        match reset.get(&command) {
            Some(base) => sums.since(base),
            None => sums,
        }
    }

    /// Latencies of a command since the start.
    pub fn histogram_ever(&self, command: usize) -> HistogramSums {
        let mut sums = HistogramSums::default();
        for stats in &self.stats {
            stats.commands.get(command).iter().for_each(|counters| sums.add(&counters.times));
        }
        sums
    }

    /// Records that SAVE ended at this time.
    pub fn note_saved(&self, seconds: u64) {
        self.saved_changes.store(self.changes(), Ordering::Relaxed);
        self.saved_at.store(seconds, Ordering::Relaxed);
    }

    fn changes(&self) -> u64 {
        self.stats.iter().map(|stats| stats.changes.get()).sum()
    }

    /// The number of changes since SAVE or the start.
    pub fn changes_since_save(&self) -> u64 {
        self.changes().saturating_sub(self.saved_changes.load(Ordering::Relaxed))
    }

    /// Expired and evicted keys of `stats` since CONFIG RESETSTAT.
    pub fn removed(&self, stats: &duramen::Stats) -> (u64, u64) {
        let reset = self.removed_reset.lock().unwrap_or_else(PoisonError::into_inner);
        (stats.expired_keys.saturating_sub(reset.0), stats.evicted_keys.saturating_sub(reset.1))
    }

    /// The peak of the used space; `now` is its current value.
    pub fn used_bytes_max(&self, now: u64) -> u64 {
        self.used_bytes_max.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// CONFIG RESETSTAT.
    pub fn totals_reset(&self) {
        let mut reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        *reset = self.totals_ever();
        let commands = self.stats.first().map_or(0, |stats| stats.commands.len());
        let histograms = (0..commands).map(|command| (command, self.histogram_ever(command)));
        *self.histograms_reset.lock().unwrap_or_else(PoisonError::into_inner) =
            histograms.filter(|(_, sums)| sums.total() > 0).collect();
        if let Some(memcached) = &self.memcached {
            memcached.counters.reset();
        }
        let stats = self.keyspace.store().stats();
        *self.removed_reset.lock().unwrap_or_else(PoisonError::into_inner) =
            (stats.expired_keys, stats.evicted_keys);
        self.clients.history_reset();
    }

    /// Samples the counters, about once a second.
    pub fn sample(&self) {
        self.log_damage();
        self.log_deleted();
        self.used_bytes_max(self.keyspace.store().stats().used_bytes);
        if let Err(error) = self.keyspace.store().check_writable() {
            self.log_failure(&CommandError::from(error));
        } else if let Some(memcached) = &self.memcached
            && let Err(error) = memcached.tend(&self.keyspace)
        {
            log::warning(format_args!("no CAS numbers for memcached's commands could be set aside: {error}"));
        }
        let totals = self.totals_ever();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Rates {
            commands: totals.commands_processed,
            input_bytes: totals.input_bytes,
            output_bytes: totals.output_bytes,
        };
        samples.before = samples.last.replace((Instant::now(), now));
    }

    /// Reports the number of damaged blocks to the operator: when the first is found, when all blocks are verified and
    /// there are more, and when none is left.
    pub fn log_damage(&self) {
        let stats = self.keyspace.store().stats();
        let (damaged, told) = (stats.damaged_blocks, self.damage_told.load(Ordering::Relaxed));
        if damaged == told || (damaged > 0 && told > 0 && stats.unverified_bytes > 0) {
            return;
        }
        self.damage_told.store(damaged, Ordering::Relaxed);
        match damaged {
            0 => log::notice("the store is not damaged any more: all damaged records have been rewritten"),
            _ => log::warning(format_args!(
                "the store is damaged in {}, which it leaves unchanged: a key whose record is or may be \
                 damaged answers -CORRUPT until it is set or deleted; all other keys are intact. {}",
                blocks_text(damaged),
                self.damage_advice()
            )),
        }
    }

    /// Reports at a clean end what the next start will find.
    pub fn log_damage_at_end(&self) {
        let damaged = self.keyspace.store().stats().damaged_blocks;
        if damaged > 0 {
            let next = match self.config().on_corruption {
                OnCorruption::Refuse => {
                    "the next start refuses it, unless \"duramen-on-corruption serve\" is set"
                }
                OnCorruption::Serve => "the next start serves the rest, as this one did",
            };
            log::warning(format_args!(
                "the store is closed with damage in {}; {next}. {}",
                blocks_text(damaged),
                self.damage_advice()
            ));
        }
    }

    fn damage_advice(&self) -> String {
        format!(
            "Look at the device (dmesg, SMART, ndctl list --media-errors); with the server stopped \"duramen \
             check --path {}\" names the places and keys, and --salvage NEW saves the valid records",
            self.config().path.display()
        )
    }

    /// Reports, once, that the store has failed: it takes no writes until it is opened again.
    pub fn log_failure(&self, error: &CommandError) {
        if !self.failure_told.swap(true, Ordering::Relaxed) {
            log::warning(format_args!(
                "the store has failed and takes no more writes; reads still work: {}. Look at the kernel's \
                 log (dmesg) and the device, then start the server again",
                String::from_utf8_lossy(error.text())
            ));
        }
    }

    /// Whether writes may be refused for lack of space, as the store knows.
    #[inline]
    pub fn may_be_full(&self) -> bool {
        self.may_be_full.load(Ordering::Relaxed)
    }

    /// Records that a write was refused for lack of space, or may be from now on.
    pub fn note_full(&self) {
        self.may_be_full.store(true, Ordering::Relaxed);
    }

    /// Whether writes are refused for lack of space now. While they may be, it makes room as a write would.
    pub fn is_full(&self) -> bool {
        if !self.may_be_full() {
            return false;
        }
        match self.keyspace.worker().and_then(|mut worker| worker.find_room()).map_err(CommandError::from) {
            Err(error) => error.code() == "OOM",
            Ok(()) => {
                self.note_room();
                false
            }
        }
    }

    /// Records that free space was found.
    pub fn note_room(&self) {
        self.may_be_full.store(false, Ordering::Relaxed);
    }

    /// Records that a write was refused for lack of space, and logs it at most once a minute.
    pub fn log_full(&self, error: &CommandError) {
        self.note_full();
        if self.full_told.is_due() {
            log::warning(format_args!(
                "out of space: rejecting writes; reads and deletes still work: {}",
                String::from_utf8_lossy(error.text())
            ));
        }
    }

    /// Logs that a client was refused, at most once a minute.
    pub fn log_refused(&self, address: &str, reply: &[u8]) {
        if self.refused_told.is_due() {
            // The first sentence is sufficient.
            let why = reply.split(|byte| matches!(byte, b'.' | b'\r')).next().unwrap_or_default();
            log::warning(format_args!("{address} was refused: {}", String::from_utf8_lossy(why)));
        }
    }

    /// Whether the store's file was deleted while the server runs, as of the last second.
    pub fn is_store_deleted(&self) -> bool {
        self.store_deleted.load(Ordering::Relaxed)
    }

    /// Checks whether the store's file still exists; if not, logs it at once and then every minute.
    fn log_deleted(&self) {
        let deleted = self.keyspace.store().is_deleted();
        self.store_deleted.store(deleted, Ordering::Relaxed);
        if deleted && self.deleted_told.is_due() {
            let pid = std::process::id();
            log::warning(format_args!(
                "the store's file {} was deleted or moved: all keys are lost when this process ends, even \
                 after SAVE, unless the file has another name. Do not stop the server. If the file was \
                 moved, move it back. Otherwise have clients stop writing and copy the open file: \"cp \
                 --sparse=always /proc/{pid}/fd/$(cd /proc/{pid}/fd && find . -lname '*(deleted)' | head -1) \
                 NEW\", \"duramen check --path NEW\"; then start a server on NEW",
                self.config().path.display()
            ));
        }
    }

    /// The rate per second between the last two samples.
    pub fn rates(&self) -> Rates {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some((from, before)), Some((to, last))) = (samples.before, samples.last) else {
            return Rates::default();
        };
        let seconds = to.duration_since(from).as_secs_f64().max(0.001);
        let rate = |last: u64, before: u64| (last.saturating_sub(before) as f64 / seconds) as u64;
        Rates {
            commands: rate(last.commands, before.commands),
            input_bytes: rate(last.input_bytes, before.input_bytes),
            output_bytes: rate(last.output_bytes, before.output_bytes),
        }
    }

    /// Sums over all workers since the start.
    pub fn totals_ever(&self) -> Totals {
        let mut totals = Totals::default();
        for worker in &self.stats {
            totals.add(worker);
        }
        totals
    }
}

fn blocks_text(count: u64) -> String {
    format!("{count} block{}", if count == 1 { "" } else { "s" })
}

/// When a lasting condition was last logged.
#[derive(Default)]
struct Told(Mutex<Option<Instant>>);

impl Told {
    /// Whether to log it now: at once, and then every minute.
    fn is_due(&self) -> bool {
        const PAUSE: Duration = Duration::from_secs(60);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= PAUSE);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

/// Counters that INFO shows per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Commands.
    pub commands: u64,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
}

#[derive(Default)]
struct Samples {
    before: Option<(Instant, Rates)>,
    last: Option<(Instant, Rates)>,
}

/// The sum of the clients' buffers. Only large buffers are counted, so that ordinary commands never touch this line.
pub struct Buffers {
    bytes: AtomicI64,
    machine_bytes: u64,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { bytes: AtomicI64::new(0), machine_bytes: crate::observe::process::read().system_bytes }
    }
}

impl Buffers {
    /// Counts `bytes` for a client. True when that is more than before.
    pub fn charge(&self, client: &Client, bytes: u64) -> bool {
        // Relaxed: sums that publish nothing. A swap, because killing the client takes its bytes from the sum too.
        if client.charged.load(Ordering::Relaxed) == bytes {
            return false;
        }
        let before = client.charged.swap(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as i64 - before as i64, Ordering::Relaxed);
        bytes > before
    }

    /// By how much they exceed `maxmemory-clients`.
    pub fn excess(&self, config: &Config) -> u64 {
        let most = match (config.maxmemory_clients, config.maxmemory) {
            (ClientsMemory::Bytes(0), _) => self.machine_bytes / 4,
            (ClientsMemory::Bytes(most), _) => most,
            (ClientsMemory::Percent(percent), 0) => self.machine_bytes / 100 * u64::from(percent),
            (ClientsMemory::Percent(percent), maxmemory) => maxmemory / 100 * u64::from(percent),
        };
        (self.bytes.load(Ordering::Relaxed).max(0) as u64).saturating_sub(most)
    }
}

/// CLIENT PAUSE: until when commands wait.
#[derive(Default)]
pub struct Pause {
    // Unix milliseconds, and in the lowest bit whether all commands wait; 0: no pause.
    until: AtomicU64,
}

impl Pause {
    /// Commands wait until `until`: all commands, or only those that write.
    pub fn begin(&self, now: u64, until: u64, all: bool) {
        let joined = |before: u64| match before >> 1 > now {
            // As in Redis, a shorter pause, or one of fewer commands, changes nothing.
            true => Some((before >> 1).max(until.min(u64::MAX >> 1)) << 1 | before & 1 | u64::from(all)),
            false => Some(until.min(u64::MAX >> 1) << 1 | u64::from(all)),
        };
        // Relaxed, here and below: a command that runs at this moment may come before.
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, joined);
    }

    /// Ends the pause.
    pub fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }

    /// Whether there may be a pause; a cheap check.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Whether expired keys stay at `now`, because nothing is to change.
    #[inline]
    pub fn keeps_keys(&self, now: u64) -> bool {
        self.is_any() && self.holds(now, true)
    }

    /// Whether a command waits at `now`.
    pub fn holds(&self, now: u64, writes: bool) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        now < until >> 1 && (writes || until & 1 != 0)
    }
}

/// Ends the server: used by signals, by SHUTDOWN and by the code that started it.
pub struct Stop {
    requested: AtomicBool,
    acceptor: mio::Waker,
}

impl Stop {
    /// A handle that wakes the accepting thread.
    pub const fn new(acceptor: mio::Waker) -> Self {
        Self { requested: AtomicBool::new(false), acceptor }
    }

    /// Asks the server to finish its commands and end.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        // If the acceptor cannot be woken, it is already stopping.
        let _ = self.acceptor.wake();
    }

    /// Whether the server has been asked to end.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}
