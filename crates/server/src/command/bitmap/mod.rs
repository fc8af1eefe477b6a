//! Commands on strings as arrays of bits.

mod bitcount;
mod bitfield;
mod bitfield_ro;
mod bitop;
mod bitpos;
mod getbit;
mod setbit;

use super::string::string_bytes_max;
use super::{Args, Call, CommandError, Spec, errors, integer};
use duramen_structures::bits::Width;

/// The commands of this group.
pub const SPECS: &[Spec] = &[
    setbit::SPEC,
    getbit::SPEC,
    bitcount::SPEC,
    bitpos::SPEC,
    bitop::SPEC,
    bitfield::SPEC,
    bitfield_ro::SPEC,
];

/// A place in a bitmap. With `width`, `#n` means the n-th field of that width.
fn bit_offset(call: &Call<'_, '_>, text: &[u8], width: Option<Width>) -> Result<u64, CommandError> {
    let (digits, unit) = match (text, width) {
        ([b'#', digits @ ..], Some(width)) => (digits, width.bits() as i64),
        _ => (text, 1),
    };
    integer(digits)
        .and_then(|offset| u64::try_from(offset.checked_mul(unit)?).ok())
        .filter(|offset| offset >> 3 < string_bytes_max(call.server, (offset >> 3) + 1))
        .ok_or(CommandError::new("ERR bit offset is not an integer or out of range"))
}

/// Bits in what the range of BITCOUNT and BITPOS counts: BYTE, which is the default, or BIT.
fn unit(args: Args<'_>, index: usize) -> Result<u64, CommandError> {
    match args.get(index) {
        None => Ok(8),
        Some(word) if word.eq_ignore_ascii_case(b"byte") => Ok(8),
        Some(word) if word.eq_ignore_ascii_case(b"bit") => Ok(1),
        Some(_) => Err(errors::SYNTAX),
    }
}
