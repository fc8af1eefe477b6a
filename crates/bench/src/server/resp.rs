//! Commands in RESP, and the comparison of a reply with the expected one.

/// The result of checking a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Right; the reply has so many bytes.
    Right(usize),
    /// More bytes must arrive.
    Incomplete,
    /// Wrong.
    Wrong,
}

/// A command of arbitrary parts.
pub(crate) fn command(parts: &[&[u8]], to: &mut Vec<u8>) {
    to.push(b'*');
    decimal(parts.len() as u64, to);
    to.extend_from_slice(b"\r\n");
    for part in parts {
        bulk_string(part, to);
    }
}

/// A string of a command.
pub(crate) fn bulk_string(bytes: &[u8], to: &mut Vec<u8>) {
    to.push(b'$');
    decimal(bytes.len() as u64, to);
    to.extend_from_slice(b"\r\n");
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
}

/// Appends the digits of a number.
pub(crate) fn decimal(number: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(digits(number, &mut [0; 20]));
}

/// The digits of a number.
pub(crate) fn digits(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[at..];
        }
    }
}

/// Compares the input with the parts of a reply, one after the other.
pub(crate) fn exact(input: &[u8], parts: &[&[u8]]) -> Verdict {
    let mut at = 0;
    for part in parts {
        let have = part.len().min(input.len() - at);
        if input[at..at + have] != part[..have] {
            return Verdict::Wrong;
        }
        if have < part.len() {
            return Verdict::Incomplete;
        }
        at += have;
    }
    Verdict::Right(at)
}
