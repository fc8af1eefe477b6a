//! The options of WITH (...) and SET. Each format declares its options here once, each connector in its own file. The checks when a table
//! is created, error texts, and the pages `docs/sql/connectors.md` and `docs/sql/formats.md` are made from these
//! declarations.

use std::collections::HashSet;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sql::Name;

/// The kind of value that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that is not empty.
    Name,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
    /// A number and its unit: `10 s`.
    Time,
    /// One of these.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// Whether a text is a value of this kind.
    fn takes(self, text: &str) -> bool {
        match self {
            Kind::Text => true,
            Kind::Name => !text.is_empty(),
            Kind::Number => text.trim().parse::<i128>().is_ok(),
            Kind::Flag => matches!(text, "true" | "false"),
            Kind::Time => duration(text).is_some(),
            Kind::Choice(all) => all.contains(&text),
        }
    }

    /// For readers: after "wanted" in errors, and in documents.
    fn wanted(self) -> String {
        match self {
            Kind::Text => "a text".to_owned(),
            Kind::Name => "a text that is not empty".to_owned(),
            Kind::Number => "a whole number".to_owned(),
            Kind::Flag => "'true' or 'false'".to_owned(),
            Kind::Time => "a time such as '500 ms' or '10 s'".to_owned(),
            Kind::Choice(all) => match all.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("'{}' or '{last}'", rest.join("', '")),
                _ => format!("'{}'", all.join("")),
            },
        }
    }

    #[cfg(test)]
    pub(crate) fn documented(self) -> String {
        match self {
            Kind::Text | Kind::Name => "text".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::Flag => "`true`, `false`".to_owned(),
            Kind::Time => "time".to_owned(),
            Kind::Choice(all) => format!("`{}`", all.join("`, `")),
        }
    }
}

/// An option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// Its name. `fields.#.min` has a column's name in place of `#`; `properties.*` means every name with that prefix.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The default, if it is a possible value; or `required`, or words in parentheses.
    pub default: &'static str,
    /// What the option does.
    pub meaning: &'static str,
}

pub(crate) const REQUIRED: &str = "required";

/// A format: its options, and its description for the pages.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one or two sentences.
    pub purpose: &'static str,
    /// A statement that creates a table with it. Tests plan it.
    pub example: &'static str,
    /// Its options.
    pub options: &'static [Declared],
}

/// Declares an option.
pub(crate) const fn option(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> Declared {
    Declared { name, kind, default, meaning }
}

impl Declared {
    #[cfg(test)]
    pub(crate) fn has_possible_default(&self) -> bool {
        self.default == REQUIRED || self.default.starts_with('(') || self.kind.takes(self.default)
    }

    fn is_called(&self, name: &str, columns: &HashSet<&str>) -> bool {
        if let Some(prefix) = self.name.strip_suffix('*') {
            return name.len() > prefix.len() && name.starts_with(prefix);
        }
        match self.name.split_once('#') {
            None => self.name == name,
            Some((before, after)) => name
                .strip_prefix(before)
                .and_then(|name| name.strip_suffix(after))
                .is_some_and(|column| columns.contains(column)),
        }
    }
}

use Kind::{Choice, Flag, Name as Filled, Text, Time};

pub(crate) const IDLE: Declared = option(
    "scan.watermark.idle-timeout",
    Time,
    "(SET `table.exec.source.idle-timeout`)",
    "a table without rows for this long stops holding back the watermark of joins and unions",
);
pub(crate) const DEAD_LETTER: Declared = option(
    "dead-letter",
    Filled,
    "(none)",
    "where unreadable records are written, each as a JSON object with its error",
);

/// All formats.
pub(crate) const FORMATS: &[Declaration] = &[
    Declaration {
        name: "csv",
        purpose: "Lines of values with a delimiter between them, in the order of the columns.",
        example: "CREATE TABLE orders (product STRING, pieces INT) WITH (
  'connector' = 'filesystem',
  'path' = 'orders.csv',
  'format' = 'csv',
  'csv.field-delimiter' = ';',
  'csv.null-literal' = 'n/a')",
        options: &[
            option(
                "csv.field-delimiter",
                Text,
                ",",
                "the delimiter between values: one character, or `\\t`, `\\u0001`",
            ),
            option("csv.quote-character", Text, "\"", "the quote around values with delimiters or line ends"),
            option("csv.disable-quote-character", Flag, "false", "whether values are never quoted"),
            option("csv.escape-character", Text, "(none)", "the character that escapes the next one"),
            option("csv.allow-comments", Flag, "false", "whether lines that begin with `#` are skipped"),
            option("csv.null-literal", Text, "(nothing)", "the text of NULL, unless it is quoted"),
            option("csv.ignore-parse-errors", Flag, "false", "skip and count records that cannot be read"),
        ],
    },
    Declaration {
        name: "json",
        purpose: "One object of JSON per line, with a field for each column.",
        example: "CREATE TABLE orders (product STRING, ts TIMESTAMP(3)) WITH (
  'connector' = 'filesystem',
  'path' = 'orders.json',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601')",
        options: &[
            option(
                "json.fail-on-missing-field",
                Flag,
                "false",
                "whether a missing field is an error instead of NULL",
            ),
            option("json.ignore-parse-errors", Flag, "false", "skip and count records that cannot be read"),
            option(
                "json.timestamp-format.standard",
                Choice(&["SQL", "ISO-8601"]),
                "SQL",
                "how timestamps are written: `2020-01-31 23:59:59` or `2020-01-31T23:59:59`; both are read",
            ),
            option(
                "json.encode.decimal-as-plain-number",
                Flag,
                "true",
                "write every digit of a DECIMAL; `false` writes it like Java: `1E+2`, `2.7E-8`",
            ),
        ],
    },
];

