//! Runs the parsers of formats on arbitrary bytes, for fuzzing. Nothing panics. The records do not depend on how the
//! bytes are split or where reading began. Writing the values and parsing them again gives equal values.

use super::csv::Csv;
use super::format::{Format, write_record};
use super::json::{self, Json};
use super::split::Splitter;
use super::texts::{decode, parse};
use crate::types::{DataType, Row, Type, Value};

/// A record: its bytes, its values, its line, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    raw: Vec<u8>,
    values: Option<Vec<(String, bool)>>,
    line: u64,
    end: usize,
}

/// The values of a record, if it can be parsed: a text, and whether it is certainly a text.
fn values(splitter: &Splitter) -> Option<Vec<(String, bool)>> {
    let fields = splitter.csv()?;
    let text = fields.text().ok()?;
    std::str::from_utf8(splitter.record()).ok()?;
    let value = |place| fields.get(text, place).ok().map(|(text, certain)| (text.to_owned(), certain));
    (0..fields.count()).map(value).collect()
}

/// The records of an input that arrives in these pieces.
fn records(mut splitter: Splitter, input: &[u8], piece_bytes: usize) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = 0;
    let mut take = |splitter: &Splitter, end: usize| {
        let (raw, line) = (splitter.record().to_vec(), splitter.line());
        records.push(Record { raw, values: values(splitter), line, end });
    };
    for piece in input.chunks(piece_bytes) {
        let mut rest = piece;
        while !rest.is_empty() {
            let Ok((taken, whole)) = splitter.push(rest) else { return records };
            assert!(taken > 0 || whole, "a splitter continues");
            (rest, at) = (&rest[taken..], at + taken);
            if whole {
                assert!(splitter.is_between(), "reading may begin after any record");
                take(&splitter, at);
            }
        }
    }
    if splitter.finish() {
        take(&splitter, at);
    }
    assert!(!splitter.finish(), "an input ends once");
    records
}

/// Splits an input as a whole, in pieces, and from the end of each record.
fn split(format: &Format, columns: usize, input: &[u8], piece_bytes: usize) -> Vec<Record> {
    let splitter = |begins| Splitter::new(format.csv(), columns, begins);
    let all = records(splitter(true), input, input.len().max(1));
    let in_pieces = records(splitter(true), input, piece_bytes.max(1));
    assert_eq!(all, in_pieces, "in pieces of {piece_bytes} bytes");
    // Not from all: that would be quadratic.
    for (number, record) in all.iter().enumerate().take(16) {
        let rest = records(splitter(false), &input[record.end..], piece_bytes.max(1));
        let both = all[number + 1..].iter().zip(&rest);
        assert_eq!(rest.len(), all.len() - number - 1, "from byte {}", record.end);
        for (one, other) in both {
            assert_eq!((&one.raw, &one.values), (&other.raw, &other.values), "from byte {}", record.end);
        }
    }
    all
}

/// CSV with options chosen by the first four bytes.
pub fn csv(bytes: &[u8]) {
    let Some(([first, second, third, piece], input)) = bytes.split_first_chunk::<4>() else { return };
    let choose = |byte: u8, from: &[Option<u8>]| from[usize::from(byte) % from.len()];
    let csv = Csv {
        delimiter: choose(*first, &[Some(b','), Some(b';'), Some(b'\t'), Some(1)]).unwrap_or(b','),
        quote: choose(first >> 4, &[Some(b'"'), Some(b'\''), None]),
        escape: choose(*second, &[None, Some(b'\\'), Some(b'|')]),
        comments: second & 128 != 0,
        null: ["", "NULL", "n", "0"][usize::from(third & 3)].to_owned(),
    };
    if csv.contradiction().is_some() {
        return;
    }
    let columns = usize::from(third >> 2 & 3) + 1;
    let found = split(&Format::Csv(csv.clone()), columns, input, usize::from(piece % 17));
    let mut again = Splitter::new(Some(&csv), columns, true);
    for record in found {
        let Some(values) = record.values else { continue };
        for ty in types() {
            let _ = (parse(&values[0].0, "c", &ty), decode(&values[0].0, "c"));
        }
        let null = |(text, certain): &(String, bool)| (*certain || *text != csv.null).then(|| text.clone());
        let values: Vec<Option<String>> = values.iter().map(null).collect();
        let row: Row = values.iter().map(|text| text.as_ref().map_or(Value::Null, Value::string)).collect();
        let mut written = String::new();
        let texts = vec![DataType::STRING; row.len()];
        if write_record(&Format::Csv(csv.clone()), &[], &texts, &row, &mut written).is_err() {
            assert!(csv.quote.is_none(), "with quotes all can be written: {values:?}");
            continue;
        }
        if values.len() == 1 && written.is_empty() && columns != 1 {
            // An empty line, which is not a record of several columns.
            continue;
        }
        written.push('\n');
        let read = again.message(written.as_bytes()).ok().and_then(|()| self::values(&again));
        let read: Option<Vec<Option<String>>> = read.map(|read| read.iter().map(null).collect());
        assert_eq!(read.as_ref(), Some(&values), "{written:?} of {csv:?}");
    }
}

