//! One key and value as a line of JSON, for `dump` and `load`.
//!
//! `{"key":"greeting","value":"hello"}`; bytes that are not UTF-8 as `key_base64` and `value_base64`. `tag` and
//! `expires_at` (Unix milliseconds) when they are not 0 and not absent. `table` (or `table_base64`) when it is in a named table.
//!
//! `collection` (`unordered`, `by-value` or `by-key`) says that the value is the root of a collection with elements in this order. The
//! lines that follow, with `element` (or `element_base64`) and a value, are those.
//!
//! A line with `index` (`hash` or `ordered`) and without a key says that there is such a table. It comes before the table's keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use duramen::{ElementOrder, IndexKind};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tag: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    element_base64: Option<String>,
}

const ORDERS: [(&str, ElementOrder); 3] = [
    ("unordered", ElementOrder::Unordered),
    ("by-value", ElementOrder::ByValue),
    ("by-key", ElementOrder::ByKey),
];

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(tag: &u8) -> bool {
    *tag == 0
}

/// Text as it is, other bytes as base64.
pub fn split(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

fn join(name: &str, text: Option<&String>, base64: Option<&String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|e| format!("{name}_base64: {e}")),
        (None, None) => Err(format!("found neither {name} nor {name}_base64, wanted one of them")),
        (Some(_), Some(_)) => Err(format!("found both {name} and {name}_base64, wanted one of them")),
    }
}

impl Entry {
    pub fn new(table: Option<&[u8]>, key: &[u8], value: &[u8], tag: u8, expires_at: Option<u64>) -> Self {
        let ((key, key_base64), (value, value_base64)) = (split(key), split(value));
        let (table, table_base64) = table.map_or((None, None), split);
        Self { table, table_base64, key, key_base64, value, value_base64, tag, expires_at, ..Self::default() }
    }

    /// The same for a root, whose collection has this order.
    pub fn of_root(self, order: ElementOrder) -> Self {
        let name = ORDERS.iter().find(|(_, known)| *known == order).map(|(name, _)| (*name).to_owned());
        Self { collection: name, ..self }
    }

    /// An element of the root before it.
    pub fn of_element(name: &[u8], value: &[u8], expires_at: Option<u64>) -> Self {
        let ((element, element_base64), (value, value_base64)) = (split(name), split(value));
        Self { element, element_base64, value, value_base64, expires_at, ..Self::default() }
    }

    /// A table of this name exists.
    pub fn of_table(name: &[u8], index: IndexKind) -> Self {
        let (table, table_base64) = split(name);
        Self { table, table_base64, index: Some(index.to_string()), ..Self::default() }
    }

    /// The name of the table, if it is a named one.
    pub fn table(&self) -> Result<Option<Vec<u8>>, String> {
        if self.table.is_none() && self.table_base64.is_none() {
            return Ok(None);
        }
        join("table", self.table.as_ref(), self.table_base64.as_ref()).map(Some)
    }

    /// Whether the line only declares a table.
    pub fn is_table(&self) -> bool {
        self.index.is_some()
            && self.table.is_some() | self.table_base64.is_some()
            && self.key.is_none() & self.key_base64.is_none()
            && self.value.is_none() & self.value_base64.is_none()
    }

    /// Whether it is an element.
    pub fn is_element(&self) -> bool {
        self.element.is_some() || self.element_base64.is_some()
    }

    /// Its name; an error if it has fields of other lines.
    pub fn element(&self) -> Result<Vec<u8>, String> {
        let is_more = self.table.is_some() | self.table_base64.is_some()
            || self.key.is_some() | self.key_base64.is_some()
            || self.index.is_some() | self.collection.is_some()
            || self.tag != 0;
        if is_more {
            return Err(
                "found element, which is allowed only in a line with a value and an expiry time".to_owned()
            );
        }
        join("element", self.element.as_ref(), self.element_base64.as_ref())
    }

    /// The order of the collection whose root it is.
    pub fn order(&self) -> Result<Option<ElementOrder>, String> {
        let Some(name) = &self.collection else { return Ok(None) };
        let known = ORDERS.iter().find(|(known, _)| known == name);
        known
            .map(|(_, order)| Some(*order))
            .ok_or_else(|| format!("collection is {name:?}, wanted unordered, by-value or by-key"))
    }

    pub fn key(&self) -> Result<Vec<u8>, String> {
        join("key", self.key.as_ref(), self.key_base64.as_ref())
    }

    pub fn value(&self) -> Result<Vec<u8>, String> {
        join("value", self.value.as_ref(), self.value_base64.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_json() {
        for bytes in [&b""[..], b"text \"quoted\"\n", &[0, 255, 128, 10]] {
            let line = serde_json::to_string(&Entry::new(Some(bytes), bytes, bytes, 1, Some(5))).unwrap();
            assert!(!line.contains('\n'));
            let entry: Entry = serde_json::from_str(&line).unwrap();
            assert_eq!(entry.table().unwrap().unwrap(), bytes);
            assert_eq!(entry.key().unwrap(), bytes);
            assert_eq!(entry.value().unwrap(), bytes);
            assert_eq!((entry.tag, entry.expires_at), (1, Some(5)));
        }
    }
}
