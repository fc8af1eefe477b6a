//! Space that the store does not need, given back to the file system.
//!
//! Free extents that adjoin become one block, of state *given back*: sealed at its beginning, so that it holds no
//! records. All of it but the page of its header is then a hole in the file (in memory: has no pages). Growth takes such
//! blocks back before it makes the file longer. For the reserve and for limits they are no part of the store.
//!
//! *Give back*, of extents that were taken from the free ones:
//!
//! 1. Publish the header of the block, sealed in a committed epoch, and sync it. A crash before this is durable leaves
//!    the extents free, each with its header; after it a block without records. Recovery keeps such a block of several
//!    extents as given back if it has no space, and frees it otherwise: if the next step was not done, or done in part.
//! 2. Punch the hole. The headers of the inner extents go with it; nothing reaches them any more.
//!
//! *Take back*:
//!
//! 1. Give the hole space. It may fail: then the block stays as it is.
//! 2. Free the block as any other ([`free_blocks`]): "free" is published for all its extents, then each gets its header,
//!    then the first has the length one. A crash in between leaves a free block of several extents, which recovery
//!    divides.
//!
//! Invariants:
//! 1. Nothing is loaded from or stored to a block given back, but its header. (The simulated medium checks it.)
//! 2. The space that the reserve needs is never given back ([`Space::surplus`]).
//! 3. A block is given back and taken back under the lock of growth.

use crate::Log;
use crate::Result;
use crate::format::{Extent, block};
use crate::space::free_blocks;
use duramen_media::{ErrorKind, Medium, PAGE_BYTES};

impl<M: Medium> Log<M> {
    /// Gives runs of extents back, which the caller took from the free ones.
    ///
    /// # Errors
    /// A failed sync, which poisons the store.
    pub fn give_back(&self, runs: &[(Extent, u32)]) -> Result<()> {
        let mut headers = Vec::with_capacity(runs.len());
        for &(extent, extents) in runs {
            let (generation, at) = (self.space().generation(), self.offset_of(extent));
            let fresh = block::Header::fresh(self.blocks.secret(), 1);
            let header = self.header_of(extent).unwrap_or(fresh).opened(extents, generation);
            header.publish_fresh(&self.medium, extent, at);
            // Of a committed epoch: no record of the block can be missing.
            header.publish_seal(&self.medium, at, block::HEADER_BYTES, self.epochs().committed());
            headers.push(generation);
        }
        self.sync_or_poison()?;
        for (&(extent, extents), generation) in runs.iter().zip(headers) {
            self.blocks.give_back(extent, extents, generation);
            let bytes = u64::from(extents) * self.extent_bytes;
            if bytes > PAGE_BYTES {
                self.medium.give_back(self.offset_of(extent).plus(PAGE_BYTES), bytes - PAGE_BYTES);
            }
            self.space().note_given_back(extent, extents);
        }
        Ok(())
    }

    /// Takes at least `least` extents back that were given back, if that many were; returns whether it took any.
    ///
    /// # Errors
    /// A failed sync, which poisons the store.
    pub fn take_back(&self, least: u32) -> Result<bool> {
        let mut taken = 0;
        while taken < least {
            let Some((extent, extents)) = self.space().first_given_back() else { break };
            // A limit leaves no room for a whole piece.
            if least < extents && taken > 0 {
                break;
            }
            let (at, bytes) = (self.offset_of(extent), u64::from(extents) * self.extent_bytes);
            match self.medium.back(at, bytes) {
                // As for new space, where each write waits for it.
                Ok(()) if self.epochs().waits() && bytes > PAGE_BYTES => {
                    let behind = self.medium.prepare(at.plus(PAGE_BYTES), bytes - PAGE_BYTES);
                    behind.map_err(|error| self.failed(error))?;
                }
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::OutOfSpace => break,
                Err(error) => return Err(error.into()),
            }
            let blocks = self.headers_of(&[extent]);
            free_blocks(&self.medium, self.extent_bytes, &blocks).map_err(|error| self.failed(error))?;
            self.blocks.at(extent).free();
            self.space().take_back(extent);
            taken += extents;
        }
        Ok(taken > 0)
    }
}
