//! JSON functions. A path is `$`, `.name`, `['name']`, `[index]`, each `lax`: a missing part is no match.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::de::{Deserializer, StrRead};
use serde_json::value::RawValue;

use super::Nulls::{Strict, StrictAndMore};
use super::Param::Text;
use super::{Function, Returns, function};
use crate::error::{Error, Result};
use crate::types::{DataType, Value};

const STRING: Returns = Returns::Type(&DataType::STRING);

pub(super) const FUNCTIONS: &[Function] = &[
    function("JSON_VALUE", &[Text, Text], STRING, StrictAndMore, |c| {
        let Some(found) = find(c.text(0), c.text(1))? else { return Ok(Value::Null) };
        Ok(match found.as_bytes().first() {
            Some(b'n' | b'[' | b'{') => Value::Null,
            Some(b'"') => serde_json::from_str::<String>(found).map_or(Value::Null, Value::string),
            // Numbers keep the digits of the text.
            _ => Value::string(found),
        })
    })
    .fails(),
    function("JSON_QUERY", &[Text, Text], STRING, StrictAndMore, |c| {
        Ok(match find(c.text(0), c.text(1))? {
            Some(json) if json.starts_with(['{', '[']) => Value::string(compact(json)),
            _ => Value::Null,
        })
    })
    .fails(),
    function("JSON_EXISTS", &[Text, Text], Returns::Type(&DataType::Boolean), Strict, |c| {
        Ok(Value::Boolean(find(c.text(0), c.text(1))?.is_some_and(|json| json != "null")))
    })
    .fails(),
    function("JSON_QUOTE", &[Text], STRING, Strict, |c| {
        Ok(Value::string(serde_json::Value::from(c.text(0)).to_string()))
    }),
    function("JSON_UNQUOTE", &[Text], STRING, Strict, |c| {
        Ok(match serde_json::from_str::<String>(c.text(0)) {
            Ok(text) => Value::string(text),
            Err(_) => c.args[0].clone(),
        })
    }),
];

/// Whether a text is JSON, of one kind if given.
pub(crate) fn is_json(text: &str, kind: &str) -> bool {
    let Ok(json) = serde_json::from_str::<&RawValue>(text) else { return false };
    let first = json.get().as_bytes().first();
    match kind {
        "OBJECT" => first == Some(&b'{'),
        "ARRAY" => first == Some(&b'['),
        "SCALAR" => !matches!(first, Some(b'{' | b'[')),
        _ => true,
    }
}

/// The text that the path selects; `None` if there is none, or if the text is not JSON.
fn find<'t>(text: &'t str, path: &str) -> Result<Option<&'t str>> {
    let steps = steps(path)?;
    let Ok(mut json) = serde_json::from_str::<&RawValue>(text) else { return Ok(None) };
    for step in steps {
        let next = match &step {
            Step::Name(name) => field(json.get(), name),
            Step::Index(index) => element(json.get(), *index),
        };
        match next {
            Some(next) => json = next,
            None => return Ok(None),
        }
    }
    Ok(Some(json.get()))
}

fn field<'t>(json: &'t str, name: &str) -> Option<&'t RawValue> {
    let mut found = [None];
    let fields = Fields { names: &[name], found: &mut found };
    Deserializer::new(StrRead::new(json)).deserialize_map(fields).ok()?;
    found[0]
}

fn element(json: &str, index: usize) -> Option<&RawValue> {
    Deserializer::new(StrRead::new(json)).deserialize_seq(Element(index)).ok()?
}

/// JSON text without the blanks between its parts.
pub(crate) fn compact(json: &str) -> Cow<'_, str> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    if !json.bytes().any(|byte| blank(&byte)) {
        return Cow::Borrowed(json);
    }
    let (mut quoted, mut escaped) = (false, false);
    let kept = |char: &char| {
        let kept = quoted || !matches!(char, ' ' | '\n' | '\r' | '\t');
        match char {
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && !escaped && *char == '\\';
        kept
    };
    Cow::Owned(json.chars().filter(kept).collect())
}

/// Takes the texts of an object's fields by name; of two fields with one name the last.
pub(crate) struct Fields<'n, 't, N> {
    pub(crate) names: &'n [N],
    pub(crate) found: &'n mut [Option<&'t RawValue>],
}

impl<'t, N: AsRef<str>> Visitor<'t> for Fields<'_, 't, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        let mut likely = 0;
        while let Some(place) = map.next_key_seed(PlaceOf { names: self.names, likely })? {
            match place {
                Some(place) => {
                    likely = place + 1;
                    let value = Some(map.next_value()?);
                    // Several columns cannot have one name.
                    self.found[place] = value;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The place of a name among these. Most objects have their fields in one order, so one place is likely.
pub(crate) struct PlaceOf<'n, N> {
    pub(crate) names: &'n [N],
    pub(crate) likely: usize,
}

impl<'t, N: AsRef<str>> DeserializeSeed<'t> for PlaceOf<'_, N> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'t>>(self, name: D) -> Result<Option<usize>, D::Error> {
        name.deserialize_str(self)
    }
}

impl<N: AsRef<str>> Visitor<'_> for PlaceOf<'_, N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        let is_at = |wanted: &N| wanted.as_ref() == name;
        if self.names.get(self.likely).is_some_and(is_at) {
            return Ok(Some(self.likely));
        }
        Ok(self.names.iter().position(is_at))
    }
}

/// Takes an element of an array by its number.
struct Element(usize);

impl<'t> Visitor<'t> for Element {
    type Value = Option<&'t RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut array: A) -> Result<Option<&'t RawValue>, A::Error> {
        let (mut place, mut found) = (0, None);
        while let Some(element) = array.next_element::<&RawValue>()? {
            if place == self.0 {
                found = Some(element);
            }
            place += 1;
        }
        Ok(found)
    }
}

enum Step {
    Name(String),
    Index(usize),
}

fn steps(path: &str) -> Result<Vec<Step>> {
    let wrong = || {
        Error::evaluation(format!(
            "`{path}` is no JSON path; wanted `$` followed by `.name`, `['name']` or `[index]`"
        ))
    };
    let trimmed = path.trim();
    let trimmed = trimmed.strip_prefix("lax ").unwrap_or(trimmed).trim_start();
    let mut rest = trimmed.strip_prefix('$').ok_or_else(wrong)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            if name.is_empty() || name.contains(['*', '?', '(', ' ']) {
                return Err(wrong());
            }
            steps.push(Step::Name(name.trim_matches('"').to_owned()));
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inside, after) = after.split_once(']').ok_or_else(wrong)?;
            let quoted = inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\''));
            steps.push(match quoted {
                Some(name) => Step::Name(name.to_owned()),
                None => Step::Index(inside.trim().parse().map_err(|_| wrong())?),
            });
            rest = after;
        } else {
            return Err(wrong());
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_path_selects_in_objects_and_arrays() {
        let text = r#"{"a": {"b": [1, {"c d": "x"}]}}"#;
        let at = |path: &str| find(text, path).unwrap();
        assert_eq!(at("$.a.b[0]"), Some("1"));
        assert_eq!(at("lax $.a['b'][1]['c d']"), Some("\"x\""));
        assert_eq!(at("$.a.x"), None);
        assert_eq!(find("no json", "$").unwrap(), None);
        for wrong in ["", "a", "$x", "$[", "$[x]", "$.", "$.*"] {
            assert!(find(text, wrong).is_err(), "{wrong}");
        }
    }
}
