//! All users.

use super::commands::Commands;
use super::failures::Failures;
use super::file;
use super::log::{Entry, Log};
use super::password::Hash;
use super::selector::has_blanks;
use super::user::{Rules, User, merge_selectors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The user of connections that have not logged in.
pub const DEFAULT: &[u8] = b"default";

const DUPLICATE: &str = "Duplicate user found. A user can only be defined once in config files";
const TWO_SOURCES: &str =
    "there are users in the configuration and an aclfile: define them in one of the two places";

/// Where the users of a start come from.
#[derive(Default)]
pub struct Source<'a> {
    /// `requirepass`.
    pub password: &'a str,
    /// The directives `user`, each with the name first.
    pub users: &'a [Vec<String>],
    /// `aclfile`.
    pub file: Option<PathBuf>,
    /// `acl-pubsub-default allchannels`.
    pub all_channels: bool,
}

/// A change of a user's rules.
pub struct Changed {
    /// The user.
    pub user: Arc<User>,
    /// Its rules before; `None`: it is new.
    pub before: Option<Arc<Rules>>,
}

/// What every command reads: on cache lines that nothing else writes.
#[repr(align(128))]
struct State {
    // Counts changes of rules, so that connections see without a lock that nothing changed.
    generation: AtomicU64,
    // The default user needs no password.
    is_open: AtomicBool,
}

impl State {
    const fn new(is_open: bool) -> Self {
        Self { generation: AtomicU64::new(1), is_open: AtomicBool::new(is_open) }
    }
}

/// See the module.
pub struct Users {
    commands: Commands,
    file: Option<PathBuf>,
    default: Arc<User>,
    by_name: Mutex<BTreeMap<Box<[u8]>, Arc<User>>>,
    state: State,
    log: Mutex<Log>,
    /// Failed logins.
    pub failures: Failures,
}

impl Users {
    /// The users of a start.
    ///
    /// # Errors
    /// What is wrong with the directives or the file.
    pub fn new(commands: Commands, source: Source<'_>) -> Result<Self, String> {
        let Source { password, users, file, all_channels } = source;
        if file.is_some() && !users.is_empty() {
            return Err(TWO_SOURCES.to_owned());
        }
        let default = Arc::new(User::new(DEFAULT, Rules::of_default(&commands, password.as_bytes())));
        let all = Self {
            commands,
            file,
            by_name: Mutex::new(BTreeMap::from([(DEFAULT.into(), Arc::clone(&default))])),
            default,
            state: State::new(password.is_empty()),
            log: Mutex::default(),
            failures: Failures::default(),
        };
        for (at, line) in users.iter().enumerate() {
            let [name, words @ ..] = line.as_slice() else { continue };
            if users[..at].iter().any(|other| other.first() == Some(name)) {
                return Err(format!("user {name}: {DUPLICATE}"));
            }
            if has_blanks(name.as_bytes()) {
                return Err(format!("user '{name}': Spaces not allowed in ACL usernames"));
            }
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            let mut rules = Rules::new(&all.commands, all_channels);
            all.set_rules(&mut rules, &words, all_channels)
                .map_err(|why| format!("user {name}: {}", String::from_utf8_lossy(&why)))?;
            let mut by_name = all.lock();
            all.put(&mut by_name, name.as_bytes(), rules);
        }
        if all.file.is_some() {
            all.load(password, all_channels)?;
        }
        Ok(all)
    }

    /// Users of which only the default one is there, without a password, and no commands: where no client comes.
    pub fn nobody() -> Self {
        let commands = Commands::default();
        let default = Arc::new(User::new(DEFAULT, Rules::of_default(&commands, b"")));
        Self {
            commands,
            file: None,
            by_name: Mutex::default(),
            default,
            state: State::new(true),
            log: Mutex::default(),
            failures: Failures::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, Arc<User>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of commands.
    pub const fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Changes with every change of a user.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `announce`.
        self.state.generation.load(Ordering::Acquire)
    }

    /// Whether the default user needs no password.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state.is_open.load(Ordering::Acquire)
    }

