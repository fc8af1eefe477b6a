//! One key and value as a line of JSON, for `dump` and `load`.
//!
//! `{"key":"greeting","value":"hello"}`; bytes that are not UTF-8 as `key_base64` and `value_base64`. `tag` and
//! `expires_at` (Unix milliseconds) when they are not 0 and not absent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Entry {
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
}

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
        (None, None) => Err(format!("neither {name} nor {name}_base64 is given")),
        (Some(_), Some(_)) => Err(format!("both {name} and {name}_base64 are given")),
    }
}

impl Entry {
    pub fn new(key: &[u8], value: &[u8], tag: u8, expires_at: Option<u64>) -> Self {
        let ((key, key_base64), (value, value_base64)) = (split(key), split(value));
        Self { key, key_base64, value, value_base64, tag, expires_at }
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
            let line = serde_json::to_string(&Entry::new(bytes, bytes, 1, Some(5))).unwrap();
            assert!(!line.contains('\n'));
            let entry: Entry = serde_json::from_str(&line).unwrap();
            assert_eq!(entry.key().unwrap(), bytes);
            assert_eq!(entry.value().unwrap(), bytes);
            assert_eq!((entry.tag, entry.expires_at), (1, Some(5)));
        }
    }
}
