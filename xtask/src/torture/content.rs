//! The values that the torture writes; each contains everything needed to verify it.
//!
//! A value begins with a head (key, sequence number, length) and a digest of all its bytes. Filler from the bytes of
//! its store follows ([`OwnBytes`]). Appended values and entries of collections are chunks, which have the same parts
//! at a smaller size. A read therefore has one of three results. A value that was written gives its number; a value of
//! another key or with a changed byte is torn; or there is no value.

use std::fmt;

use super::own_bytes::OwnBytes;
use crate::digest::{Digest, digest};

/// A key's value, as the torture sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No such key.
    Absent,
    /// A whole value, written by operation `seq`.
    Stamped { seq: u64, len: u32 },
    /// A counter.
    Number(i64),
    /// `count` chunks appended one by one, the first by operation `base`.
    Chunks { base: u64, count: u32 },
    /// A collection of the chunks from `first` on, added by operations since `base`.
    Entries { base: u64, first: u32, count: u32 },
    /// Bytes that no writer wrote.
    Torn(String),
}

/// The kind of a key's value, which determines how its bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// [`Content::Stamped`].
    Stamped,
    /// [`Content::Number`] as decimal text, as Redis counts.
    Decimal,
    /// [`Content::Number`] as eight bytes, which a store can update in place.
    Word,
    /// [`Content::Chunks`].
    Chunks,
    /// [`Content::Entries`], as a type of Redis.
    Entries(Collection),
    /// A unit with one key of each form in [`Form::EACH`], changed by scripts.
    OneEach,
}

impl Form {
    /// The forms of the keys that one script changes together.
    pub const EACH: [Form; 6] = [
        Form::Stamped,
        Form::Decimal,
        Form::Entries(Collection::Hash),
        Form::Entries(Collection::List),
        Form::Entries(Collection::Set),
        Form::Entries(Collection::SortedSet),
    ];
}

/// The types of Redis that hold entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// Chunks as values; the fields are their indexes.
    Hash,
    /// Chunks, in order.
    List,
    /// Chunks.
    Set,
    /// Chunks, whose scores are their indexes.
    SortedSet,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Absent => f.write_str("nothing"),
            Content::Stamped { seq, len } => write!(f, "value {seq} of {len} bytes"),
            Content::Number(number) => write!(f, "number {number}"),
            Content::Chunks { base, count } => write!(f, "{count} chunks since {base}"),
            Content::Entries { base, first, count } => {
                write!(f, "{count} entries from {first} on since {base}")
            }
            Content::Torn(what) => write!(f, "torn bytes ({what})"),
        }
    }
}

/// Bytes of one chunk: its head and its filler.
pub const CHUNK_BYTES: usize = CHUNK_HEAD_BYTES + FILLER_BYTES;
const CHUNK_HEAD_BYTES: usize = 32;
const FILLER_BYTES: usize = 64;

/// The filler of chunks that a writer must be able to generate again to remove them.
pub const NO_FILLER: [u8; FILLER_BYTES] = [b'.'; FILLER_BYTES];

/// Bytes of the digest of a stamped value: 16 digits and a bar.
const DIGEST_BYTES: usize = 17;

/// The bytes of a content, some of them the store's own; `None` for [`Content::Absent`].
pub fn encode(form: Form, key: &[u8], content: &Content, own: &mut OwnBytes) -> Option<Vec<u8>> {
    Some(match content {
        Content::Absent | Content::Torn(_) | Content::Entries { .. } => return None,
        Content::Stamped { seq, len } => stamped(key, *seq, *len, own),
        Content::Number(number) if form == Form::Word => number.to_le_bytes().to_vec(),
        Content::Number(number) => number.to_string().into_bytes(),
        Content::Chunks { base, count } => {
            (0..*count).flat_map(|index| chunk(key, *base, index, own.chunk_filler())).collect()
        }
    })
}

/// Reads bytes back, and checks them against their own head.
pub fn decode(form: Form, key: &[u8], bytes: Option<&[u8]>) -> Content {
    let Some(bytes) = bytes else { return Content::Absent };
    let read = match form {
        Form::Stamped => decode_stamped(key, bytes),
        Form::Decimal => {
            std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).map(Content::Number)
        }
        Form::Word => bytes.try_into().ok().map(|word| Content::Number(i64::from_le_bytes(word))),
        Form::Chunks => decode_chunks(key, bytes),
        Form::Entries(_) | Form::OneEach => None,
    };
    read.unwrap_or_else(|| {
        let head = &bytes[..bytes.len().min(60)];
        Content::Torn(format!("{} bytes that begin {}", bytes.len(), head.escape_ascii()))
    })
}

