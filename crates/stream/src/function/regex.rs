//! Regular expressions. The syntax is Java's without look-around and back references, which take time that no bound holds for.
//! `\d`, `\s`, `\w` and `\b` are of ASCII, as in Java; the library's are of Unicode, so they are written out ([`ascii`]).

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;

use super::Nulls::{Strict, StrictAndMore};
use super::Param::{Integer, Text};
use super::{Function, Returns, function};
use crate::error::{Error, Result};
use crate::types::{DataType, Value};

const STRING: Returns = Returns::Type(&DataType::STRING);
const INT: Returns = Returns::Type(&DataType::Int);

pub(super) const FUNCTIONS: &[Function] = &[
    function("REGEXP", &[Text, Text], Returns::Type(&DataType::Boolean), Strict, |c| {
        with(c.text(1), |regex| Value::Boolean(regex.is_match(c.text(0))))
    })
    .fails(),
    function("REGEXP_EXTRACT", &[Text, Text, Integer], STRING, StrictAndMore, |c| {
        let group = c.int_or(2, 0);
        with(c.text(1), |regex| {
            let captures =
                usize::try_from(group).ok().and_then(|group| regex.captures(c.text(0))?.get(group));
            captures.map_or(Value::Null, |found| Value::string(found.as_str()))
        })
    })
    .optional(1)
    .fails(),
    function("REGEXP_REPLACE", &[Text, Text, Text], STRING, Strict, |c| {
        with(c.text(1), |regex| Value::string(regex.replace_all(c.text(0), braced(c.text(2)).as_str())))
    })
    .fails(),
    function("REGEXP_COUNT", &[Text, Text], INT, Strict, |c| {
        with(c.text(1), |regex| Value::Int(regex.find_iter(c.text(0)).count() as i64))
    })
    .fails(),
    function("REGEXP_SUBSTR", &[Text, Text], STRING, StrictAndMore, |c| {
        with(c.text(1), |regex| {
            regex.find(c.text(0)).map_or(Value::Null, |found| Value::string(found.as_str()))
        })
    })
    .fails(),
    function("REGEXP_INSTR", &[Text, Text], INT, Strict, |c| {
        with(c.text(1), |regex| {
            let begin =
                regex.find(c.text(0)).map(|found| c.text(0)[..found.start()].chars().count() as i64 + 1);
            Value::Int(begin.unwrap_or(0))
        })
    })
    .fails(),
];

