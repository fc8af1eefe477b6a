//! The bytes of replies that wait to be sent, and how many may wait.

/// Replies of one connection. A reply that exceeds the limit is cut: further appends are dropped, so that no single
/// request takes much more memory than the limit. Nothing of a cut reply may be sent.
#[derive(Debug)]
pub struct Output {
    /// The unsent bytes.
    pub bytes: Vec<u8>,
    // With more than this no further value is appended: the last one may go beyond it.
    bytes_max: usize,
    is_cut: bool,
}

/// A place in the output to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    is_cut: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self { bytes: Vec::new(), bytes_max: usize::MAX, is_cut: false }
    }
}

impl Output {
    /// How many bytes there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sets how many bytes may be there before a further value is dropped.
    pub const fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether there are more bytes than the limit.
    #[inline]
    pub const fn is_over(&self) -> bool {
        self.bytes.len() > self.bytes_max
    }

    /// Whether some of a reply was dropped.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether a value may be appended; when not, the reply is cut.
    #[inline]
    pub const fn takes(&mut self) -> bool {
        if self.is_over() {
            self.is_cut = true;
            return false;
        }
        true
    }

    /// Takes back all but the first `bytes` bytes, which end with a whole reply.
    #[inline]
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
        self.is_cut = false;
    }

    /// Where the next value goes.
    #[inline]
    pub const fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), is_cut: self.is_cut }
    }

    /// Moves the bytes since `since` before those since `place`, which is earlier.
    pub fn put_before(&mut self, place: Mark, since: Mark) {
        self.bytes[place.bytes..].rotate_left(since.bytes - place.bytes);
    }

    /// Takes back everything since `mark`.
    #[inline]
    pub fn rollback(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.is_cut = mark.is_cut;
    }
}
