//! Contents of keys as small numbers: two keys hold the same if their numbers are the same.

use std::collections::HashMap;

/// The number of a content.
pub type Id = u32;

/// The content of a key that is not there.
pub const ABSENT: Id = 0;

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