fn types() -> Vec<Type> {
    use DataType::*;
    let decimal = |precision, scale| Decimal { precision, scale };
    let all = [
        Boolean,
        TinyInt,
        Int,
        BigInt,
        Float,
        Double,
        Bytes,
        Date,
        Time(0),
        Time(3),
        Timestamp(0),
        Timestamp(3),
        Timestamp(6),
        TimestampLtz(3),
        decimal(38, 0),
        decimal(38, 38),
        decimal(5, 2),
        DataType::STRING,
    ];
    all.into_iter().map(Type::nullable).collect()
}

/// JSON lines with fields `a` to `z` for all types.
pub fn json(bytes: &[u8]) {
    let Some((first, input)) = bytes.split_first() else { return };
    let json = Json { fail_on_missing: first & 1 != 0, iso: first & 2 != 0, plain: first & 4 == 0 };
    let types = types();
    let names: Vec<String> =
        (b'a'..=b'z').take(types.len()).map(|byte| char::from(byte).to_string()).collect();
    let wanted = || names.iter().map(String::as_str).zip(&types);
    let data: Vec<DataType> = types.iter().map(|ty| ty.data.clone()).collect();
    for record in split(&Format::Json(json.clone()), types.len(), input, usize::from(first >> 3)) {
        let Ok(text) = std::str::from_utf8(&record.raw) else { continue };
        let row = match json::read(&json, text, wanted()) {
            Ok(row) => row,
            Err(error) => {
                let known =
                    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.is_object());
                assert!(!known || !error.to_string().contains("no JSON"), "{error}: {text}");
                continue;
            }
        };
        let mut written = String::new();
        json::write(&json, &names, &data, &row, &mut written);
        assert!(!written.contains('\n'), "a record is a line: {written}");
        let shown = |row: &Row| format!("{row:?}");
        let again =
            json::read(&json, &written, wanted()).map(|row| shown(&row)).map_err(|error| error.to_string());
        assert_eq!(again, Ok(shown(&row)), "{written}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn pieces(parts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            8 => proptest::sample::select(parts).prop_map(|part| part.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        (any::<[u8; 4]>(), proptest::collection::vec(part, 0..24))
            .prop_map(|(head, parts)| [head.to_vec(), parts.concat()].concat())
    }

    const CSV: &[&str] = &[
        "a", "n", "0", "NULL", ",", ";", "\t", "\u{1}", "\"", "\"", "'", "\\", "\n", "\r", "\r\n", "#",
        "\u{feff}", "é", " ", "\"\"", "1.5", "\"NULL\"", "\"n\"", "\"0\"", "\\n", "\\0", "\n#",
    ];
    const JSON: &[&str] = &[
        "{",
        "}",
        "{\"",
        "\"a\"",
        "\"b\"",
        "\"e\"",
        "\"f\"",
        "\"o\"",
        "\"r\"",
        "\"",
        ":",
        ",",
        "[",
        "]",
        "1",
        "-1.50",
        "1e400",
        "\"NaN\"",
        "true",
        "null",
        "\\",
        "\\u00e9",
        "\n",
        "\r\n",
        " ",
        "\u{feff}",
        "é",
        "{\"c\":1.0}\n",
        "{\"p\":12e-1,\"k\":\"2020-01-01T00:00:00.5Z\",\"g\":\"AP8=\"}\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_csv_records_or_an_error(bytes in pieces(CSV)) {
            super::csv(&bytes);
        }

        #[test]
        fn any_bytes_are_json_lines_or_an_error(bytes in pieces(JSON)) {
            super::json(&bytes);
        }
    }
}
