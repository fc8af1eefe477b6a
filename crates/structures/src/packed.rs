//! A run of byte strings in one value: how a small collection lies in the record of its key.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 1 | bits 0 to 3: the form, 1 for this one; bits 4 to 7: flags, whose meaning is the type's |
//! | 1 | 4 | how many strings there are, little-endian |
//! | 5 | … | the strings, end to end, each its length and then its bytes |
//!
//! A length takes as few bytes as it can:
//!
//! | first byte | length |
//! |---|---|
//! | 0 to 253 | that |
//! | 254 | two bytes follow, little-endian: 254 to 65,535 |
//! | 255 | four bytes follow, little-endian: 65,536 and more |
//!
//! The type decides the meaning of the strings: members of a set, elements of a list, alternating fields and values of
//! a hash. They keep the order in which they were put.
//!
//! 1. Any bytes may come: malformed ones are an error with their place ([`Malformed`]), never a panic. The head is
//!    checked when a run is opened, each string when it is read. A reader that reaches the end also checks that the
//!    count of the head is right and no bytes follow.
//! 2. A run has one encoding: equal strings and flags are equal bytes.
//! 3. A change moves the bytes after it: it takes time in proportion to the whole run.

use std::fmt;
use std::ops::Range;

/// Bytes before the first string.
pub const HEAD_BYTES: usize = 5;

const FORM: u8 = 1;
const FORM_BITS: u8 = 0x0f;
const FLAGS_SHIFT: u32 = 4;
// First bytes of lengths that do not fit in one.
const LENGTH_OF_2_BYTES: u8 = 254;
const LENGTH_OF_4_BYTES: u8 = 255;
const LENGTH_BYTES_MAX: usize = 5;

/// The error of a head with flags that its type does not have.
pub const UNKNOWN_FLAGS: Malformed = Malformed { at: 0, why: "it has flags that this version does not know" };
/// The error of a missing part that must exist by the head.
pub const BEYOND: Malformed =
    Malformed { at: HEAD_BYTES, why: "it ends before an entry that it says it has" };

/// Bytes that are no run of this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The position, in bytes from the start.
    pub at: usize,
    /// The flaw.
    pub why: &'static str,
}

/// A run as it is read: any bytes with a good head.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    bytes: &'a [u8],
    count: usize,
}

/// One string of a run, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// The string.
    pub bytes: &'a [u8],
    /// Its place with its length, for [`splice`]. Good until the run changes.
    pub place: Range<usize>,
}

/// The strings from some place on. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Packed<'a> {
    /// The run that lies in `bytes`.
    ///
    /// # Errors
    /// When the head is none.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some((&[form, count @ ..], _)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err(Malformed { at: bytes.len(), why: "it ends within its head" });
        };
        if form & FORM_BITS != FORM {
            return Err(Malformed { at: 0, why: "its form is not one that this version knows" });
        }
        Ok(Self { bytes, count: u32::from_le_bytes(count) as usize })
    }

    /// How many strings there are.
    pub fn len(self) -> usize {
        self.count
    }

    /// The flags, 0 to 15.
    pub fn flags(self) -> u8 {
        self.bytes[0] >> FLAGS_SHIFT
    }

    /// The strings in their order.
    pub fn iter(self) -> Elements<'a> {
        Elements { bytes: self.bytes, at: HEAD_BYTES, left: self.count }
    }
}

impl<'a> Elements<'a> {
    /// The next string, which must be there: the value of a field.
    ///
    /// # Errors
    /// When there is none.
    pub fn demand(&mut self) -> Result<Element<'a>, Malformed> {
        self.next().unwrap_or(Err(Malformed { at: self.at, why: "a field has no value" }))
    }

    fn element(&mut self) -> Result<Element<'a>, Malformed> {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let cut = Malformed { at: start, why: "it ends before its last string" };
        let (length, head) = match *rest {
            [LENGTH_OF_4_BYTES, a, b, c, d, ..] => {
                (u32::from_le_bytes([a, b, c, d]) as usize, LENGTH_BYTES_MAX)
            }
            [LENGTH_OF_2_BYTES, a, b, ..] => (u16::from_le_bytes([a, b]).into(), 3),
            [first, ..] if first < LENGTH_OF_2_BYTES => (first.into(), 1),
            _ => return Err(cut),
        };
        if head != length_bytes(length) {
            return Err(Malformed { at: start, why: "a length takes more bytes than it has to" });
        }
        let bytes = rest.get(head..head + length).ok_or(cut)?;
        self.at += head + length;
        Ok(Element { bytes, place: start..self.at })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let is_whole = self.at == self.bytes.len();
            let at = std::mem::replace(&mut self.at, self.bytes.len());
            return (!is_whole)
                .then_some(Err(Malformed { at, why: "it has more elements than its head counts" }));
        }
        self.left -= 1;
        let element = self.element();
        if element.is_err() {
            (self.at, self.left) = (self.bytes.len(), 0);
        }
        Some(element)
    }

    /// Skips a string whose length is in its first byte without reading it: RPOP on a node of short elements walks over
    /// all of them.
    fn nth(&mut self, mut count: usize) -> Option<Self::Item> {
        while count > 0 && self.left > 0 {
            let end = match self.bytes.get(self.at) {
                Some(&first) if first < LENGTH_OF_2_BYTES => self.at + 1 + usize::from(first),
                _ => break,
            };
            if end > self.bytes.len() {
                break;
            }
            (self.at, self.left, count) = (end, self.left - 1, count - 1);
        }
        for _ in 0..count {
            let _ = self.next()?;
        }
        self.next()
    }
}

