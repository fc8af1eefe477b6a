//! Blocks of whole lines. Free blocks are kept by size, in DRAM, in one collection for each session. New blocks are
//! taken from chunks of the medium, each for one size. The heap's lock is taken once for each chunk.

use crate::layout::CHUNKS_AT;
use crate::reclaim::{Block, Limbo};
use crate::{Error, ErrorKind, Result};
use duramen_media::{LINE_BYTES, Medium, Offset};
use std::sync::{Mutex, MutexGuard, PoisonError};

// 8: the medium grows by so many chunks at once (8 MiB, as Duramen does).
const CHUNKS_PER_GROWTH: u64 = 8;

/// The chunks of a medium.
pub(crate) struct Heap {
    pub(crate) at: u64,
    pub(crate) chunk_bytes: u64,
    /// The block sizes, in lines.
    sizes: Vec<u64>,
    chunks: Mutex<u64>,
    /// The arenas of ended sessions, for the next session.
    left: Mutex<Arena>,
}

/// The blocks that one session can take.
#[derive(Default)]
pub(crate) struct Arena {
    pub(crate) free: Vec<Vec<u64>>,
    /// For each size, in the current chunk: the next block, and the end.
    fresh: Vec<(u64, u64)>,
    pub(crate) limbo: Limbo,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heap {
    pub(crate) fn new(at: u64, chunk_bytes: u64, chunks: u64) -> Self {
        // Each size up to 8 lines, then four sizes for each doubling.
        let mut sizes: Vec<u64> = (1..=8).collect();
        let most = chunk_bytes / LINE_BYTES - 1;
        while let Some(&last) = sizes.last()
            && last < most
        {
            let step = (last + 1).next_power_of_two() / 8;
            sizes.push((last + step).min(most));
        }
        sizes.retain(|lines| *lines <= most);
        Self { at, chunk_bytes, sizes, chunks: Mutex::new(chunks), left: Mutex::default() }
    }

    /// Lines of the largest block.
    pub(crate) fn lines_max(&self) -> u64 {
        self.chunk_bytes / LINE_BYTES - 1
    }

    pub(crate) fn size_of(&self, lines: u64) -> usize {
        self.sizes.partition_point(|size| *size < lines)
    }

    pub(crate) fn chunks(&self) -> u64 {
        *lock(&self.chunks)
    }

    /// Where chunk `chunk` begins.
    pub(crate) fn chunk_at(&self, chunk: u64) -> u64 {
        self.at + chunk * self.chunk_bytes
    }

    /// An arena with all blocks that ended sessions left.
    pub(crate) fn enter(&self) -> Arena {
        let mut arena = std::mem::take(&mut *lock(&self.left));
        arena.free.resize(self.sizes.len(), Vec::new());
        arena.fresh.resize(self.sizes.len(), (0, 0));
        arena
    }

    /// Keeps an arena for the next session.
    pub(crate) fn leave(&self, mut arena: Arena) {
        let mut left = lock(&self.left);
        left.limbo.take_over(&mut arena.limbo);
        left.free.resize(self.sizes.len(), Vec::new());
        left.fresh.resize(self.sizes.len(), (0, 0));
        for (to, from) in left.free.iter_mut().zip(&mut arena.free) {
            to.append(from);
        }
        for (size, ((next, end), lines)) in arena.fresh.into_iter().zip(&self.sizes).enumerate() {
            let bytes = lines * LINE_BYTES;
            if left.fresh[size].0 == left.fresh[size].1 {
                left.fresh[size] = (next, end);
            } else {
                // In descending order, since the last one is taken first.
                left.free[size].extend((0..(end - next) / bytes).rev().map(|i| next + i * bytes));
            }
        }
    }

    /// A block of at least `lines` lines that nothing points to.
    ///
    /// # Errors
    /// As growth of the medium.
    #[inline]
    pub(crate) fn take<M: Medium>(&self, medium: &M, arena: &mut Arena, lines: u64) -> Result<u64> {
        let size = self.size_of(lines);
        if let Some(at) = arena.free[size].pop() {
            return Ok(at);
        }
        if arena.fresh[size].0 == arena.fresh[size].1 {
            arena.fresh[size] = self.take_chunk(medium, self.sizes[size])?;
        }
        let (next, _) = &mut arena.fresh[size];
        let at = *next;
        *next += self.sizes[size] * LINE_BYTES;
        Ok(at)
    }

    /// Makes a chunk for blocks of `lines` lines; returns its first block and its end.
    #[cold]
    fn take_chunk<M: Medium>(&self, medium: &M, lines: u64) -> Result<(u64, u64)> {
        let mut chunks = lock(&self.chunks);
        let at = self.chunk_at(*chunks);
        if at + self.chunk_bytes > medium.len() {
            let ahead = (at + CHUNKS_PER_GROWTH * self.chunk_bytes).min(medium.len_max());
            medium.grow(ahead.max(at + self.chunk_bytes))?;
        }
        // The chunk is counted after its header is durable, so that recovery can read the headers of all counted
        // chunks.
        medium.publish(Offset(at), lines);
        medium.publish(Offset(CHUNKS_AT), *chunks + 1);
        *chunks += 1;
        let blocks = (self.chunk_bytes / LINE_BYTES - 1) / lines;
        Ok((at + LINE_BYTES, at + LINE_BYTES * (1 + blocks * lines)))
    }

    /// Puts a free block into an arena.
    pub(crate) fn give(&self, arena: &mut Arena, block: Block) {
        let size = self.size_of(block.lines);
        arena.free[size].push(block.at);
    }

    /// Frees the blocks that `is_live` does not know.
    ///
    /// # Errors
    /// When a chunk's header has a block size that does not exist.
    pub(crate) fn sweep<M: Medium>(&self, medium: &M, is_live: impl Fn(u64) -> bool) -> Result<()> {
        let mut arena = self.enter();
        for chunk in 0..self.chunks() {
            let at = self.chunk_at(chunk);
            let lines = medium.load_u64(Offset(at));
            if !self.sizes.contains(&lines) {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!(
                        "chunk {chunk} at {at:#x}: blocks of {lines} lines, wanted 1 to {}; the store is damaged",
                        self.lines_max()
                    ),
                ));
            }
            let blocks = (self.chunk_bytes / LINE_BYTES - 1) / lines;
            let free =
                (0..blocks).rev().map(|i| at + LINE_BYTES * (1 + i * lines)).filter(|at| !is_live(*at));
            arena.free[self.size_of(lines)].extend(free);
        }
        self.leave(arena);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend_waste_a_quarter_at_most_and_end_with_a_chunk() {
        for chunk_bytes in [4096, 1 << 20] {
            let heap = Heap::new(0, chunk_bytes, 0);
            assert!(heap.sizes.is_sorted_by(|a, b| a < b));
            assert_eq!(heap.sizes.last(), Some(&heap.lines_max()));
            for lines in 1..=heap.lines_max() {
                let size = heap.sizes[heap.size_of(lines)];
                assert!(size >= lines && (size - lines) * 4 <= lines, "{lines} lines in {size}");
            }
        }
    }
}