    /// The default user.
    pub const fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// The user of this name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.lock().get(name).cloned()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// All users, by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.lock().values().cloned().collect()
    }

    /// After rules have changed.
    fn announce(&self) {
        self.state.is_open.store(self.default.rules().is_open(), Ordering::Release);
        // Release: whoever sees it reads the new rules.
        self.state.generation.fetch_add(1, Ordering::Release);
    }

    fn put(&self, by_name: &mut BTreeMap<Box<[u8]>, Arc<User>>, name: &[u8], rules: Rules) -> Arc<User> {
        let user = match by_name.get(name) {
            Some(user) => {
                user.replace(rules);
                Arc::clone(user)
            }
            None => {
                let user = Arc::new(User::new(name, rules));
                by_name.insert(name.into(), Arc::clone(&user));
                user
            }
        };
        self.announce();
        user
    }

    fn set_rules(&self, rules: &mut Rules, words: &[&[u8]], all_channels: bool) -> Result<(), Vec<u8>> {
        let words = merge_selectors(words).map_err(|open| {
            [b"Unmatched parenthesis in acl selector starting at '", &*open, b"'."].concat()
        })?;
        rules.set_all(&self.commands, &words, all_channels).map_err(|bad| {
            let shown = bad.word.split(|byte| *byte == 0).next().unwrap_or_default();
            [b"Error in ACL SETUSER modifier '", shown, b"': ", bad.why.text().as_bytes()].concat()
        })
    }

    /// ACL SETUSER: makes a user, or changes it, by all words or by none.
    ///
    /// # Errors
    /// Redis's text.
    pub fn set(&self, name: &[u8], words: &[&[u8]], all_channels: bool) -> Result<Changed, Vec<u8>> {
        if has_blanks(name) {
            return Err(b"Usernames can't contain spaces or null characters".to_vec());
        }
        let mut by_name = self.lock();
        let before = by_name.get(name).map(|user| user.rules());
        let mut rules = match &before {
            Some(rules) => Rules::clone(rules),
            None => Rules::new(&self.commands, all_channels),
        };
        self.set_rules(&mut rules, words, all_channels)?;
        Ok(Changed { user: self.put(&mut by_name, name, rules), before })
    }

    /// ACL DELUSER, not of the default user: returns the users that were there.
    pub fn delete(&self, names: &[&[u8]]) -> Vec<Arc<User>> {
        let mut by_name = self.lock();
        let deleted: Vec<_> = names.iter().filter_map(|name| by_name.remove(*name)).collect();
        deleted.iter().for_each(|user| user.delete());
        self.announce();
        deleted
    }

    /// `requirepass` was changed.
    pub fn set_default_password(&self, password: &str) {
        let _alone = self.lock();
        let mut rules = Rules::clone(&self.default.rules());
        rules.set_password(password.as_bytes());
        self.default.replace(rules);
        self.announce();
    }

    /// The user of this name, if it may log in with this password. The time does not depend on whether there is such a user,
    /// nor on how much of the password is right.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let hash = Hash::of(password);
        let found = self.find(name);
        let user = found.as_ref().unwrap_or(&self.default);
        let rules = user.rules();
        let is_right = rules.has_password(&hash) & rules.is_on();
        found.filter(|_| is_right)
    }

    /// The path of the ACL file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// ACL LOAD: reads the file again, all of it or nothing. Returns the users before, whose clients are to be closed. The
    /// default user stays the same one; without a line of its own it has the built-in rules, with `password`.
    ///
    /// # Errors
    /// Redis's text.
    pub fn load(&self, password: &str, all_channels: bool) -> Result<Vec<Arc<User>>, String> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let path = file.display().to_string();
        let text = std::fs::read(file)
            .map_err(|error| format!("Error loading ACLs, opening file '{path}': {error}"))?;
        let mut read = file::parse(&text, &path, &self.commands, all_channels)?;
        let default =
            read.remove(DEFAULT).unwrap_or_else(|| Rules::of_default(&self.commands, password.as_bytes()));
        let mut by_name = self.lock();
        let before = std::mem::take(&mut *by_name);
        self.default.replace(default);
        by_name.insert(DEFAULT.into(), Arc::clone(&self.default));
        for (name, rules) in read {
            by_name.insert(name.clone(), Arc::new(User::new(&name, rules)));
        }
        let before: Vec<_> = before.into_values().filter(|user| !Arc::ptr_eq(user, &self.default)).collect();
        before.iter().for_each(|user| user.delete());
        self.announce();
        Ok(before)
    }

    /// ACL SAVE. Durable when it returns.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // Locked: of two saves the later one wins, with the later users.
        let by_name = self.lock();
        let lines = by_name.values().flat_map(|user| [user.describe(), b"\n".to_vec()]);
        file::save(file, &lines.collect::<Vec<_>>().concat())
    }

    /// The lines `user` for the configuration file, in words; none where users are in a file of their own. The default user is
    /// left out while it is as `requirepass` alone makes it.
    pub fn directives(&self, password: &str) -> Vec<Vec<u8>> {
        if self.file.is_some() {
            return Vec::new();
        }
        let built_in = Rules::of_default(&self.commands, password.as_bytes()).describe();
        let is_written =
            |user: &Arc<User>| !Arc::ptr_eq(user, &self.default) || user.rules().describe() != built_in;
        self.all().iter().filter(|user| is_written(user)).map(|user| user.describe()).collect()
    }

    /// Notes an event in ACL LOG.
    pub fn note(&self, event: Entry, most: usize) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).note(event, most);
    }

    /// The newest entries of ACL LOG.
    pub fn logged(&self, count: usize) -> Vec<Entry> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).newest(count)
    }

    /// ACL LOG RESET.
    pub fn clear_log(&self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