/// `key|seq|len|digest|` and filler, `len` bytes in all (or as long as head and digest together, if that is more).
fn stamped(key: &[u8], seq: u64, len: u32, own: &mut OwnBytes) -> Vec<u8> {
    let head = [key, format!("|{seq}|{len}|").as_bytes()].concat();
    let filler = own.filler((len as usize).saturating_sub(head.len() + DIGEST_BYTES));
    [&head, &digest_of(&head, &filler), &filler[..]].concat()
}

fn digest_of(head: &[u8], filler: &[u8]) -> Vec<u8> {
    let mut digest = Digest::new();
    digest.add(head);
    digest.add(filler);
    format!("{:016x}|", digest.value()).into_bytes()
}

fn decode_stamped(key: &[u8], bytes: &[u8]) -> Option<Content> {
    let mut fields = bytes.strip_prefix(key)?.strip_prefix(b"|")?.splitn(3, |byte| *byte == b'|');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
    let seq = number()?;
    let len = u32::try_from(number()?).ok()?;
    let rest = fields.next()?;
    let (digest, filler) = rest.split_at_checked(DIGEST_BYTES)?;
    let is_long_enough = bytes.len() == len as usize || (bytes.len() > len as usize && filler.is_empty());
    let head = &bytes[..bytes.len() - rest.len()];
    (is_long_enough && digest == digest_of(head, filler)).then_some(Content::Stamped { seq, len })
}

/// Bytes of chunk `index`: base, index, a digest of key, base, index and filler, and the filler.
pub fn chunk(key: &[u8], base: u64, index: u32, filler: [u8; FILLER_BYTES]) -> [u8; CHUNK_BYTES] {
    let mut seed = key.to_vec();
    seed.extend_from_slice(&base.to_le_bytes());
    seed.extend_from_slice(&index.to_le_bytes());
    seed.extend_from_slice(&filler);
    let mut chunk = [0; CHUNK_BYTES];
    let (head, rest) = chunk.split_at_mut(CHUNK_HEAD_BYTES);
    // Ten digits hold more operations than a run can do; longer numbers would be cut to fit.
    let text = format!("{base:010}{index:06}{:016x}", digest(&seed));
    head.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    rest.copy_from_slice(&filler);
    chunk
}

fn is_chunk(found: &[u8], key: &[u8], base: u64, index: u32) -> bool {
    let filler = found.get(CHUNK_HEAD_BYTES..).and_then(|rest| rest.try_into().ok());
    filler.is_some_and(|filler| found == chunk(key, base, index, filler))
}

fn decode_chunks(key: &[u8], bytes: &[u8]) -> Option<Content> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(CHUNK_BYTES) {
        return None;
    }
    let base = std::str::from_utf8(&bytes[..10]).ok()?.parse().ok()?;
    let whole =
        bytes.chunks(CHUNK_BYTES).enumerate().all(|(index, found)| is_chunk(found, key, base, index as u32));
    let count = (bytes.len() / CHUNK_BYTES) as u32;
    whole.then_some(Content::Chunks { base, count })
}

