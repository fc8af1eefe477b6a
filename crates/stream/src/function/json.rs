//! JSON functions. A path is `$`, `.name`, `['name']`, `[index]`, each `lax`: what is not there is no match.

use serde_json::Value as Json;

use super::Nulls::{Strict, StrictAndMore};
use super::Param::Text;
use super::{Function, Returns, function};
use crate::error::{Error, Result};
use crate::types::{DataType, Value};

const STRING: Returns = Returns::Type(&DataType::STRING);

pub(super) const FUNCTIONS: &[Function] = &[
    function("JSON_VALUE", &[Text, Text], STRING, StrictAndMore, |c| {
        Ok(match find(c.text(0), c.text(1))? {
            None | Some(Json::Null | Json::Array(_) | Json::Object(_)) => Value::Null,
            Some(Json::String(text)) => Value::string(text),
            Some(other) => Value::string(other.to_string()),
        })
    })
    .fails(),
    function("JSON_QUERY", &[Text, Text], STRING, StrictAndMore, |c| {
        Ok(match find(c.text(0), c.text(1))? {
            Some(json @ (Json::Array(_) | Json::Object(_))) => Value::string(json.to_string()),
            _ => Value::Null,
        })
    })
    .fails(),
    function("JSON_EXISTS", &[Text, Text], Returns::Type(&DataType::Boolean), Strict, |c| {
        Ok(Value::Boolean(find(c.text(0), c.text(1))?.is_some_and(|json| !json.is_null())))
    })
    .fails(),
    function("JSON_QUOTE", &[Text], STRING, Strict, |c| {
        Ok(Value::string(Json::String(c.text(0).to_owned()).to_string()))
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
    match (serde_json::from_str::<Json>(text), kind) {
        (Err(_), _) => false,
        (Ok(json), "OBJECT") => json.is_object(),
        (Ok(json), "ARRAY") => json.is_array(),
        (Ok(json), "SCALAR") => !json.is_object() && !json.is_array(),
        (Ok(_), _) => true,
    }
}

/// What the path leads to; none if nothing, or if the text is not JSON.
fn find(text: &str, path: &str) -> Result<Option<Json>> {
    let steps = steps(path)?;
    let Ok(mut json) = serde_json::from_str::<Json>(text) else { return Ok(None) };
    for step in steps {
        let next = match &step {
            Step::Name(name) => json.get_mut(name.as_str()).map(Json::take),
            Step::Index(index) => json.get_mut(*index).map(Json::take),
        };
        match next {
            Some(next) => json = next,
            None => return Ok(None),
        }
    }
    Ok(Some(json))
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
    fn paths_lead_into_objects_and_arrays() {
        let text = r#"{"a": {"b": [1, {"c d": "x"}]}}"#;
        let at = |path: &str| find(text, path).unwrap().map(|json| json.to_string());
        assert_eq!(at("$.a.b[0]").as_deref(), Some("1"));
        assert_eq!(at("lax $.a['b'][1]['c d']").as_deref(), Some("\"x\""));
        assert_eq!(at("$.a.x"), None);
        assert_eq!(find("no json", "$").unwrap(), None);
        for wrong in ["", "a", "$x", "$[", "$[x]", "$.", "$.*"] {
            assert!(find(text, wrong).is_err(), "{wrong}");
        }
    }
}