/// Java's `$1` ends after the digits; the library's takes letters that follow as well.
pub(super) fn braced(replacement: &str) -> String {
    let mut out = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '$' if chars.peek().is_some_and(char::is_ascii_digit) => {
                out.push_str("${");
                while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                    out.push(digit);
                }
                out.push('}');
            }
            '$' => out.push_str("$$"),
            '\\' => match chars.next() {
                Some('$') => out.push_str("$$"),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

/// A pattern whose classes of letters are Java's, in the library's syntax.
fn ascii(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            // The library takes a class within a class for their union, as it is meant here.
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('s') => out.push_str(r"[\t-\r ]"),
            Some('S') => out.push_str(r"[^\t-\r ]"),
            Some('w') => out.push_str("[0-9A-Z_a-z]"),
            Some('W') => out.push_str("[^0-9A-Z_a-z]"),
            Some('b') => out.push_str(r"(?-u:\b)"),
            other => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    out
}

/// The compiled pattern.
pub(super) fn compile(pattern: &str) -> Result<Regex> {
    Regex::new(&ascii(pattern))
        .map_err(|error| Error::evaluation(format!("`{pattern}` is no regular expression: {error}")))
}

/// Runs with the compiled pattern; patterns are kept, since most are literals.
fn with(pattern: &str, run: impl FnOnce(&Regex) -> Value) -> Result<Value> {
    // 64: more patterns than queries have; one that takes patterns from data starts anew.
    const KEPT_MAX: usize = 64;
    thread_local! {
        static KEPT: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
    }
    KEPT.with_borrow_mut(|kept| {
        if !kept.contains_key(pattern) {
            let regex = compile(pattern)?;
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(pattern.to_owned(), regex);
        }
        Ok(kept.get(pattern).map_or(Value::Null, run))
    })
}

/// Whether the whole text matches a pattern of LIKE: `%` any text, `_` any character, `escape` before either itself.
pub(crate) fn like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool> {
    Ok(Like::read(pattern, escape)?.matches(text))
}

#[derive(Debug, Clone)]
enum LikePart {
    Any,
    One,
    Char(char),
}

/// A pattern of LIKE that was read once, for many texts.
#[derive(Debug, Clone)]
pub(crate) struct Like(Vec<LikePart>);

impl Like {
    pub(super) fn read(pattern: &str, escape: Option<char>) -> Result<Like> {
        let mut parts = Vec::new();
        let mut chars = pattern.chars();
        while let Some(char) = chars.next() {
            parts.push(match char {
                _ if Some(char) == escape => match chars.next() {
                    Some(next) if next == '%' || next == '_' || Some(next) == escape => LikePart::Char(next),
                    _ => {
                        return Err(Error::evaluation(format!(
                            "the LIKE pattern `{pattern}` ends in its escape"
                        )));
                    }
                },
                '%' => LikePart::Any,
                '_' => LikePart::One,
                other => LikePart::Char(other),
            });
        }
        Ok(Like(parts))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        // Greedy with one place to come back to: linear but for the last `%`.
        let (mut rest, mut part, mut back) = (text.chars(), 0, None);
        loop {
            let mut next = rest.clone();
            let char = next.next();
            match (self.0.get(part), char) {
                (Some(LikePart::Any), _) => {
                    back = Some((part, rest.clone()));
                    part += 1;
                    continue;
                }
                (Some(LikePart::One), Some(_)) => {
                    rest = next;
                    part += 1;
                    continue;
                }
                (Some(LikePart::Char(wanted)), Some(char)) if *wanted == char => {
                    rest = next;
                    part += 1;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((any, mut from)) = back else { return false };
            if from.next().is_none() {
                return false;
            }
            rest = from.clone();
            part = any + 1;
            back = Some((any, from));
        }
    }
}

/// The regular expression of a pattern of SIMILAR TO: LIKE's wildcards and a regular expression's operators.
pub(super) fn similar_pattern(pattern: &str, escape: Option<char>) -> String {
    let mut regex = String::from("^(?s:");
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if Some(char) == escape => {
                let next = chars.next().unwrap_or(char);
                if !next.is_alphanumeric() {
                    regex.push('\\');
                }
                regex.push(next);
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '.' | '^' | '$' | '\\' => {
                regex.push('\\');
                regex.push(char);
            }
            other => regex.push(other),
        }
    }
    regex.push_str(")$");
    regex
}

/// Whether the whole text matches a pattern of SIMILAR TO.
pub(crate) fn similar(text: &str, pattern: &str, escape: Option<char>) -> Result<bool> {
    let regex = similar_pattern(pattern, escape);
    Ok(with(&regex, |regex| Value::Boolean(regex.is_match(text)))?.as_truth() == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_matches_whole_texts() {
        for (text, pattern, escape, wanted) in [
            ("abc", "a%", None, true),
            ("abc", "%b%", None, true),
            ("abc", "_b_", None, true),
            ("abc", "a", None, false),
            ("a%c", "a\\%c", Some('\\'), true),
            ("abc", "a\\%c", Some('\\'), false),
            ("", "%", None, true),
            ("mississippi", "m%iss%ip%", None, true),
            ("mississippi", "m%iss%ipx", None, false),
            ("äöü", "_ö_", None, true),
        ] {
            assert_eq!(like(text, pattern, escape).unwrap(), wanted, "{text} LIKE {pattern}");
        }
        assert!(like("a", "a\\", Some('\\')).is_err());
    }

    #[test]
    fn similar_is_like_with_operators() {
        assert!(similar("abc", "(a|x)%", None).unwrap());
        assert!(similar("a.c", "a.c", None).unwrap());
        assert!(!similar("abc", "a.c", None).unwrap());
        assert!(!similar("abc", "b", None).unwrap());
    }

    #[test]
    fn classes_are_of_ascii() {
        for (pattern, text, wanted) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{661}", false),
            (r"^\w+$", "aZ_9", true),
            (r"^\w+$", "ä", false),
            (r"^\W$", "ä", true),
            (r"^[\w-]+$", "a-b", true),
            (r"^[^\w-]+$", "a-b", false),
            (r"^[\D]$", "\u{661}", true),
            (r"^[^\d\s]+$", "ab c", false),
            (r"^\s+$", " \t\n\u{b}\u{c}\r", true),
            (r"^\s+$", "\u{a0}", false),
            (r"\bb\b", "äb", true),
            (r"\bb\b", "ab", false),
            (r"^\\d$", r"\d", true),
            (r"^(?i)AB.$", "abö", true),
        ] {
            let found = with(pattern, |regex| Value::Boolean(regex.is_match(text))).unwrap();
            assert_eq!(found, Value::Boolean(wanted), "{pattern} in {text}");
        }
        assert!(with(r"(a)\1", |_| Value::Null).is_err());
        assert!(with(r"a\", |_| Value::Null).is_err());
    }

    #[test]
    fn groups_are_replaced_as_java_writes_them() {
        assert_eq!(braced("$1x"), "${1}x");
        assert_eq!(braced("a\\$1"), "a$$1");
        assert_eq!(braced("5$"), "5$$");
    }
}