/// Reads back the strings of a server's reply about a collection: alternating fields and values of a hash, alternating
/// members and scores of a sorted set.
pub fn decode_entries(collection: Collection, key: &[u8], strings: &[&[u8]]) -> Content {
    let mut entries: Vec<(&[u8], Option<&[u8]>)> = match collection {
        Collection::List | Collection::Set => strings.iter().map(|chunk| (*chunk, None)).collect(),
        Collection::Hash => strings.chunks(2).map(|pair| (pair[pair.len() - 1], Some(pair[0]))).collect(),
        Collection::SortedSet => {
            strings.chunks(2).map(|pair| (pair[0], Some(pair[pair.len() - 1]))).collect()
        }
    };
    if !matches!(collection, Collection::List | Collection::SortedSet) {
        // The reply has them in any order.
        entries.sort_unstable();
    }
    let Some((head, _)) = entries.first() else { return Content::Absent };
    let number = |from: usize, to: usize| std::str::from_utf8(head.get(from..to)?).ok()?.parse::<u64>().ok();
    let (Some(base), Some(first)) = (number(0, 10), number(10, 16)) else {
        return Content::Torn(format!("an entry {}", head.escape_ascii()));
    };
    for (at, (found, index)) in entries.iter().enumerate() {
        let wanted = first as u32 + at as u32;
        let is_its = index.is_none_or(|index| index == wanted.to_string().as_bytes());
        if !is_chunk(found, key, base, wanted) || !is_its {
            return Content::Torn(format!(
                "entry {at} of {} is {}, wanted {wanted} since {base}",
                entries.len(),
                found.escape_ascii()
            ));
        }
    }
    Content::Entries { base, first: first as u32, count: entries.len() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(form: Form, key: &[u8], content: &Content) -> Option<Vec<u8>> {
        super::encode(form, key, content, &mut OwnBytes::new(None, 1))
    }

    #[test]
    fn every_content_reads_back_as_itself() {
        for (form, content) in [
            (Form::Stamped, Content::Stamped { seq: 7, len: 5 }),
            (Form::Stamped, Content::Stamped { seq: 1 << 60, len: 100_000 }),
            (Form::Decimal, Content::Number(-12)),
            (Form::Word, Content::Number(i64::MIN)),
            (Form::Chunks, Content::Chunks { base: 12, count: 5 }),
        ] {
            let bytes = encode(form, b"key", &content).unwrap();
            assert_eq!(decode(form, b"key", Some(&bytes)), content);
        }
        assert_eq!(decode(Form::Word, b"key", None), Content::Absent);
    }

    #[test]
    fn a_changed_byte_makes_a_content_torn_or_another_number() {
        let written = Content::Stamped { seq: 123, len: 90 };
        let bytes = encode(Form::Stamped, b"key", &written).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let read = decode(Form::Stamped, b"key", Some(&damaged));
            assert!(matches!(read, Content::Torn(_)), "byte {at}: {read}");
        }
        assert!(matches!(decode(Form::Stamped, b"key", Some(&bytes[..89])), Content::Torn(_)));
        assert!(matches!(decode(Form::Stamped, b"kez", Some(&bytes)), Content::Torn(_)));
    }

    #[test]
    fn half_a_chunk_and_a_chunk_out_of_order_are_torn() {
        let chunks = encode(Form::Chunks, b"key", &Content::Chunks { base: 1, count: 3 }).unwrap();
        let (one, two) = (CHUNK_BYTES, 2 * CHUNK_BYTES);
        let swapped = [&chunks[..one], &chunks[two..], &chunks[one..two]].concat();
        for bytes in [&chunks[..one + 8], &swapped, b""] {
            assert!(matches!(decode(Form::Chunks, b"key", Some(bytes)), Content::Torn(_)));
        }
    }

    #[test]
    fn entries_read_back_and_a_missing_one_is_torn() {
        let chunks: Vec<[u8; CHUNK_BYTES]> =
            (3..9).map(|index| chunk(b"key", 7, index, [index as u8; FILLER_BYTES])).collect();
        let written = Content::Entries { base: 7, first: 3, count: 6 };
        let list: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
        let set: Vec<&[u8]> = list.iter().rev().copied().collect();
        let indexes: Vec<String> = (3..9).map(|index| index.to_string()).collect();
        let scores = indexes.iter().map(String::as_bytes);
        let sorted: Vec<&[u8]> =
            list.iter().zip(scores.clone()).flat_map(|(chunk, score)| [*chunk, score]).collect();
        let hash: Vec<&[u8]> = scores.zip(&set).flat_map(|(field, chunk)| [field, *chunk]).collect();
        assert_eq!(decode_entries(Collection::List, b"key", &list), written);
        assert_eq!(decode_entries(Collection::Set, b"key", &set), written);
        assert_eq!(decode_entries(Collection::SortedSet, b"key", &sorted), written);
        // Each field has the value of another.
        assert!(matches!(decode_entries(Collection::Hash, b"key", &hash), Content::Torn(_)));
        assert_eq!(decode_entries(Collection::Hash, b"key", &[]), Content::Absent);
        for torn in [[&list[..2], &list[3..]].concat(), set] {
            assert!(matches!(decode_entries(Collection::List, b"key", &torn), Content::Torn(_)));
        }
    }
}
