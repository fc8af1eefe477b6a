//! The filler of values: bytes of the store that they are written to, as they lie in its file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::random::Random;

#[path = "../../../crates/crash/src/hostile.rs"]
mod hostile;

/// The file of the store that one writer writes to.
pub struct OwnBytes {
    file: Option<File>,
    random: Random,
}

impl OwnBytes {
    /// For the store at `path`, if its file can be read; that of another machine cannot.
    pub fn new(path: Option<&Path>, seed: u64) -> OwnBytes {
        OwnBytes { file: path.and_then(|path| File::open(path).ok()), random: Random::new(!seed) }
    }

    /// Bytes for a value: two times in three from the store, else random.
    pub fn filler(&mut self, bytes: usize) -> Vec<u8> {
        let OwnBytes { file, random } = self;
        let words = std::iter::repeat_with(|| random.any().to_le_bytes());
        let mut filler: Vec<u8> = words.flatten().take(bytes).collect();
        if let Some(file) = file {
            let len = file.metadata().map_or(0, |metadata| metadata.len());
            hostile::copy(
                &mut filler,
                len,
                |bound| random.below(bound),
                |at, to| {
                    // Bytes that cannot be read stay random.
                    let _ = file.read_at(to, at);
                },
            );
        }
        filler
    }

    /// Filler for a chunk.
    pub fn chunk_filler<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let mut filler = [0; BYTES];
        filler.copy_from_slice(&self.filler(BYTES));
        filler
    }
}
