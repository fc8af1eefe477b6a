//! Bytes that are read from the front, and whether there were too few of them.
//!
//! A reader of a file in pieces knows where a value ends only after it was read. So a read beyond the end reports that
//! it is short ([`Input::is_short`]), which differs from malformed bytes: it is tried again with more of the file.

/// The bytes still to read.
pub(super) struct Input<'a> {
    rest: &'a [u8],
    wanted: Option<u64>,
}

impl<'a> Input<'a> {
    /// All of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, wanted: None }
    }

    /// How many bytes are left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether all was read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes a read wanted from where it stood, if there were not so many.
    pub(super) fn is_short(&self) -> Option<u64> {
        self.wanted
    }

    /// The next byte, which stays.
    pub(super) fn first(&mut self) -> Option<u8> {
        if self.rest.is_empty() {
            self.wanted = Some(1);
        }
        self.rest.first().copied()
    }

    /// The next bytes.
    pub(super) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        if split.is_none() {
            self.wanted = Some(len);
        }
        let (taken, rest) = split?;
        self.rest = rest;
        Some(taken)
    }

    /// The next `N` bytes.
    pub(super) fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N as u64)?.try_into().ok()
    }
}
