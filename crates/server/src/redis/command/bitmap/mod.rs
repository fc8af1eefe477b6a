//! Commands on strings as arrays of bits.

mod bit;
mod field;

use super::string::string_bytes_max;
use super::{Call, Command, CommandError, integer};
use duramen_structures::bits::Width;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("setbit", bit::setbit).merged(4),
    Command::new("getbit", bit::getbit),
    Command::new("bitcount", bit::bitcount),
    Command::new("bitpos", bit::bitpos),
    Command::new("bitop", bit::bitop),
    Command::new("bitfield", field::bitfield).key_flags(field::key_flags),
    Command::new("bitfield_ro", field::bitfield_ro),
];

/// A position in a bitmap. With `width`, `#n` means the n-th field of that width.
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
