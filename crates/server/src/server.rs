//! What all connections of a running server share.

use crate::clients::{Client, Clients};
use crate::command::CommandError;
use crate::config::{ClientsMemory, Config};
use crate::expiry_timers::ExpiryTimers;
use crate::hosted_jobs::HostedJobs;
use crate::key_list::KeyList;
use crate::log;
use crate::memcached::Shared;
use crate::messages::{Delivery, Monitors, Subscriptions};
use crate::net::Inbox;
use crate::notifications::{Classes, EXPIRED};
use crate::stats::{Totals, WorkerStats};
use crate::times::{HistogramSums, Times};
use crate::tracking::Tracking;
use crate::waiting::Waiting;
use duramen::{OnCorruption, OnExpired};
use duramen_structures::Keyspace;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// What all connections share. No command that only reads or writes keys takes a lock in here.
pub struct Server {
    /// The databases.
    pub keyspace: Keyspace,
    /// What memcached's protocols need, where they are spoken.
    pub memcached: Option<Arc<Shared>>,
    /// All connections.
    pub clients: Clients,
    /// Who listens to what.
    pub subscriptions: Subscriptions,
    /// Who said MONITOR.
    pub monitors: Monitors,
    /// Who keeps copies of keys.
    pub tracking: Tracking,
    /// Who waits for keys.
    pub waiting: Waiting,
    /// When keys expire that somebody wants to know of.
    pub expiry_timers: ExpiryTimers,
    /// Messages on their way.
    pub delivery: Delivery,
    /// When it started.
    pub started: Instant,
    /// Forty hexadecimal digits that no other run has.
    pub run_id: String,
    /// Each worker's counters.
    pub stats: Vec<Arc<WorkerStats>>,
    /// Each worker's inbox.
    pub inboxes: Vec<Arc<Inbox>>,
    /// Ends the server.
    pub stop: Arc<Stop>,
    /// What the buffers of clients take together, as far as they are large.
    pub buffers: Buffers,
    /// How long things take.
    pub times: Times,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// What else runs in this process.
    pub hosted_jobs: HostedJobs,
    /// Unix seconds of the last SAVE or BGSAVE, or of the start.
    pub saved_at: AtomicU64,
    // Changes that were made by then.
    saved_changes: AtomicU64,
    // Keys that had expired and been evicted as of the last CONFIG RESETSTAT.
    removed_reset: Mutex<(u64, u64)>,
    // The most that the store has used.
    used_bytes_max: AtomicU64,
    // What `config` says of notifications, for every command that writes.
    notifications: AtomicU32,
    // What the store calls with keys that have expired, while somebody wants to know of them.
    on_expired: OnceLock<OnExpired>,
    listening: Mutex<()>,
    /// Keys that the store has swept while nothing was to change: that is told of when CLIENT PAUSE has ended.
    pub swept: KeyList,
    /// Streams with groups that were removed and are not cleared yet.
    pub leftovers: KeyList,
    config: RwLock<Arc<Config>>,
    // Counts changes of `config`, so that workers need no lock to see that there is none.
    config_generation: AtomicU64,
    reset: Mutex<Totals>,
    // By command, as of the last CONFIG RESETSTAT.
    histograms_reset: Mutex<HashMap<usize, HistogramSums>>,
    samples: Mutex<Samples>,
    // Damaged blocks that the log was told of, and that the store has failed.
    damage_told: AtomicU64,
    failure_told: AtomicBool,
    // A write was refused for want of space, or the limit was set, since room was found.
    may_be_full: AtomicBool,
    // Found by the last look.
    store_deleted: AtomicBool,
    deleted_told: Told,
    full_told: Told,
    refused_told: Told,
    evicting: Mutex<()>,
}

