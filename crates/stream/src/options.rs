//! What may be said in WITH (...) and SET. Each connector and format declares its options here once: what is checked when
//! a table is created, the words of errors and the tables of `docs/stream.md` are made from this.

use std::collections::HashSet;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sql::Name;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
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
    /// Whether a text is such a value.
    fn takes(self, text: &str) -> bool {
        match self {
            Kind::Text => true,
            Kind::Number => text.trim().parse::<i128>().is_ok(),
            Kind::Flag => matches!(text, "true" | "false"),
            Kind::Time => duration(text).is_some(),
            Kind::Choice(all) => all.contains(&text),
        }
    }

    /// For people: after "wanted", and in documents.
    fn wanted(self) -> String {
        match self {
            Kind::Text => "a text".to_owned(),
            Kind::Number => "a whole number".to_owned(),
            Kind::Flag => "'true' or 'false'".to_owned(),
            Kind::Time => "a time such as '500 ms' or '10 s'".to_owned(),
            Kind::Choice(all) => match all.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("'{}' or '{last}'", rest.join("', '")),
                _ => format!("'{}'", all.join("")),
            },
        }
    }

    fn documented(self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
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
    /// Its name. `fields.#.min` has the name of a column at `#`; `properties.*` is all that begins so.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What holds without it, if that is one of its values; or `required`, or words in parentheses.
    pub default: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

const REQUIRED: &str = "required";

const fn option(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Declared {
    Declared { name, kind, default, meaning }
}

impl Declared {
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

use Kind::{Choice, Flag, Number, Text, Time};

const IDLE: Declared = option(
    "scan.watermark.idle-timeout",
    Time,
    "(SET `table.exec.source.idle-timeout`)",
    "after so long without rows the table does not hold up the watermark of joins and unions",
);
const DEAD_LETTER: Declared = option(
    "dead-letter",
    Text,
    "(none)",
    "where records go that cannot be read, each as an object of JSON with what was wrong",
);
const HOSTNAME: Declared = option("hostname", Text, "127.0.0.1", "the server");
const SERVER_PORT: Declared = option("port", Number, "6379", "its port");
const PASSWORD: Declared = option("password", Text, "(none)", "its password");
const DATABASE: Declared = option("database", Number, "0", "the number of the database");
const GUARANTEE: Declared = option(
    "sink.delivery-guarantee",
    Choice(&["exactly-once", "at-least-once", "none"]),
    "at-least-once",
    "`exactly-once` writes behind each checkpoint, in one unit, and needs a job with a store",
);
const LOOKUP_REFRESH: Declared =
    option("lookup.refresh", Time, "(once)", "how often a table of lookup joins is read again");
const KEY: Declared = option("key", Text, "(the table's name)", "what keys begin with, before a `:`");
const VALUE: Declared = option(
    "value",
    Choice(&["hash", "json"]),
    "hash",
    "a hash with a field for each column that is not NULL, or the row as a string of JSON",
);
const TOPIC: Declared = option("topic", Text, REQUIRED, "the topic");
const SERVERS: Declared = option("properties.bootstrap.servers", Text, REQUIRED, "its brokers");
const PROPERTIES: Declared = option(
    "properties.*",
    Text,
    "(librdkafka's)",
    "any setting of librdkafka that the connector has not itself; reading is of what is committed, unless \
     `properties.isolation.level` says otherwise",
);
const KAFKA_GUARANTEE: Declared = option(
    "sink.delivery-guarantee",
    Choice(&["exactly-once", "at-least-once", "none"]),
    "(`exactly-once` in a job with a store)",
    "one transaction behind each checkpoint, or at once",
);
const PREFIX: Declared =
    option("sink.transactional-id-prefix", Text, "duramen", "what ids of transactions begin with");
const PARTITIONER: Declared =
    option("sink.partitioner", Choice(&["default"]), "default", "by the key, as Kafka does it");
const FIELDS_INCLUDE: Declared = option(
    "value.fields-include",
    Choice(&["ALL", "EXCEPT_KEY"]),
    "ALL",
    "whether values have the key's columns",
);

/// The options of connectors, beside `connector` and, of those that have formats, `format`.
const CONNECTORS: &[(&str, &[Declared])] = &[
    ("blackhole", &[]),
    (
        "datagen",
        &[
            option("number-of-rows", Number, "(no end)", "how many rows there are"),
            option(
                "rows-per-second",
                Number,
                "(as fast as they are taken)",
                "how many rows come in a second",
            ),
            option("seed", Number, "1", "what random values begin with"),
            option("fields.#.kind", Choice(&["random", "sequence"]), "random", "how values are made"),
            option("fields.#.min", Number, "(the type's)", "the least random number"),
            option("fields.#.max", Number, "(the type's)", "the greatest random number"),
            option("fields.#.start", Number, "0", "the first number of a sequence"),
            option("fields.#.end", Number, "(the type's)", "the last one: the source ends with it"),
            option("fields.#.length", Number, "100", "characters of a random text"),
            IDLE,
        ],
    ),
    ("duramen", &[DATABASE, KEY, VALUE, LOOKUP_REFRESH]),
    (
        "filesystem",
        &[
            option(
                "path",
                Text,
                REQUIRED,
                "a file, or a directory whose files are read in the order of their names",
            ),
            option(
                "source.monitor-interval",
                Time,
                "(read once)",
                "how often is looked for new files and lines",
            ),
            DEAD_LETTER,
            IDLE,
        ],
    ),
    (
        "kafka",
        &[
            TOPIC,
            SERVERS,
            option("properties.group.id", Text, "(none)", "the consumer group"),
            PROPERTIES,
            option("key.fields", Text, "(none)", "the columns of keys: `a;b`; with `key.format`"),
            FIELDS_INCLUDE,
            option(
                "scan.startup.mode",
                Choice(&[
                    "group-offsets",
                    "earliest-offset",
                    "latest-offset",
                    "timestamp",
                    "specific-offsets",
                ]),
                "group-offsets",
                "where reading begins; `group-offsets` are those of `properties.group.id`",
            ),
            option(
                "scan.startup.timestamp-millis",
                Number,
                "(none)",
                "milliseconds since 1970, for `timestamp`",
            ),
            option(
                "scan.startup.specific-offsets",
                Text,
                "(none)",
                "`partition:0,offset:42;partition:1,offset:300`, for `specific-offsets`",
            ),
            option(
                "scan.bounded.mode",
                Choice(&["unbounded", "latest-offset"]),
                "unbounded",
                "`latest-offset`: the job ends where the topic ended when it began",
            ),
            option(
                "scan.topic-partition-discovery.interval",
                Time,
                "5 min",
                "how often new partitions are looked for",
            ),
            KAFKA_GUARANTEE,
            PREFIX,
            PARTITIONER,
            DEAD_LETTER,
            IDLE,
        ],
    ),
    (
        "nexmark",
        &[
            option("events", Number, "(no end)", "how many events the whole stream has"),
            option("seed", Number, "1", "what random values begin with"),
            IDLE,
        ],
    ),
    ("print", &[option("print-identifier", Text, "(none)", "what rows begin with")]),
    ("redis", &[HOSTNAME, SERVER_PORT, PASSWORD, DATABASE, KEY, VALUE, LOOKUP_REFRESH, GUARANTEE]),
    (
        "redis-stream",
        &[
            HOSTNAME,
            SERVER_PORT,
            PASSWORD,
            DATABASE,
            option("stream", Text, "(the table's name)", "the key of the stream"),
            option("from", Text, "0", "the id behind which reading begins; `$`: what comes from now on"),
            option(
                "csv.ignore-parse-errors",
                Flag,
                "false",
                "entries that cannot be read are left out and counted",
            ),
            option("json.ignore-parse-errors", Flag, "false", "the same"),
            IDLE,
        ],
    ),
    (
        "socket",
        &[
            option("hostname", Text, "127.0.0.1", "where to connect, or to listen"),
            option("port", Number, "(none)", "the port of TCP; or else `path`"),
            option("path", Text, "(none)", "a Unix socket"),
            option(
                "mode",
                Choice(&["connect", "listen"]),
                "connect",
                "`connect`: the input ends with the connection; `listen`: others connect, and the input never ends",
            ),
            DEAD_LETTER,
            IDLE,
        ],
    ),
    ("upsert-kafka", &[TOPIC, SERVERS, PROPERTIES, FIELDS_INCLUDE, KAFKA_GUARANTEE, PREFIX, PARTITIONER]),
];

/// The options of formats.
const FORMATS: &[(&str, &[Declared])] = &[
    (
        "csv",
        &[
            option(
                "csv.field-delimiter",
                Text,
                ",",
                "what stands between values: one character, or `\\t`, `\\u0001`",
            ),
            option(
                "csv.quote-character",
                Text,
                "\"",
                "what stands around values with delimiters or ends of lines",
            ),
            option("csv.disable-quote-character", Flag, "false", "whether nothing is quoted"),
            option("csv.escape-character", Text, "(none)", "what takes its meaning from the next character"),
            option("csv.allow-comments", Flag, "false", "whether lines that begin with `#` are left out"),
            option("csv.null-literal", Text, "(nothing)", "what stands for NULL, unless it is quoted"),
            option(
                "csv.ignore-parse-errors",
                Flag,
                "false",
                "records that cannot be read are left out and counted",
            ),
        ],
    ),
    (
        "json",
        &[
            option(
                "json.fail-on-missing-field",
                Flag,
                "false",
                "whether a field that is not there is an error, not NULL",
            ),
            option(
                "json.ignore-parse-errors",
                Flag,
                "false",
                "records that cannot be read are left out and counted",
            ),
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
                "DECIMAL with all its digits; with `false` as Java writes it: `1E+2`, `2.7E-8`",
            ),
        ],
    ),
];

/// The options of formats that keys and values of messages may have each for themselves.
const PARTS: [&str; 2] = ["key.", "value."];

/// What SET takes.
const SESSION: &[Declared] = &[
    option("table.local-time-zone", Text, "UTC", "the session's time zone; there is UTC"),
    option(
        "table.exec.source.idle-timeout",
        Time,
        "0 ms",
        "`scan.watermark.idle-timeout` of tables that are created behind it and do not say it; 0: none",
    ),
];

/// The names of formats. A test holds them against the declarations.
const FORMAT: Kind = Choice(&["csv", "json"]);

/// The formats that there are, for an error.
pub fn formats_wanted() -> String {
    FORMAT.wanted()
}

/// The options that a connector has itself.
pub fn of_connector(connector: &str) -> &'static [Declared] {
    CONNECTORS.iter().find(|(name, _)| *name == connector).map_or(&[], |(_, options)| *options)
}

fn of_format(format: &str) -> &'static [Declared] {
    FORMATS.iter().find(|(name, _)| *name == format).map_or(&[], |(_, options)| *options)
}

