//! The persistent skip list of `duramen-hyperkv`: log, nodes and values in one mapped file.

use crate::engine::Directory;
use duramen_bench::kv::{Engine, FlushInstruction, Result, Session};
use duramen_hyperkv::{Options, Store};
use duramen_media::{Create, Mapped, MediaOptions, Medium};
use std::path::Path;

fn failed<T>(result: duramen_hyperkv::Result<T>) -> Result<T> {
    crate::engine::failed("hyperkv", result)
}

/// The medium at `path`, as Duramen opens one.
pub fn medium(path: &Path, create: Create, flush_instruction: Option<FlushInstruction>) -> Result<Mapped> {
    failed(Mapped::open(path, &MediaOptions { create, flush_instruction, ..MediaOptions::default() }))
}

/// An open store.
pub struct Hyper<M: Medium> {
    store: Store<M>,
}

impl<M: Medium> Hyper<M> {
    /// Opens the store on `medium`, or makes one.
    pub fn open(medium: M, options: &Options) -> Result<Self> {
        Ok(Self { store: failed(Store::open(medium, options))? })
    }

    /// The store.
    pub fn store(&self) -> &Store<M> {
        &self.store
    }

    /// Replaces the cache of direct references with an empty one.
    pub fn set_cache_slots(&mut self, slots: usize) {
        self.store.set_cache_slots(slots);
    }
}

impl<M: Medium> Engine for Hyper<M> {
    type Session<'a> = HyperSession<'a, M>;

    fn session(&self) -> Result<HyperSession<'_, M>> {
        Ok(HyperSession(failed(self.store.session())?))
    }
}

/// One thread's session.
pub struct HyperSession<'a, M: Medium>(duramen_hyperkv::Session<'a, M>);

impl<M: Medium> Session for HyperSession<'_, M> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        failed(self.0.put(key, value))
    }

    #[inline]
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        Ok(self.0.get(key, into))
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.delete(key))
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        Ok(self.0.scan(key, count, visit))
    }
}

/// A store in its own directory, removed with it.
pub struct Placed {
    hyper: Hyper<Mapped>,
    /// Removed after the store is closed.
    pub directory: Directory,
}

impl Placed {
    /// Makes a store.
    pub fn make(path: &Path, options: &Options, flush_instruction: Option<FlushInstruction>) -> Result<Self> {
        let directory = Directory::new(path)?;
        let medium = medium(&directory.path().join("hyperkv"), Create::CreateNew, flush_instruction)?;
        Ok(Self { hyper: Hyper::open(medium, options)?, directory })
    }

    /// The store.
    pub fn store(&self) -> &Store<Mapped> {
        self.hyper.store()
    }
}

impl Engine for Placed {
    type Session<'a> = HyperSession<'a, Mapped>;

    fn session(&self) -> Result<HyperSession<'_, Mapped>> {
        self.hyper.session()
    }
}
