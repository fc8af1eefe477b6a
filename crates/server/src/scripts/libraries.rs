//! Libraries of functions.
//!
//! The store has the codes of all libraries as one value ([`Txn::libraries`](duramen_structures::Txn::libraries)), which
//! is their only truth. A worker loads them into an interpreter of its own, and again when the value has changed: a
//! number that grows with each change tells. So what a library keeps in variables of its own is each worker's.

use super::compiled::options;
use crate::observe::log;
use duramen_lua::{Function, Interpreter, Registered, ScriptFlags, is_name, library_header};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The longest that a library may take to register its functions, as in Redis.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);
const NAME_FORM: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character \
     long";

/// What all workers know of the libraries.
#[derive(Default)]
pub struct Known {
    // Grows with each change that is committed.
    changes: AtomicU64,
    libraries: AtomicUsize,
    functions: AtomicUsize,
    // The functions that say that they only read, as of the last change that some worker has made or loaded.
    readers: RwLock<Readers>,
}

/// The names of functions that only read, in small letters.
pub type Readers = HashSet<Vec<u8>>;

impl Known {
    /// Grows with each change that is committed.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A change is committed.
    pub fn note_change(&self, readers: Readers) {
        let mut own = self.readers.write().unwrap_or_else(PoisonError::into_inner);
        *own = readers;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether the function with this name in any case says that it only reads. False if that is not known.
    pub fn only_reads(&self, name: &[u8]) -> bool {
        let readers = self.readers.read().unwrap_or_else(PoisonError::into_inner);
        readers.contains(&name.to_ascii_lowercase())
    }

    /// Libraries were loaded, as of this change.
    fn note_loaded(&self, changes: u64, readers: Readers) {
        let mut own = self.readers.write().unwrap_or_else(PoisonError::into_inner);
        if self.changes() == changes {
            *own = readers;
        }
    }

    /// How many libraries there are, and how many functions, as the last worker that loaded them found.
    pub fn counts(&self) -> (usize, usize) {
        (self.libraries.load(Ordering::Relaxed), self.functions.load(Ordering::Relaxed))
    }
}

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Its name.
    pub name: Vec<u8>,
    /// All of it, with its first line.
    pub code: Vec<u8>,
    /// Its functions.
    pub functions: Vec<(Registered, Function)>,
}

/// The libraries that a worker has loaded.
#[derive(Default)]
pub struct Libraries {
    lua: Option<Interpreter>,
    all: Vec<Library>,
    by_function: HashMap<Vec<u8>, (usize, usize)>,
    // Of which change they are; `None`: load them again.
    changes: Option<u64>,
}