/// A run without strings.
pub fn empty(flags: u8) -> Vec<u8> {
    vec![FORM | flags << FLAGS_SHIFT, 0, 0, 0, 0]
}

/// Gives a run that was opened other flags.
pub fn set_flags(run: &mut [u8], flags: u8) {
    run[0] = run[0] & FORM_BITS | flags << FLAGS_SHIFT;
}

/// Replaces the `removed` strings at `place` by `strings`. `place` is the place of [`Element`]s of this run, from the
/// start of one to the end of another, or an empty one at the start of an element or at the end of the run.
pub fn splice(run: &mut Vec<u8>, place: Range<usize>, removed: usize, strings: &[&[u8]]) {
    let added: usize = strings.iter().map(|string| length_bytes(string.len()) + string.len()).sum();
    let old_end = run.len();
    if added > place.len() {
        run.resize(old_end + added - place.len(), 0);
    }
    run.copy_within(place.end..old_end, place.start + added);
    run.truncate(old_end - place.len() + added);
    let mut at = place.start;
    for string in strings {
        let (length, bytes) = encoded_length(string.len());
        run[at..at + bytes].copy_from_slice(&length[..bytes]);
        at += bytes;
        run[at..at + string.len()].copy_from_slice(string);
        at += string.len();
    }
    let count = Packed::open(run).map_or(0, Packed::len) + strings.len() - removed;
    // 2^32 strings do not fit in any value.
    run[1..HEAD_BYTES].copy_from_slice(&(count as u32).to_le_bytes());
}

/// Appends strings.
pub fn push(run: &mut Vec<u8>, strings: &[&[u8]]) {
    let end = run.len();
    splice(run, end..end, 0, strings);
}

/// Bytes that a length takes.
fn length_bytes(length: usize) -> usize {
    match length {
        0..=253 => 1,
        254..=65_535 => 3,
        _ => LENGTH_BYTES_MAX,
    }
}

