//! Regular expressions with Java's syntax, without look-around and back references: their running time has no bound.
//! `\d`, `\s`, `\w` and `\b` are ASCII, as in Java. Those of the library are Unicode, so they are written out
//! ([`ascii`]).

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Match, Regex};

use super::Nulls::{Strict, StrictAndMore};
use super::Param::{Integer, Text};
use super::string::bounded;
use super::{Function, Returns, function};
use crate::error::{Error, Result};
use crate::types::{DataType, Value};

const STRING: Returns = Returns::Type(&DataType::STRING);
const INT: Returns = Returns::Type(&DataType::Int);

pub(super) const FUNCTIONS: &[Function] = &[
    function("REGEXP", &[Text, Text], Returns::Type(&DataType::Boolean), Strict, |c| {
        if c.text(1).is_empty() {
            return Ok(Value::Boolean(false));
        }
        with(c.text(1), Value::Boolean(false), |regex| Ok(Value::Boolean(regex.is_match(c.text(0)))))
    })
    .fails(),
    function("REGEXP_EXTRACT", &[Text, Text, Integer], STRING, StrictAndMore, |c| {
        let group = c.int_or(2, 0);
        with(c.text(1), Value::Null, |regex| {
            let captures =
                usize::try_from(group).ok().and_then(|group| regex.captures(c.text(0))?.get(group));
            Ok(captures.map_or(Value::Null, |found| Value::string(found.as_str())))
        })
    })
    .optional(1)
    .fails(),
    function("REGEXP_REPLACE", &[Text, Text, Text], STRING, StrictAndMore, |c| {
        with(c.text(1), Value::Null, |regex| {
            let mut out = String::new();
            replace(regex, c.text(0), c.text(2), &mut out)?;
            Ok(Value::string(out))
        })
    })
    .fails(),
    function("REGEXP_COUNT", &[Text, Text], INT, StrictAndMore, |c| {
        with(c.text(1), Value::Null, |regex| Ok(Value::Int(matches(regex, c.text(0)).count() as i64)))
    })
    .fails(),
    function("REGEXP_SUBSTR", &[Text, Text], STRING, StrictAndMore, |c| {
        with(c.text(1), Value::Null, |regex| {
            Ok(regex.find(c.text(0)).map_or(Value::Null, |found| Value::string(found.as_str())))
        })
    })
    .fails(),
    function("REGEXP_INSTR", &[Text, Text], INT, StrictAndMore, |c| {
        with(c.text(1), Value::Null, |regex| {
            let begin =
                regex.find(c.text(0)).map(|found| c.text(0)[..found.start()].chars().count() as i64 + 1);
            Ok(Value::Int(begin.unwrap_or(0)))
        })
    })
    .fails(),
];

/// The matches of a pattern, as Java finds them: an empty match may directly follow another match.
fn matches<'t>(regex: &Regex, text: &'t str) -> impl Iterator<Item = Match<'t>> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let found = regex.find_at(text, from?)?;
        from = match found.is_empty() {
            false => Some(found.end()),
            // One character on; there is none after the last.
            true => text[found.end()..].chars().next().map(|char| found.end() + char.len_utf8()),
        };
        Some(found)
    })
}

/// Appends a text with every match replaced. The replacement is literal: Flink does not interpret `$1` in it.
pub(super) fn replace(regex: &Regex, text: &str, to: &str, out: &mut String) -> Result<()> {
    let (begin, mut from) = (out.len(), 0);
    for found in matches(regex, text) {
        bounded(out.len() - begin + found.start() - from + to.len(), "REGEXP_REPLACE")?;
        out.push_str(&text[from..found.start()]);
        out.push_str(to);
        from = found.end();
    }
    bounded(out.len() - begin + text.len() - from, "REGEXP_REPLACE")?;
    out.push_str(&text[from..]);
    Ok(())
}

/// A pattern with Java's character classes, in the library's syntax.
fn ascii(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            // The library takes a class within a class as a union, which is meant here.
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

/// The library's errors for patterns that Java refuses too. Its other errors are for patterns that only Java knows,
/// such as look-around.
const WRONG: [&str; 9] = [
    "unclosed group",
    "unopened group",
    "unclosed character class",
    "repetition operator missing expression",
    "incomplete escape sequence",
    "unclosed counted repetition",
    "invalid repetition count range",
    "repetition quantifier expects a valid decimal",
    "invalid character class range",
];

/// The reason why a pattern does not compile.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is not a regular expression.
    Wrong,
    /// It may be valid in Java: the library's error.
    Unknown(String),
}

