//! The arguments of one command, without copies: places in the buffer that they were read into.

use super::CommandError;
use super::errors;
use duramen_resp::Requests;
pub use duramen_resp::Span;
pub use duramen_resp::number::integer;

/// The arguments of one command; the first is its name. `args[i]` is the i-th as bytes.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Arguments that lie in `buffer` at `spans`, which the request parser has checked.
    pub const fn new(buffer: &'a [u8], spans: &'a [Span]) -> Self {
        Self { buffer, spans }
    }

    /// Those of the command that `requests` found at the beginning of `input`.
    #[inline]
    pub fn of(requests: &'a Requests, input: &'a [u8]) -> Self {
        let (buffer, spans) = requests.spans(input);
        Self::new(buffer, spans)
    }

    /// Bytes of the buffer: the request, and those after it that were read with it.
    pub const fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The number of arguments, including the name.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // There is always a name.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`, or nothing when there are fewer.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        self.buffer.get(span.start..span.end)
    }

    /// The argument at `index`; empty when there are fewer (arity was checked before).
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// All from `index` on.
    pub fn from(
        &self,
        index: usize,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        let buffer = self.buffer;
        self.spans.get(index..).unwrap_or_default().iter().map(move |span| &buffer[span.start..span.end])
    }

    /// All, the name first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        self.from(0)
    }

    /// The arguments from `index` on, as those of a command of their own.
    #[must_use]
    pub fn skip(&self, index: usize) -> Self {
        Self { buffer: self.buffer, spans: self.spans.get(index..).unwrap_or_default() }
    }

    /// These arguments alone.
    #[must_use]
    pub fn part(&self, part: std::ops::Range<usize>) -> Self {
        Self { buffer: self.buffer, spans: self.spans.get(part).unwrap_or_default() }
    }

    /// Whether the argument at `index` is `word`, in any case.
    #[inline]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The argument at `index` as a signed 64-bit integer.
    ///
    /// # Errors
    /// Redis's `value is not an integer or out of range`.
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        integer(self.at(index)).ok_or(errors::NOT_INTEGER)
    }

    /// The argument at `index` as a number of things: an integer that is not negative.
    pub fn count(&self, index: usize) -> Option<usize> {
        integer(self.at(index)).and_then(|count| usize::try_from(count).ok())
    }

    /// The argument at `index` as an integer above zero.
    pub fn positive(&self, index: usize) -> Option<usize> {
        self.count(index).filter(|count| *count > 0)
    }

    /// Bytes of all arguments together.
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.end - span.start).sum()
    }

    /// A copy that owns its bytes, as MULTI queues it.
    pub fn to_owned(&self) -> OwnedArgs {
        let mut buffer = Vec::with_capacity(self.bytes());
        let spans = self
            .iter()
            .map(|argument| {
                let start = buffer.len();
                buffer.extend_from_slice(argument);
                Span { start, end: buffer.len() }
            })
            .collect();
        OwnedArgs { buffer: buffer.into_boxed_slice(), spans }
    }
}

impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

/// Arguments with the bytes they lie in.
#[derive(Clone, Debug)]
pub struct OwnedArgs {
    buffer: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedArgs {
    /// Those of a command that is put together.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut end = 0;
        let spans = parts.iter().map(|part| {
            let start = end;
            end += part.len();
            Span { start, end }
        });
        Self { spans: spans.collect(), buffer: parts.concat().into() }
    }

    /// The arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.buffer, &self.spans)
    }

    /// Memory that they take.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + size_of_val(&*self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_copy_has_the_same_arguments() {
        let spans = [Span { start: 4, end: 7 }, Span { start: 9, end: 9 }, Span { start: 0, end: 2 }];
        let args = Args::new(b"abcdSET..", &spans);
        let owned = args.to_owned();
        assert!(owned.args().iter().eq([&b"SET"[..], b"", b"ab"]));
        assert!(args.is(0, "set") && !args.is(1, "set") && !args.is(7, "set"));
    }

    #[test]
    fn a_count_is_not_negative_and_a_positive_one_not_zero() {
        for (text, count, positive) in [
            ("7", Some(7), Some(7)),
            ("0", Some(0), None),
            ("-1", None, None),
            ("x", None, None),
            ("", None, None),
            ("9223372036854775808", None, None),
        ] {
            let spans = [Span { start: 0, end: text.len() }];
            let args = Args::new(text.as_bytes(), &spans);
            assert_eq!((args.count(0), args.positive(0)), (count, positive), "{text:?}");
        }
    }
}