/// Checks the options that WITH gives a table of a connector, which has a format if `has_format` says so.
pub fn check(connector: &str, has_format: bool, columns: &[&str], given: &[(Name, String)]) -> Result<()> {
    let mut all: Vec<(String, Declared)> = vec![("connector".to_owned(), option("", Text, "", ""))];
    all.extend(of_connector(connector).iter().map(|one| (one.name.to_owned(), *one)));
    if has_format {
        let mut prefixes = vec![""];
        if connector.ends_with("kafka") {
            prefixes.extend(PARTS);
        }
        for prefix in prefixes {
            let one = (format!("{prefix}format"), option("", FORMAT, "", ""));
            // First, since it says which other options there are.
            for (name, value) in given.iter().filter(|(name, _)| name.text == one.0) {
                fits(&one.1, &name.text, value).map_err(|error| error.at(name.position))?;
            }
            all.push(one);
            for (name, format) in given.iter().filter(|(name, _)| name.text.ends_with("format")) {
                // What is said without a prefix goes for all.
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

/// As Flink says it, with the nearest name.
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

/// Checks what SET says.
pub fn check_set(name: &Name, value: &str) -> Result<()> {
    let Some(one) = SESSION.iter().find(|one| one.name == name.text) else {
        let names = SESSION.iter().map(|one| one.name.to_owned()).collect();
        return Err(unsupported("for SET", name, &format!("'{}'", name.text), names, &[]));
    };
    fits(one, &name.text, value).map_err(|error| error.at(name.position))
}

/// A time as options have it: a number and its unit.
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

/// The tables of `docs/stream.md`.
pub fn document() -> String {
    let mut out = String::new();
    let mut table = |title: &str, options: &[Declared]| {
        out.push_str(&format!("\n{title}\n\n"));
        if options.is_empty() {
            out.push_str("No options.\n");
            return;
        }
        out.push_str("| option | value | default | meaning |\n|---|---|---|---|\n");
        for one in options {
            let default = match one.default.strip_prefix('(').and_then(|words| words.strip_suffix(')')) {
                Some(words) => words.to_owned(),
                None if one.default == REQUIRED => "**required**".to_owned(),
                None => format!("`{}`", one.default),
            };
            let name = one.name.replace('#', "COLUMN");
            out.push_str(&format!(
                "| `{name}` | {} | {default} | {} |\n",
                one.kind.documented(),
                one.meaning
            ));
        }
    };
    for (name, options) in CONNECTORS {
        table(&format!("Connector `{name}`:"), options);
    }
    for (name, options) in FORMATS {
        table(&format!("Format `{name}`:"), options);
    }
    table("`SET`:", SESSION);
    out
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
    fn formats_that_are_named_are_those_that_are_declared() {
        assert!(FORMAT == Choice(&FORMATS.iter().map(|(name, _)| *name).collect::<Vec<_>>().leak()[..]));
        assert_eq!(formats_wanted(), "'csv' or 'json'");
    }

    #[test]
    fn what_holds_without_an_option_is_one_of_its_values() {
        let all = CONNECTORS.iter().chain(FORMATS).flat_map(|(_, options)| *options).chain(SESSION);
        for one in all.filter(|one| one.default != REQUIRED && !one.default.starts_with('(')) {
            assert!(one.kind.takes(one.default), "{one:?}");
        }
    }
}