/// The compiled pattern.
pub(super) fn compile(pattern: &str) -> Result<Regex, Refused> {
    Regex::new(&ascii(pattern)).map_err(|error| {
        let text = error.to_string();
        if WRONG.iter().any(|wrong| text.contains(wrong)) {
            Refused::Wrong
        } else {
            Refused::Unknown(format!("`{pattern}` is no regular expression that is known here: {text}"))
        }
    })
}

/// Runs with the compiled pattern, or returns `wrong` if it does not compile. Patterns are cached, because most are
/// literals.
fn with(pattern: &str, wrong: Value, run: impl FnOnce(&Regex) -> Result<Value>) -> Result<Value> {
    // 64: more patterns than queries have. A query with patterns from data fills the cache, which is then cleared.
    const KEPT_MAX: usize = 64;
    thread_local! {
        static KEPT: RefCell<HashMap<String, Option<Regex>>> = RefCell::new(HashMap::new());
    }
    KEPT.with_borrow_mut(|kept| {
        if !kept.contains_key(pattern) {
            let regex = match compile(pattern) {
                Ok(regex) => Some(regex),
                Err(Refused::Wrong) => None,
                Err(Refused::Unknown(message)) => return Err(Error::evaluation(message)),
            };
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(pattern.to_owned(), regex);
        }
        match kept.get(pattern) {
            Some(Some(regex)) => run(regex),
            _ => Ok(wrong),
        }
    })
}

/// Whether the whole text matches a pattern of LIKE: `%` matches any text, `_` any character; `escape` precedes a
/// literal one.
pub(crate) fn like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool> {
    Ok(Like::read(pattern, escape)?.matches(text))
}

#[derive(Debug, Clone)]
enum LikePart {
    Any,
    One,
    Char(char),
}

/// A pattern of LIKE, parsed once for many texts.
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
        // Greedy with a single backtracking point: linear except for the last `%`.
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
    match with(&regex, Value::Null, |regex| Ok(Value::Boolean(regex.is_match(text))))?.as_truth() {
        Some(matches) => Ok(matches),
        None => Err(Error::evaluation(format!("`{pattern}` is no pattern of SIMILAR TO"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_matches_the_whole_text() {
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
    fn similar_to_matches_as_like_and_has_operators() {
        assert!(similar("abc", "(a|x)%", None).unwrap());
        assert!(similar("a.c", "a.c", None).unwrap());
        assert!(!similar("abc", "a.c", None).unwrap());
        assert!(!similar("abc", "b", None).unwrap());
    }

    #[test]
    fn character_classes_contain_only_ascii() {
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
            let found = with(pattern, Value::Null, |regex| Ok(Value::Boolean(regex.is_match(text)))).unwrap();
            assert_eq!(found, Value::Boolean(wanted), "{pattern} in {text}");
        }
        // Java has back references and look-around: they are refused as unsupported, not as invalid patterns.
        for pattern in [r"(a)\1", "(?=a)b", "(?<!a)b"] {
            assert!(with(pattern, Value::Null, |_| Ok(Value::Null)).is_err(), "{pattern}");
        }
        for pattern in [r"a\", "(", ")", "[a", "*", "a{2", "a{3,2}", "[b-a]", "a{x}"] {
            let found = with(pattern, Value::Int(7), |_| Ok(Value::Null)).unwrap();
            assert_eq!(found, Value::Int(7), "{pattern}");
        }
    }

    #[test]
    fn matches_are_found_and_replaced_as_java_does() {
        for (pattern, text, to, wanted) in [
            ("a*", "aaa", "X", "XX"),
            ("a*", "baab", "X", "XbXXbX"),
            ("", "äb", "-", "-ä-b-"),
            ("(o)(b)", "foob", "$2$1", "fo$2$1"),
            ("b", "abc", "\\", "a\\c"),
        ] {
            let mut out = String::new();
            replace(&compile(pattern).unwrap(), text, to, &mut out).unwrap();
            assert_eq!(out, wanted, "{pattern} in {text}");
        }
    }
}
