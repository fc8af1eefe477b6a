//! What the bytes of damaged records claim: the tables and keys that they may belong to.
//!
//! Nothing here is verified. A record's checksum covers header, key and value together, so a damaged record does not
//! show which part is wrong. The names tell users what they may have lost; no lookup and no recovery depends on them.

use duramen_log::format::record::{Header, Kind};
use duramen_log::format::{Owner, Version};

/// A record that is not whole, or bytes in which no record can be made out.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Where it lies on the medium, and how long it seems to be.
    pub at: u64,
    pub bytes: u64,
    /// What its header says; `None`: nothing that makes sense.
    pub said: Option<Said>,
}

#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub owner: Owner,
    pub key: Vec<u8>,
    pub version: Version,
    pub is_tombstone: bool,
}

/// The records that the bytes `from..until` of `bytes`, which lie at `base`, claim to be: a row of records, as far as
/// one header points to the next.
pub(crate) fn claims_in(bytes: &[u8], base: u64, from: u64, until: u64) -> Vec<Claim> {
    let until = until.min(bytes.len() as u64);
    let (mut at, mut claims) = (from, Vec::new());
    while at < until {
        let rest = &bytes[at as usize..];
        // The length may be the damaged field: the next whole record bounds it.
        let Some(header) = Header::decode(rest).filter(|header| at + header.value_at() <= until) else {
            claims.push(Claim { at: base + at, bytes: until - at, said: None });
            break;
        };
        let end = (at + header.record_bytes()).min(until);
        // A commit record has no key. The transaction records that it may have committed are reported themselves.
        if !matches!(header.kind, Kind::End | Kind::Void) {
            let said = Said {
                owner: header.owner,
                key: header.key(rest).to_vec(),
                version: header.version,
                is_tombstone: header.kind == Kind::Tombstone,
            };
            claims.push(Claim { at: base + at, bytes: end - at, said: Some(said) });
        }
        at = end;
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn claims_of_any_bytes_cover_the_requested_range(
            bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0x11), any::<u8>()], 0..600),
            from in 0..75usize,
        ) {
            let from = (from * 8).min(bytes.len() / 8 * 8) as u64;
            let claims = claims_in(&bytes, 1 << 20, from, bytes.len() as u64);
            prop_assert!(claims.iter().all(|claim| claim.at >= (1 << 20) + from));
            prop_assert!(claims.iter().all(|claim| claim.at + claim.bytes <= (1 << 20) + bytes.len() as u64));
        }
    }
}
