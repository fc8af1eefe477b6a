//! The texts of scripts, by their digests.
//!
//! A script that SCRIPT LOAD brought stays until SCRIPT FLUSH. Of those that only EVAL brought, the last
//! [`EVALUATED_MAX`] that were used stay. So clients that put values into the text take bounded memory.

use duramen_lua::Header;
use sha1_smol::Sha1;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// As many as Redis 7.4 keeps.
const EVALUATED_MAX: usize = 500;

/// A SHA-1 in lower-case hexadecimal digits.
pub type Digest = [u8; 40];

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its digest.
    pub digest: Digest,
    /// All of it.
    pub text: Box<[u8]>,
    /// Its first line.
    pub header: Header,
    /// It works on keys that no arguments name, so it begins alone.
    pub is_alone: AtomicBool,
    // SCRIPT LOAD brought it.
    is_loaded: AtomicBool,
    // It ran since it was looked at last.
    is_used: AtomicBool,
}

impl Script {
    /// Notes that it runs.
    pub fn note_use(&self) {
        // A line that all workers read: written only when it changes.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }
}

/// All texts.
#[derive(Default)]
pub struct Scripts {
    texts: RwLock<Texts>,
    // Changes with SCRIPT FLUSH: workers then drop what they compiled.
    generation: AtomicU64,
    // Some script is alone.
    any_alone: AtomicBool,
}

#[derive(Default)]
struct Texts {
    by_digest: HashMap<Digest, Arc<Script>>,
    // Those that EVAL brought, in the order in which they are looked at.
    evaluated: VecDeque<Arc<Script>>,
    bytes: usize,
}

impl Scripts {
    /// The script with this digest.
    pub fn find(&self, digest: &Digest) -> Option<Arc<Script>> {
        self.read(|texts| texts.by_digest.get(digest).cloned())
    }

    /// Adds a script that compiles, and gives the one that is there now.
    pub fn add(&self, digest: Digest, text: &[u8], header: Header, is_loaded: bool) -> Arc<Script> {
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = texts.by_digest.get(&digest) {
            if is_loaded {
                known.is_loaded.store(true, Ordering::Relaxed);
            }
            return Arc::clone(known);
        }
        let script = Arc::new(Script {
            digest,
            text: text.into(),
            header,
            is_alone: AtomicBool::new(false),
            is_loaded: AtomicBool::new(is_loaded),
            is_used: AtomicBool::new(false),
        });
        texts.bytes += bytes_of(&script);
        texts.by_digest.insert(digest, Arc::clone(&script));
        if !is_loaded {
            texts.evaluated.push_back(Arc::clone(&script));
            texts.drop_unused();
        }
        script
    }

    /// Drops all.
    pub fn flush(&self) {
        *self.texts.write().unwrap_or_else(PoisonError::into_inner) = Texts::default();
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes with each [`flush`](Self::flush).
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The script works on keys that no arguments name.
    pub fn note_alone(&self, script: &Script) {
        script.is_alone.store(true, Ordering::Relaxed);
        self.any_alone.store(true, Ordering::Relaxed);
    }

    /// Whether a script with this digest is to begin alone.
    pub fn begins_alone(&self, digest: impl FnOnce() -> Option<Digest>) -> bool {
        self.any_alone.load(Ordering::Relaxed)
            && digest()
                .and_then(|digest| self.find(&digest))
                .is_some_and(|script| script.is_alone.load(Ordering::Relaxed))
    }

    /// How many there are, and the memory that they take.
    pub fn count(&self) -> (usize, usize) {
        self.read(|texts| (texts.by_digest.len(), texts.bytes))
    }

    fn read<T>(&self, work: impl FnOnce(&Texts) -> T) -> T {
        work(&self.texts.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Texts {
    /// Drops the first that did not run since they were looked at last, until there are few enough.
    fn drop_unused(&mut self) {
        while self.evaluated.len() > EVALUATED_MAX
            && let Some(script) = self.evaluated.pop_front()
        {
            if script.is_loaded.load(Ordering::Relaxed) {
                continue;
            }
            if script.is_used.swap(false, Ordering::Relaxed) {
                self.evaluated.push_back(script);
                continue;
            }
            self.bytes -= bytes_of(&script);
            self.by_digest.remove(&script.digest);
        }
    }
}

fn bytes_of(script: &Script) -> usize {
    script.text.len() + size_of::<Script>() + size_of::<(Digest, Arc<Script>)>()
}

/// The digest of a script's text.
pub fn digest_of_text(text: &[u8]) -> Digest {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut sum = Sha1::new();
    sum.update(text);
    let mut digest = [0; 40];
    for (pair, byte) in digest.chunks_exact_mut(2).zip(sum.digest().bytes()) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digest
}

/// The digest that an argument spells, in any case.
pub fn digest_of(argument: &[u8]) -> Option<Digest> {
    let mut digest: Digest = argument.try_into().ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen_lua::script_header;

    fn add(scripts: &Scripts, text: &str, is_loaded: bool) -> Arc<Script> {
        let header = script_header(text.as_bytes()).unwrap();
        scripts.add(digest_of_text(text.as_bytes()), text.as_bytes(), header, is_loaded)
    }

    #[test]
    fn a_digest_is_found_in_any_case() {
        let digest = digest_of_text(b"return 1");
        assert_eq!(&digest, b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(digest_of(b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB"), Some(digest));
        assert_eq!(digest_of(b"e0e1"), None);
    }

    #[test]
    fn scripts_of_eval_are_dropped_if_they_do_not_run_and_loaded_ones_are_not() {
        let scripts = Scripts::default();
        let loaded = add(&scripts, "return 'loaded'", true);
        let used = add(&scripts, "return 'used'", false);
        let later_loaded = add(&scripts, "return 'later'", false);
        assert!(Arc::ptr_eq(&later_loaded, &add(&scripts, "return 'later'", true)));
        for number in 0..10_000 {
            used.note_use();
            add(&scripts, &format!("return {number}"), false);
        }
        let (count, bytes) = scripts.count();
        assert!(count <= EVALUATED_MAX + 2 && bytes < 300 * count, "{count} scripts, {bytes} bytes");
        for kept in [loaded, used, later_loaded] {
            assert!(scripts.find(&kept.digest).is_some());
        }
        assert!(scripts.find(&digest_of_text(b"return 1")).is_none());
        scripts.flush();
        assert_eq!(scripts.count(), (0, 0));
        assert_eq!(scripts.generation(), 1);
    }

    #[test]
    fn a_script_that_is_alone_is_remembered() {
        let scripts = Scripts::default();
        let script = add(&scripts, "return 1", false);
        assert!(!scripts.begins_alone(|| Some(script.digest)));
        scripts.note_alone(&script);
        assert!(scripts.begins_alone(|| Some(script.digest)));
        assert!(!scripts.begins_alone(|| Some(digest_of_text(b""))) && !scripts.begins_alone(|| None));
    }
}
