//! Runs the parsers of formats on arbitrary bytes, for fuzzing. Nothing panics. The records do not depend on how the
//! bytes are split or where reading began. Writing the values and parsing them again gives equal values. JSON gives the
//! same values in both ways of reading it.

use super::csv::Csv;
use super::json::{Json, Reader};
use super::split::Splitter;
use super::texts::push;
use super::{Format, Wanted, Writing};
use crate::batch::{Batch, Column};
use crate::types::{DataType, Scalar, Type};

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
            let _ = Column::new(&ty).map(|mut column| push(&values[0].0, "c", &ty, &mut column));
        }
        let null = |(text, certain): &(String, bool)| (*certain || *text != csv.null).then(|| text.clone());
        let values: Vec<Option<String>> = values.iter().map(null).collect();
        let writing = Writing::of(Format::Csv(csv.clone()), vec![String::new(); values.len()]);
        let mut written = String::new();
        let row = values.iter().map(|text| {
            let scalar = text.as_ref().map_or(Scalar::Null, |text| Scalar::Text(text.as_bytes()));
            (scalar, &DataType::STRING)
        });
        if writing.record(row, &mut written).is_err() {
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
    let wanted: Vec<Wanted> = ('a'..='z')
        .zip(&types)
        .enumerate()
        .map(|(place, (name, ty))| Wanted {
            field: place,
            column: place,
            name: name.to_string(),
            ty: ty.clone(),
        })
        .collect();
    let names = wanted.iter().map(|wanted| wanted.name.clone()).collect();
    let writing = Writing::of(Format::Json(json.clone()), names);
    let Ok(mut batch) = Batch::new(&types) else { return };
    // By turns both ways are taken: it learns which values need their texts.
    let mut reader = Reader::new(json.clone(), &wanted);
    for record in split(&Format::Json(json), types.len(), input, usize::from(first >> 3)) {
        let Ok(text) = std::str::from_utf8(&record.raw) else { continue };
        batch.clear();
        let directly = reader.read_directly(text, &wanted, &mut batch).then(|| shown(&batch));
        batch.clear();
        let carefully = match reader.read_carefully(text, &wanted, &mut batch) {
            Ok(()) => shown(&batch),
            Err(error) => {
                let known =
                    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.is_object());
                assert!(!known || !error.to_string().contains("no JSON"), "{error}: {text}");
                assert_eq!(directly, None, "{error}: {text}");
                continue;
            }
        };
        assert_eq!(directly.as_ref().unwrap_or(&carefully), &carefully, "{text}");
        let mut written = String::new();
        let row = batch.columns.iter().zip(&types).map(|(column, ty)| (column.get(0), &ty.data));
        assert_eq!(writing.record(row, &mut written), Ok(()));
        assert!(!written.contains('\n'), "a record is a line: {written}");
        batch.clear();
        let again = reader.read(&written, &wanted, &mut batch).map(|()| shown(&batch));
        assert_eq!(again, Ok(carefully), "{written}");
    }
}

/// The first values of all columns.
fn shown(batch: &Batch) -> String {
    batch.columns.iter().map(|column| format!("{:?} ", column.get(0))).collect()
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
