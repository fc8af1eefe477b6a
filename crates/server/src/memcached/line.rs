//! Lines: their words, and the data after them.

/// Words of a line that commands look at: as many as memcached splits off.
const WORDS_MAX: usize = 23;

/// The words of a line.
pub struct Words<'a> {
    all: [&'a [u8]; WORDS_MAX],
    count: usize,
}

impl<'a> Words<'a> {
    /// Splits a line.
    pub fn of(line: &'a [u8]) -> Self {
        let mut words = Self { all: [&[]; WORDS_MAX], count: 0 };
        for word in line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(WORDS_MAX) {
            words.all[words.count] = word;
            words.count += 1;
        }
        words
    }

    /// All of them.
    pub fn all(&self) -> &[&'a [u8]] {
        &self.all[..self.count]
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// The word at this position; empty when there is none.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.all().get(index).copied().unwrap_or_default()
    }

    /// Whether the last one asks for no reply.
    pub fn is_quiet(&self) -> bool {
        self.all().last() == Some(&&b"noreply"[..])
    }
}

/// The data after a line.
pub enum Data<'a> {
    /// This many bytes, and a line end.
    Whole(&'a [u8]),
    /// This many bytes, and something else.
    Unended,
    /// It has not all arrived.
    Missing,
}

/// The data of `bytes` bytes after a line.
pub fn data(rest: &[u8], bytes: usize) -> Data<'_> {
    match rest.get(..bytes + 2) {
        None => Data::Missing,
        Some(data) if data.ends_with(b"\r\n") => Data::Whole(&data[..bytes]),
        Some(_) => Data::Unended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_blanks_and_are_not_without_end() {
        let words = Words::of(b"  a  bc noreply ");
        assert_eq!(words.all(), [&b"a"[..], b"bc", b"noreply"]);
        assert!(words.is_quiet() && words.at(7).is_empty());
        assert_eq!(Words::of(&b"x ".repeat(100)).len(), WORDS_MAX);
    }

    #[test]
    fn data_end_with_a_line_end() {
        assert!(matches!(data(b"ab\r\nget", 2), Data::Whole(b"ab")));
        assert!(matches!(data(b"ab\r", 2), Data::Missing));
        assert!(matches!(data(b"abc\r\n", 2), Data::Unended));
    }
}
