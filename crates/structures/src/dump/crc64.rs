//! CRC-64 as Redis uses it: the polynomial of Jones, reflected, without inversion before or after.

// 0xad93d23594c935a9 with its bits in reverse.
const POLYNOMIAL_REFLECTED: u64 = 0x95ac_9329_ac4b_c9b5;

// TABLES[k][b]: the checksum of byte b followed by k zero bytes. Eight bytes a step ("slicing by 8").
const TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL_REFLECTED } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// The checksum of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    go_on(0, bytes)
}

/// Continues the checksum `crc` with `bytes`.
pub(super) fn go_on(mut crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = crc ^ u64::from_le_bytes(*word);
        crc = 0;
        for (k, table) in TABLES.iter().rev().enumerate() {
            crc ^= table[(word >> (8 * k) & 0xff) as usize];
        }
    }
    rest.iter().fold(crc, |crc, &byte| crc >> 8 ^ TABLES[0][((crc ^ u64::from(byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc64_has_the_check_value_of_redis() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn crc64_of_eight_bytes_at_once_equals_that_of_single_bytes() {
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37)).collect();
        for len in 0..bytes.len() {
            let slow = bytes[..len]
                .iter()
                .fold(0u64, |crc, &b| crc >> 8 ^ TABLES[0][((crc ^ u64::from(b)) & 0xff) as usize]);
            assert_eq!(checksum(&bytes[..len]), slow);
            assert_eq!(go_on(checksum(&bytes[..len]), &bytes[len..]), checksum(&bytes));
        }
    }
}