/// Why a library is refused: Redis's text, without a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub Vec<u8>);

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Libraries {
    /// Whether they are of this change.
    #[inline]
    pub fn are_of(&self, changes: u64) -> bool {
        self.changes == Some(changes)
    }

    /// Loads others instead. `changes`: `None` where they are not committed yet.
    pub fn load(&mut self, codes: Vec<Vec<u8>>, changes: Option<u64>, version: &'static str, known: &Known) {
        *self = Self { changes, ..Self::default() };
        for code in codes {
            if let Err(Refused(why)) = self.add(code, version) {
                let why = String::from_utf8_lossy(&why);
                log::warning(format_args!("a library of functions cannot be loaded: {why}"));
            }
        }
        self.all.sort_by(|one, other| one.name.cmp(&other.name));
        self.by_function.clear();
        for (at, library) in self.all.iter().enumerate() {
            for (place, (function, _)) in library.functions.iter().enumerate() {
                self.by_function.insert(function.name.to_ascii_lowercase(), (at, place));
            }
        }
        known.libraries.store(self.all.len(), Ordering::Relaxed);
        known.functions.store(self.by_function.len(), Ordering::Relaxed);
        if let Some(changes) = changes {
            known.note_loaded(changes, readers(&self.all));
        }
    }

    fn add(&mut self, code: Vec<u8>, version: &'static str) -> Result<(), Refused> {
        let (name, start) = header(&code)?;
        let lua = match &mut self.lua {
            Some(lua) => lua,
            none => none.insert(Interpreter::new(options(version, true)).ok_or_else(no_memory)?),
        };
        let functions = lua.load(&code[start..], LOAD_TIME_MAX).map_err(Refused)?;
        self.all.push(Library { name, code, functions });
        Ok(())
    }

    /// All, by name.
    pub fn all(&self) -> &[Library] {
        &self.all
    }

    /// Adds libraries to these, and gives all; an existing one with the same name is replaced or refuses the
    /// new one.
    ///
    /// # Errors
    /// Redis's.
    pub fn with<'l>(&'l self, new: &'l [(Library, bool)], words: Words) -> Result<Vec<&'l Library>, Refused> {
        let is_replaced = |library: &Library| new.iter().any(|(other, _)| other.name == library.name);
        for (library, replaces) in new {
            if !replaces && self.all.iter().any(|other| other.name == library.name) {
                let name = String::from_utf8_lossy(&library.name);
                return Err(match words {
                    Words::Load => format!("Library '{name}' already exists"),
                    Words::Restore => format!("Library {name} already exists"),
                }
                .into());
            }
        }
        let kept: Vec<&Library> = self.all.iter().filter(|library| !is_replaced(library)).collect();
        // Two of one library may differ in case alone, as in Redis.
        let mut names: HashSet<Vec<u8>> = kept.iter().flat_map(|library| names_of(library)).collect();
        for (library, _) in new {
            if let Some(name) = names_of(library).find(|name| names.contains(name)) {
                let name =
                    library.functions.iter().find(|(function, _)| function.name.eq_ignore_ascii_case(&name));
                let name = name.map_or_else(Vec::new, |(function, _)| function.name.clone());
                let name = String::from_utf8_lossy(&name);
                return Err(format!("Function {name} already exists").into());
            }
            names.extend(names_of(library));
        }
        Ok(kept.into_iter().chain(new.iter().map(|(library, _)| library)).collect())
    }

    /// The function with this name in any case, and the interpreter that runs it.
    pub fn function(&mut self, name: &[u8]) -> Option<(&Registered, &Function, &mut Interpreter)> {
        let (library, place) = *self.by_function.get(&name.to_ascii_lowercase())?;
        let (registered, function) = self.all.get(library)?.functions.get(place)?;
        Some((registered, function, self.lua.as_mut()?))
    }
}

/// Whose words an error has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// FUNCTION LOAD's.
    Load,
    /// FUNCTION RESTORE's.
    Restore,
}

/// The functions that say that they only read.
pub fn readers<'l>(libraries: impl IntoIterator<Item = &'l Library>) -> Readers {
    let functions = libraries.into_iter().flat_map(|library| &library.functions);
    let reading = functions.filter(|(function, _)| function.flags.has(ScriptFlags::NO_WRITES));
    reading.map(|(function, _)| function.name.to_ascii_lowercase()).collect()
}

/// The names of its functions, which are found in any case.
fn names_of(library: &Library) -> impl Iterator<Item = Vec<u8>> {
    library.functions.iter().map(|(function, _)| function.name.to_ascii_lowercase())
}

fn no_memory() -> Refused {
    Refused(b"not enough memory".to_vec())
}

/// The name of a library, and where its code begins.
fn header(code: &[u8]) -> Result<(Vec<u8>, usize), Refused> {
    let (engine, name, start) = library_header(code)?;
    if !is_name(&name) {
        return Err(NAME_FORM.to_owned().into());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("Engine '{}' not found", String::from_utf8_lossy(&engine)).into());
    }
    Ok((name, start))
}

/// Loads a library in an interpreter of its own, to see whether it can be loaded. Its functions cannot be run.
///
/// # Errors
/// Redis's.
pub fn check(
    code: &[u8],
    version: &'static str,
    exists: impl FnOnce(&[u8]) -> bool,
) -> Result<Library, Refused> {
    let (name, start) = header(code)?;
    if exists(&name) {
        return Err(format!("Library '{}' already exists", String::from_utf8_lossy(&name)).into());
    }
    let mut lua = Interpreter::new(options(version, true)).ok_or_else(no_memory)?;
    let functions = lua.load(&code[start..], LOAD_TIME_MAX).map_err(Refused)?;
    if functions.is_empty() {
        return Err("No functions registered".to_owned().into());
    }
    Ok(Library { name, code: code.to_vec(), functions })
}