/// The prefixes of format options that keys and values of messages may have separately.
const PARTS: [&str; 2] = ["key.", "value."];

/// The options of SET.
pub(crate) const SESSION: &[Declared] = &[
    option("table.local-time-zone", Text, "UTC", "the session's time zone; only UTC is supported"),
    option(
        "table.exec.source.idle-timeout",
        Time,
        "0 ms",
        "the default of `scan.watermark.idle-timeout` for tables created after it; 0 disables it",
    ),
];

/// The names of formats. A test compares them with the declarations.
const FORMAT: Kind = Choice(&["csv", "json"]);

/// The known formats, for an error.
pub fn formats_wanted() -> String {
    FORMAT.wanted()
}

fn of_format(format: &str) -> &'static [Declared] {
    FORMATS.iter().find(|one| one.name == format).map_or(&[], |one| one.options)
}

/// Checks the options that WITH gives a table of a connector with these options of its own; `has_format` says whether
/// the connector takes a format.
pub fn check(
    connector: &str,
    own: &[Declared],
    has_format: bool,
    columns: &[&str],
    given: &[(Name, String)],
) -> Result<()> {
    let mut all: Vec<(String, Declared)> = vec![("connector".to_owned(), option("", Text, "", ""))];
    all.extend(own.iter().map(|one| (one.name.to_owned(), *one)));
    if has_format {
        let mut prefixes = vec![""];
        if connector.ends_with("kafka") {
            prefixes.extend(PARTS);
        }
        for prefix in prefixes {
            let one = (format!("{prefix}format"), option("", FORMAT, "", ""));
            // First, because its value decides which other options exist.
            for (name, value) in given.iter().filter(|(name, _)| name.text == one.0) {
                fits(&one.1, &name.text, value).map_err(|error| error.at(name.position))?;
            }
            all.push(one);
            for (name, format) in given.iter().filter(|(name, _)| name.text.ends_with("format")) {
                // An option without a prefix applies to both parts.
                if prefix.is_empty() || name.text.starts_with(prefix) {
                    let options = of_format(format).iter();
                    all.extend(options.map(|one| (format!("{prefix}{}", one.name), *one)));
                }
            }
        }
    }
    let known: HashSet<&str> = columns.iter().copied().collect();
    let find = |name: &str| {
        let exact = all.iter().find(|(called, _)| called == name);
        exact.or_else(|| all.iter().find(|(_, one)| one.is_called(name, &known)))
    };
    let unknown: Vec<&Name> =
        given.iter().map(|(name, _)| name).filter(|name| find(&name.text).is_none()).collect();
    if let Some(first) = unknown.first() {
        let found: Vec<String> = unknown.iter().map(|name| format!("'{}'", name.text)).collect();
        let names = all.into_iter().map(|(name, _)| name).collect();
        return Err(unsupported(&format!("for '{connector}'"), first, &found.join(", "), names, columns));
    }
    for (name, value) in given {
        if let Some((_, one)) = find(&name.text) {
            fits(one, &name.text, value).map_err(|error| error.at(name.position))?;
        }
    }
    Ok(())
}

/// An error in Flink's words, with the nearest name.
fn unsupported(whose: &str, first: &Name, found: &str, mut names: Vec<String>, columns: &[&str]) -> Error {
    names.sort();
    names.dedup();
    let all = names.join(", ").replace('#', "COLUMN");
    let of_columns = |name: &String| match name.split_once('#') {
        Some((before, after)) => columns.iter().map(|column| format!("{before}{column}{after}")).collect(),
        None => vec![name.clone()],
    };
    let near: Vec<String> = names.iter().flat_map(of_columns).collect();
    Error::refused(format!("Unsupported options found {whose}: {found}. Supported options: {all}"))
        .at(first.position)
        .did_you_mean(&first.text, near.iter().map(String::as_str))
}

fn fits(one: &Declared, name: &str, value: &str) -> Result<()> {
    if one.kind.takes(value) {
        return Ok(());
    }
    Err(Error::invalid(format!("'{name}' = '{value}'"), one.kind.wanted()))
}

/// Checks the option and value of SET.
pub fn check_set(name: &Name, value: &str) -> Result<()> {
    let Some(one) = SESSION.iter().find(|one| one.name == name.text) else {
        let names = SESSION.iter().map(|one| one.name.to_owned()).collect();
        return Err(unsupported("for SET", name, &format!("'{}'", name.text), names, &[]));
    };
    fits(one, &name.text, value).map_err(|error| error.at(name.position))
}

/// A time in an option: a number and its unit.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    Some(match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "ms" => Duration::from_millis(number),
        "s" | "sec" | "second" | "seconds" => Duration::from_secs(number),
        "m" | "min" | "minute" | "minutes" => Duration::from_secs(number.checked_mul(60)?),
        "h" | "hour" | "hours" => Duration::from_secs(number.checked_mul(3600)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, millis) in [("5", 5), ("10 ms", 10), ("2s", 2000), ("1 min", 60_000), ("1 h", 3_600_000)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "s", "1 fortnight", "-1 s", "99999999999999999999"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_option_format_lists_exactly_the_declared_formats() {
        assert!(FORMAT == Choice(&FORMATS.iter().map(|one| one.name).collect::<Vec<_>>().leak()[..]));
        assert_eq!(formats_wanted(), "'csv' or 'json'");
    }

    #[test]
    fn the_default_of_an_option_is_one_of_its_values() {
        for one in FORMATS.iter().flat_map(|one| one.options).chain(SESSION) {
            assert!(one.has_possible_default(), "{one:?}");
        }
    }
}
