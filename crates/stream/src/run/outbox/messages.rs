//! Messages packed into chunks of bytes, as the job's store holds them.

use crate::error::{Error, Result};

/// Bytes of messages in one chunk; more only for a message that is larger.
const CHUNK_BYTES: usize = 64 << 10;

/// Waiting messages, in chunks of bytes. Each message is the length of its key and the length of its value, then both.
/// A length has four bytes, little-endian; all ones mean that there is none.
#[derive(Debug, Default)]
pub struct Messages {
    /// The chunks.
    pub chunks: Vec<Vec<u8>>,
    /// Bytes of all chunks.
    pub bytes: usize,
}

const NONE: u32 = u32::MAX;

impl Messages {
    /// Appends a message.
    pub fn push(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) {
        let bytes = 8 + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        if self.chunks.last().is_none_or(|chunk| chunk.len() + bytes > CHUNK_BYTES) {
            self.chunks.push(Vec::with_capacity(bytes));
        }
        self.bytes += bytes;
        let Some(chunk) = self.chunks.last_mut() else { return };
        append(chunk, key, value);
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// Appends a message to a chunk.
pub fn append(chunk: &mut Vec<u8>, key: Option<&[u8]>, value: Option<&[u8]>) {
    let length = |part: Option<&[u8]>| part.map_or(NONE, |part| part.len() as u32).to_le_bytes();
    let parts = [&length(key)[..], &length(value), key.unwrap_or_default(), value.unwrap_or_default()];
    parts.iter().for_each(|part| chunk.extend_from_slice(part));
}

/// A key and a value.
pub type Message<'m> = (Option<&'m [u8]>, Option<&'m [u8]>);

/// The messages of a chunk.
pub fn messages(mut chunk: &[u8]) -> impl Iterator<Item = Result<Message<'_>>> {
    std::iter::from_fn(move || {
        if chunk.is_empty() {
            return None;
        }
        let message = split(&mut chunk);
        if message.is_none() {
            chunk = &[];
        }
        Some(message.ok_or_else(|| Error::connector("the messages of a checkpoint are damaged")))
    })
}

/// Takes a message off the front; `None` if it is truncated.
fn split<'c>(chunk: &mut &'c [u8]) -> Option<Message<'c>> {
    let length = |chunk: &mut &'c [u8]| {
        let (length, rest) = chunk.split_first_chunk::<4>()?;
        *chunk = rest;
        Some(u32::from_le_bytes(*length))
    };
    let (key, value) = (length(chunk)?, length(chunk)?);
    let part = |chunk: &mut &'c [u8], length: u32| {
        if length == NONE {
            return Some(None);
        }
        let (part, rest) = chunk.split_at_checked(length as usize)?;
        *chunk = rest;
        Some(Some(part))
    };
    Some((part(chunk, key)?, part(chunk, value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_truncated_ones_are_reported() {
        type Sent = (Option<Vec<u8>>, Option<Vec<u8>>);
        let mut sent: Vec<Sent> = vec![
            (None, Some(b"value".to_vec())),
            (Some(b"key".to_vec()), None),
            (Some(Vec::new()), Some(Vec::new())),
            (None, None),
            (Some(b"k".to_vec()), Some(vec![7; CHUNK_BYTES + 1])),
        ];
        sent.extend((0..5000u32).map(|number| (None, Some(format!("message {number}").into_bytes()))));
        let mut kept = Messages::default();
        assert!(kept.is_empty());
        sent.iter().for_each(|(key, value)| kept.push(key.as_deref(), value.as_deref()));
        assert!(kept.chunks.len() > 2);
        assert_eq!(kept.bytes, kept.chunks.iter().map(Vec::len).sum::<usize>());
        let mut read = Vec::new();
        for chunk in &kept.chunks {
            for message in messages(chunk) {
                let (key, value) = message.unwrap();
                read.push((key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec)));
            }
        }
        assert_eq!(read, sent);
        let chunk = &kept.chunks[0];
        for cut in 1..13 {
            assert!(messages(&chunk[..cut]).last().unwrap().is_err(), "{cut}");
        }
    }
}
