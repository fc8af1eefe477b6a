//! Contents of keys as small numbers: two keys hold the same if their numbers are the same.

use crate::collections::KINDS;
use std::collections::HashMap;

/// The number of a content.
pub type Id = u32;

/// The content of a key that is not there.
pub const ABSENT: Id = 0;

/// The tag of what lies at a place for collections. The value of a root is its kind, the number of its collection (8 bytes,
/// little-endian), and what nobody else writes.
pub const ROOT_TAG: u8 = 5;

/// All contents that were ever seen or written.
#[derive(Debug, Default)]
pub struct Values {
    contents: Vec<(Vec<u8>, u8)>,
    ids: HashMap<(Vec<u8>, u8), Id>,
}

impl Values {
    /// The number of a value with its tag.
    pub fn id(&mut self, value: &[u8], tag: u8) -> Id {
        let content = (value.to_vec(), tag);
        if let Some(&id) = self.ids.get(&content) {
            return id;
        }
        self.contents.push(content.clone());
        let id = self.contents.len() as Id;
        self.ids.insert(content, id);
        id
    }

    /// The number of the collection that a root names whose content is `id`.
    #[must_use]
    pub fn collection(&self, id: Id) -> Option<u64> {
        let (value, tag) = self.contents.get((id as usize).checked_sub(1)?)?;
        let is_root = *tag == ROOT_TAG && value.first().is_some_and(|kind| usize::from(*kind) < KINDS.len());
        let number = value.get(1..9).filter(|_| is_root)?;
        Some(u64::from_le_bytes(number.try_into().ok()?))
    }

    /// The number of what `id` becomes by an update; `None` when it is too short, or absent.
    pub fn updated(&mut self, id: Id, at: usize, bytes: &[u8]) -> Option<Id> {
        let (value, tag) = self.contents.get((id as usize).checked_sub(1)?)?;
        let end = at + bytes.len();
        if end > value.len() {
            return None;
        }
        let (mut value, tag) = (value.clone(), *tag);
        value[at..end].copy_from_slice(bytes);
        Some(self.id(&value, tag))
    }
}