impl Server {
    /// A server that has no connections yet, and counts for each of `commands` commands.
    pub fn new(
        config: Config,
        keyspace: Keyspace,
        memcached: Option<Arc<Shared>>,
        inboxes: Vec<Arc<Inbox>>,
        stop: Arc<Stop>,
        run_id: String,
        commands: usize,
    ) -> Self {
        Self {
            keyspace,
            memcached,
            clients: Clients::default(),
            subscriptions: Subscriptions::default(),
            monitors: Monitors::default(),
            tracking: Tracking::default(),
            waiting: Waiting::default(),
            expiry_timers: ExpiryTimers::default(),
            delivery: Delivery::default(),
            started: Instant::now(),
            run_id,
            stats: inboxes.iter().map(|_| Arc::new(WorkerStats::new(commands))).collect(),
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

    /// The configuration as it is now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes whenever the configuration does.
    #[inline]
    pub fn config_generation(&self) -> u64 {
        // Acquire: pairs with the Release in `config_change`.
        self.config_generation.load(Ordering::Acquire)
    }

    /// Which events of keys are told.
    #[inline]
    pub fn notifications(&self) -> Classes {
        self.notifications.load(Ordering::Relaxed)
    }

    /// Whether anybody may want to know when keys expire, whichever.
    #[inline]
    pub fn follows_expiries(&self) -> bool {
        self.notifications() & EXPIRED != 0 || self.tracking.follows_prefixes()
    }

    /// Changes the configuration, or leaves it as it was when `change` gives an error.
    ///
    /// # Errors
    /// `change`'s.
    pub fn config_change<E>(&self, change: impl FnOnce(&mut Config) -> Result<(), E>) -> Result<(), E> {
        let mut current = self.config.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Config::clone(&current);
        change(&mut changed)?;
        // Relaxed: what runs at this moment may come before or after.
        self.notifications.store(changed.notify_keyspace_events, Ordering::Relaxed);
        if (changed.notify_keyspace_events ^ current.notify_keyspace_events) & EXPIRED != 0 {
            self.listen_to_store();
        }
        self.times.configure(&changed);
        *current = Arc::new(changed);
        self.config_generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// From now on keys that the store sweeps are told of by `listener`, while somebody wants to know.
    pub fn set_expired_listener(&self, listener: OnExpired) {
        // The first is the only one.
        let _ = self.on_expired.set(listener);
        self.listen_to_store();
    }

    /// Somebody else wants to know of keys that the store sweeps, or nobody any more.
    pub fn listen_to_store(&self) {
        // The last one to come sees what all others have changed.
        let _one = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.on_expired.get().filter(|_| self.follows_expiries());
        self.keyspace.store().set_on_expired(told.cloned());
    }

    /// Has another connection closed by its worker. Once this has returned, no further command of it begins. False
    /// when somebody else killed it before.
    pub fn kill(&self, client: &Client) -> bool {
        let first = client.kill();
        if first && let Some(inbox) = self.inboxes.get(client.worker) {
            inbox.kill(client.id);
        }
        first
    }

    /// Kills the clients with the largest buffers, whichever workers they belong to, until the rest is within
    /// `maxmemory-clients`. Gives how many.
    pub fn evict(&self, config: &Config) -> u64 {
        // One worker at a time: two would both see what is too much, and kill twice for it.
        let _alone = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut evicted = 0;
        while self.buffers.excess(config) > 0
            && let Some(client) = self.clients.largest()
        {
            evicted += u64::from(self.kill(&client));
            // Its worker frees them soon: nobody else is to go for them.
            self.buffers.charge(&client, 0);
        }
        evicted
    }

    /// Sums over all workers since the last CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        // The lock first: what is summed under it is not less than what was summed under it before.
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        self.totals_ever().since(&reset)
    }

    /// How long a command took since then, by its position in the table.
    pub fn histogram(&self, command: usize) -> HistogramSums {
        let reset = self.histograms_reset.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = self.histogram_ever(command);
        match reset.get(&command) {
            Some(base) => sums.since(base),
            None => sums,
        }
    }

    fn histogram_ever(&self, command: usize) -> HistogramSums {
        let mut sums = HistogramSums::default();
        for stats in &self.stats {
            stats.commands.get(command).iter().for_each(|counters| sums.add(&counters.times));
        }
        sums
    }

    /// SAVE has ended, at this time.
    pub fn note_saved(&self, seconds: u64) {
        self.saved_changes.store(self.changes(), Ordering::Relaxed);
        self.saved_at.store(seconds, Ordering::Relaxed);
    }

    fn changes(&self) -> u64 {
        self.stats.iter().map(|stats| stats.changes.get()).sum()
    }

    /// How many changes were made since SAVE, or the start.
    pub fn changes_since_save(&self) -> u64 {
        self.changes().saturating_sub(self.saved_changes.load(Ordering::Relaxed))
    }

    /// Keys that have expired, and that were evicted, of `stats`, since CONFIG RESETSTAT.
    pub fn removed(&self, stats: &duramen::Stats) -> (u64, u64) {
        let reset = self.removed_reset.lock().unwrap_or_else(PoisonError::into_inner);
        (stats.expired_keys.saturating_sub(reset.0), stats.evicted_keys.saturating_sub(reset.1))
    }

    /// The most that the store has used, of which it uses so much now.
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

    /// Notes the counters, about once in a second.
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

    /// Tells the operator in how many blocks the store is damaged: when the first is known, when all has been verified and there are more, and
    /// when all is whole again.
    pub fn log_damage(&self) {
        let stats = self.keyspace.store().stats();
        let (damaged, told) = (stats.damaged_blocks, self.damage_told.load(Ordering::Relaxed));
        if damaged == told || (damaged > 0 && told > 0 && stats.unverified_bytes > 0) {
            return;
        }
        self.damage_told.store(damaged, Ordering::Relaxed);
        match damaged {
            0 => log::notice("the store is not damaged any more: all that was has been written anew"),
            _ => log::warning(format_args!(
                "the store is damaged in {}, which it leaves as they are: a key whose record is damaged, or may be, answers -CORRUPT until it \
                 is set or deleted, all others are right. {}",
                blocks_text(damaged),
                self.damage_advice()
            )),
        }
    }

    /// Tells at a clean end what the next start will meet.
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
            "Look at the device (dmesg, SMART, ndctl list --media-errors); with the server stopped \"duramen check --path {}\" names the \
             places and keys, and --salvage NEW saves what is valid",
            self.config().path.display()
        )
    }

