//! A worker's interpreters, and the scripts that it has compiled.
//!
//! A worker keeps its last [`COMPILED_MAX`] scripts compiled. SCRIPT FLUSH drops the interpreter with all of them, as in
//! Redis.

use super::texts::{Digest, Script, Scripts};
use duramen_lua::{Function, Interpreter, Options};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// As many as scripts of EVAL that keep their texts.
const COMPILED_MAX: usize = 500;
/// The most memory of one interpreter: far beyond what scripts take that end, and short of what ends the server.
const BYTES_MAX: usize = 1 << 30;

/// A worker's interpreters, made when they are needed.
#[derive(Default)]
pub struct Interpreters {
    scripts: Option<Interpreter>,
    compiled: HashMap<Digest, Compiled, BuildHasherDefault<DigestHasher>>,
    generation: u64,
    // Counts uses.
    clock: u64,
}

/// Hashes a digest by some of its digits. Whoever looks for scripts of the same hash finds at most `COMPILED_MAX` that
/// are compared.
#[derive(Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The length, before the digits, is that of all.
        if let Some((first, rest)) = bytes.split_first_chunk::<8>()
            && let Some(second) = rest.first_chunk::<8>()
        {
            // Odd, so that no digit is lost; a digit's bits that differ are low ones of its byte.
            const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
            let mixed = u64::from_le_bytes(*first).wrapping_mul(SPREAD) ^ u64::from_le_bytes(*second);
            self.0 = mixed.wrapping_mul(SPREAD).rotate_left(32);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A script that is ready to run.
#[derive(Debug)]
pub struct Compiled {
    /// Its text.
    pub script: Arc<Script>,
    /// What runs.
    pub function: Function,
    // When it was used last.
    used: u64,
}

/// Options of all interpreters.
pub fn options(version: &'static str, is_for_functions: bool) -> Options {
    let number = version.split('.').fold(0, |number, part| number << 8 | part.parse().unwrap_or(0));
    Options { bytes_max: BYTES_MAX, version, version_number: number, is_for_functions }
}

impl Interpreters {
    /// The compiled script with this digest, and the interpreter that runs it; `None`: it is not compiled here.
    pub fn find(&mut self, scripts: &Scripts, digest: &Digest) -> Option<(&Compiled, &mut Interpreter)> {
        self.look_at_generation(scripts);
        self.clock += 1;
        let Self { scripts, compiled, clock, .. } = self;
        let found = compiled.get_mut(digest)?;
        found.used = *clock;
        Some((found, scripts.as_mut()?))
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// Lua's text.
    pub fn compile(&mut self, code: &[u8], version: &'static str) -> Result<Function, Vec<u8>> {
        let lua = match &mut self.scripts {
            Some(lua) => lua,
            none => match Interpreter::new(options(version, false)) {
                Some(lua) => none.insert(lua),
                None => return Err(b"not enough memory".to_vec()),
            },
        };
        lua.compile(code, c"@user_script")
    }

    /// Keeps a compiled script, and forgets the one that was not used for longest if there are too many.
    pub fn keep(&mut self, script: Arc<Script>, function: Function) {
        if self.compiled.len() >= COMPILED_MAX
            && let Some(oldest) = self.compiled.values().min_by_key(|compiled| compiled.used)
        {
            let digest = oldest.script.digest;
            self.forget(&digest);
        }
        let digest = script.digest;
        self.forget(&digest);
        self.compiled.insert(digest, Compiled { script, function, used: self.clock });
    }

    /// Drops a function that is not kept.
    pub fn drop_function(&mut self, function: Function) {
        if let Some(lua) = &mut self.scripts {
            lua.forget(function);
        }
    }

    fn forget(&mut self, digest: &Digest) {
        if let Some(Compiled { function, .. }) = self.compiled.remove(digest) {
            self.drop_function(function);
        }
    }

    /// Begins again after SCRIPT FLUSH.
    pub fn look_at_generation(&mut self, scripts: &Scripts) {
        let generation = scripts.generation();
        if self.generation != generation {
            self.compiled.clear();
            self.scripts = None;
            self.generation = generation;
        }
    }

    /// Memory of the interpreters.
    pub fn bytes(&self) -> usize {
        self.scripts.as_ref().map_or(0, Interpreter::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::digest_of_text;

    #[test]
    fn thousands_of_scripts_keep_bounded_memory_and_flush_drops_them() {
        let (mut own, scripts) = (Interpreters::default(), Scripts::default());
        let mut first = None;
        for number in 0..10_000 {
            let text = format!("return {number}");
            let digest = digest_of_text(text.as_bytes());
            assert!(own.find(&scripts, &digest).is_none());
            let function = own.compile(text.as_bytes(), "7.2.4").unwrap();
            let header = duramen_lua::script_header(text.as_bytes()).unwrap();
            own.keep(scripts.add(digest, text.as_bytes(), header, false), function);
            assert!(own.find(&scripts, &digest).is_some());
            if let Some(first) = first {
                // Whatever is used stays.
                assert!(own.find(&scripts, &first).is_some());
            }
            first.get_or_insert(digest);
        }
        assert_eq!(own.compiled.len(), COMPILED_MAX);
        assert!(own.bytes() < 4 << 20, "{} bytes", own.bytes());
        scripts.flush();
        assert!(own.find(&scripts, &first.unwrap()).is_none() && own.bytes() == 0);
    }

    #[test]
    fn the_version_s_number_has_a_byte_for_each_part() {
        assert_eq!(options("7.2.4", false).version_number, 0x0007_0204);
    }
}