fn encoded_length(length: usize) -> ([u8; LENGTH_BYTES_MAX], usize) {
    let bytes = length_bytes(length);
    // A string longer than 4 bytes can express is longer than any value, which the engine refuses.
    let [a, b, c, d] = (length as u32).to_le_bytes();
    let encoded = match bytes {
        1 => [a, 0, 0, 0, 0],
        3 => [LENGTH_OF_2_BYTES, a, b, 0, 0],
        _ => [LENGTH_OF_4_BYTES, a, b, c, d],
    };
    (encoded, bytes)
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(strings: &[&[u8]]) -> Vec<u8> {
        let mut run = empty(0);
        push(&mut run, strings);
        run
    }

    fn strings(run: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
        Packed::open(run)?.iter().map(|element| Ok(element?.bytes.to_vec())).collect()
    }

    #[test]
    fn the_bytes_match_the_format_tables() {
        assert_eq!(empty(0xa), [0xa1, 0, 0, 0, 0]);
        assert_eq!(packed(&[b"ab", b"", b"c"]), b"\x01\x03\0\0\0\x02ab\0\x01c");
        for (length, head) in [
            (253, &[253][..]),
            (254, &[254, 254, 0]),
            (65_535, &[254, 255, 255]),
            (65_536, &[255, 0, 0, 1, 0]),
        ] {
            let run = packed(&[&vec![7; length]]);
            assert_eq!(run.len(), HEAD_BYTES + head.len() + length);
            assert_eq!(&run[HEAD_BYTES..][..head.len()], head);
            assert_eq!(strings(&run).unwrap(), [vec![7; length]]);
        }
    }

    #[test]
    fn a_malformed_run_is_an_error_with_its_place() {
        let why = |bytes: &[u8]| strings(bytes).unwrap_err().to_string();
        assert_eq!(why(b""), "at byte 0: it ends within its head");
        assert_eq!(why(b"\x01\0\0\0"), "at byte 4: it ends within its head");
        assert_eq!(why(b"\x02\0\0\0\0"), "at byte 0: its form is not one that this version knows");
        assert_eq!(why(b"\x01\x01\0\0\0"), "at byte 5: it ends before its last string");
        assert_eq!(why(b"\x01\x02\0\0\0\x01a\x02b"), "at byte 7: it ends before its last string");
        assert_eq!(why(b"\x01\x01\0\0\0\xfe\x01"), "at byte 5: it ends before its last string");
        assert_eq!(why(b"\x01\x01\0\0\0\xff\xff\xff\xff\xff"), "at byte 5: it ends before its last string");
        assert_eq!(why(b"\x01\x01\0\0\0\x01ab"), "at byte 7: it has more elements than its head counts");
        assert_eq!(why(b"\x01\x01\0\0\0\xfe\x01\0a"), "at byte 5: a length takes more bytes than it has to");
        let run = packed(&[b"field"]);
        let mut elements = Packed::open(&run).unwrap().iter();
        elements.demand().unwrap();
        assert_eq!(elements.demand().unwrap_err().to_string(), "at byte 11: a field has no value");
    }

    #[test]
    fn after_an_error_there_is_nothing_more() {
        let run = b"\x01\x05\0\0\0\x01a\x09";
        let mut elements = Packed::open(run).unwrap().iter();
        assert!(elements.next().unwrap().is_ok() && elements.next().unwrap().is_err());
        assert!(elements.next().is_none());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(usize, Vec<Vec<u8>>),
        Replace(usize, Vec<u8>),
        Remove(usize, usize),
        Flags(u8),
    }

    fn string() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![8 => 0usize..12, 2 => 250usize..258, 1 => 65_530usize..65_540];
        (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length])
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (any::<usize>(), prop::collection::vec(string(), 0..4)).prop_map(|(at, new)| Step::Insert(at, new)),
            2 => (any::<usize>(), string()).prop_map(|(at, new)| Step::Replace(at, new)),
            2 => (any::<usize>(), 1usize..4).prop_map(|(at, count)| Step::Remove(at, count)),
            1 => (0u8..16).prop_map(Step::Flags),
        ]
    }

    proptest! {
        #[test]
        fn a_run_is_changed_as_a_list_is(steps in prop::collection::vec(step(), 0..30)) {
            let (mut run, mut model, mut flags) = (empty(0), Vec::<Vec<u8>>::new(), 0);
            for step in steps {
                let places: Vec<Range<usize>> =
                    Packed::open(&run).unwrap().iter().map(|element| element.unwrap().place).collect();
                match step {
                    Step::Insert(at, new) => {
                        let at = at % (model.len() + 1);
                        let start = places.get(at).map_or(run.len(), |place| place.start);
                        splice(&mut run, start..start, 0, &new.iter().map(Vec::as_slice).collect::<Vec<_>>());
                        model.splice(at..at, new);
                    }
                    Step::Replace(at, new) if !model.is_empty() => {
                        let at = at % model.len();
                        splice(&mut run, places[at].clone(), 1, &[&new]);
                        model[at] = new;
                    }
                    Step::Remove(at, count) if !model.is_empty() => {
                        let at = at % model.len();
                        let end = (at + count).min(model.len());
                        splice(&mut run, places[at].start..places[end - 1].end, end - at, &[]);
                        model.drain(at..end);
                    }
                    Step::Flags(new) => {
                        flags = new;
                        set_flags(&mut run, new);
                    }
                    Step::Replace(..) | Step::Remove(..) => {}
                }
                let open = Packed::open(&run).unwrap();
                prop_assert_eq!((open.len(), open.flags()), (model.len(), flags));
                prop_assert_eq!(&strings(&run).unwrap(), &model);
            }
            // One encoding.
            let mut again = empty(flags);
            push(&mut again, &model.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(run, again);
        }

        #[test]
        fn a_flipped_bit_or_a_cut_end_is_an_error_or_another_run(
            model in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            at: usize, bit in 0..8u32, cut: bool,
        ) {
            let mut run = packed(&model.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let at = at % run.len();
            if cut {
                run.truncate(at);
                prop_assert!(strings(&run).is_err());
            } else {
                run[at] ^= 1 << bit;
                match strings(&run) {
                    Ok(other) => {
                        let flags = Packed::open(&run).unwrap().flags();
                        prop_assert!(other != model || flags != 0);
                    }
                    Err(malformed) => prop_assert!(malformed.at <= run.len()),
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), good: bool) {
            if good && let Some(first) = bytes.first_mut() {
                *first = *first & !FORM_BITS | FORM;
            }
            if let Ok(strings) = strings(&bytes) {
                let mut again = empty(bytes[0] >> FLAGS_SHIFT);
                push(&mut again, &strings.iter().map(Vec::as_slice).collect::<Vec<_>>());
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