    /// Tells, once, that the store has failed: it takes no writes until it is opened again.
    pub fn log_failure(&self, error: &CommandError) {
        if !self.failure_told.swap(true, Ordering::Relaxed) {
            log::warning(format_args!(
                "the store has failed and takes no writes any more; reads go on: {}. Look at the kernel's log (dmesg) and the device, then \
                 start the server again",
                String::from_utf8_lossy(error.text())
            ));
        }
    }

    /// Whether writes may be refused for want of space: the store knows.
    #[inline]
    pub fn may_be_full(&self) -> bool {
        self.may_be_full.load(Ordering::Relaxed)
    }

    /// A write was refused for want of space, or may be from now on.
    pub fn note_full(&self) {
        self.may_be_full.store(true, Ordering::Relaxed);
    }

    /// Room was found.
    pub fn note_room(&self) {
        self.may_be_full.store(false, Ordering::Relaxed);
    }

    /// Notes that a write was refused for want of space, and tells so at most once in a minute.
    pub fn log_full(&self, error: &CommandError) {
        self.note_full();
        if self.full_told.is_due() {
            log::warning(format_args!(
                "writes are refused for want of space, deletes and reads go on: {}",
                String::from_utf8_lossy(error.text())
            ));
        }
    }

    /// Tells that a client was not let in, at most once in a minute.
    pub fn log_refused(&self, address: &str, reply: &[u8]) {
        if self.refused_told.is_due() {
            // The first sentence says it.
            let why = reply.split(|byte| matches!(byte, b'.' | b'\r')).next().unwrap_or_default();
            log::warning(format_args!("{address} was refused: {}", String::from_utf8_lossy(why)));
        }
    }

    /// Whether the store's file was deleted under the server, as of the last second.
    pub fn is_store_deleted(&self) -> bool {
        self.store_deleted.load(Ordering::Relaxed)
    }

    /// Looks whether the store's file is still there, and tells at once and then each minute when it is not.
    fn log_deleted(&self) {
        let deleted = self.keyspace.store().is_deleted();
        self.store_deleted.store(deleted, Ordering::Relaxed);
        if deleted && self.deleted_told.is_due() {
            let pid = std::process::id();
            log::warning(format_args!(
                "the store's file {} was deleted or moved: all keys are lost when this process ends, whatever SAVE says, unless the file has \
                 another name. Do not stop it. Move it back where it was moved; else have \
                 clients stop writing, then copy what it has open: \"cp --sparse=always /proc/{pid}/fd/$(cd /proc/{pid}/fd && find . -lname \
                 '*(deleted)' | head -1) NEW\", \"duramen check --path NEW\"; and start a server on NEW",
                self.config().path.display()
            ));
        }
    }

    /// How much there was per second between the last two samples.
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

    fn totals_ever(&self) -> Totals {
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

/// When something was told last that stays as it is.
#[derive(Default)]
struct Told(Mutex<Option<Instant>>);

impl Told {
    /// Whether it is to be told now: at once, and then each minute.
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

/// What the buffers of clients take together. Only large buffers are counted, so that no command of the usual kind
/// touches this line.
pub struct Buffers {
    bytes: AtomicI64,
    machine_bytes: u64,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { bytes: AtomicI64::new(0), machine_bytes: crate::process::read().system_bytes }
    }
}

impl Buffers {
    /// Counts `bytes` for a client. True when that is more than before.
    pub fn charge(&self, client: &Client, bytes: u64) -> bool {
        // Relaxed: sums that publish nothing. The swap, since whoever kills the client takes it from the sum too.
        if client.charged.load(Ordering::Relaxed) == bytes {
            return false;
        }
        let before = client.charged.swap(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as i64 - before as i64, Ordering::Relaxed);
        bytes > before
    }

    /// How much they are beyond `maxmemory-clients`.
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
    /// Commands wait until then, all of them or those that write.
    pub fn begin(&self, now: u64, until: u64, all: bool) {
        let joined = |before: u64| match before >> 1 > now {
            // As in the reference, what is shorter, or of fewer commands, changes nothing.
            true => Some((before >> 1).max(until.min(u64::MAX >> 1)) << 1 | before & 1 | u64::from(all)),
            false => Some(until.min(u64::MAX >> 1) << 1 | u64::from(all)),
        };
        // Relaxed, here and below: a command that runs at this moment may come before.
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, joined);
    }

    /// They go on.
    pub fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }

    /// Whether there may be a pause: quick to ask.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Whether keys stay at `now`, though their time has come: nothing is to change.
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

/// Ends the server: from a signal, from SHUTDOWN, or from whoever started it.
pub struct Stop {
    requested: AtomicBool,
    acceptor: mio::Waker,
}

impl Stop {
    /// One that wakes the thread that accepts connections.
    pub const fn new(acceptor: mio::Waker) -> Self {
        Self { requested: AtomicBool::new(false), acceptor }
    }

    /// Asks the server to finish its commands and end.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        // If the acceptor cannot be woken it is on its way out already.
        let _ = self.acceptor.wake();
    }

    /// Whether the server has been asked to end.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}
