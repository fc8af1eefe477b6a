//! Records from any block: the walk ends, and nothing that it gives out lies outside the block. Bytes
//! whose checksums are mended first reach what stands behind them, batches among it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((seed, block)) = data.split_first_chunk() else { return };
    let seed = u32::from_le_bytes(*seed);
    duramen::fuzzing::block(block, seed);
    let mut mended = block.to_vec();
    duramen::fuzzing::mend_records(&mut mended, seed);
    duramen::fuzzing::block(&mended, seed);
});
