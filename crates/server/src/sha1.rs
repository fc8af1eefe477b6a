//! SHA-1 (RFC 3174), where Redis names things by it. It guards against nothing.

/// Bytes of a digest.
pub const BYTES: usize = 20;

const BLOCK_BYTES: usize = 64;
const LENGTH_BYTES: usize = 8;

/// The digest of these bytes.
pub fn sha1(bytes: &[u8]) -> [u8; BYTES] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    blocks.iter().for_each(|block| add(&mut state, block));
    // What is left, a bit, zeros, and how many bits there were, in one block or two.
    let mut last = [0; 2 * BLOCK_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK_BYTES - LENGTH_BYTES { BLOCK_BYTES } else { 2 * BLOCK_BYTES };
    last[end - LENGTH_BYTES..end].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    let (blocks, _) = last[..end].as_chunks::<BLOCK_BYTES>();
    blocks.iter().for_each(|block| add(&mut state, block));
    let mut digest = [0; BYTES];
    for (bytes, word) in digest.chunks_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn add(state: &mut [u32; 5], block: &[u8; BLOCK_BYTES]) {
    let mut words = [0u32; 80];
    let (given, _) = block.as_chunks::<4>();
    for (word, bytes) in words.iter_mut().zip(given) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in given.len()..words.len() {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (sum, more) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        sha1(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
